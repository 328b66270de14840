"""Callbacks that change the training step of a model while it is fitted."""

import abc
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_tfm.training.compiled import compiled_for
from keras_tfm.training.replicas import replica_offset
from keras_tfm.training.schedules import TimedSchedule

Change = Callable[[Any, tf.Tensor, tf.Tensor], Any]


class ChangedStep(keras.callbacks.Callback, abc.ABC):
    """Replaces a model's `train_step` during `fit`; the model's own step is `self.step`. Abstract."""

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        self.step = model.train_step
        model.train_step, model.train_function = self.train_step, None

    def on_fit_end(self) -> None:
        """Restore the model's own step, also after an error before the first step."""
        if self.model is None:
            return
        self.model.train_step, self.model.train_function = self.step, None

    @abc.abstractmethod
    def train_step(self, data: Any) -> Any:
        """One step on a batch; returns the logs of `self.step(data)`."""


class ChangedInputs(ChangedStep):
    """Lets each step learn from `change(inputs, step, done)` instead of a batch's inputs.

    `step` is the number of the optimizer's step, plus the `replica_offset`. `done` is the finished share of
    the training, from 0 to 1: of `total_steps` or, if a `schedule` follows a time limit, of the time,
    whichever is larger.
    """

    def __init__(self, change: Change, total_steps: int, schedule: Any = None):
        super().__init__()
        self.change = change
        self.total_steps = total_steps
        self.schedule = schedule

    def train_step(self, data: Any) -> Any:
        """One step on the changed batch; no gradient flows through the change."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        step = tf.cast(tf.convert_to_tensor(self.model.optimizer.iterations), tf.int32)
        done = tf.cast(step, tf.float32) / self.total_steps
        if isinstance(self.schedule, TimedSchedule):
            done = tf.maximum(done, tf.convert_to_tensor(self.schedule.share))
        x = compiled_for(self.model, self.change)(x, step + replica_offset(step.dtype), tf.minimum(done, 1.0))
        return self.step(keras.utils.pack_x_y_sample_weight(x, y, sample_weight))
