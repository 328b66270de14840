"""Batches of pictures' tokens, which a decoder learns to write after what describes each picture."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches, count_batches, rows_of_epoch


class WrittenPictureBatches(Batches):
    """Batches ({"token_ids": (B, T)}, the tokens that follow (B, T)) of `tokens` (N, L).

    `sequences` makes (B, 1 + T) of the tokens (B, L) and of the `conditions`, {name: (N, ...)}. With a `seed`
    each epoch is shuffled, shows at the rate `dropout` a condition as `absent` makes it of a count, and takes
    half of the pictures' tokens from `flipped`, if given, as the seed and the epoch determine; without it all
    epochs are the same.

    >>> from keras_tfm.data.batches.written_pictures import WrittenPictureBatches
    >>> make = lambda tokens, classes: tf.concat([classes[:, None], tokens], 1)
    >>> conditions = {"classes": np.array([7, 8], "int32")}
    >>> batches = WrittenPictureBatches(np.array([[1, 2], [3, 4]]), conditions, make, batch_size=2)
    >>> inputs, labels = next(iter(batches.dataset()))
    >>> inputs["token_ids"].numpy().tolist(), labels.numpy().tolist()
    ([[7, 1], [8, 3]], [[1, 2], [3, 4]])
    """

    def __init__(
        self,
        tokens: np.ndarray,
        conditions: Mapping[str, Any],
        sequences: Callable[..., tf.Tensor],
        batch_size: int,
        seed: int | None = None,
        dropout: float = 0.0,
        absent: Callable[[Any], Mapping[str, tf.Tensor]] | None = None,
        flipped: np.ndarray | None = None,
    ) -> None:
        with tf.device("cpu"):
            self.tokens = tf.constant(tokens, tf.int32)
            self.flipped = None if flipped is None else tf.constant(flipped, tf.int32)
            self.conditions = {name: tf.constant(x) for name, x in conditions.items()}
        self.sequences = sequences
        self.batch_size = min(batch_size, len(tokens))
        self.seed = seed
        self.dropout, self.absent = dropout, absent
        self.num_batches = count_batches(len(tokens), self.batch_size, seed)

    def _epoch(self, number):
        rows = tf.data.Dataset.from_tensor_slices(rows_of_epoch(len(self.tokens), self.seed, number))
        batches = rows.batch(self.batch_size, self.seed is not None).enumerate()
        return batches.map(lambda step, rows: self._batch(tf.stack([number, step]), rows))

    def _batch(self, step, rows):
        tokens = tf.gather(self.tokens, rows)
        conditions = {name: tf.gather(x, rows) for name, x in self.conditions.items()}
        if self.seed is not None:
            key = tf.random.experimental.stateless_fold_in(step, self.seed)
            keys = tf.random.experimental.stateless_split(key, 2)
            if self.flipped is not None:
                is_flipped = tf.random.stateless_uniform(tf.shape(rows), keys[0]) < 0.5
                tokens = tf.where(is_flipped[:, None], tf.gather(self.flipped, rows), tokens)
            if self.absent is not None and self.dropout:
                is_absent = tf.random.stateless_uniform(tf.shape(rows), keys[1]) < self.dropout
                absent = self.absent(tf.shape(rows)[0])
                conditions = {
                    name: tf.where(tf.reshape(is_absent, [-1] + [1] * (x.shape.rank - 1)), absent[name], x)
                    for name, x in conditions.items()
                }
        sequences = self.sequences(tokens, **conditions)
        return {"token_ids": sequences[:, :-1]}, sequences[:, 1:]
