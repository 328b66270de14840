"""A time limit for training, and the share of it that has elapsed."""

import collections
import logging
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_tfm.training.monitor import Logs
from keras_tfm.training.schedules import TimedSchedule
from keras_tfm.training.strategy import ASK_EVERY, num_workers, sum_over_workers, worker_index

LOG = logging.getLogger(__name__)

FAR = 3.0  # times the usual duration: steps that compile take longer, other batch shapes do not
SETTLED = 32  # steps: after these, even with 16 batch shapes, most steps do not compile
SLOW = 0.1  # seconds: for steps this slow, waiting for the device after each step costs little
WINDOW = 64  # how many recent spans determine the usual duration of a step
LOGGED = 1.0  # compiling for this many seconds or more is logged


class TimeLimit(keras.callbacks.Callback):
    """Stops training after `minutes`, also within an epoch; None never stops it.

    A `schedule`, a `TimedSchedule`, is given the elapsed share of the time. With it, compilation does not
    count: a step that takes `FAR` times as long as usual has compiled, and counts as a usual one. Only steps
    count for the share: it is the time that steps took, divided by the limit without validation and
    checkpoints, so that it grows evenly and reaches 1 at the end. It stays 0 until `SETTLED` steps, or a
    quarter of the limit, have shown what is usual.

    Its state, which a `Checkpoint` saves that tracks it, continues in a resumed training: `elapsed` seconds
    since training first began, the seconds of `compiling`, the seconds `in_steps` without compiling, and the
    `usual` seconds of a step. Several workers stop at the same step, when one is over the limit, and use the
    chief's share. `clock` returns seconds.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> model.compile("adam", "mse")
    >>> seconds = iter(range(1000))  # a clock that goes on by a second at each look
    >>> limit = keras_tfm.training.TimeLimit(minutes=0.1, clock=lambda: next(seconds))
    >>> history = model.fit(np.ones((9, 2)), np.ones((9, 3)), batch_size=1, verbose=0, callbacks=[limit])
    >>> limit.elapsed, model.stop_training
    (9.0, True)
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
        self.elapsed = self.in_steps = self.compiling = 0.0
        self.usual: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        self._last = self.clock()
        self._steps = 0
        self._spans: Any = collections.deque()  # the newest (seconds, steps), judged again at each step
        self._span_seconds, self._span_steps = 0.0, 0
        self._judged: Any = None
        self._share = 0.0
        self._is_over = False

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        if self._judged is None:  # a checkpoint has been restored by now
            self._judged = self.in_steps
            self._in_spans = self.in_steps + self.compiling
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
            if sum_over_workers(strategy, float(self.counted() > self._limit)):
                self.model.stop_training = self._is_over = True

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._pass_time()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epoch = epoch

    def on_train_end(self, logs: Logs = None) -> None:
        if worker_index(self.model.distribute_strategy) > 0:
            return
        if self.compiling >= LOGGED:
            LOG.info("%.0f s went into compiling; they do not count into the minutes.", self.compiling)
        if self._is_over:
            LOG.info(
                "%g minutes were over in epoch %d of %d; to go on, resume with more minutes.",
                self._limit / 60,
                self._epoch + 1,
                self.params["epochs"],
            )

    def counted(self) -> float:
        """The elapsed seconds without compilation."""
        return self.elapsed - self.compiling

    def share(self) -> float:
        """The elapsed share of the time for steps, from 0 to 1."""
        if self.usual is None or not self.in_steps:
            return 0.0
        for_steps = self._limit - (self.counted() - self.in_steps)
        return self.in_steps / max(for_steps, self.in_steps)

    def _pass_time(self) -> float:
        """The seconds since the last call."""
        now = self.clock()
        passed, self._last = now - self._last, now
        self.elapsed += passed
        return passed

    def _end_span(self) -> None:
        """Estimate again how much of the time was spent in steps of the usual duration."""
        self._spans.append((self._span_seconds, self._span_steps))
        self._in_spans += self._span_seconds
        self._span_seconds, self._span_steps = 0.0, 0
        if len(self._spans) == 1 and self.usual is None:
            self.compiling = self._in_spans  # the first step says nothing: it is traced and compiled
            return
        # The quartile, not the median, which may be a step that compiled among the first ones; and one that
        # was measured, since the first of all, which is traced too, would move what lies between two.
        steps = [seconds / steps for seconds, steps in self._spans]
        usual = float(np.quantile(steps, 0.25, method="lower"))
        if self._steps < SETTLED and self.usual is not None:
            usual = min(usual, self.usual)
        in_steps = self._judged + sum(without_compiling(span, usual) for span in self._spans)
        self.compiling = self._in_spans - in_steps
        if self._steps >= SETTLED or self.usual is not None or self.counted() > self._limit / 4:
            self.usual, self.in_steps = usual, in_steps
            if len(self._spans) == WINDOW:
                self._judged += without_compiling(self._spans.popleft(), usual)

    def _tell(self, share: float) -> None:
        if self.schedule is not None:
            self._share = max(self._share, share)
            self.schedule.share.assign(self._share)


def without_compiling(span: tuple[float, int], usual: float) -> float:
    """The seconds of a span of (seconds, steps) where a step takes `usual` seconds."""
    seconds, steps = span
    return seconds if seconds <= FAR * usual * steps else usual * steps
