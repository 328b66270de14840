"""Optimizers for Transformers: learning rates and weight decay per variable, gradient norms, averaged
weights.

For fine-tuning, where lower blocks learn more slowly:

    rates = layer_rates(model, 0.75)
    optimizer = AdamW(WarmupCosineSchedule(1e-4, 500, 10_000), weight_decay=0.05, rates=rates)
"""

import re
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_tfm.jit import is_fusing
from keras_tfm.private.keras import adam_moments
from keras_tfm.private.tensorflow import is_in_xla
from keras_tfm.registry import register

# Biases, scales and offsets of norms, positions and the class token, in any layer.
NOT_DECAYED = r"(bias|gamma|beta|scale)$|position|tokens?/embedding$|pooling/query$"

Base: Any = object  # the classes below are mixins for a Keras optimizer


class ByPath(Base):
    """Mixin: learning rates and weight decay that depend on a variable's path.

    Args:
        rates: {path: factor} of the learning rate, and of the decay with it; other variables have 1.
        not_decayed: a regular expression; variables whose path contains a match do not decay.

    Raises:
        ValueError: at `build`, if a path in `rates` belongs to no variable.
    """

    def __init__(
        self,
        *args: Any,
        rates: Mapping[str, float] | None = None,
        not_decayed: str = NOT_DECAYED,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.rates = rates or {}
        self.not_decayed = not_decayed

    def build(self, variables: list[keras.Variable]) -> None:
        """Keras's, and the factors of each variable."""
        if self.built:
            return
        paths = [variable.path for variable in variables]
        unknown = sorted(self.rates.keys() - set(paths))
        if unknown:
            raise ValueError(
                f"`rates` names {', '.join(unknown[:3])}{' …' * (len(unknown) > 3)}, which this optimizer "
                "does not train: compute the rates after freezing, and from the model that is trained."
            )
        self._rates = [float(self.rates.get(path, 1.0)) for path in paths]
        self._decays = [bool(self.weight_decay) and not re.search(self.not_decayed, path) for path in paths]
        super().build(variables)

    def update_step(self, gradient: tf.Tensor, variable: keras.Variable, learning_rate: tf.Tensor) -> None:
        """Keras's update after the weight decay, both at the variable's own rate."""
        index = self._get_variable_index(variable)
        learning_rate = ops.cast(learning_rate, variable.dtype) * self._rates[index]
        if self._decays[index]:
            decay = _decay_in_one_pass if is_fusing() else _decay
            decay(variable, self.weight_decay * learning_rate)
        super().update_step(gradient, variable, learning_rate)

    def _apply_weight_decay(self, variables: list[keras.Variable]) -> None:
        """Do nothing: `update_step` applies the decay."""

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Any = None) -> None:
        """Raise ValueError: `not_decayed` says what is left out, and is kept with the optimizer."""
        raise ValueError("Pass `not_decayed`, a regular expression of paths, to the optimizer instead.")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rates": dict(self.rates), "not_decayed": self.not_decayed}


