"""Heads of detectors that choose places of an image and encode these alone: TSP-FCOS and TSP-RCNN.

In training places that fit an object are more likely to be chosen, and some of the chosen are dropped. Sun et
al. 2021, "Rethinking Transformer-based Set Prediction for Object Detection", section 4.2.
"""

import abc
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.heads.base import SetPredictor
from keras_tfm.heads.candidate_losses import (
    BOX_WEIGHTS,
    CellSetPredictionLoss,
    RegionSetPredictionLoss,
    cells_fit,
    proposals_fit,
)
from keras_tfm.heads.object_detector import NEVER, ObjectDetector, ReferencedDetector, check_classes
from keras_tfm.layers.base import Layer, SameShape
from keras_tfm.layers.boxes import NonMaximumSuppression, moved
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.signatures import Backbone
from keras_tfm.training.model import FunctionalModel

MOST_DROPPED = 0.3  # the largest share of the chosen places
MOST_OVERLAP = 0.7  # of two answers of one class


class CandidateDetector(SetPredictor):
    """A `SetPredictor` whose backbone has `chosen`, the outputs for other scores of its places. Abstract."""

    takes_objects = True

    @abc.abstractmethod
    def are_candidates(self, boxes):
        """Whether each place of the backbone may be each object (`boxes` (B, M, 4)): (B, N, M)."""

    @abc.abstractmethod
    def rows_of(self, outputs):
        """What the loss reads, [(B, Q, .), (B, N, .)], for the backbone's `outputs` of chosen places, with
        the `mask` (B, Q) of queries that learn.
        """

    def learner(self):
        """The model to train. Its inputs are this one's and `objects` (B, M, 5), as the loss takes them for
        targets, its outputs the numbers that the loss reads in rows.
        """
        objects = keras.Input((None, 5), dtype="float32", name="objects")
        is_object = ops.logical_and(self.are_candidates(objects[..., 1:]), objects[:, None, :, 0] >= 0)
        logits = self.backbone.output["dense_logits"]
        scores = ops.max(ops.cast(logits, "float32"), axis=-1)  # (B, N)
        scores = LiftedScores(name="lifted_scores")(scores, ops.any(is_object, axis=-1))
        mask = DroppedQueries(self.num_queries, MOST_DROPPED, name="dropped_queries")(scores)
        rows = self.rows_of({**self.backbone.chosen(scores, mask), "mask": mask})
        flat = [ops.reshape(ops.cast(x, "float32"), (-1, math.prod(x.shape[1:]))) for x in rows]
        outputs = ops.concatenate(flat, axis=-1)
        return FunctionalModel({**self.input, "objects": objects}, outputs, name=self.name)

    @property
    def num_queries(self):
        """How many places are chosen."""
        return self.backbone.config.num_queries


