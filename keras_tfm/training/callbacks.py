"""Callbacks for progress, and for the best (averaged) weights."""

import logging
import math
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from keras_tfm.log import Bar
from keras_tfm.private.keras import averages_of
from keras_tfm.training.monitor import Logs, Mode, Monitor
from keras_tfm.training.weights import are_finite, shared_array

LOG = logging.getLogger(__name__)

LONG = 5.0  # a first step of this many seconds or more is logged


class Progress(keras.callbacks.Callback):
    """Shows a progress bar per epoch, and logs the metrics at its end, and what the first step took if it was
    long: it is traced, and compiled if XLA is used.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> model.compile("adam", "mse")
    >>> progress = keras_tfm.training.Progress()
    >>> history = model.fit(np.ones((4, 2)), np.ones((4, 3)), epochs=2, verbose=0, callbacks=[progress])
    >>> progress.name
    'epoch 2/2'
    """

    def on_train_begin(self, logs: Logs = None) -> None:
        self.is_first = True

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self.name = f"epoch {epoch + 1}/{self.params['epochs']}"
        self.began = time.perf_counter()
        self.bar = Bar(total=self.params["steps"], desc=self.name, unit="batch")

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        if self.is_first:
            self.first_began = time.perf_counter()
            work = "compiling" if self.model.jit_compile else "tracing"
            self.bar.set_postfix_str(f"{work} the first step")

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self.is_first:
            self.is_first = False
            self.bar.set_postfix_str("", refresh=False)
            if (seconds := time.perf_counter() - self.first_began) >= LONG:
                work = "compiled" if self.model.jit_compile else "traced"
                LOG.info("The first step took %.0f s: it was %s.", seconds, work)
        # Reading the loss waits for the device, so it is done rarely.
        if batch % 20 == 0 and logs:
            self.bar.set_postfix_str(f"loss {float(logs['loss']):.3f}", refresh=False)
        self.bar.update(batch + 1 - self.bar.n)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.bar.close()
        measures = "  ".join(
            f"{name} {value:,.0f}" if value >= 1_000 else f"{name} {value:.4f}"
            for name, value in (logs or {}).items()
            if name != "learning_rate"
        )
        LOG.info("%s  %.0f s  %s", self.name, time.perf_counter() - self.began, measures)


class FiniteLoss(keras.callbacks.Callback):
    """Stops a training whose loss is no finite number, by a FloatingPointError, within `every` batches.

    `Checkpoint` does the same, and names the newest checkpoint.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> model.compile(keras.optimizers.SGD(1e30), "mse")  # a rate at which training diverges
    >>> finite = keras_tfm.training.FiniteLoss(every=1)
    >>> model.fit(np.ones((4, 2)), np.ones((4, 3)), epochs=9, verbose=0, callbacks=[finite])
    Traceback (most recent call last):
    ...
    FloatingPointError: The loss is inf at batch 1 of epoch 2: lower the learning rate, or clip the gradients.
    """

    def __init__(self, every: int = 10):
        super().__init__()
        self.every = every
        self.losses: list[tuple[int, Any]] = []  # reading one waits for the device

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self.epoch, self.losses = epoch, []

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if logs and "loss" in logs:
            self.losses.append((batch, logs["loss"]))
        if len(self.losses) >= self.every:
            self._check()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._check()

    def _check(self) -> None:
        losses, self.losses = self.losses, []
        for batch, loss in losses:
            if not math.isfinite(float(loss)):
                raise FloatingPointError(
                    f"The loss is {float(loss)} at batch {batch + 1} of epoch {self.epoch + 1}: lower the "
                    "learning rate, or clip the gradients."
                )


