"""Windows of a series of numbers: k values, and the next one as the target."""

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches, shuffled


def windows_of(series, size) -> tuple[np.ndarray, np.ndarray]:
    """All windows (N - k, k) of a series (N,), and the value after each, (N - k, 1)."""
    series = np.asarray(series)
    if len(series) <= size:
        raise ValueError(
            f"The series must have more than {size} values, a window and the next; it has {len(series)}."
        )
    windows = np.lib.stride_tricks.sliding_window_view(series, size + 1)
    return windows[:, :-1], windows[:, -1:]


class SeriesBatches(Batches):
    """Batches ({"values": (B, k)}, targets (B, 1)) of the windows of a series.

    A `seed` shuffles each epoch, always in the same way; windows that do not fill a batch are then left out
    of the epoch.
    """

    def __init__(self, series, size, batch_size, seed=None):
        values, targets = windows_of(series, size)
        self.values, self.targets = tf.constant(values, tf.float32), tf.constant(targets, tf.float32)
        self.batch_size, self.seed = min(batch_size, len(values)), seed
        full, rest = divmod(len(values), self.batch_size)
        self.num_batches = full if seed is not None else full + bool(rest)

    def _epoch(self, number):
        count = len(self.values)
        order = tf.range(count, dtype=tf.int64)
        if self.seed is not None:
            order = tf.cast(shuffled(count, self.seed, number), tf.int64)
        rows = tf.data.Dataset.from_tensor_slices(order).batch(self.batch_size, self.seed is not None)
        return rows.map(
            lambda rows: ({"values": tf.gather(self.values, rows)}, tf.gather(self.targets, rows))
        )
