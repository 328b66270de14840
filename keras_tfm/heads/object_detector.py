"""Heads of detectors: one object, or none, of each query.

One head is DETR's (Carion et al. 2020, section 3.2). The other is for detectors whose queries have
references, places in the image from which boxes are measured (Zhu et al. 2021, "Deformable DETR", section
4.1).
"""

import math
from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import SetPredictor
from keras_tfm.heads.crowd_loss import CrowdSetPredictionLoss
from keras_tfm.heads.denoising_loss import DenoisingSetPredictionLoss
from keras_tfm.heads.set_prediction import (
    FocalSetPredictionLoss,
    SetPredictionLoss,
    VarifocalSetPredictionLoss,
)
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.signatures import Backbone
from keras_tfm.training.model import FunctionalModel

NEVER = -100.0  # the logit of classes that proposals do not predict


class ObjectDetector(SetPredictor):
    """A `backbone` with `decoder_outputs` (B, L, Q, D), a `DETR`, and a head: images in, Q objects out.

    Outputs: `logits` (B, Q, num_classes + 1), whose last class is "no object", and `boxes` (B, Q, 4), (x, y,
    width, height) around the centre as parts of the image's sides, padding apart. Both come from the last
    decoder block; `predictions` (B, L, Q, num_classes + 5) holds the logits and boxes of all L blocks, side
    by side. Train the `learner`, which outputs `predictions`, with the loss of `loss_of_training`.

    >>> backbone = keras_tfm.models.DETR.from_size("tiny", image_size=32)
    >>> model = keras_tfm.heads.ObjectDetector(backbone, num_classes=3)
    >>> outputs = model({"images": np.zeros((1, 32, 32, 3))})
    >>> outputs["logits"].shape, outputs["boxes"].shape
    (TensorShape([1, 16, 4]), TensorShape([1, 16, 4]))
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, name: str = "object_detector", **kwargs: Any
    ) -> None:
        check_classes(num_classes)
        states = backbone.output["decoder_outputs"]
        logits = keras.layers.Dense(num_classes + 1, name="class_head")(states)
        boxes = box_head(states.shape[-1], "sigmoid")(states)
        outputs = {"logits": logits[:, -1], "boxes": boxes[:, -1]}
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        self.predictions = ops.concatenate([logits, boxes], axis=-1)

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        return SetPredictionLoss()

    @staticmethod
    def probabilities(logits):
        """The probabilities of the classes, (..., num_classes)."""
        return ops.softmax(ops.cast(logits, "float32"))[..., :-1]


class ReferencedDetector(SetPredictor):
    """An `ObjectDetector` for a `backbone` whose queries have references: `DeformableDETR`.

    Its boxes are the sigmoid of the head's output plus the backbone's `references`, or the backbone's own
    `decoder_boxes`, and then each block has its own class head. A binary classifier answers for each class:
    `logits` are (B, Q, num_classes), their sigmoid the probability. Where the backbone has `proposals`,
    `predictions` (B, L + 1, Q, num_classes + 4) begin with them.

    >>> backbone = keras_tfm.models.DeformableDETR.from_size("tiny", image_size=32)
    >>> model = keras_tfm.heads.ReferencedDetector(backbone, num_classes=3)
    >>> model.output["logits"].shape, model.output["boxes"].shape
    ((None, 16, 3), (None, 16, 4))
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, name: str = "object_detector", **kwargs: Any
    ) -> None:
        check_classes(num_classes)
        features = backbone.output
        states = features["decoder_outputs"]
        boxes = features.get("decoder_boxes")
        if boxes is None:
            logits = class_head(num_classes, "class_head")(states)
            boxes = box_head(states.shape[-1])(states)
            boxes = ops.sigmoid(ops.cast(boxes, "float32") + features["references"])
        else:
            heads = [class_head(num_classes, f"class_head_{i}") for i in range(states.shape[1])]
            logits = ops.stack([head(states[:, i]) for i, head in enumerate(heads)], axis=1)
        outputs = {"logits": logits[:, -1], "boxes": ops.cast(boxes[:, -1], logits.dtype)}
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        parts = [ops.cast(x, "float32") for x in (logits, boxes)]
        self.predictions = ops.concatenate(parts, axis=-1)  # (B, L, Q, C + 4)
        self.proposes = "proposals" in features
        if self.proposes:
            proposals = features["proposals"][:, None]  # (B, 1, Q, 1 or C, + 4)
            scores = proposals[..., :-4]
            padding = [(0, 0)] * 3 + [(0, num_classes - scores.shape[-1])]
            scores = ops.pad(scores, padding, constant_values=NEVER)
            first = ops.concatenate([scores, proposals[..., -4:]], axis=-1)
            self.predictions = ops.concatenate([first, self.predictions], axis=1)

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        return FocalSetPredictionLoss(proposes=self.proposes)

    @staticmethod
    def probabilities(logits):
        """The probabilities of the classes, (..., num_classes)."""
        return ops.sigmoid(ops.cast(logits, "float32"))


