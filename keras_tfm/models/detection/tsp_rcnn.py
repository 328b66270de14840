"""TSP-RCNN of Sun et al. 2021, "Rethinking Transformer-based Set Prediction for Object Detection": an encoder
of what `RoIAlign` reads in proposals.

    pyramid --> objectness and corrections of anchors --> best boxes that overlap little
       |                                                    |
       +------------------> regions of the boxes <----------+
                                   |                        |
                          projection --+--> norm --> encoder --> ...
    sines of the boxes ----------------+              |
              +---- positions of queries and keys ----+

Proposals, (x, y, width, height) and corners, are encoded by sines, which are also the positions in all
blocks. The network of proposals is Faster R-CNN's (Ren et al. 2015) with a tower each for objectness and
corrections, whose norms each level has for itself. Deviates from the authors' code in that there is no level
beyond the pyramid's, and that the best anchors of all levels together are candidates, theirs of each level.
`heads.RegionSetDetector` trains it. There are no weights to read.
"""

import dataclasses
import math
from typing import Annotated, Any

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Multiple, Rate, Refusal, Size
from keras_tfm.layers.boxes import NonMaximumSuppression, centred, corners_of, corners_of_masks, moved
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.detection.backbones import TINY, AroundBackbone
from keras_tfm.models.detection.base import EPSILON, CoordinateSines, Queries, start_of
from keras_tfm.models.detection.istr import in_pixels
from keras_tfm.models.detection.pyramid import PyramidRoIAlign, pyramid_of, strides_of
from keras_tfm.models.detection.refinement import best_of
from keras_tfm.models.detection.tsp_fcos import ChoosesByScores, encoder_block

SCALES, RATIOS = (1, 2 ** (1 / 3), 2 ** (2 / 3)), (0.5, 1.0, 2.0)  # of anchors; a ratio is height / width
NO_WEIGHTS = (1.0, 1.0, 1.0, 1.0)  # of an anchor's corrections
MOST_OVERLAP = 0.7  # of two proposals


@dataclasses.dataclass(frozen=True)
class TSPRCNNHeadConfig(Config):
    """Regions have `region_size` x `region_size` places of `region_dim` numbers."""

    region_size: Size = 7
    region_dim: Size = 256
    dim: Annotated[Size, Multiple(16)] = 512  # the sines and cosines of eight numbers
    num_layers: Depth = 6
    num_heads: Heads = 8
    intermediate_dim: Size = 2048
    dropout: Rate = 0.0


@dataclasses.dataclass(frozen=True)
class TSPRCNNConfig(TSPRCNNHeadConfig, AroundBackbone):
    """`num_queries` boxes are chosen of the `num_candidates` that most likely are objects. The pyramid's
    levels have `region_dim` channels; an anchor is `anchor_cells` cells of its level wide, or up to 1.6 times
    as many. All other fields come from `TSPRCNNHeadConfig`.
    """

    num_queries: Queries = 700
    num_candidates: Queries = 2000
    anchor_cells: Size = 8
    num_convolutions: Size = 2

    def __post_init__(self):
        super().__post_init__()
        if self.num_candidates < self.num_queries:
            raise Refusal(
                "num_candidates", f"at least `num_queries`, {self.num_queries}", self.num_candidates
            )


class TSPRCNNHead(ConfiguredModel):
    """Regions and their boxes in, one vector for each proposal out.

    Inputs: `regions` (B, N, rows, columns, C), as of `RoIAlign`; `boxes` (B, N, 4), (x, y, width, height)
    around the centre as parts of the image's sides; and `region_mask` (B, N), False where there is no
    proposal, by default True. Output: `sequence_output` (B, N, D).

    >>> model = keras_tfm.models.TSPRCNNHead.from_size("tiny")
    >>> inputs = {"regions": np.ones((1, 5, 3, 3, 32)), "boxes": np.full((1, 5, 4), 0.5)}
    >>> model(inputs)["sequence_output"].shape
    TensorShape([1, 5, 64])
    """

    config_class = TSPRCNNHeadConfig

    def __init__(self, config: TSPRCNNHeadConfig, name: str = "tsp_rcnn_head", **kwargs: Any) -> None:
        size = config.region_size, config.region_size, config.region_dim
        inputs = {
            "regions": keras.Input((None, *size), name="regions"),
            "boxes": keras.Input((None, 4), name="boxes"),
            "region_mask": keras.Input((None,), dtype="bool", name="region_mask"),
        }
        trace = Trace()
        x = region_encoder(config)(trace, *inputs.values())
        super().__init__(config, inputs, {"sequence_output": x}, trace, name=name, **kwargs)