class BestWeights(keras.callbacks.Callback):
    """Keeps the weights of the best epoch, gives them to the model at the end, and stops training without
    progress.

    Epochs are judged on the averages of the weights if the optimizer keeps them (`use_ema=True`). Weights
    that are not finite are never the best: their accuracy is a number, too.

    Args:
        monitor, mode: the metric that judges epochs, as in `Monitor`.
        patience: stop after this many epochs without a better one; None never stops.
        on_best: called without arguments while the model holds new best weights.
        load_best: called at the end if the best epoch belongs to an earlier process.

    Its state is `score`, the lower the better, and `waited`, the epochs since the best one.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, kernel_initializer="zeros")])
    >>> model.compile(keras.optimizers.SGD(9.0), "mse")  # a rate at which training diverges
    >>> best = keras_tfm.training.BestWeights("loss", patience=1)
    >>> history = model.fit(np.ones((4, 2)), np.ones((4, 3)), epochs=5, verbose=0, callbacks=[best])
    >>> len(history.epoch), best.score, best.waited
    (2, 1.0, 1)
    """

    def __init__(
        self,
        monitor: str,
        patience: int | None = None,
        on_best: Callable[[], Any] | None = None,
        load_best: Callable[[], Any] | None = None,
        mode: Mode = "auto",
    ):
        super().__init__()
        self.monitor = Monitor(monitor, mode)
        self.patience = patience
        self.on_best = on_best
        self.load_best = load_best
        self.score, self.waited = float("inf"), 0
        self.best: list | None = None
        self.statistics: list = []  # other variables at the best epoch, such as batch normalisation's
        self.checksums: dict[int, int] = {}  # of variables without gradients, at the start
        self.trained: list | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        self.checksums = {id(variable): checksum(variable) for variable in self._others()}

    def on_test_begin(self, logs: Logs = None) -> None:
        averages = self._averages()
        if averages is not None:
            self.trained = self._values()
            self._assign(averages)

    def on_test_end(self, logs: Logs = None) -> None:
        if self.trained is not None:
            self._assign(self.trained)
            self.trained = None

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        score = self.monitor.score(logs)
        if self.monitor.is_best(score, self.score) and self._are_finite():
            self.score, self.waited = score, 0
            self._keep()
        else:
            self.waited += 1
            if self.patience is not None and self.waited >= self.patience:
                self.model.stop_training = True

    def on_train_end(self, logs: Logs = None) -> None:
        if self.best is not None:
            self._assign(self.best)
            for variable, value in self.statistics:
                variable.assign(value)
        elif self.load_best is not None and self.score < float("inf"):
            self.load_best()

    def _keep(self) -> None:
        trained = self._values()
        averages = self._averages()
        self.best = trained if averages is None else [_array(value) for value in averages]
        # Frozen weights are among the others and do not change: a copy of them would be memory for nothing.
        self.statistics = []
        for variable in self._others():
            if checksum(variable) != self.checksums.get(id(variable)):
                self.statistics.append((variable, _array(variable)))
        if self.on_best is not None:
            self._assign(self.best)
            self.on_best()
            self._assign(trained)

    def _are_finite(self) -> bool:
        """Whether the weights that `_keep` would keep hold no NaN and no infinity."""
        judged = self._averages() or self.model.trainable_variables
        return all(map(are_finite, map(shared_array, [*judged, *self._others()])))

    def _averages(self) -> list[keras.Variable] | None:
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        return averages_of(optimizer)

    def _values(self) -> list:
        return [_array(variable) for variable in self.model.trainable_variables]

    def _others(self) -> list[keras.Variable]:
        """The floating-point variables that get no gradient."""
        others = self.model.non_trainable_variables
        return [variable for variable in others if keras.backend.is_float_dtype(variable.dtype)]

    def _assign(self, values: Iterable) -> None:
        for variable, value in zip(self.model.trainable_variables, values, strict=True):
            variable.assign(value)


def _array(variable: Any) -> np.ndarray:
    return keras.ops.convert_to_numpy(variable)


def checksum(variable: Any) -> int:
    """A number by which a change of `variable` is noticed, without a copy of it."""
    return zlib.crc32(np.ascontiguousarray(shared_array(variable)).view("uint8").reshape(-1).data)
