"""Learning a set of objects where a query may be an object only if its place fits the object.

The losses of Sun et al. 2021, "Rethinking Transformer-based Set Prediction for Object Detection", section
4.2, for the chosen queries and, beside them, for all places from which they were chosen. A place is a cell of
a pyramid, as FCOS assigns objects to them (Tian et al. 2019, section 3.2), or a box, by its overlap (Ren et
al. 2015, section 3.1.2).
"""

import abc
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_tfm.heads.mask_losses import focal_loss
from keras_tfm.heads.matching import FREE, match
from keras_tfm.heads.set_prediction import (
    FocalSetPredictionLoss,
    MatchingLoss,
    SetPredictionLoss,
    smallest_of,
    taken,
)
from keras_tfm.layers.boxes import box_iou, corners_of, correction_of
from keras_tfm.layers.signatures import Tensor

LEAST_OVERLAP = 0.5  # of an object with a proposal that may be it
ANCHOR_OVERLAPS = 0.3, 0.7  # an anchor with less is no object, one with more is
EMPTY_ROW = np.array([-1, 0, 0, 0, 0], "float32")  # a row of targets without an object
BOX_WEIGHTS = (10.0, 10.0, 5.0, 5.0)  # of the corrections of proposals (Girshick 2015, "Fast R-CNN")


def cells_fit(cells: Tensor, boxes: Tensor) -> Tensor:
    """Whether each of `cells` (B, N, 6) may be each object (`boxes` (B, M, 4)): (B, N, M).

    A cell is its centre (x, y) and the least and the most distance of its level, along x and y each, as parts
    of the image's sides. The centre must lie in the box, and the side farthest from it be farther than the
    least, and no farther than the most.

    >>> cell, box = [0.5, 0.5, 0.0, 0.0, 0.2, 0.2], [0.5, 0.5, 0.4, 0.2]
    >>> keras_tfm.heads.cells_fit(np.array([[cell]]), np.array([[box, [0.3, 0.5, 0.2, 0.2]]])).numpy()
    array([[[ True, False]]])
    """
    centres, least, most = (cells[:, :, None, i : i + 2] for i in (0, 2, 4))
    corners = corners_of(boxes)[:, None]  # (B, 1, M, 4)
    sides = centres - corners[..., :2], corners[..., 2:] - centres  # left and top, right and bottom
    is_inside = ops.logical_and(*(ops.all(x > 0, axis=-1) for x in sides))
    is_far = ops.logical_or(*(ops.any(x > least, axis=-1) for x in sides))
    is_near = ops.logical_and(*(ops.all(x <= most, axis=-1) for x in sides))
    return ops.logical_and(is_inside, ops.logical_and(is_far, is_near))


def centredness_of(centres: Tensor, boxes: Tensor) -> Tensor:
    """1 at the middle of a box and 0 at its sides: the root of the product of two quotients, of the distances
    of `centres` (..., 2) from the left and the right side of `boxes` (..., 4), the smaller one above, and
    from the upper and the lower one: (...).

    Tian et al. 2019, "FCOS: Fully Convolutional One-Stage Object Detection", eq. 3. Outside it is 0.

    >>> box = np.array([0.5, 0.5, 0.4, 0.2])
    >>> [round(float(keras_tfm.heads.centredness_of(np.array([x, 0.5]), box)), 3) for x in (0.5, 0.6, 0.9)]
    [1.0, 0.577, 0.0]
    """
    corners = corners_of(boxes)
    before, behind = centres - corners[..., :2], corners[..., 2:] - centres  # (..., 2)
    nearer = ops.maximum(ops.minimum(before, behind), 0.0)
    shares = ops.divide_no_nan(nearer, ops.maximum(before, behind))
    return ops.sqrt(ops.prod(shares, axis=-1))


def proposals_fit(proposals: Tensor, boxes: Tensor) -> Tensor:
    """Whether each of `proposals` (B, N, 4) overlaps each object (`boxes` (B, M, 4)) by more than half of
    what both cover: (B, N, M).

    >>> proposal, box = [0.5, 0.5, 0.4, 0.4], [0.5, 0.5, 0.4, 0.3]
    >>> keras_tfm.heads.proposals_fit(np.array([[proposal]]), np.array([[box, [0.3, 0.5, 0.2, 0.2]]])).numpy()
    array([[[ True, False]]])
    """
    return box_iou(proposals[:, :, None], boxes[:, None]) > LEAST_OVERLAP


