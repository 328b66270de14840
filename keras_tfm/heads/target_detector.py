"""Heads of trackers of one object: each cell of the searched image says whether it is the object's, and
where the object is.

Chen et al. 2021, "Transformer Tracking", section 3.2; Zhao et al. 2021, "TrTr: Visual Tracking with
Transformer", section 3.3.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.object_detector import box_head, check_classes
from keras_tfm.heads.target_losses import HeatmapLoss, TargetLoss, grid_places
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.training.model import FunctionalModel


class CellDetector(ModelWithHead):
    """A `backbone` with `sequence_output` (B, N, D), the cells of a map of the `grid`. Abstract.

    Outputs: `scores` (B, N), the probability that a cell is the object's, and `boxes` (B, N, 4), (x, y,
    width, height) around the centre as parts of the searched image's sides. Train the `learner`, which
    outputs `predictions`, with the loss of `loss_of_training`.
    """

    predictions: Any

    def learner(self) -> keras.Model:
        """The model to train: one of the same layers that gives the predictions for the loss."""
        return FunctionalModel(self.input, self.predictions, name=self.name)


class TargetDetector(CellDetector):
    """TransT's head: a class and a box for each cell of the searched image.

    Outputs as of `CellDetector`; `predictions` (B, N, num_classes + 1 + 4) hold the logits, the first of the
    target and the last of none, and the boxes.

    >>> model = keras_tfm.heads.TargetDetector(keras_tfm.models.TransT.from_size("tiny"))
    >>> model.output["scores"].shape, model.output["boxes"].shape
    ((None, 64), (None, 64, 4))
    """

    def __init__(
        self, backbone: keras.Model, num_classes: int = 1, name: str = "target_detector", **kwargs: Any
    ) -> None:
        check_classes(num_classes)
        x = backbone.output["sequence_output"]
        dim = x.shape[-1]
        layers = [Dense(dim, "relu"), Dense(dim, "relu"), Dense(num_classes + 1)]
        logits = Chain(layers, name="class_head")(x)
        boxes = box_head(dim, "sigmoid")(x)
        scores = ops.cast(ops.softmax(ops.cast(logits, "float32"))[..., 0], logits.dtype)
        super().__init__(backbone, backbone.input, {"scores": scores, "boxes": boxes}, name=name, **kwargs)
        self.num_classes = num_classes
        self.predictions = ops.concatenate([logits, boxes], axis=-1)

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        return TargetLoss(self.backbone.grid)


class HeatmapDetector(CellDetector):
    """TrTr's head: whether the object's centre is in a cell, where in the cell it is, and the object's size.

    Outputs as of `CellDetector`; `predictions` (B, N, 1 + 2 + 2) hold the logit of the centre, its place in
    the cell from 0 to 1, and the size as parts of the image's sides.

    >>> model = keras_tfm.heads.HeatmapDetector(keras_tfm.models.TrTr.from_size("tiny"))
    >>> model.output["scores"].shape, model.output["boxes"].shape
    ((None, 64), (None, 64, 4))
    """

    def __init__(self, backbone: keras.Model, name: str = "heatmap_detector", **kwargs: Any) -> None:
        x = backbone.output["sequence_output"]
        dim = x.shape[-1]
        prior = keras.initializers.Constant(-2.19)  # a probability of 0.1 (Zhou et al. 2019, section 5)
        logits = keras.layers.Dense(1, bias_initializer=prior, name="heatmap_head")(x)
        places, sizes = (
            Chain([Dense(dim, "relu"), Dense(dim, "relu"), Dense(2, "sigmoid")], name=f"{name_}_head")(x)
            for name_ in ("place", "size")
        )
        rows, columns = backbone.grid
        cells = ops.cast(grid_places(backbone.grid), x.dtype)
        centres = (places + cells) * ops.cast([1 / columns, 1 / rows], x.dtype)
        boxes = ops.concatenate([centres, sizes], axis=-1)
        scores = ops.cast(ops.sigmoid(ops.cast(logits, "float32"))[..., 0], logits.dtype)
        super().__init__(backbone, backbone.input, {"scores": scores, "boxes": boxes}, name=name, **kwargs)
        self.predictions = ops.concatenate([logits, places, sizes], axis=-1)

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        return HeatmapLoss(self.backbone.grid)
