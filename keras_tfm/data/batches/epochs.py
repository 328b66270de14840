"""The base class of all batches, and functions that shuffle examples and hold some out.

Epochs are made wholly in the graph, so that an iterator over them can be saved and restored.
"""

import abc
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# None of the functions that tf.data traces here has a Python branch or loop on tensors. Without this option
# AutoGraph would rewrite them all the same, which takes a third of the time to the first batch.
_without_autograph = tf.autograph.experimental.do_not_convert


class Epochs(NamedTuple):
    """The argument of `fit_best`: `epochs()`, an endless dataset, and the number of batches in an epoch."""

    epochs: Callable[[], tf.data.Dataset]
    num_batches: int


class Batches(abc.ABC):
    """Examples in batches, `num_batches` in each epoch; `num_dropped` examples are in none. Abstract.

    A subclass makes the batches of one epoch, in the graph.

    >>> tokenizer = keras_tfm.data.CharacterTokenizer("abc")
    >>> blocks = keras_tfm.data.TextBlocks(["abc", "cab"], tokenizer, max_length=2)  # a subclass
    >>> blocks.num_batches, len(list(blocks.dataset())), len(list(blocks.epochs().take(9)))
    (4, 4, 9)
    """

    num_batches: int
    num_dropped: int = 0
    num_shapes: int = 1  # of batches, each of which XLA compiles
    class_weights: np.ndarray | None = None  # (C,), by which the weights of labels 0 to C - 1 are multiplied

    @abc.abstractmethod
    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        """The `num_batches` batches of the epoch `number` (int64), which depend on it and on a seed only."""

    @_without_autograph
    def dataset(self, epoch: int = 0) -> tf.data.Dataset:
        """The batches of one epoch, which depend only on its number and the seed."""
        return _finished(self._weighted(self._epoch(tf.constant(epoch, tf.int64))), self.num_batches)

    @_without_autograph
    def epochs(self) -> tf.data.Dataset:
        """The batches of epoch 0, 1, … without end, for `fit(..., steps_per_epoch=num_batches)`."""
        return _finished(self._weighted(self._endless()), tf.data.INFINITE_CARDINALITY)

    def _endless(self) -> tf.data.Dataset:
        """All epochs one after another; a subclass may have a shorter way."""
        return tf.data.Dataset.counter().flat_map(self._epoch)

    def _weighted(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The batches with the weights of their labels' classes."""
        if self.class_weights is None:
            return dataset
        table = tf.constant(self.class_weights, tf.float32)

        def weigh(inputs, labels, weights=1.0):
            classes = labels if labels.dtype.is_integer else tf.argmax(labels, axis=-1)  # of smoothed labels
            return inputs, labels, weights * tf.gather(table, classes)

        return dataset.map(weigh)

    def in_epochs_of(self, most: int | None = None) -> Epochs:
        """Epochs of a whole pass over these batches, or of `most` batches if a pass has more; the next epoch
        continues there.
        """
        return Epochs(self.epochs, min(self.num_batches, most or self.num_batches))


def _finished(dataset: tf.data.Dataset, num_batches) -> tf.data.Dataset:
    """`dataset` with its length of `num_batches`, prefetching, and the sharding of a batch among workers."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_batches))
    return dataset.with_options(options).prefetch(4)


def shuffled(count: int, seed: int, epoch: tf.Tensor, groups: tf.Tensor | None = None) -> tf.Tensor:
    """The numbers from 0 to `count` - 1 in an order that depends only on `seed` and `epoch` (int64).

    With `groups`, non-negative integers (count,), numbers of lower groups come first.
    """
    keys = tf.random.stateless_uniform([count], tf.stack([seed, epoch]), 0, 2**32, tf.int64, alg="philox")
    return tf.argsort(keys if groups is None else keys + tf.cast(groups, tf.int64) * 2**32)


def rows_of_epoch(count: int, seed: int | None, epoch: tf.Tensor) -> tf.Tensor:
    """The rows 0 to `count` - 1 of an epoch, int64: `shuffled` by a `seed`, without one as they stand."""
    if seed is None:
        return tf.range(count, dtype=tf.int64)
    return tf.cast(shuffled(count, seed, epoch), tf.int64)


def count_batches(count: int, batch_size: int, seed: int | None) -> int:
    """How many batches `count` rows make: with a `seed`, which is for training, full ones alone."""
    full, rest = divmod(count, batch_size)
    return full if seed is not None else full + bool(rest)


class HeldOut(NamedTuple):
    """How many examples are held out for validation: a `share` of them, `most` and `least` by number.

    `least` never takes more than a fifth of the examples.
    """

    share: float
    most: int | None = None
    least: int = 1

    def __str__(self) -> str:
        share = f"{self.share:.0%} of --data"
        if self.least == 1:
            return f"{share}, at most {self.most:,}" if self.most else share
        numbers = f"from {self.least:,} to {self.most:,}" if self.most else f"at least {self.least:,}"
        return f"{share}, {numbers}; a fifth of fewer than {5 * self.least:,}"

    def count(self, num_examples: int) -> int:
        """The number of examples for validation, which leaves one for training."""
        least = max(1, min(self.least, num_examples // 5))
        return min(num_examples - 1, self.most or num_examples, max(least, round(self.share * num_examples)))


def hold_out(
    num_examples: int, seed: int, held: HeldOut, classes: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(Training rows, validation rows): as many for validation as `held` says, chosen at random.

    With `classes`, a number for each example (N,), every class has its share of the validation, up to one
    example. Both parts are sorted. Raises ValueError if one of the two would be empty.
    """
    share = held.share
    if not 0 < share < 1 or num_examples < 2:
        raise ValueError(
            "At least 2 examples are needed, and a share of them in (0, 1) for validation; "
            f"there are {num_examples}, and the share is {share}."
        )
    rows = np.random.default_rng(seed).permutation(num_examples)
    num_held = held.count(num_examples)
    if classes is not None:
        rows = rows[np.argsort(np.asarray(classes)[rows], kind="stable")]
        chosen = np.floor((np.arange(num_held) + 0.5) * num_examples / num_held).astype(int)
        rows = np.concatenate([rows[chosen], np.delete(rows, chosen)])
    return np.sort(rows[num_held:]), np.sort(rows[:num_held])