class CrowdDetector(ReferencedDetector):
    """A `ReferencedDetector` that learns by a `CrowdSetPredictionLoss`, for a `backbone` of many queries: a
    `PED`.

    >>> backbone = keras_tfm.models.PED.from_size("tiny", image_size=32)
    >>> type(keras_tfm.heads.CrowdDetector(backbone, num_classes=1).loss_of_training()).__name__
    'CrowdSetPredictionLoss'
    """

    takes_visible = True

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        return CrowdSetPredictionLoss()


class VarifocalDetector(ReferencedDetector):
    """A `ReferencedDetector` for a `backbone` whose proposals have scores of all classes: `RTDETR`.

    Its logits learn how well a box fits, by `VarifocalSetPredictionLoss`. It `takes_objects` if the
    backbone has denoising queries. ValueError for another number of classes than the backbone has.

    >>> backbone = keras_tfm.models.RTDETR.from_size("tiny", image_size=32, num_classes=3)
    >>> model = keras_tfm.heads.VarifocalDetector(backbone, num_classes=3)
    >>> model.predictions.shape  # of the proposals and of two blocks
    (None, 3, 16, 7)
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, name: str = "object_detector", **kwargs: Any
    ) -> None:
        count = backbone.output["proposals"].shape[-1] - 4
        if num_classes != count:
            raise ValueError(f"`num_classes` must be {count}, as the backbone has them; it is {num_classes}.")
        super().__init__(backbone, num_classes, name, **kwargs)
        self.takes_objects = bool(self.backbone.config.num_denoising)

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        if not self.takes_objects:
            return VarifocalSetPredictionLoss()
        return DenoisingSetPredictionLoss(self.predictions.shape[1], self.predictions.shape[2])

    def learner(self):
        """The model to train. One with denoising queries learns from objects too: its inputs are this one's
        and `objects` (B, M, 5), as the loss takes them for targets, its outputs predictions for
        `DenoisingSetPredictionLoss`.
        """
        if not self.takes_objects:
            return super().learner()
        objects = keras.Input((None, 5), dtype="float32", name="objects")
        states, boxes = self.backbone.denoised(objects)  # (B, L, N + Q, .)
        num_blocks, num_queries = states.shape[1], self.backbone.config.num_queries
        heads = [self.get_layer(f"class_head_{i}") for i in range(num_blocks)]
        logits = ops.stack([head(states[:, i]) for i, head in enumerate(heads)], axis=1)
        both = ops.concatenate([ops.cast(x, "float32") for x in (logits, boxes)], axis=-1)
        proposals = self.backbone.output["proposals"][:, None]
        parts = [proposals, both[:, :, -num_queries:], both[:, :, :-num_queries]]
        predictions = ops.concatenate([x[:, i] for x in parts for i in range(x.shape[1])], axis=1)
        return FunctionalModel({**self.input, "objects": objects}, predictions, name=self.name)


def check_classes(num_classes):
    """ValueError for no class."""
    if num_classes < 1:
        raise ValueError(f"`num_classes` must be at least 1; it is {num_classes}.")


def box_head(dim, activation=None):
    """Three dense layers to the four numbers of a box."""
    last = Dense(4, activation)
    return Chain([Dense(dim, "relu"), Dense(dim, "relu"), last], name="box_head")


def class_head(num_classes, name):
    """A dense layer to logits, of which each says at first 1 in 100 (Lin et al. 2017, section 4.1)."""
    prior = keras.initializers.Constant(-math.log(99))
    return keras.layers.Dense(num_classes, bias_initializer=prior, name=name)
