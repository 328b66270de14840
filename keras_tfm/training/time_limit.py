"""A limit of time for training, and how far it has come in it."""

import collections
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_tfm.training.monitor import Logs
from keras_tfm.training.schedules import TimedSchedule
from keras_tfm.training.strategy import ASK_EVERY, num_workers, sum_over_workers, worker_index

FAR = 3.0  # times as long as usual: a step that compiles takes far longer, other shapes of batches do not
SETTLED = 32  # steps, after which even with 16 shapes of batches most steps find theirs compiled
SLOW = 0.1  # seconds of a step, beside which waiting for the device after each does not count
WINDOW = 64  # spans that tell how long a step takes as a rule


class TimeLimit(keras.callbacks.Callback):
    """Stops training, within an epoch if need be, once it has taken `minutes`; None never stops it.

    A `schedule`, a `TimedSchedule`, is told which share of the time is used. Only steps use time: the share
    is what they took, of what is left for steps when compilation, validation and checkpoints are taken off
    the limit, so that it grows evenly and reaches 1 at the end. A step `FAR` longer than usual has compiled;
    until `SETTLED` steps, or a quarter of the limit, have shown what is usual, the share stays 0.

    Its state, which a `Checkpoint` keeps that tracks it, counts on in a resumed training: `elapsed` and
    `in_steps`, seconds since training first began and those that steps took, and `usual`, those of a step.
    Several workers stop at the same step, and share what the chief has measured. `clock` gives seconds.
    """

    def __init__(
        self,
        minutes: float | None = None,
        schedule: TimedSchedule | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        super().__init__()
        self._limit = float("inf") if minutes is None else 60.0 * minutes
        self.schedule = schedule
        self.clock = clock
        self.elapsed = self.in_steps = 0.0
        self.usual: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        self._last = self.clock()
        self._steps = 0
        self._spans: Any = collections.deque()  # the newest (seconds, steps), judged anew at each step
        self._span_seconds, self._span_steps = 0.0, 0
        self._judged: Any = None
        self._share = 0.0

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        if self._judged is None:  # here a checkpoint has been restored
            self._judged = self.in_steps
            self._tell(self.share())
        self._pass_time()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        strategy = self.model.distribute_strategy
        self._steps += 1
        asks = self._steps % ASK_EVERY == 0
        is_slow = self.usual is not None and self.usual > SLOW
        is_told = self.schedule is not None and (asks or is_slow or self._steps <= SETTLED)
        if is_told and logs:
            float(logs["loss"])  # waits for the device
        self._span_seconds += self._pass_time()
        self._span_steps += 1
        if is_told:
            self._end_span()
        if num_workers(strategy) == 1 or asks:
            if is_told:
                share = self.share() if worker_index(strategy) == 0 else 0.0
                self._tell(sum_over_workers(strategy, share))
            if sum_over_workers(strategy, float(self.elapsed > self._limit)):
                self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._pass_time()

    def share(self) -> float:
        """The share of the time for steps that is used, from 0 to 1."""
        if self.usual is None or not self.in_steps:
            return 0.0
        for_steps = self._limit - (self.elapsed - self.in_steps)
        return self.in_steps / max(for_steps, self.in_steps)

    def _pass_time(self) -> float:
        """The seconds since this was last called."""
        now = self.clock()
        passed, self._last = now - self._last, now
        self.elapsed += passed
        return passed

    def _end_span(self) -> None:
        """Judge anew how much of the time was that of steps as usual."""
        self._spans.append((self._span_seconds, self._span_steps))
        self._span_seconds, self._span_steps = 0.0, 0
        if self._steps >= SETTLED or (self.usual is None and self.elapsed > self._limit / 4):
            # Not the middle: that of the first steps would be one that compiled.
            self.usual = float(np.quantile([seconds / steps for seconds, steps in self._spans], 0.25))
        if self.usual is not None:
            self.in_steps = self._judged + sum(self._without_compiling(span) for span in self._spans)
            if len(self._spans) == WINDOW:
                self._judged += self._without_compiling(self._spans.popleft())

    def _without_compiling(self, span: tuple[float, int]) -> float:
        seconds, steps = span
        return seconds if seconds <= FAR * self.usual * steps else self.usual * steps

    def _tell(self, share: float) -> None:
        if self.schedule is not None:
            self._share = max(self._share, share)
            self.schedule.share.assign(self._share)
