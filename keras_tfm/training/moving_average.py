"""A teacher that follows its student: weights that are moving averages of other weights."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_tfm.training.changed_steps import ChangedStep
from keras_tfm.training.compiled import compiled_for


class MovingAverage(ChangedStep):
    """After each step of `fit`, moves the first variable of each of `pairs` towards the second one.

    The first variable keeps the share m of itself, which rises from `momentum` to 1 along a half cosine over
    `total_steps`: after step t, counted from 0, m = 1 - (1 - momentum) (cos(pi t / total) + 1) / 2 (Grill et
    al. 2020, "Bootstrap Your Own Latent"). The variables must belong to the model, so that checkpoints
    include them.

    >>> inputs = keras.Input((1,))
    >>> student, teacher = keras.layers.Dense(1), keras.layers.Dense(1, trainable=False)
    >>> model = keras_tfm.Model(inputs, student(inputs) - teacher(inputs))
    >>> model.compile("sgd", "mse")
    >>> average = keras_tfm.training.MovingAverage([(teacher.kernel, student.kernel)], 0.0, total_steps=10)
    >>> history = model.fit(np.ones((1, 1)), np.ones((1, 1)), verbose=0, callbacks=[average])
    >>> bool(teacher.kernel.numpy() == student.kernel.numpy())  # a momentum of 0 keeps nothing at first
    True
    """

    def __init__(
        self, pairs: Sequence[tuple[keras.Variable, keras.Variable]], momentum: float, total_steps: int
    ):
        super().__init__()
        if not 0 <= momentum <= 1:
            raise ValueError(f"`momentum` must lie in [0, 1]; it is {momentum}.")
        self.pairs = pairs
        self.momentum = momentum
        self.total_steps = total_steps

    def train_step(self, data: Any) -> Any:
        """The model's step, followed by an update of the averages."""
        logs = self.step(data)
        compiled_for(self.model, self.move)()
        return logs

    def move(self) -> None:
        """Move the averages towards the variables, after a step."""
        after = tf.cast(tf.convert_to_tensor(self.model.optimizer.iterations), tf.float32)
        done = tf.minimum((after - 1) / self.total_steps, 1.0)
        momentum = 1 - (1 - self.momentum) * (tf.cos(math.pi * done) + 1) / 2
        for average, variable in self.pairs:
            value = tf.convert_to_tensor(variable.value)
            average.assign(
                value + tf.cast(momentum, value.dtype) * (tf.convert_to_tensor(average.value) - value)
            )