class TSPRCNN(ChoosesByScores):
    """Images in, one vector for each of Q proposals out.

    Inputs as of `DETR`. Outputs: `sequence_output` (B, Q, D); `proposals` (B, Q, 4), (x, y, width, height)
    around the centre as parts of the image's sides, padding apart, the likeliest first, and `proposal_mask`
    (B, Q), 1.0 or, where there are no more, 0.0; `dense_logits` (B, N, 1), of an object, `dense_corrections`
    and `dense_anchors` (B, N, 4) of all anchors, level by level, row by row, and `dense_proposals` (B, N, 4),
    the anchors thus corrected, within the image.

    >>> model = keras_tfm.models.TSPRCNN.from_size("tiny", image_size=32)
    >>> outputs = model({"images": np.zeros((1, 32, 32, 3))})
    >>> outputs["proposals"].shape, outputs["dense_logits"].shape
    (TensorShape([1, 32, 4]), TensorShape([1, 756, 1]))
    """

    config_class = TSPRCNNConfig

    def __init__(self, config: TSPRCNNConfig, name: str = "tsp_rcnn", **kwargs: Any) -> None:
        backbone, pixel_mask, trace = start_of(config)
        levels = pyramid_of(backbone.maps, config.region_dim)
        strides = strides_of(levels, pixel_mask.shape[1])
        extent = corners_of_masks(pixel_mask[:, None])[..., 2:]
        logits, corrections = _objectness(config, levels)
        pixels = _anchors(config, levels, strides)
        anchors = ops.divide(pixels, ops.concatenate([extent, extent], axis=-1))  # (B, N, 4)
        if anchors.shape[1] < config.num_candidates:
            most = f"at most {anchors.shape[1]}, the anchors of all levels"
            raise Refusal("num_candidates", most, config.num_candidates)
        dense = {"dense_logits": logits, "dense_corrections": corrections, "dense_anchors": anchors}
        corners = corners_of(moved(anchors, ops.stop_gradient(corrections), NO_WEIGHTS))
        proposals = dense["dense_proposals"] = centred(ops.clip(corners, 0.0, 1.0))
        read = PyramidRoIAlign(config.region_size, strides, name="regions")
        apart = NonMaximumSuppression(MOST_OVERLAP, name="proposal_suppression")
        encode = region_encoder(config)

        def answers(trace, scores, mask=None):
            boxes, is_proposal = _best_apart(config, apart, scores, proposals)
            if mask is not None:
                is_proposal = ops.logical_and(is_proposal, mask)
            x = encode(trace, read(levels, in_pixels(boxes, extent)), boxes, is_proposal)
            mask = ops.cast(is_proposal, "float32")
            return {"sequence_output": x, "proposals": boxes, "proposal_mask": mask}

        outputs = answers(trace, ops.cast(logits[..., 0], "float32")) | dense
        inputs = {"images": backbone.input["images"], "pixel_mask": pixel_mask}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.maps = backbone.maps
        self.answers = answers


