"""VisTR's heads: the classes, boxes and masks of the objects of a clip, one track for each query.

Wang et al. 2021, "End-to-End Video Instance Segmentation with Transformers", sections 3.1 and 3.3.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import SetPredictor
from keras_tfm.heads.cells import cells_of
from keras_tfm.heads.clip_losses import ClipMaskLoss, ClipSetPredictionLoss
from keras_tfm.heads.object_detector import ObjectDetector, box_head, check_classes
from keras_tfm.heads.panoptic_detector import (
    EPSILON,
    NUM_GROUPS,
    begin_by_likeness,
    earlier_maps,
    of_queries,
    query_features,
    query_maps,
)
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.normalization import GroupNormalization
from keras_tfm.layers.signatures import Backbone
from keras_tfm.training.model import FunctionalModel


class ClipDetector(ObjectDetector):
    """An `ObjectDetector` of clips, with a `VisTR` as backbone: Q answers, frame by frame, where the answer i
    of each frame is of one object.

    ValueError unless the frames divide the queries.

    >>> backbone = keras_tfm.models.VisTR.from_size("tiny", image_size=32)
    >>> keras_tfm.heads.ClipDetector(backbone, num_classes=3).output["boxes"].shape  # 4 frames, 6 objects
    (None, 24, 4)
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, name: str = "clip_detector", **kwargs: Any
    ) -> None:
        check_frames(backbone)
        super().__init__(backbone, num_classes, name=name, **kwargs)

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        return ClipSetPredictionLoss(self.backbone.config.num_frames)


class ClipSegmenter(SetPredictor):
    """A `ClipDetector` with masks: its outputs are also `masks` (B, Q, rows, columns), logits of each pixel.

    Each query attends to the encoded map of its frame; its weights and the map go through convolutions and
    are enlarged to the backbone's earlier maps, of the last `num_maps`, as in a `PanopticDetector`. Three
    convolutions in time and space join what the frames of a track have found. `predictions` (B, Q, L
    (num_classes + 5) + rows columns) are as there. Deviates from the authors' training in that each cell of
    the encoded map predicts an object too, by the heads of classes and boxes: a map learns what it shows long
    before a decoder learns to look; and in the first values of some kernels, see `begin_by_likeness`.

    >>> backbone = keras_tfm.models.VisTR.from_size("tiny", image_size=32)
    >>> keras_tfm.heads.ClipSegmenter(backbone, num_classes=3, num_maps=2).output["masks"].shape
    (None, 24, 8, 8)
    """

    def __init__(
        self,
        backbone: keras.Model,
        num_classes: int,
        num_maps: int = 4,
        name: str = "clip_segmenter",
        **kwargs: Any,
    ) -> None:
        check_classes(num_classes)
        earlier = earlier_maps(backbone, num_maps)
        num_frames, dim = check_frames(backbone), backbone.config.dim
        states = backbone.output["decoder_sequence_output"]
        encoded, cells = backbone.output["encoder_sequence_output"], backbone.context["mask"]
        grid, num_objects = backbone.maps[-1].shape[1:3], states.shape[1] // num_frames
        num_cells = grid[0] * grid[1]
        states = ops.reshape(states, (-1, num_objects, dim))  # (B F, n, D)
        encoded = ops.reshape(encoded, (-1, num_cells, dim))  # (B F, N, D)
        cells = ops.reshape(cells, (-1, num_cells))
        weights = query_maps(backbone.config, states, encoded, cells, grid)  # (B F, n, rows, columns, heads)
        features = ops.reshape(encoded, (-1, *grid, dim))
        x = query_features(weights, features, earlier, backbone.config, _groups_of)
        masks = _along_tracks(x, num_frames, num_objects)
        states = backbone.output["decoder_outputs"]  # (B, L, Q, D)
        logits = keras.layers.Dense(num_classes + 1, name="class_head")(states)
        boxes = box_head(dim, "sigmoid")(states)
        outputs = {"logits": logits[:, -1], "boxes": boxes[:, -1], "masks": masks}
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        self.num_maps = num_maps
        self.grid = tuple(masks.shape[2:])
        self.map_grid = tuple(grid)  # of the encoded map
        self.predictions = of_queries(logits, boxes, masks)
        begin_by_likeness(self, num_cells)

    def loss_of_training(self):
        """The loss of what `learner` gives, for the masks of clips."""
        config = self.backbone.config
        counts = {
            "num_objects": config.num_queries // config.num_frames,
            "num_cells": math.prod(self.map_grid),
        }
        return ClipMaskLoss(config.num_frames, self.grid, self.num_classes, **counts)

    def learner(self):
        """The model to train, which gives (B, F, .): of each frame the `predictions` of its queries, and
        what `cells_of` gives of its map.
        """
        num_frames = self.backbone.config.num_frames
        context, shown = self.backbone.output["encoder_sequence_output"], self.input["video_mask"]
        context = ops.reshape(context, (-1, math.prod(self.map_grid), context.shape[-1]))  # (B F, N, D)
        shown = ops.reshape(shown, (-1, *shown.shape[2:]))  # (B F, H, W)
        heads = [self.get_layer(f"{kind}_head") for kind in ("class", "box")]
        cells = cells_of(context, heads, self.map_grid, shown)  # (B F, N, C + 7)
        queries = ops.cast(self.predictions, "float32")  # (B, F n, .)
        widths = queries.shape[1] // num_frames * queries.shape[2], math.prod(cells.shape[1:])
        parts = [
            ops.reshape(x, (-1, num_frames, width)) for x, width in zip((queries, cells), widths, strict=True)
        ]
        return FunctionalModel(self.input, ops.concatenate(parts, axis=-1), name=self.name)


def check_frames(backbone):
    """The number of frames; ValueError unless it divides the number of queries."""
    num_frames, num_queries = backbone.config.num_frames, backbone.config.num_queries
    if num_queries % num_frames:
        raise ValueError(f"`num_frames` must divide `num_queries`, {num_queries}; it is {num_frames}.")
    return num_frames


def _groups_of(width):
    """The number of groups in which `width` channels are normalised: as in a `PanopticDetector`, but as many
    as divide the width where eight do not.
    """
    return width if width <= NUM_GROUPS else math.gcd(NUM_GROUPS, width)


def _along_tracks(x, num_frames, num_objects):
    """Logits of masks (B, F n, rows, columns) of the features `x` (B F n, rows, columns, .) of queries."""
    grid, width = x.shape[1:3], x.shape[3]
    x = ops.reshape(x, (-1, num_frames, num_objects, *x.shape[1:]))
    x = ops.reshape(ops.moveaxis(x, 1, 2), (-1, num_frames, *grid, width))  # (B n, F, rows, columns, .)
    for i in range(2):
        norm = GroupNormalization(_groups_of(width), epsilon=EPSILON)
        options: dict[str, Any] = {"norm": norm, "activation": "relu", "use_bias": True}
        x = Convolution(width, (3, 3, 3), name=f"mask_track_{i}", **options)(x)
    x = Convolution(1, (3, 3, 3), name="mask_output")(x)
    x = ops.moveaxis(ops.reshape(x, (-1, num_objects, num_frames, *grid)), 2, 1)
    return ops.reshape(x, (-1, num_frames * num_objects, *grid))  # (B, F n, rows, columns)