class CandidateLoss(MatchingLoss):
    """A `MatchingLoss` of Q queries and, beside it, of N places from which they were chosen. Abstract.

    Predictions (B, Q W + N V) are rows: for each query its logits, its place, 1 or 0 where it was dropped and
    learns nothing, and its box; then what a subclass has of each place. A query is matched to an object that
    it fits, or to none. ValueError for predictions of another width.
    """

    place_width: int  # how many numbers a query's place is
    num_logits: int  # of a query
    dense_width: int  # V

    def __init__(self, num_classes: int, num_queries: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.num_queries = num_queries

    @abc.abstractmethod
    def are_candidates(self, places, boxes):
        """Whether each of `places` (B, Q, .) may be each object (`boxes` (B, M, 4)): (B, Q, M)."""

    @abc.abstractmethod
    def dense_mean(self, targets, dense):
        """(total, count) of the loss of all places, of which `dense` (B, N, V) are the predictions."""

    def means(self, targets, predictions):
        targets, predictions = ops.cast(targets, "float32"), ops.cast(predictions, "float32")
        # One empty row more: matching needs at least one.
        targets = ops.pad(targets - EMPTY_ROW, [(0, 0), (0, 1), (0, 0)]) + EMPTY_ROW
        queries, dense = self.parts_of(predictions)
        return [*super().means(targets, queries[:, None]), self.dense_mean(targets, dense)]

    def parts_of(self, predictions):
        """The rows of the queries (B, Q, W) and of the places (B, N, V)."""
        width = self.num_logits + self.place_width + 5
        count = self.num_queries * width
        if (predictions.shape[1] - count) % self.dense_width or predictions.shape[1] < count:
            raise ValueError(
                f"`predictions` must have {count} numbers for the queries and {self.dense_width} for each "
                f"place; they have {predictions.shape[1]}. Train the `learner` of the model."
            )
        queries = ops.reshape(predictions[:, :count], (-1, self.num_queries, width))
        num_places = (predictions.shape[1] - count) // self.dense_width
        return queries, ops.reshape(predictions[:, count:], (-1, num_places, self.dense_width))

    def matched(self, targets, predictions, num_blocks):
        fits = self.are_candidates(self.places_of(predictions), targets[..., 1:])  # (B, Q, M)
        fits = ops.logical_and(fits, self.are_chosen(predictions)[..., None])
        costs = ops.where(fits, self.pair_costs(targets, predictions), math.inf)
        of_query = match(costs, targets[..., 0] >= 0)
        of_own = ops.take_along_axis(fits, ops.maximum(of_query, 0)[..., None], axis=2)[..., 0]
        return ops.where(of_own, of_query, FREE)  # a pair that does not fit was the last resort

    def logits_of(self, predictions):
        return predictions[..., : self.num_logits]

    def places_of(self, predictions):
        """The places of the queries, of `predictions` (B, Q, W): (B, Q, .)."""
        return predictions[..., self.num_logits : self.num_logits + self.place_width]

    def are_chosen(self, predictions):
        """Which queries were not dropped, of `predictions` (B, Q, W): (B, Q)."""
        return predictions[..., -5] > 0.5

    def are_ignored(self, targets, predictions):
        return ops.logical_not(self.are_chosen(predictions))


class CellSetPredictionLoss(CandidateLoss, FocalSetPredictionLoss):
    """TSP-FCOS's `CandidateLoss`: of each query W = C + 12 numbers, whose place is its cell and its
    centredness, a logit; and of each place its logits and its cell, V = C + 6.

    To the loss of a `FocalSetPredictionLoss`, by default without distances, it adds the cross-entropy of the
    `centredness_of` matched cells, over the number of targets, and the sum of the `focal_loss` of the logits
    of all cells, over the number of cells that fit an object; of several the smallest one is a cell's.

    >>> loss = keras_tfm.heads.CellSetPredictionLoss(num_classes=1, num_queries=1)
    >>> cell, box = [0.5, 0.5, 0.0, 0.0, 0.2, 0.2], [0.5, 0.5, 0.2, 0.2]
    >>> predictions = np.array([[9.0, *cell, 9.0, 1.0, *box, 9.0, *cell]])
    >>> round(float(loss(np.array([[[0.0, *box]]]), predictions)), 3)
    0.0
    """

    place_width = 7

    def __init__(
        self, num_classes: int, num_queries: int, weights: Sequence[float] = (1.0, 0.0, 2.0), **kwargs: Any
    ) -> None:
        super().__init__(num_classes, num_queries, weights=weights, **kwargs)
        self.num_logits, self.dense_width = num_classes, num_classes + 6

    def are_candidates(self, places, boxes):
        return cells_fit(places, boxes)

    def box_total(self, predictions, query_targets):
        places = self.places_of(predictions)
        centredness = centredness_of(places[..., :2], query_targets[..., 1:])
        entropies = ops.binary_crossentropy(centredness, places[..., 6], from_logits=True)
        is_matched = query_targets[..., 0] >= 0
        boxes = super().box_total(predictions, query_targets)
        return boxes + ops.sum(ops.where(is_matched, entropies, 0.0))

    def dense_mean(self, targets, dense):
        logits, cells = dense[..., : self.num_classes], dense[..., self.num_classes :]
        own = taken(targets, smallest_of(cells_fit(cells, targets[..., 1:]), targets))  # (B, N, 5)
        classes = ops.cast(own[..., 0], "int32")
        is_own = ops.one_hot(classes, self.num_classes)  # zeros for none
        badness = focal_loss(is_own[..., None], logits[..., None], self.alpha)
        return ops.sum(badness), ops.sum(ops.cast(classes >= 0, "float32"))


class RegionSetPredictionLoss(CandidateLoss, SetPredictionLoss):
    """TSP-RCNN's `CandidateLoss`: of each proposal W = C + 10 numbers, and of each place, an anchor, the
    logit of an object, the correction and the anchor, V = 9.

    It is a `SetPredictionLoss` whose distances are of the corrections of proposals, four times ten or five
    times as much (`BOX_WEIGHTS`), with the means of the anchors: the sum of the `focal_loss` of their logits
    and of the distances of the corrections of anchors that are objects, over the number of these. Such an
    anchor overlaps an object by 0.7 or more, or as much as the object's best anchor; one between 0.3 and 0.7
    learns nothing. Deviates from Ren et al. 2015 in that all others learn, by the focal loss, in place of a
    sample of 256.

    >>> loss = keras_tfm.heads.RegionSetPredictionLoss(num_classes=1, num_queries=1)
    >>> box = [0.5, 0.5, 0.2, 0.2]
    >>> predictions = np.array([[9.0, -9.0, *box, 1.0, *box, 9.0, 0, 0, 0, 0, *box]])
    >>> round(float(loss(np.array([[[0.0, *box]]]), predictions)), 3)
    0.0
    """

    place_width = 4
    dense_width = 9

    def __init__(
        self, num_classes: int, num_queries: int, weights: Sequence[float] = (1.0, 1.0, 2.0), **kwargs: Any
    ) -> None:
        super().__init__(num_classes, num_queries, weights=weights, **kwargs)
        self.num_logits = num_classes + 1

    def are_candidates(self, places, boxes):
        return proposals_fit(places, boxes)

    def distances(self, predictions, boxes):
        proposals = self.places_of(predictions)
        corrections = (correction_of(proposals, x, BOX_WEIGHTS) for x in (predictions[..., -4:], boxes))
        return ops.sum(ops.abs(ops.subtract(*corrections)), axis=-1)

    def dense_mean(self, targets, dense):
        logits, corrections, anchors = dense[..., 0], dense[..., 1:5], dense[..., 5:]
        is_target = targets[:, None, :, 0] >= 0
        overlaps = box_iou(anchors[:, :, None], targets[:, None, :, 1:])  # (B, N, M)
        overlaps = ops.where(is_target, overlaps, 0.0)
        least, most = ANCHOR_OVERLAPS
        best = ops.max(overlaps, axis=1, keepdims=True)  # of each object
        is_best = ops.any(ops.logical_and(overlaps > 0, overlaps >= best), axis=-1)
        of_anchor = ops.max(overlaps, axis=-1)  # (B, N)
        is_object = ops.logical_or(of_anchor >= most, is_best)
        learns = ops.cast(ops.logical_or(is_object, of_anchor < least), "float32")
        is_own = ops.cast(is_object, "float32")
        badness = learns * focal_loss(is_own[..., None], logits[..., None])
        own = ops.cast(ops.argmax(overlaps, axis=-1), "int32")  # (B, N)
        boxes = ops.take_along_axis(targets[..., 1:], own[..., None], axis=1)
        distances = ops.sum(ops.abs(corrections - correction_of(anchors, boxes, (1.0,) * 4)), axis=-1)
        return ops.sum(badness + ops.where(is_object, distances, 0.0)), ops.sum(is_own)
