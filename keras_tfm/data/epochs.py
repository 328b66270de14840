"""Examples held out, and epochs of batches as one dataset.

Epochs are made wholly in the graph, so that an iterator over them can be saved and restored.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf


class Epochs(NamedTuple):
    """What `fit_best` takes: `epochs()`, a dataset without end, and how many batches of it are an epoch."""

    epochs: Callable[[], tf.data.Dataset]
    num_batches: int

    @classmethod
    def of(cls, batches, most: int | None = None) -> "Epochs":
        """Epochs that are passes over `batches`, or, where a pass has more, `most` batches of it; the next
        epoch goes on from there.
        """
        return cls(batches.epochs, min(batches.num_batches, most or batches.num_batches))


def one_after_another(epoch, num_batches) -> tf.data.Dataset:
    """The datasets `epoch(0)`, `epoch(1)`, … of `num_batches` batches each, without end: for
    `fit(dataset, steps_per_epoch=num_batches)`.
    """
    return finished(tf.data.Dataset.counter().flat_map(epoch), tf.data.INFINITE_CARDINALITY)


def finished(dataset, num_batches) -> tf.data.Dataset:
    """`dataset` of `num_batches` batches, made ahead of the training; several workers share each batch."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_batches))
    return dataset.with_options(options).prefetch(4)


def shuffled(count, seed, epoch, groups=None) -> tf.Tensor:
    """The numbers from 0 to `count` - 1 in an order that `seed` and `epoch` (int64) fix; with `groups`
    (count,), not negative, those of the lower groups first.
    """
    keys = tf.random.stateless_uniform([count], tf.stack([seed, epoch]), 0, 2**32, tf.int64, alg="philox")
    return tf.argsort(keys if groups is None else keys + tf.cast(groups, tf.int64) * 2**32)


def hold_out(num_examples, seed, share, most=None) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on, and a random `share` of them, at least one and at most `most`, to judge by.

    Both are sorted. Raises ValueError where nothing would be left for one of the two.
    """
    if not 0 < share < 1 or num_examples < 2:
        raise ValueError(
            "At least 2 examples are needed to train on some and judge by a share in (0, 1); "
            f"there are {num_examples}, and the share is {share}."
        )
    rows = np.random.default_rng(seed).permutation(num_examples)
    num_held = min(num_examples - 1, most or num_examples, max(1, round(share * num_examples)))
    return np.sort(rows[num_held:]), np.sort(rows[:num_held])
