"""Keras's losses, each computed over the batches of all replicas."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_tfm.private import keras as private
from keras_tfm.training.replicas import batch_size_of, over_all_replicas


class GlobalCompileLoss(private.CompileLoss):
    """Keras's nested losses, each of them computed over all replicas."""

    _flat_losses: list

    def build(self, y_true: Any, y_pred: Any) -> None:
        super().build(y_true, y_pred)
        self._flat_losses = [
            flat._replace(loss=functools.partial(global_loss, flat.loss)) for flat in self._flat_losses
        ]


def global_loss(loss: Callable, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
    """`loss(y_true, y_pred, sample_weight)` over the batches of all replicas, divided by their number.

    This follows `keras.losses.Loss.__call__`, which computes the local loss. A loss that is already a scalar
    counts as a mean over the local batch. A loss with a method `means`, which returns [(total, count)], is
    the sum of these means.
    """
    if hasattr(loss, "means"):
        if sample_weight is not None:
            raise ValueError(f"{loss!r} computes weights of its own; it takes no `sample_weight`.")
        return tf.add_n([over_all_replicas(*mean) for mean in loss.means(y_true, y_pred)])
    batch_size = tf.cast(batch_size_of(y_pred), "float32")
    if not isinstance(loss, keras.losses.Loss) or type(loss).__call__ is not keras.losses.Loss.__call__:
        values = loss(y_true, y_pred, sample_weight)
        return over_all_replicas(tf.reduce_sum(values) * batch_size, batch_size)
    mask = private.get_keras_mask(y_pred)
    y_true, y_pred = (
        keras.tree.map_structure(lambda x: keras.ops.convert_to_tensor(x, dtype=loss.dtype), y)
        for y in (y_true, y_pred)
    )
    values = loss.call(y_true, y_pred)
    if values.shape.rank == 0:
        return over_all_replicas(values * batch_size, batch_size)
    # With "sum", Keras uses the mask as plain weights and does not rescale the rest.
    weights = private.apply_mask(sample_weight, mask, values.dtype, reduction="sum")
    if weights is not None:
        values, weights = private.squeeze_or_expand_to_same_rank(
            values, keras.ops.convert_to_tensor(weights, dtype=values.dtype)
        )
    total = tf.reduce_sum(values if weights is None else values * weights)
    if loss.reduction in (None, "none", "sum"):
        return over_all_replicas(total, None)
    if loss.reduction == "mean_with_sample_weight" and weights is not None:
        return over_all_replicas(total, tf.reduce_sum(weights))
    count = tf.size(values) if mask is None else tf.math.count_nonzero(mask)
    return over_all_replicas(total, tf.cast(count, total.dtype))
