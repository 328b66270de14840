"""What a replica of `tf.distribute` knows of the others, and needs from them for losses that compare all
examples of a batch.
"""

import tensorflow as tf


def is_one_of_several() -> bool:
    """Whether this code runs on one of several replicas, of which some may have got no example."""
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


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
    own = tf.one_hot(context.replica_id_in_sync_group, context.num_replicas_in_sync, dtype=tf.int32)
    sizes = context.all_reduce("SUM", own * size)
    before = tf.reduce_sum(sizes[: context.replica_id_in_sync_group])
    after = tf.reduce_sum(sizes) - before - size
    rest = [[0, 0]] * (x.shape.rank - 1)
    return context.all_reduce("SUM", tf.pad(x, [[before, after], *rest])), before
