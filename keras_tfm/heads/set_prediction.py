"""Learning a set of objects: predictions are matched to targets, and then each learns its own.

Carion et al. 2020, "End-to-End Object Detection with Transformers", sections 3.1 and A.2.
"""

import keras
from keras import ops

from keras_tfm.heads.boxes import box_distance, generalized_iou
from keras_tfm.heads.matching import match
from keras_tfm.registry import register


@register
class SetPredictionLoss(keras.losses.Loss):
    """The loss of L predictions of a set of objects, one for each decoder block, in nats.

    Targets are (B, M, 5): an object's class, 0 to C - 1, and its box, (x, y, width, height) around the centre
    as parts of the image's sides; the class -1 is padding. Predictions are (B, L, Q, C + 1 + 4): logits, the
    last one that of no object, and boxes. For each block the queries are matched anew, by `match`, at the
    cost of -p(class), the sum of absolute differences and -GIoU. The loss is the sum over the blocks of a
    cross-entropy in which a query without an object weighs `no_object`, averaged by these weights, and of the
    differences and 1 - GIoU of matched boxes over the number of targets. `weights` are those of the three in
    the loss and, by default, in the `costs`. Both denominators are those of the whole batch, over all
    replicas.
    """

    def __init__(self, weights=(1.0, 5.0, 2.0), costs=None, no_object=0.1, name="loss", reduction="sum"):
        super().__init__(name=name, reduction=reduction)
        self.weights = tuple(weights)
        self.costs = self.weights if costs is None else tuple(costs)
        self.no_object = no_object

    def call(self, targets, predictions):
        """The loss, a scalar."""
        return sum(ops.divide_no_nan(total, count) for total, count in self.means(targets, predictions))

    def means(self, targets, predictions):
        """[(total, count)] of the means whose sum the loss is; `keras_tfm.Model` sums both over replicas."""
        targets, predictions = ops.cast(targets, "float32"), ops.cast(predictions, "float32")
        _, num_blocks, num_queries, width = predictions.shape
        num_targets = ops.sum(ops.cast(targets[..., 0] >= 0, "float32"))
        targets = ops.repeat(targets, num_blocks, axis=0)  # (B L, M, 5)
        predictions = ops.reshape(predictions, (-1, num_queries, width))  # (B L, Q, C + 5)
        of_query = match(self.pair_costs(targets, predictions), targets[..., 0] >= 0)  # (B L, Q)
        is_matched = ops.cast(of_query >= 0, "float32")
        own = _taken(targets, of_query, no_object=width - 5)  # (B L, Q, 5)
        logits, boxes, own_boxes = predictions[..., :-4], predictions[..., -4:], own[..., 1:]
        entropies = ops.sparse_categorical_crossentropy(ops.cast(own[..., 0], "int32"), logits, True)
        class_weights = ops.where(of_query >= 0, 1.0, self.no_object)  # (B L, Q)
        of_class, of_distance, of_overlap = self.weights
        badness = of_distance * box_distance(boxes, own_boxes)
        badness += of_overlap * (1 - generalized_iou(boxes, own_boxes))
        return [
            (of_class * ops.sum(class_weights * entropies), ops.sum(class_weights) / num_blocks),
            (ops.sum(is_matched * badness), num_targets),
        ]

    def pair_costs(self, targets, predictions):
        """What each pair of a query and a target would cost: (B, Q, M)."""
        labels, boxes = ops.cast(targets[..., 0], "int32"), targets[..., 1:]
        probabilities = ops.softmax(predictions[..., :-4])
        index = ops.broadcast_to(
            ops.maximum(labels, 0)[:, None], (*ops.shape(predictions)[:2], ops.shape(labels)[1])
        )
        of_class, of_distance, of_overlap = self.costs
        pairs = predictions[:, :, None, -4:], boxes[:, None]
        costs = of_distance * box_distance(*pairs) - of_overlap * generalized_iou(*pairs)
        return costs - of_class * ops.take_along_axis(probabilities, index, axis=2)

    def get_config(self):
        return {
            **super().get_config(),
            "weights": self.weights,
            "costs": self.costs,
            "no_object": self.no_object,
        }


def _taken(targets, of_query, no_object):
    """The target of each query, (B, Q, 5), the class `no_object` and an empty box where it has none."""
    none = ops.broadcast_to([[[no_object, 0.0, 0.0, 0.0, 0.0]]], (ops.shape(targets)[0], 1, 5))
    targets = ops.concatenate([none, targets], axis=1)  # (B, 1 + M, 5)
    return ops.take_along_axis(targets, of_query[..., None] + 1, axis=1)
