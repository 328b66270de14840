"""Learning a set of triplets of a subject, a predicate and an object, beside the set of all entities.

Cong et al. 2023, "RelTR: Relation Transformer for Scene Graph Generation", section 3.4; costs, weights and
denominators as in the authors' code.
"""

from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_tfm.heads.cells import cell_means
from keras_tfm.heads.matching import match
from keras_tfm.heads.set_prediction import SetPredictionLoss, focal_costs, taken
from keras_tfm.layers.boxes import box_iou

SIDE = 0.5  # what the class of a subject or an object weighs, where an entity's weighs 1


class RelationSetLoss(SetPredictionLoss):
    """The loss of L predictions of the entities and the triplets of a `RelationDetector`, in nats.

    Row n of the targets (B, N, 8) holds the n-th object, its class and its box as `SetPredictionLoss` has
    them, and the n-th relation: the row of its subject, the row of its object and its predicate, 0 to P - 1;
    the class or the predicate -1 is padding, and a relation to padding is none. Predictions are the packed
    ones of the detector's `learner`. In each block the Q entities are matched to the objects, and the
    triplets, each as a whole, to the relations. The loss is the sum over the blocks of the cross-entropy of
    all classes, where classes in triplets weigh half, the differences and 1 - GIoU of all matched boxes over
    the number of objects and relations, and the cross-entropy of predicates, in which a triplet without
    relation weighs `no_object`. A subject or an object that is matched to none, but whose class is right and
    whose IoU with an object is `good_overlap` or more, is not taught that nothing is there.

    With `num_cells` the numbers of each block end with the entities that the cells of the encoded map predict
    and with the cells' centres (x, y), (B, num_cells, C + 7). The loss then has the same terms of the cells,
    averaged by themselves, once for each block: a cell learns the smallest object around its centre, or that
    there is none; a cell at padding, where a coordinate is 1 or more, learns nothing.

    Args:
        weights: what multiplies the terms of classes, differences and overlaps and, by default, their costs.
        predicate_weights: the same for predicates: in the loss, and in the costs.

    >>> loss = keras_tfm.heads.RelationSetLoss(num_classes=1, num_predicates=1, num_queries=1)
    >>> box = [0.5, 0.5, 0.2, 0.2]
    >>> targets = np.array([[[0, *box, 0, 0, 0]]])  # an object, which is related to itself
    >>> entity, predicate = [9.0, -9.0, *box], [9.0, -9.0]
    >>> predictions = np.array([[entity + entity + entity + predicate]])  # one block, one query, one triplet
    >>> round(float(loss(targets, predictions)), 2)
    0.0
    """

    def __init__(
        self,
        num_classes: int,
        num_predicates: int,
        num_queries: int,
        weights: Sequence[float] = (1.0, 5.0, 2.0),
        predicate_weights: Sequence[float] = (1.0, 0.5),
        good_overlap: float = 0.7,
        num_cells: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weights, **kwargs)
        self.num_classes = num_classes
        self.num_predicates = num_predicates
        self.num_queries = num_queries
        self.predicate_weights = tuple(predicate_weights)
        self.good_overlap = good_overlap
        self.num_cells = num_cells

    def means(self, targets, predictions):
        targets = ops.cast(targets, "float32")
        num_blocks = predictions.shape[1]
        of_cells = self.of_cells(targets[..., :5], predictions) if self.num_cells else []
        entities, sides, predicates = self.parts_of(predictions)
        targets = ops.repeat(targets, num_blocks, axis=0)  # (B L, N, 8)
        objects = targets[..., :5]
        triplets = triplets_of(targets)  # (B L, N, 11)
        of_entity, of_triplet = self.matches(objects, triplets, entities, sides, predicates)
        pairs = [(entities, taken(objects, of_entity), 1.0)]
        for side, ends in zip(sides, (triplets[..., :5], triplets[..., 5:10]), strict=True):
            is_spared = ops.logical_and(of_triplet < 0, self.are_good(side, objects))
            pairs.append((side, taken(ends, of_triplet), ops.where(is_spared, 0.0, SIDE)))
        terms = [(*self.class_terms(x[..., :-4], target[..., 0]), share) for x, target, share in pairs]
        total = sum(ops.sum(share * badness) for badness, _, share in terms)
        count = sum(ops.sum(weight) for _, weight, _ in terms) / num_blocks
        boxes = sum(self.box_total(x, target) for x, target, _ in pairs)
        num_relations = ops.sum(ops.cast(triplets[..., -1] >= 0, "float32"))
        num_targets = (ops.sum(ops.cast(objects[..., 0] >= 0, "float32")) + num_relations) / num_blocks
        badness, weight = self.class_terms(predicates, taken(triplets[..., 10:], of_triplet)[..., 0])
        of_predicates = (self.predicate_weights[0] * ops.sum(badness), ops.sum(weight) / num_blocks)
        return [(self.weights[0] * total, count), (boxes, num_targets), of_predicates, *of_cells]

    def of_cells(self, objects, predictions):
        """[(total, count)] of the classes and of the boxes of cells, once for each block of `predictions`."""
        _, num_blocks, length = predictions.shape
        width = self.num_classes + 7
        row = ops.cast(predictions[:, 0, length - self.num_cells * width :], "float32")
        return cell_means(self, objects, ops.reshape(row, (-1, self.num_cells, width)), num_blocks)

    def parts_of(self, predictions):
        """Packed predictions (B, L, .) taken apart, but for cells: the entities (B L, Q, C + 5), the subjects
        and the objects of the triplets (B L, T, C + 5) each, and the logits of their predicates (B L, T, P +
        1).
        """
        width = self.num_classes + 5
        length = predictions.shape[2] - self.num_cells * (width + 2)
        last = self.num_predicates + 1
        num_triplets = (length - self.num_queries * width) // (2 * width + last)
        if length != self.num_queries * width + num_triplets * (2 * width + last):
            raise ValueError(
                f"`predictions` must hold {self.num_queries} queries and {self.num_cells} cells with "
                f"{self.num_classes} classes and triplets with {self.num_predicates} predicates; they are "
                f"{predictions.shape[2]} numbers wide."
            )
        predictions = ops.reshape(ops.cast(predictions[..., :length], "float32"), (-1, length))
        sizes = [
            (self.num_queries, width),
            (num_triplets, width),
            (num_triplets, width),
            (num_triplets, last),
        ]
        parts, start = [], 0
        for count, size in sizes:
            parts.append(ops.reshape(predictions[:, start : start + count * size], (-1, count, size)))
            start += count * size
        return parts[0], parts[1:3], parts[3]

    def matches(self, objects, triplets, entities, sides, predicates):
        """The object of each entity (B L, Q) and the relation of each triplet (B L, T), -1 for none."""
        of_entity = match(self.pair_costs(objects, entities), objects[..., 0] >= 0)
        labels = ops.cast(ops.maximum(triplets[..., -1], 0.0), "int32")  # (B L, N)
        index = ops.broadcast_to(labels[:, None], (*ops.shape(predicates)[:2], ops.shape(labels)[1]))
        costs = self.predicate_weights[1] * ops.take_along_axis(self.class_costs(predicates), index, axis=2)
        for side, ends in zip(sides, (triplets[..., :5], triplets[..., 5:10]), strict=True):
            costs += self.pair_costs(ends, side)
        return of_entity, match(costs, triplets[..., -1] >= 0)

    def class_costs(self, logits):
        return focal_costs(logits, 0.25)

    def are_good(self, side, objects):
        """Which subjects or objects (B L, T, C + 5) find some of the `objects` (B L, N, 5): (B L, T)."""
        classes = ops.cast(ops.argmax(side[..., :-5], axis=-1), "float32")  # the last logit is of no object
        is_right = classes[:, :, None] == objects[:, None, :, 0]  # (B L, T, N)
        overlaps = box_iou(side[:, :, None, -4:], objects[:, None, :, 1:])
        return ops.any(ops.logical_and(is_right, overlaps >= self.good_overlap), axis=-1)


def triplets_of(targets):
    """The relations in targets (B, N, 8), as `RelationSetLoss` has them: the class and box of the subject, of
    the object, and the predicate, -1 for none: (B, N, 11).
    """
    subjects, others = (taken(targets[..., :5], ops.cast(targets[..., i], "int32")) for i in (5, 6))
    exist = ops.logical_and(subjects[..., 0] >= 0, others[..., 0] >= 0)
    predicates = ops.where(exist, targets[..., 7], -1.0)
    return ops.concatenate([subjects, others, predicates[..., None]], axis=-1)
