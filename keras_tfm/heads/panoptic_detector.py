"""DETR's head for panoptic segmentation: beside the class and the box of each query, its mask.

Carion et al. 2020, "End-to-End Object Detection with Transformers", section 4.3.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.heads.base import SetPredictor
from keras_tfm.heads.object_detector import box_head, check_classes
from keras_tfm.heads.panoptic_loss import PanopticSetLoss
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import masked_softmax
from keras_tfm.layers.normalization import GroupNormalization
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.private.keras import change_value

EPSILON = 1e-5
NUM_GROUPS = 8  # of channels that are normalised together


class PanopticDetector(SetPredictor):
    """A `DETR` as `backbone` and a head: images in, Q objects out, each with a mask.

    Outputs: `logits` (B, Q, num_classes + 1) and `boxes` (B, Q, 4) as in an `ObjectDetector`, and `masks` (B,
    Q, rows, columns), the logits of each pixel's being in a query's mask. Each query attends to
    the encoded map, by one softmax over the cells of all heads; its weights, beside the projected map, go
    through convolutions, and are enlarged step by step to the backbone's earlier maps, which are added. It
    uses the last `num_maps` maps; the first of them gives the masks their size. `predictions` (B, Q, L
    (num_classes + 5) + rows columns) are, side by side, the logits and boxes of all decoder blocks and the
    last one's masks; train the `learner`, which gives them, with the loss of `loss_of_training`. The authors
    first train a detector, and then this head alone, on the detector as it is.

    Raises:
        ValueError: for a backbone of fewer maps or, as the channels are normalised in groups of equal size,
            for a width and heads that do not fit.

    >>> backbone = keras_tfm.models.DETR.from_size("tiny", image_size=32, num_heads=8)
    >>> model = keras_tfm.heads.PanopticDetector(backbone, num_classes=3, num_maps=3)
    >>> outputs = model({"images": np.zeros((1, 32, 32, 3))})
    >>> outputs["logits"].shape, outputs["boxes"].shape, outputs["masks"].shape
    (TensorShape([1, 16, 4]), TensorShape([1, 16, 4]), TensorShape([1, 16, 8, 8]))
    """

    def __init__(
        self,
        backbone: keras.Model,
        num_classes: int,
        num_maps: int = 4,
        name: str = "panoptic_detector",
        **kwargs: Any,
    ) -> None:
        check_classes(num_classes)
        earlier = earlier_maps(backbone, num_maps)
        states = backbone.output["decoder_outputs"]  # (B, L, Q, D)
        logits = keras.layers.Dense(num_classes + 1, name="class_head")(states)
        boxes = box_head(states.shape[-1], "sigmoid")(states)
        features = backbone.get_layer("encoder_projection").output  # (B, rows, columns, D)
        encoded, cells = backbone.output["encoder_sequence_output"], backbone.context["mask"]
        weights = query_maps(backbone.config, states[:, -1], encoded, cells, features.shape[1:3])
        x = query_features(weights, features, earlier, backbone.config, groups_of)
        masks = Convolution(1, 3, name="mask_output")(x)
        masks = ops.reshape(masks, (-1, states.shape[2], *masks.shape[1:3]))
        outputs = {"logits": logits[:, -1], "boxes": boxes[:, -1], "masks": masks}
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        self.num_maps = num_maps
        self.grid = tuple(masks.shape[2:])
        self.predictions = of_queries(logits, boxes, masks)

    def loss_of_training(self):
        """The loss of what `learner` gives, for a set of masks."""
        return PanopticSetLoss(self.grid, self.num_classes)


def of_queries(logits, boxes, masks):
    """All predictions of each query, (B, Q, L (C + 5) + rows columns): logits (B, L, Q, C + 1) and boxes (B,
    L, Q, 4) of all blocks, and masks (B, Q, rows, columns).
    """
    objects = ops.moveaxis(ops.concatenate([logits, boxes], axis=-1), 1, 2)  # (B, Q, L, C + 5)
    rows = [ops.reshape(x, (-1, x.shape[1], x.shape[2] * x.shape[3])) for x in (objects, masks)]
    return ops.concatenate(rows, axis=-1)


def earlier_maps(backbone, num_maps):
    """The last `num_maps` maps of a `backbone` before its last one, the last of them first.

    ValueError if it has fewer.
    """
    maps = list(backbone.maps)
    if not 1 <= num_maps <= len(maps):
        raise ValueError(f"`num_maps` must be 1 to {len(maps)}, the backbone's; it is {num_maps}.")
    return maps[len(maps) - num_maps : -1][::-1]


def query_maps(config, states, encoded, cells, grid):
    """The weights with which queries (B, Q, D) attend to an encoded map (B, N, D) of the `grid` (rows,
    columns): (B, Q, rows, columns, heads).

    The sum over the cells and heads is 1; where `cells` (B, N) are False, at padding, there is no weight.
    """
    num_heads, num_queries, dim = config.num_heads, states.shape[1], states.shape[2]
    query = Dense(dim, name="mask_query")(states)
    key = Dense(dim, name="mask_key")(encoded)
    width = dim // num_heads
    query, key = (ops.reshape(x, (-1, x.shape[1], num_heads, width)) for x in (query, key))
    scores = ops.einsum("bqhk,bnhk->bqnh", query * width**-0.5, key)
    scores = ops.reshape(scores, (-1, num_queries, encoded.shape[1] * num_heads))
    is_shown = ops.repeat(cells, num_heads, axis=1)[:, None]  # (B, 1, N H)
    weights = ops.cast(masked_softmax(scores, is_shown), encoded.dtype)
    return ops.reshape(weights, (-1, num_queries, *grid, num_heads))


def begin_by_likeness(model, num_cells):
    """Let fresh queries of `model` attend to the cells that are like them, and its masks begin by that.

    The kernels of `mask_query` and `mask_key` are set to the identity, so that scores are products of a state
    and cells; and the first convolution's kernel is multiplied by the `num_cells` where it reads the weights,
    whose sum is 1, as beside features of deviation 1 they would hardly be seen.
    """
    for name in ("mask_query", "mask_key"):
        change_value(model.get_layer(name).kernel, lambda value: ops.eye(*value.shape, dtype=value.dtype))
    kernel = model.get_layer("mask_block_0").convolution.kernel  # (3, 3, D + heads, D + heads)
    num_heads = model.backbone.config.num_heads
    is_weight = np.arange(kernel.shape[2]) >= kernel.shape[2] - num_heads
    scale = np.where(is_weight, num_cells, 1.0)[:, None]
    change_value(kernel, lambda value: value * ops.cast(scale, value.dtype))


def query_features(weights, features, earlier, config, groups_of):
    """The features of each query's mask (B Q, rows, columns, .), of the size of the last of the `earlier`
    maps, by the `weights` (B, Q, rows, columns, heads) of queries and a map of `features`. `groups_of` gives
    the number of groups of a width in which channels are normalised.
    """
    num_queries = weights.shape[1]
    x = ops.concatenate([of_each(features, num_queries), ops.reshape(weights, (-1, *weights.shape[2:]))], -1)
    # (B Q, rows, columns, D + heads)
    x = _normalized(x, x.shape[-1], config.activation, groups_of, "mask_block_0")
    width = config.dim // 2
    x = _normalized(x, width, config.activation, groups_of, "mask_block_1")
    for i, small in enumerate(earlier):
        side = Convolution(width, 1, name=f"mask_side_{i}")(small)
        x = resize_nearest(x, side.shape[1:3]) + of_each(side, num_queries)
        width //= 2
        x = _normalized(x, width, config.activation, groups_of, f"mask_stage_{i}")
    return x


def of_each(x, num_queries):
    """A map (B, rows, columns, D), once for each query: (B Q, rows, columns, D)."""
    return ops.reshape(ops.tile(x[:, None], (1, num_queries, 1, 1, 1)), (-1, *x.shape[1:]))


def _normalized(x, width, activation, groups_of, name):
    norm = GroupNormalization(groups_of(width), epsilon=EPSILON)
    return Convolution(width, 3, norm=norm, activation=activation, use_bias=True, name=name)(x)


def groups_of(width):
    """The number of groups of `width` channels that are normalised together: eight, or one for each channel
    of a narrower map, as in the authors' code. ValueError where they do not divide it.
    """
    groups = min(NUM_GROUPS, width)
    if not groups or width % groups:
        raise ValueError(
            f"`dim` + `num_heads` must be a multiple of {NUM_GROUPS}, and so each width above that halving "
            f"`dim` gives; a width is {width}."
        )
    return groups
