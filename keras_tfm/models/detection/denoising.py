"""Denoising: in training a decoder is also given queries that begin near known objects, and corrects them.

    queries   | object 0, object 1, ... near | the same, further away | again ... | the model's own |
                 learn the object               learn "no object"

A pair of such parts is a group. Groups neither see each other nor are seen by the model's own queries, so
that the model's queries learn to find objects on their own. Zhang et al. 2023, "DINO: DETR with Improved
DeNoising Anchor Boxes", section 3.3.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.base import Layer
from keras_tfm.layers.boxes import centred, corners_of
from keras_tfm.models.detection.base import inverse_sigmoid


class DenoisingQueries(Layer):
    """Noisy queries (B, N, D) and their boxes (B, N, 4), before a decoder's own (B, Q, D) and (B, Q, 4).

    Args:
        num_classes: C, of the objects; a query begins as a learned vector of its class.
        num_added: about how many are to learn an object; there are as many groups of them as fit, at least
            one, and N is twice that.
        label_noise: twice the share of objects whose class is replaced by a random one.
        box_noise: how far a side may move, in halves of the box; in the part further away up to twice that,
            and at least once.

    Without `objects`, and outside training, none are added.
    """

    def __init__(
        self,
        num_classes: int,
        num_added: int,
        label_noise: float = 0.5,
        box_noise: float = 1.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # lower precision does not distinguish classes
        self.num_classes = num_classes
        self.num_added = num_added
        self.label_noise = label_noise
        self.box_noise = box_noise
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, queries_shape, references_shape=None, objects_shape=None):
        shape = (self.num_classes + 1, queries_shape[-1])  # the last one stands for no object
        self.table = self.add_weight(shape, "glorot_uniform", name="table")

    def call(self, queries, references, objects=None, training=None):
        """`objects` (B, M, 5) are classes, -1 for none, and boxes around centres."""
        if objects is None or not training:
            return queries, references
        count, length = ops.shape(objects)[:2]
        parts = 2 * num_groups(self.num_added, length)
        repeated = ops.broadcast_to(ops.cast(objects, "float32")[:, None], (count, parts, length, 5))
        labels, boxes = self._labels(repeated[..., 0]), self._boxes(repeated[..., 1:])
        added = ops.reshape(ops.take(self.table, labels, axis=0), (count, parts * length, queries.shape[-1]))
        boxes = ops.sigmoid(inverse_sigmoid(ops.reshape(boxes, (count, parts * length, 4))))
        queries = ops.concatenate([ops.cast(added, queries.dtype), queries], axis=1)
        return queries, ops.concatenate([ops.cast(boxes, references.dtype), references], axis=1)

    def _labels(self, labels):
        """The rows of the table for classes (B, P, M), of which some are replaced."""
        shape, is_object = ops.shape(labels), labels >= 0
        draws = keras.random.uniform(shape, seed=self.seed_generator)
        others = keras.random.uniform(shape, 0.0, float(self.num_classes), seed=self.seed_generator)
        others = ops.minimum(ops.floor(others), self.num_classes - 1.0)
        labels = ops.where(draws < self.label_noise / 2, others, labels)
        return ops.cast(ops.where(is_object, labels, float(self.num_classes)), "int32")

    def _boxes(self, boxes):
        """Boxes (B, P, M, 4) whose sides are moved, further in every second part."""
        shape = ops.shape(boxes)
        is_far = ops.cast(ops.arange(shape[1]) % 2 == 1, "float32")[:, None, None]
        how_far = keras.random.uniform(shape, seed=self.seed_generator) + is_far
        sign = ops.where(keras.random.uniform(shape, seed=self.seed_generator) < 0.5, -1.0, 1.0)
        half = boxes[..., 2:] / 2
        moves = self.box_noise * sign * how_far * ops.concatenate([half, half], axis=-1)
        return centred(ops.clip(corners_of(boxes) + moves, 0.0, 1.0))

    def compute_output_spec(self, queries, references, objects=None, training=None):
        if objects is None:
            return keras.KerasTensor(queries.shape, queries.dtype), keras.KerasTensor(
                references.shape, references.dtype
            )
        return tuple(
            keras.KerasTensor((x.shape[0], None, x.shape[2]), x.dtype) for x in (queries, references)
        )


def num_groups(num_added, num_objects):
    """How many groups of queries for `num_objects` of them, a number or a tensor, are added."""
    if isinstance(num_objects, int):
        return max(num_added // max(num_objects, 1), 1)
    return ops.maximum(num_added // ops.maximum(num_objects, 1), 1)


class DenoisingMask(Layer):
    """Which queries see which, (1, T, T), of T queries of which the last `num_queries` are a decoder's own,
    for `objects` (B, M, 5).
    """

    def __init__(self, num_queries: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_queries = num_queries

    def call(self, queries, objects):
        """`queries` (B, T, D) are read for their number alone."""
        places = ops.arange(ops.shape(queries)[1])
        first = ops.shape(queries)[1] - self.num_queries
        group = ops.where(places < first, places // ops.maximum(2 * ops.shape(objects)[1], 1), -1)
        is_seen = ops.logical_or(group[None] == -1, group[:, None] == group[None])
        return is_seen[None]

    def compute_output_spec(self, queries, objects):
        return keras.KerasTensor((1, None, None), "bool")
