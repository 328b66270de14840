"""Learning-rate schedules: a linear warm-up, then constant or falling, by steps or by a time limit."""

import math
from typing import Any, Self

import keras
import tensorflow as tf
from keras import ops

from keras_tfm.configs import Refusal
from keras_tfm.registry import register
from keras_tfm.training.options import Training

WARMUP_SHARE = 0.1  # the share of a time limit that the warm-up takes


@register
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to `peak` over `warmup_steps`, then decay with the inverse square root of the steps.

    Vaswani et al. 2017, equation 3, where `peak` is (dim x warmup_steps)^-0.5.

    >>> schedule = keras_tfm.training.WarmupSchedule(peak=1.0, warmup_steps=4)
    >>> [round(float(schedule(step)), 2) for step in (0, 1, 3, 15)]
    [0.25, 0.5, 1.0, 0.5]
    """

    def __init__(self, peak: float, warmup_steps: int):
        if warmup_steps < 1:
            raise Refusal("warmup_steps", "at least 1", warmup_steps)
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step: int | tf.Tensor) -> tf.Tensor:
        """The learning rate at a step, counted from 0."""
        step = ops.cast(step, "float32") + 1.0
        return self.peak * ops.minimum(step / self.warmup_steps, self.decay(step))

    def decay(self, step: tf.Tensor) -> tf.Tensor:
        """The share of the peak at `step`, counted from 1, after the warm-up."""
        return ops.sqrt(self.warmup_steps / step)

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


@register
class WarmupConstantSchedule(WarmupSchedule):
    """Linear warm-up to `peak` over `warmup_steps`, then constant.

    >>> schedule = keras_tfm.training.WarmupConstantSchedule(peak=1.0, warmup_steps=4)
    >>> [round(float(schedule(step)), 2) for step in (0, 3, 9)]
    [0.25, 1.0, 1.0]
    """

    def decay(self, step: tf.Tensor) -> tf.Tensor:
        return ops.ones_like(step)


@register
class WarmupLinearSchedule(WarmupSchedule):
    """Linear warm-up to `peak` over `warmup_steps`, then linear decay to 0 at `total_steps`.

    Devlin et al. 2019, section A.2.

    >>> schedule = keras_tfm.training.WarmupLinearSchedule(peak=1.0, warmup_steps=4, total_steps=8)
    >>> [round(float(schedule(step)), 2) for step in (0, 3, 5, 7)]
    [0.25, 1.0, 0.5, 0.0]
    """

    def __init__(self, peak: float, warmup_steps: int, total_steps: int):
        super().__init__(peak, warmup_steps)
        if total_steps <= warmup_steps:
            raise ValueError(
                f"`total_steps` must exceed the {warmup_steps} warm-up steps; it is {total_steps}."
            )
        self.total_steps = total_steps

    def decay(self, step: tf.Tensor) -> tf.Tensor:
        return 1.0 - self.done(step)

    def done(self, step: tf.Tensor) -> tf.Tensor:
        """The finished share of the decay at `step`, from 0 to 1."""
        return ops.clip((step - self.warmup_steps) / (self.total_steps - self.warmup_steps), 0.0, 1.0)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "total_steps": self.total_steps}


@register
class WarmupCosineSchedule(WarmupLinearSchedule):
    """Linear warm-up to `peak` over `warmup_steps`, then a half cosine to 0 at `total_steps`.

    Loshchilov and Hutter 2017, equation 5, without restarts.

    >>> schedule = keras_tfm.training.WarmupCosineSchedule(peak=1.0, warmup_steps=4, total_steps=8)
    >>> [round(float(schedule(step)), 2) for step in (0, 3, 5, 7)]
    [0.25, 1.0, 0.5, 0.0]
    """

    def decay(self, step: tf.Tensor) -> tf.Tensor:
        return 0.5 * (1.0 + ops.cos(math.pi * self.done(step)))


@register
class TimedSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Follows a warm-up `schedule` of `total_steps` by steps or by a time limit, whichever is further ahead.

    `share`, a variable from 0 to 1, is the elapsed share of the time; `TimeLimit` sets it. The first tenth of
    the time corresponds to the warm-up, the rest to all other steps. As long as the share is 0, the learning
    rates are exactly `schedule`'s.

    >>> warmup = keras_tfm.training.WarmupLinearSchedule(peak=1.0, warmup_steps=10, total_steps=100)
    >>> schedule = keras_tfm.training.TimedSchedule(warmup, total_steps=100)
    >>> share = schedule.share.assign(0.55)  # of the time; in a training a `TimeLimit` says it
    >>> round(float(schedule(step=20)), 2)  # the rate of step 55
    0.49
    """

    def __init__(self, schedule: WarmupSchedule, total_steps: int):
        self.schedule = schedule
        self.total_steps = total_steps
        self.share = keras.Variable(0.0, dtype="float32", trainable=False, name="share_of_time")

    def __call__(self, step: int | tf.Tensor) -> tf.Tensor:
        """The learning rate at a step, counted from 0."""
        return self.schedule(ops.maximum(ops.cast(step, "float32"), self.step_by_time()))

    def step_by_time(self) -> tf.Tensor:
        """The (fractional) step that corresponds to the elapsed time."""
        warmup = self.schedule.warmup_steps
        warmed = ops.minimum(self.share / WARMUP_SHARE, 1.0)
        decayed = ops.maximum((self.share - WARMUP_SHARE) / (1 - WARMUP_SHARE), 0.0)
        return warmed * warmup + decayed * max(0, self.total_steps - warmup)

    def get_config(self) -> dict[str, Any]:
        schedule = keras.saving.serialize_keras_object(self.schedule)
        return {"schedule": schedule, "total_steps": self.total_steps}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Rebuild the schedule from the dictionary of `get_config`, with no time elapsed."""
        return cls(keras.saving.deserialize_keras_object(config["schedule"]), config["total_steps"])


SCHEDULES: dict[str, Any] = {
    "constant": WarmupConstantSchedule,
    "inverse-root": WarmupSchedule,
    "linear": WarmupLinearSchedule,
    "cosine": WarmupCosineSchedule,
}


def make_schedule(training: Training, num_batches: int) -> WarmupSchedule:
    """The schedule that a `Training` asks for, if an epoch has `num_batches` steps."""
    kind, warmup_steps = SCHEDULES[training.schedule], training.warmup(num_batches)
    if not issubclass(kind, WarmupLinearSchedule):
        return kind(training.learning_rate, warmup_steps)
    total_steps = training.epochs * num_batches
    if warmup_steps > total_steps:
        raise Refusal(
            "warmup_steps", f"at most {total_steps:,}, the steps of all epochs", f"{warmup_steps:,}"
        )
    return kind(training.learning_rate, warmup_steps, total_steps + 1)