def region_encoder(config):
    """A function of a `Trace`, regions (B, N, rows, columns, C), boxes (B, N, 4) and a mask (B, N) that gives
    vectors (B, N, D).
    """
    sines = CoordinateSines(config.dim // 8, name="position")
    projection = Dense(config.dim, name="region_projection")
    position_projection = Dense(config.dim, name="position_projection")
    token_norm = LayerNormalization(EPSILON, name="token_norm")
    blocks = [encoder_block(config, i) for i in range(config.num_layers)]
    norm = LayerNormalization(EPSILON, name="norm")

    def encode(trace, regions, boxes, mask):
        position = sines(ops.concatenate([boxes, corners_of(boxes)], axis=-1))  # (B, N, D)
        cells = keras.layers.Reshape((-1, math.prod(regions.shape[2:])))(regions)
        x = token_norm(projection(cells) + position_projection(position))
        return norm(trace.run("encoder", blocks, x, attention={"position": position, "mask": mask}))

    return encode


def _objectness(config, levels):
    """The logits (B, N, 1) and the corrections (B, N, 4), in float32, of the anchors of all `levels`."""
    count, prior = len(SCALES) * len(RATIOS), keras.initializers.Constant(-math.log(99))
    heads = {
        "objectness": keras.layers.Conv2D(count, 1, bias_initializer=prior, name="objectness_head"),
        "correction": keras.layers.Conv2D(4 * count, 1, kernel_initializer="zeros", name="correction_head"),
    }
    outputs = []
    for name, head in heads.items():
        xs = levels
        for i in range(config.num_convolutions):
            shared = Convolution(config.region_dim, 3, name=f"{name}_convolution_{i}")
            norms = [BatchNormalization(name=f"{name}_norm_{i}_{level}") for level in range(len(levels))]
            xs = [ops.relu(norm(shared(x))) for norm, x in zip(norms, xs, strict=True)]
        width = head.filters // count
        flat = [ops.reshape(head(x), (-1, x.shape[1] * x.shape[2] * count, width)) for x in xs]
        outputs.append(ops.cast(ops.concatenate(flat, axis=1), "float32"))
    return outputs


def _anchors(config, levels, strides):
    """(x, y, width, height) in pixels of the anchors of all cells, level by level, row by row: (1, N, 4)."""
    shapes = np.array([(scale / ratio**0.5, scale * ratio**0.5) for scale in SCALES for ratio in RATIOS])
    boxes = []
    for level, stride in zip(levels, strides, strict=True):
        rows, columns = (stride * (np.arange(count) + 0.5) for count in level.shape[1:3])
        centres = np.stack(np.meshgrid(columns, rows), axis=-1).reshape(-1, 1, 2)  # (cells, 1, 2)
        sides = config.anchor_cells * stride * shapes[None]  # (1, 9, 2)
        pairs = np.broadcast_arrays(centres, sides)
        boxes.append(np.concatenate(pairs, axis=-1).reshape(-1, 4))
    return np.concatenate(boxes)[None].astype("float32")


def _best_apart(config, apart, scores, boxes):
    """The boxes (B, Q, 4) of the highest `scores` (B, N) that the layer `apart` leaves, and where there
    are such, (B, Q).
    """
    (candidates,) = best_of(scores, config.num_candidates, boxes)
    is_image = ops.all(candidates[..., 2:] > 0, axis=-1)  # no box outside of the image
    stays = apart(candidates, is_image)
    rank = np.arange(config.num_candidates, dtype="float32")
    order = ops.where(stays, -rank, -rank - config.num_candidates)
    is_proposal, found = best_of(order, config.num_queries, stays[..., None], candidates)
    return ops.stop_gradient(found), is_proposal[..., 0]


# Sun et al. 2021, section 4.2. tiny is this package's own.
TSPRCNNHead.sizes = {
    "tiny": TSPRCNNHeadConfig(3, 32, 64, 2, 4, 128),
    "base": TSPRCNNHeadConfig(),
}
TSPRCNN.sizes = {
    "tiny": TSPRCNNConfig(
        **TINY | {"num_queries": 32},
        num_candidates=128,
        anchor_cells=4,
        region_dim=64,
        dim=128,
        num_layers=2,
        num_heads=4,
        intermediate_dim=256,
    ),
    "50": TSPRCNNConfig(),
    "101": TSPRCNNConfig(backbone_config={"depths": (3, 4, 23, 3)}),
}
