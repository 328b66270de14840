"""Learning a set of objects: predictions are matched to targets, and then each learns its own.

Carion et al. 2020, "End-to-End Object Detection with Transformers", sections 3.1 and A.2; with a focal loss,
Zhu et al. 2021, "Deformable DETR", section 4.2 and appendix A.3; with a varifocal loss, Zhao et al. 2023,
"DETRs Beat YOLOs on Real-time Object Detection", section 4.3.
"""

import abc
import math
from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_tfm.heads.loss import SumOfMeans
from keras_tfm.heads.mask_losses import focal_loss
from keras_tfm.heads.matching import match
from keras_tfm.layers.boxes import box_distance, box_iou, generalized_iou

IGNORED = -2  # the class of a query that learns nothing; -1 is none


class MatchingLoss(SumOfMeans):
    """The loss of L predictions of a set of objects, one for each decoder block, in nats. Abstract.

    Targets are (B, M, 5): an object's class, 0 to C - 1, and its box, (x, y, width, height) around the centre
    as parts of the image's sides; the class -1 is padding. Predictions are (B, L, Q, . + 4): logits, and
    boxes. For each block the queries are matched anew, by `match`, at the cost of their class, the sum of
    absolute differences and -GIoU. The loss is the sum over the blocks of what a subclass says of the
    classes, and of the differences and 1 - GIoU of matched boxes over the number of targets. `weights`
    multiply these three terms in the loss and, by default, in the `costs`. Denominators are sums over the
    whole batch, on all replicas.

    >>> loss = keras_tfm.heads.SetPredictionLoss()
    >>> targets = np.array([[[0, 0.5, 0.5, 0.2, 0.2], [-1, 0, 0, 0, 0]]])  # an object, and padding
    >>> predictions = np.array([[[[9.0, -9.0, 0.5, 0.5, 0.2, 0.2], [-9.0, 9.0, 0, 0, 0, 0]]]])
    >>> [round(float(count), 2) for _, count in loss.means(targets, predictions)]  # of classes, of boxes
    [1.1, 1.0]
    """

    def __init__(
        self,
        weights: Sequence[float],
        costs: Sequence[float] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.weights = tuple(weights)
        self.costs = self.weights if costs is None else tuple(costs)

    def means(self, targets, predictions):
        return self.means_and_pairs(targets, predictions)[0]

    def means_and_pairs(self, targets, predictions):
        """(What `means` gives, the target of each query of each block (B, L, Q), -1 for none)."""
        targets, predictions = ops.cast(targets, "float32"), ops.cast(predictions, "float32")
        _, num_blocks, num_queries, width = predictions.shape
        num_targets = ops.sum(ops.cast(targets[..., 0] >= 0, "float32"))
        targets = self.of_blocks(targets, num_blocks)  # (B L, M, 5)
        predictions = ops.reshape(predictions, (-1, num_queries, width))  # (B L, Q, . + 4)
        of_query = self.matched(targets, predictions, num_blocks)  # (B L, Q)
        query_targets = self.own_targets(targets, predictions, of_query)  # (B L, Q, 5)
        is_matched = ops.cast(of_query >= 0, "float32")
        badness = self.box_total(predictions, query_targets)
        badness += ops.sum(is_matched * self.further_badness(predictions, of_query))
        total, count = self.class_mean(predictions, query_targets)
        count = num_targets if count is None else count / num_blocks
        means = [(self.weights[0] * total, count), (badness, num_targets)]
        return means, ops.reshape(of_query, (-1, num_blocks, num_queries))

    def own_targets(self, targets, predictions, of_query):
        """The target of each query, (B L, Q, 5), by the rows `of_query` (B L, Q) of `targets`. Its class is
        -1 for none, and `IGNORED` where the query is then not taught that nothing is there.
        """
        own = taken(targets, of_query)
        ignored = self.are_ignored(targets, predictions)
        if ignored is None:
            return own
        classes = ops.where(ops.logical_and(of_query < 0, ignored), IGNORED, own[..., 0])
        return ops.concatenate([classes[..., None], own[..., 1:]], axis=-1)

    def are_ignored(self, targets, predictions):
        """Which queries (B L, Q) learn nothing where they have no target, or None if there are none such."""
        return None

    def matched(self, targets, predictions, num_blocks):
        """The target of each query, (B L, Q), -1 for none, of `targets` (B L, M, 5) and `predictions` (B L,
        Q, . + 4).
        """
        return match(self.pair_costs(targets, predictions), targets[..., 0] >= 0)

    def of_blocks(self, targets, num_blocks):
        """The `targets` (B, M, 5) of each of the L blocks: (B L, M, 5)."""
        return ops.repeat(targets, num_blocks, axis=0)

    def box_total(self, predictions, query_targets):
        """What the boxes of `predictions` (B L, Q, . + 4) add to the loss, before it is divided by the number
        of targets; `query_targets` (B L, Q, 5) are the queries' targets, with the class -1 for none.
        """
        boxes, own_boxes = predictions[..., -4:], query_targets[..., 1:]
        _, of_distance, of_overlap = self.weights
        badness = of_distance * self.distances(predictions, own_boxes)
        badness += of_overlap * (1 - generalized_iou(boxes, own_boxes))
        return ops.sum(ops.where(query_targets[..., 0] >= 0, badness, 0.0))

    def distances(self, predictions, boxes):
        """How far boxes of `predictions` (..., . + 4) are from `boxes` (..., 4), which broadcast: (...)."""
        return box_distance(predictions[..., -4:], boxes)

    def logits_of(self, predictions):
        """The logits of the classes in the `predictions` (B L, Q, . + 4)."""
        return predictions[..., :-4]

    def further_badness(self, predictions, of_query):
        """What the loss has beside classes and boxes, for each query (B L, Q) if it is matched.

        `of_query` (B L, Q) are the targets of the queries, -1 for none.
        """
        return 0.0

    def pair_costs(self, targets, predictions):
        """What each pair of a query and a target would cost: (B, Q, M)."""
        labels, boxes = ops.cast(targets[..., 0], "int32"), targets[..., 1:]
        costs = self.class_costs(self.logits_of(predictions))
        index = ops.broadcast_to(
            ops.maximum(labels, 0)[:, None], (*ops.shape(predictions)[:2], ops.shape(labels)[1])
        )
        of_class, of_distance, of_overlap = self.costs
        predictions, boxes = predictions[:, :, None], boxes[:, None]
        of_boxes = of_distance * self.distances(predictions, boxes)
        of_boxes -= of_overlap * generalized_iou(predictions[..., -4:], boxes)
        return of_boxes + of_class * ops.take_along_axis(costs, index, axis=2)

    @abc.abstractmethod
    def class_costs(self, logits):
        """What it would cost each query to be of each class: (B, Q, C)."""

    @abc.abstractmethod
    def class_mean(self, predictions, query_targets):
        """(total, count) of the loss of the classes in the `predictions` (B, Q, . + 4), where `query_targets`
        (B, Q, 5) are the queries' targets, with the class -1 for none; the count is None for the number of
        targets.
        """


class SetPredictionLoss(MatchingLoss):
    """DETR's `MatchingLoss`: a query is of one class of C + 1, the last one for no object.

    Predictions are (B, L, Q, C + 1 + 4). The cost of a class is -p(class), and the loss of classes a
    cross-entropy in which a query without an object weighs `no_object`, averaged by these weights.

    >>> loss = keras_tfm.heads.SetPredictionLoss()
    >>> targets = np.array([[[0, 0.5, 0.5, 0.2, 0.2]]])  # an object of the class 0
    >>> box = [0.6, 0.5, 0.2, 0.2]  # a third of both boxes is common to them
    >>> predictions = np.array([[[[9.0, -9.0, *box], [-9.0, 9.0, 0, 0, 0, 0]]]])  # one block, two queries
    >>> round(float(loss(targets, predictions)), 2)  # 5 x 0.1 + 2 (1 - 1/3)
    1.83
    """

    def __init__(
        self,
        weights: Sequence[float] = (1.0, 5.0, 2.0),
        costs: Sequence[float] | None = None,
        no_object: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(weights, costs, **kwargs)
        self.no_object = no_object

    def class_costs(self, logits):
        return -ops.softmax(logits)

    def class_mean(self, predictions, query_targets):
        badness, weights = self.class_terms(self.logits_of(predictions), query_targets[..., 0])
        return ops.sum(badness), ops.sum(weights)

    def class_terms(self, logits, classes):
        """The weighted cross-entropies of `logits` (B, Q, C + 1), whose `classes` (B, Q) are -1 for none and
        -2 where nothing is learnt, and the weights, (B, Q) both.
        """
        classes = ops.cast(classes, "int32")
        labels = ops.where(classes >= 0, classes, logits.shape[-1] - 1)
        entropies = ops.sparse_categorical_crossentropy(labels, logits, True)
        weights = ops.where(classes >= 0, 1.0, self.no_object) * _learning(classes)
        return weights * entropies, weights


class FocalSetPredictionLoss(MatchingLoss):
    """Deformable DETR's `MatchingLoss`: a binary classifier for each of C classes, none for "no object".

    Predictions are (B, L, Q, C + 4). The loss of classes is the sum of the `focal_loss` of all logits, over
    the number of targets, with 2 for its exponent; the cost of a class is what it would add to it. Where the
    first block `proposes`, its first logit alone separates objects, of any class, from "no object". A batch
    without targets teaches nothing.

    >>> loss = keras_tfm.heads.FocalSetPredictionLoss()
    >>> targets = np.array([[[0, 0.5, 0.5, 0.2, 0.2]]])  # an object of the class 0
    >>> box = [0.6, 0.5, 0.2, 0.2]  # a third of both boxes is common to them
    >>> predictions = np.array([[[[9.0, *box], [-9.0, 0, 0, 0, 0]]]])  # one block, two queries
    >>> round(float(loss(targets, predictions)), 2)  # 5 x 0.1 + 2 (1 - 1/3)
    1.83
    """

    def __init__(
        self,
        weights: Sequence[float] = (2.0, 5.0, 2.0),
        costs: Sequence[float] | None = None,
        alpha: float = 0.25,
        proposes: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(weights, costs, **kwargs)
        self.alpha = alpha
        self.proposes = proposes

    def of_blocks(self, targets, num_blocks):
        repeated = super().of_blocks(targets, num_blocks)
        if not self.proposes:
            return repeated
        is_first = ops.arange(ops.shape(repeated)[0])[:, None] % num_blocks == 0
        labels = ops.where(is_first, ops.minimum(repeated[..., 0], 0.0), repeated[..., 0])
        return ops.concatenate([labels[..., None], repeated[..., 1:]], axis=-1)

    def class_costs(self, logits):
        return focal_costs(logits, self.alpha)

    def class_mean(self, predictions, query_targets):
        logits = self.logits_of(predictions)
        classes = _classes_of(query_targets)
        is_own = ops.one_hot(classes, logits.shape[-1])  # zeros for -1
        return ops.sum(_learning(classes)[..., None] * _focal(is_own, logits, self.alpha)), None


class VarifocalSetPredictionLoss(MatchingLoss):
    """RT-DETR's `MatchingLoss`: the logit of a query's class learns how well its box fits.

    Predictions are (B, L, Q, C + 4). The loss of classes is the sum of the varifocal loss of all logits, over
    the number of targets (Zhang et al. 2021, "VarifocalNet", eq. 2): a cross-entropy, for the class of a
    matched query with the IoU of its box as target and as weight, for all others with the target 0 and the
    weight `alpha` p^2. The cost of a class is what it would add to a focal loss, with `cost_alpha` for its
    alpha. A batch without targets teaches nothing.

    >>> loss = keras_tfm.heads.VarifocalSetPredictionLoss()
    >>> targets = np.array([[[0, 0.5, 0.5, 0.2, 0.2]]])  # an object of the class 0
    >>> predictions = np.array([[[[0.0, 0.5, 0.5, 0.2, 0.2]]]])  # one block, one query: its box fits
    >>> round(float(loss(targets, predictions)), 2)  # log 2
    0.69
    """

    def __init__(
        self,
        weights: Sequence[float] = (1.0, 5.0, 2.0),
        costs: Sequence[float] | None = (2.0, 5.0, 2.0),
        alpha: float = 0.75,
        cost_alpha: float = 0.25,
        **kwargs: Any,
    ) -> None:
        super().__init__(weights, costs, **kwargs)
        self.alpha = alpha
        self.cost_alpha = cost_alpha

    def class_costs(self, logits):
        return focal_costs(logits, self.cost_alpha)

    def class_mean(self, predictions, query_targets):
        logits = self.logits_of(predictions)
        is_own = ops.one_hot(_classes_of(query_targets), logits.shape[-1])  # zeros for -1
        overlap = ops.stop_gradient(box_iou(predictions[..., -4:], query_targets[..., 1:]))[..., None]
        others = self.alpha * ops.square(ops.stop_gradient(ops.sigmoid(logits))) * (1 - is_own)
        entropies = ops.binary_crossentropy(overlap * is_own, logits, from_logits=True)
        return ops.sum((others + overlap * is_own) * entropies), None


def _classes_of(query_targets):
    """The class of each query's target, (B, Q), -1 for none."""
    return ops.cast(query_targets[..., 0], "int32")


def _learning(classes):
    """1.0 for a query that learns its class, one of `classes` (B, Q), 0.0 for one that is ignored."""
    return ops.cast(classes > IGNORED, "float32")


def focal_costs(logits, alpha):
    """What it would add to the focal loss if a query were of a class, for each query and class."""
    return _focal(ops.ones_like(logits), logits, alpha) - _focal(ops.zeros_like(logits), logits, alpha)


def _focal(targets, logits, alpha):
    """The focal loss of each logit."""
    return focal_loss(targets[..., None], logits[..., None], alpha)


def smallest_of(fits, targets):
    """The row of the smallest of the objects `targets` (B, M, 5) that `fits` (B, N, M) each of N places, -1
    where none does: (B, N).
    """
    fits = ops.logical_and(fits, targets[:, None, :, 0] >= 0)
    areas = ops.where(fits, ops.prod(targets[:, None, :, 3:], axis=-1), math.inf)
    return ops.where(ops.any(fits, axis=-1), ops.cast(ops.argmin(areas, axis=-1), "int32"), -1)


def taken(targets, of_query):
    """The target of each query, (B, Q, 5), the class -1 and an empty box where it has none; of targets with
    fewer numbers likewise.
    """
    width = targets.shape[-1]
    none = ops.broadcast_to([[[-1.0] + [0.0] * (width - 1)]], (ops.shape(targets)[0], 1, width))
    targets = ops.concatenate([none, targets], axis=1)  # (B, 1 + M, 5)
    return ops.take_along_axis(targets, of_query[..., None] + 1, axis=1)