class MeasuredGradients(Base):
    """Mixin: keeps the global norm of the gradients, and clips by norms that are computed once.

    The norm is measured on the gradient used for an update: summed over replicas, averaged over accumulated
    steps, unscaled, and not yet clipped. With a `train_step` of the user's own it is measured on one
    replica's part. Where a norm is not finite, clipping gives NaN, as Keras's by the global norm does.
    """

    def build(self, variables: list[keras.Variable]) -> None:
        """Keras's, and variables for the sum and the count of norms."""
        if self.built:
            return
        super().build(variables)
        # All replicas compute the same values, so they need no communication.
        self._norms = [self.add_variable((), name=f"gradient_norm_{name}") for name in ("sum", "count")]

    def _clip_gradients(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        dense = [as_dense(gradient) for gradient in gradients]
        squares = tf.stack([_sum_of_squares(tf.cast(gradient, "float32")) for gradient in dense])
        norm = tf.sqrt(tf.reduce_sum(squares))
        for total, value in zip(self._norms, (norm, 1.0), strict=True):
            total.assign_add(value)
        if self.clipnorm:
            shares = tf.unstack(_share_kept(tf.sqrt(squares), self.clipnorm))
        elif self.global_clipnorm:
            shares = [_share_kept(norm, self.global_clipnorm)] * len(dense)
        else:
            return super()._clip_gradients(gradients)
        return [x * tf.cast(share, x.dtype) for x, share in zip(dense, shares, strict=True)]

    def take_gradient_norm(self) -> float:
        """The mean over the updates since the last call; NaN if there were none."""
        total, count = (float(ops.convert_to_numpy(value)) for value in self._norms)
        for value in self._norms:
            value.assign(0.0)
        return total / count if count else float("nan")


class AdamInOnePass(Base):
    """Mixin: Adam's update of a variable by one operation, in one pass over its memory.

    Keras writes it as a dozen operations, each of which reads and writes arrays as large as the variable. XLA
    makes one pass of them, too, but takes longer to compile them. The slices of a table's gradient are summed
    before they are squared.
    """

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Keras's update, by TensorFlow's operation for it."""
        gradient = as_dense(gradient)
        if self.amsgrad:
            return super().update_step(gradient, variable, learning_rate)
        step = tf.cast(self.iterations + 1, variable.dtype)
        momentum, velocity = adam_moments(self, variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=momentum.value.handle,
            v=velocity.value.handle,
            beta1_power=tf.cast(self.beta_1, variable.dtype) ** step,
            beta2_power=tf.cast(self.beta_2, variable.dtype) ** step,
            lr=learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.cast(gradient, variable.dtype),
        )


class YoungAverages(Base):
    """Mixin: averages of the weights (`use_ema`) that forget the initial weights quickly.

    After t updates an average keeps min(`ema_momentum`, t / (t + 9)) of itself: it reaches back over a tenth
    of the training until the momentum limits it. With Keras's constant momentum, a short training would end
    with averages that consist largely of untrained weights. Batches whose gradients are accumulated for one
    update count as one together.
    """

    def _update_model_variables_moving_average(self, variables: list[keras.Variable]) -> None:
        if not self.use_ema:
            return
        updates = ops.cast(self.iterations, "float32")  # before this one
        momentum = ops.minimum(updates / (updates + 9), self.ema_momentum)
        if self.gradient_accumulation_steps:
            momentum = momentum ** (1 / self.gradient_accumulation_steps)
        for variable, average in zip(variables, self._model_variables_moving_average, strict=True):
            if average is not None:
                average.assign(variable + ops.cast(momentum, average.dtype) * (average - variable))


def _decay(variable: tf.Variable, share: tf.Tensor) -> None:
    """Take `share` of `variable` off it."""
    variable.assign_sub(variable * share)


_decay_in_one_pass = tf.function(_decay, jit_compile=True, autograph=False)


def _share_kept(norms: tf.Tensor, most: float) -> tf.Tensor:
    """By what to multiply arrays of these `norms` so that none exceeds `most`; NaN for infinite norms."""
    return most / tf.maximum(norms, most) + (norms - norms)


def _sum_of_squares(x: tf.Tensor) -> tf.Tensor:
    if x.shape.rank < 2 or not is_in_xla():
        return 2 * tf.nn.l2_loss(x)
    # Sum columns, then multiply by ones: XLA on CPUs vectorises this, but not one sum over all axes.
    columns = tf.reduce_sum(tf.square(x), axis=list(range(x.shape.rank - 1)))
    return tf.linalg.matvec(tf.ones_like(columns)[None], columns)[0]


def as_dense(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """The gradient as a tensor, in which the slices of a row are summed."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, gradient.dense_shape[0])
    return gradient


@register
class Adam(ByPath, AdamInOnePass, MeasuredGradients, YoungAverages, keras.optimizers.Adam):
    """Keras's Adam (Kingma and Ba 2015) with `rates`, decay per variable, gradient norms and quick averages.

    `rates` and `not_decayed` are described at `AdamW`.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> model.compile(keras_tfm.training.Adam(1e-3, use_ema=True), "mse")
    >>> model.train_on_batch(np.ones((1, 2)), np.ones((1, 3))) > 0
    True
    """


@register
class AdamW(ByPath, AdamInOnePass, MeasuredGradients, YoungAverages, keras.optimizers.AdamW):
    """Keras's AdamW (Loshchilov and Hutter 2019) with rates and decay per variable.

    It also measures the norm of the gradients (`GradientNorm`), and its averages of the weights (`use_ema`)
    forget the initial weights quickly. All other arguments are Keras's.

    Args:
        rates: {path: factor} of the learning rate, and of the decay with it; other variables have 1.
        not_decayed: a regular expression; variables whose path contains a match do not decay. By default
            these are biases, scales, positions and special tokens.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="dense")])
    >>> rates = {variable.path: 0.1 for variable in model.layers[0].trainable_variables}
    >>> model.compile(keras_tfm.training.AdamW(1e-3, weight_decay=0.05, rates=rates), "mse")
    >>> model.train_on_batch(np.ones((1, 2)), np.ones((1, 3))) > 0
    True
    """


@register
class SGD(ByPath, MeasuredGradients, YoungAverages, keras.optimizers.SGD):
    """Keras's SGD with `rates`, decay per variable, gradient norms and quick averages.

    `rates` and `not_decayed` are described at `AdamW`.

    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    >>> model.compile(keras_tfm.training.SGD(0.25), "mse")
    >>> loss = model.train_on_batch(np.zeros((1, 1)), np.ones((1, 1)))
    >>> model.layers[0].bias.numpy().tolist()  # 0.25 times the gradient, 2
    [0.5]
    """
