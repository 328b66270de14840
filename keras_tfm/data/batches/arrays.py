"""Rows of arrays in batches."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches, count_batches, rows_of_epoch


class ArrayBatches(Batches):
    """Batches ({input: (B, ...)}, labels (B, ...)) of the rows of arrays, {input: (N, ...)} and (N, ...).

    A `seed` shuffles each epoch, always in the same way; rows that do not fill a batch are then left out of
    the epoch.

    >>> batches = keras_tfm.data.ArrayBatches({"values": np.ones((5, 2))}, np.arange(5), batch_size=2)
    >>> [labels.numpy().tolist() for _, labels in batches.dataset()]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, inputs: Mapping[str, Any], labels: Any, batch_size: int, seed: int | None = None):
        self.inputs = {name: tf.constant(x) for name, x in inputs.items()}
        self.labels, self.seed = tf.constant(labels), seed
        self.batch_size = min(batch_size, len(labels))
        self.num_batches = count_batches(len(labels), self.batch_size, seed)

    def _epoch(self, number):
        order = rows_of_epoch(len(self.labels), self.seed, number)
        rows = tf.data.Dataset.from_tensor_slices(order).batch(self.batch_size, self.seed is not None)
        return rows.map(
            lambda rows: (
                {name: tf.gather(x, rows) for name, x in self.inputs.items()},
                tf.gather(self.labels, rows),
            )
        )