class CellSetDetector(CandidateDetector):
    """A `backbone` that is a detector but for its loss, a `TSPFCOS`: images in, Q objects out.

    Outputs: `logits` (B, Q, num_classes), whose sigmoid is the probability; `boxes` (B, Q, 4), (x, y, width,
    height) around the centre as parts of the image's sides, padding apart; and `centredness` (B, Q, 1), a
    logit, which is learnt and, as in the authors' code, no part of a score. Train the `learner` with the loss
    of `loss_of_training`. ValueError for another number of classes than the backbone has.

    >>> backbone = keras_tfm.models.TSPFCOS.from_size("tiny", image_size=32, num_classes=3)
    >>> model = keras_tfm.heads.CellSetDetector(backbone, num_classes=3)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["boxes"].shape
    TensorShape([1, 16, 4])
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, name: str = "object_detector", **kwargs: Any
    ) -> None:
        count = backbone.output["logits"].shape[-1]
        if num_classes != count:
            raise ValueError(f"`num_classes` must be {count}, as the backbone has them; it is {num_classes}.")
        outputs = {key: backbone.output[key] for key in ("logits", "boxes", "centredness")}
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes

    def are_candidates(self, boxes):
        return cells_fit(self.backbone.output["dense_cells"], boxes)

    def rows_of(self, outputs):
        names = ("logits", "cells", "centredness", "mask", "boxes")
        dense = (self.backbone.output[key] for key in ("dense_logits", "dense_cells"))
        return [_beside(*(outputs[key] for key in names)), _beside(*dense)]

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        return CellSetPredictionLoss(self.num_classes, self.num_queries)

    probabilities = staticmethod(ReferencedDetector.probabilities)


class RegionSetDetector(CandidateDetector):
    """A `backbone` with proposals and their vectors, a `TSPRCNN`, and a head: images in, Q objects out.

    Its outputs have the form of an `ObjectDetector`'s; boxes are corrected proposals. Where there is no
    proposal, and where a surer answer of the same class covers more than 0.7 of a box, the logits say "no
    object". Train the `learner` with the loss of `loss_of_training`.

    >>> backbone = keras_tfm.models.TSPRCNN.from_size("tiny", image_size=32)
    >>> model = keras_tfm.heads.RegionSetDetector(backbone, num_classes=3)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["logits"].shape
    TensorShape([1, 32, 4])
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, name: str = "object_detector", **kwargs: Any
    ) -> None:
        check_classes(num_classes)
        class_head = keras.layers.Dense(num_classes + 1, name="class_head")
        box_head = Dense(4, kernel_initializer="zeros", name="box_head")

        def answers(features):
            x = features["sequence_output"]
            return class_head(x), moved(features["proposals"], box_head(x), BOX_WEIGHTS)

        features = backbone.output
        logits, boxes = answers(features)
        stays = _apart(logits, boxes, features["proposal_mask"] > 0)
        nothing = np.array([NEVER] * num_classes + [0.0], "float32")
        outputs = {
            "logits": ops.where(stays[..., None], logits, ops.cast(nothing, logits.dtype)),
            "boxes": ops.cast(boxes, logits.dtype),
        }
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        self.answers = answers

    def are_candidates(self, boxes):
        return proposals_fit(self.backbone.output["dense_proposals"], boxes)

    def rows_of(self, outputs):
        logits, boxes = self.answers(outputs)
        names = ("dense_logits", "dense_corrections", "dense_anchors")
        dense = (self.backbone.output[key] for key in names)
        rows = _beside(logits, outputs["proposals"], outputs["proposal_mask"], boxes)
        return [rows, _beside(*dense)]

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        return RegionSetPredictionLoss(self.num_classes, self.num_queries)

    probabilities = staticmethod(ObjectDetector.probabilities)


class LiftedScores(SameShape):
    """Logits (B, N) of probabilities p, in training the logits of (p + 1) / 2 where `is_object` (B, N)."""

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)  # lower precision does not distinguish scores

    def call(self, logits, is_object, training=None):
        """(B, N)."""
        if not training:
            return logits
        lifted = ops.log1p(ops.sigmoid(logits)) - ops.log_sigmoid(-logits)  # log((1 + p) / (1 - p))
        return ops.where(is_object, lifted, logits)


class DroppedQueries(Layer):
    """Which of `count` queries stay, (B, count): in training all but a random share, the same for the whole
    batch, of at most `most`; otherwise all.
    """

    def __init__(self, count, most, seed=None, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.count = count
        self.most = most
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, scores, training=None):
        """`scores` (B, N) are read for their number alone."""
        shape = (ops.shape(scores)[0], self.count)
        if not training:
            return ops.ones(shape, "bool")
        share = keras.random.uniform((), 0.0, self.most, seed=self.seed_generator)
        return keras.random.uniform(shape, seed=self.seed_generator) >= share

    def compute_output_spec(self, scores, training=None):
        return keras.KerasTensor((scores.shape[0], self.count), "bool")


def _beside(*parts):
    """Tensors (B, N, .) or (B, N) beside each other, in float32: (B, N, .)."""
    columns = [x[..., None] if len(x.shape) == 2 else x for x in parts]
    return ops.concatenate([ops.cast(x, "float32") for x in columns], axis=-1)


def _apart(logits, boxes, mask):
    """Which answers stay, (B, Q): they are in the `mask` (B, Q), and no surer answer of the same class that
    stays covers them. `logits` (B, Q, C + 1) say how sure an answer is, `boxes` (B, Q, 4) where it lies.
    """
    p = ops.softmax(ops.cast(logits, "float32"))[..., :-1]
    scores, order = ops.top_k(ops.where(mask, ops.max(p, axis=-1), -1.0), logits.shape[1])
    classes = ops.take_along_axis(ops.cast(ops.argmax(p, axis=-1), "int32"), order, axis=1)
    ordered = ops.take_along_axis(boxes, order[..., None], axis=1)
    stays = NonMaximumSuppression(MOST_OVERLAP, name="suppression")(ordered, scores >= 0, classes)
    back = ops.argsort(order, axis=1)
    return ops.take_along_axis(stays, back, axis=1)
