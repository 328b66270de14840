"""What a replica of `tf.distribute` knows of the others, and sums over all of them."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf


def is_one_of_several() -> bool:
    """Whether this code runs on one of several replicas, of which some may have got no example."""
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


def replica_offset(dtype: tf.DType) -> tf.Tensor:
    """What a replica adds to a seed so that it draws other numbers than the others; 0 on the first one."""
    # A large offset, so that it does not meet the seeds of other generators.
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group if is_one_of_several() else 0
    return tf.cast(replica, dtype) * tf.cast(0x3C6EF372, dtype)


def rows_of_all_replicas(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | int]:
    """(The rows (B, ...) of all replicas, concatenated; how many rows precede this replica's own).

    Batches may differ in size. Gradients reach the replica to which the rows belong: each replica adds its
    own rows to zeros, and the gradient of that sum is the sum of the gradients. Without a strategy, or on a
    single replica, the result is `x` and 0.
    """
    if not is_one_of_several():
        return x, 0
    context = tf.distribute.get_replica_context()
    size = tf.shape(x)[0]
    this_replica = tf.one_hot(context.replica_id_in_sync_group, context.num_replicas_in_sync, dtype=tf.int32)
    sizes = context.all_reduce("SUM", this_replica * size)
    before = tf.reduce_sum(sizes[: context.replica_id_in_sync_group])
    after = tf.reduce_sum(sizes) - before - size
    rest = [[0, 0]] * (x.shape.rank - 1)
    return context.all_reduce("SUM", tf.pad(x, [[before, after], *rest])), before


def over_all_replicas(total: tf.Tensor, count: tf.Tensor | None) -> tf.Tensor:
    """sum(total) / sum(count) over the replicas (or sum(total) for None), divided by the number of replicas.

    The value is the same on each replica, so that trackers are right; the gradient is the local part's, so
    that the sum of gradients is right.
    """
    if not is_one_of_several():
        return total if count is None else tf.math.divide_no_nan(total, count)
    context = tf.distribute.get_replica_context()
    if count is not None:
        total = tf.math.divide_no_nan(total, context.all_reduce("SUM", count))
    part = context.all_reduce("SUM", tf.stop_gradient(total)) / context.num_replicas_in_sync
    return part + total - tf.stop_gradient(total)


def mean_over_replicas(x: tf.Tensor) -> tf.Tensor:
    """The mean of `x` (B, ...) over its first axis, and over the batches of all replicas."""
    sums = [tf.reduce_sum(x, axis=0), tf.cast(tf.shape(x)[0], x.dtype)]
    if is_one_of_several():
        sums = tf.distribute.get_replica_context().all_reduce("SUM", sums)
    return tf.math.divide_no_nan(*sums)


def sum_over_replicas(gradients: Sequence[tf.Tensor | None]) -> list[tf.Tensor | None]:
    """The gradients summed over the replicas; None stays None."""
    tensors = [gradient for gradient in gradients if gradient is not None]
    summed = iter(tf.distribute.get_replica_context().all_reduce("SUM", tensors))
    return [None if gradient is None else next(summed) for gradient in gradients]


def batch_size_of(x: Any) -> tf.Tensor:
    """The number of examples in a batch: the first axis of its first array."""
    return tf.shape(next(leaf for leaf in keras.tree.flatten(x) if leaf is not None))[0]
