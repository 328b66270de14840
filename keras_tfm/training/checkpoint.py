"""Checkpoints of a running `fit`, from which another process can continue exactly."""

import concurrent.futures
import contextlib
import inspect
import logging
import math
import pathlib
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.private import keras as private
from keras_tfm.training.folder import Path, refuse_pattern
from keras_tfm.training.monitor import Logs, Mode, Monitor
from keras_tfm.training.position import Position
from keras_tfm.training.safetensors import CheckpointError, read_shapes, read_tensors
from keras_tfm.training.store import STATE, CheckpointFolder, as_state, read_state
from keras_tfm.training.strategy import ASK_EVERY, num_workers, sum_over_workers, worker_index
from keras_tfm.training.weights import are_finite, assign_all, write_tensors

LOG = logging.getLogger(__name__)
# The entries of a checkpoint's state.json.
KINDS = {
    "step": int,
    "epoch": int,
    "batch": int,
    "workers": int,
    "knows_place": bool,
    "history": dict,
    "best": dict,
    "tracked": dict,
    "settings": dict,
}


class Checkpoint(keras.callbacks.Callback):
    """Writes checkpoints to `folder` after each epoch, and every `every_steps` steps or `every_minutes`
    minutes.

    A checkpoint holds the weights, the optimizer, the loss scale, all seed generators, the position in the
    data (for each worker its own), the metrics so far, the history, and the state of the callbacks in
    `tracked`.

    Args:
        folder: where checkpoints go. With several workers all must see it: the chief writes the state, and
            each worker adds its position in the data.
        every_steps, every_minutes: when to write between the ends of epochs; None for never.
        keep: how many of the newest checkpoints to keep; the best epoch's checkpoint is kept too.
        monitor, mode: which metric chooses the best epoch, as in `Monitor`.
        tracked: callbacks whose state is saved: their public attributes with plain values, except constructor
            arguments.
        settings: JSON values that may not change between runs.
        resume: continue from the newest complete checkpoint; otherwise a folder with checkpoints is refused.

    It must be the last callback of a `keras_tfm.Model`. Files are written in the background. SIGTERM ends the
    process with exit code 143 after a checkpoint at the next step, of several workers within ten. A loss, or
    weights, that are not finite raise FloatingPointError and are not saved.

    An endless dataset that shuffles should repeat before it batches: tf.data does not save the state of a
    shuffle in `shuffle().batch().repeat()` between two passes, and may then continue in another order.

    >>> inputs = keras.Input((2,))
    >>> model = keras_tfm.Model(inputs, keras.layers.Dense(3)(inputs))
    >>> model.compile("adam", "mse")
    >>> checkpoint = keras_tfm.training.Checkpoint("checkpoints", every_steps=100)
    >>> history = model.fit(np.ones((4, 2)), np.ones((4, 3)), epochs=2, verbose=0, callbacks=[checkpoint])
    >>> checkpoint.step, len(checkpoint.history["loss"])
    (2, 2)
    """

    def __init__(
        self,
        folder: Path,
        every_steps: int | None = None,
        every_minutes: float | None = None,
        keep: int = 3,
        monitor: str | None = None,
        mode: Mode = "auto",
        tracked: Iterable[keras.callbacks.Callback] = (),
        settings: Mapping[str, Any] | None = None,
        resume: bool = False,
    ):
        super().__init__()
        for name, value in (("every_steps", every_steps), ("every_minutes", every_minutes), ("keep", keep)):
            if value is not None and value <= 0:
                raise ValueError(f"`{name}` must be positive; it is {value}.")
        refuse_pattern(folder)
        self.folder = CheckpointFolder(folder, keep)
        self.every_steps = every_steps
        self.every_minutes = every_minutes
        self.monitor = None if monitor is None else Monitor(monitor, mode)
        self.tracked = {f"{i}.{type(callback).__name__}": callback for i, callback in enumerate(tracked)}
        self.settings = settings or {}
        self.resume = resume
        self.history: dict[str, list[float]] = {}
        self.step = 0
        self._epoch = self._batch = 0  # of the next step
        self._best: dict[str, Any] = {"step": None, "score": math.inf}
        self._saved: tuple[int, int, int] | None = None  # step, epoch and batch of the newest one
        self._knows_place = True
        self._resumed: Any = None
        self._losses: list[tuple[int, Any]] = []
        self._before_test: dict[str, np.ndarray] | None = None  # the epoch's measures, from validation on
        self._terminated = False
        self._handler: Any = None
        self._writer: Any = None
        self._writing: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        epochs = getattr(self.model, "_epochs_of_fit", None)
        if epochs is None:
            raise TypeError(f"Checkpoint needs a keras_tfm.Model; this is a {type(self.model).__name__}.")
        self._strategy = self.model.distribute_strategy
        self._workers, self.worker = num_workers(self._strategy), worker_index(self._strategy)
        private.build_for(self.model, epochs)  # creates all variables, which Keras may postpone
        self._position = Position(epochs, self._strategy)
        if self._is_chief:
            self.folder.lock()
            self.folder.clear()
        newest = self.folder.newest() if self._is_chief else None
        newest = (
            int(sum_over_workers(self._strategy, 0 if newest is None else newest + 1)) - 1
        )  # known to all workers
        if newest >= 0 and not self.resume:
            raise FileExistsError(f"{self.folder.path} has checkpoints: pass resume=True, or another folder.")
        if newest < 0 and self.resume and self._is_chief:
            self.folder.refuse_lost()
        self._writer = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGTERM, self._on_sigterm)
        self._saved_at = time.monotonic()
        if newest >= 0:
            self._restore(newest)
        else:
            if self.resume and self._is_chief:
                LOG.warning("%s has no checkpoint: training starts from scratch.", self.folder.path)
            self._position.begin()
            self._save()

    def on_test_begin(self, logs: Logs = None) -> None:
        # Validation resets the measures. Of an epoch that a time limit cuts short, a checkpoint holds these.
        self._before_test = {name: np.array(variable) for name, variable in self._measures().items()}

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._before_test = None
        if self._resumed is None:
            self._epoch, self._batch = epoch, 0
            return
        for name, variable in self._measures().items():
            variable.assign(self._resumed[name])
        self._resumed = None

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        before, self.step = self.step, self.step + batch + 1 - self._batch
        self._batch = batch + 1

        def passed(multiple: int) -> bool:
            return self.step // multiple > before // multiple

        if logs and "loss" in logs:
            self._losses.append((self.step, logs["loss"]))
        if self._writing is not None and self._writing.done():
            self._finish_writing()
        asks = self._workers == 1 or passed(ASK_EVERY)
        if asks and self._of_any_worker(self._terminated):
            self._save(wait=True)
            LOG.warning(
                "Stopped by SIGTERM after step %d, which is saved in %s.", self.step, self.folder.path
            )
            raise SystemExit(143)
        elapsed = time.monotonic() - self._saved_at
        by_time = asks and self.every_minutes and self._of_any_worker(elapsed > 60 * self.every_minutes)
        if by_time or (self.every_steps and passed(self.every_steps)):
            self._save()
        elif len(self._losses) >= ASK_EVERY:
            self._check_losses()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._check_losses()  # before the next epoch's place is set, from which an error counts
        steps = self.params.get("steps")
        if steps is None or self._batch >= steps:  # unless a time limit cut the epoch short
            self._epoch, self._batch = epoch + 1, 0
            for name, value in (logs or {}).items():
                self.history.setdefault(name, []).append(float(value))
        else:
            self._saved = None  # a checkpoint that was saved at this step lacks the epoch's score
        if self.monitor is not None:
            score = self.monitor.score(logs)
            if self.monitor.is_best(score, self._best["score"]):
                self._best = {"step": self.step, "score": score}
        self._save()

    def on_train_end(self, logs: Logs = None) -> None:
        self._finish_writing()

    def on_fit_end(self) -> None:
        """Release the folder and the SIGTERM handler, also after an error."""
        if self._writer is not None:
            self._writer.shutdown()
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)
            self._handler = None
        self.folder.unlock()
        if self.model is not None:  # otherwise `fit` refused its arguments
            private.begin_at(self.model, None)

    @property
    def _is_chief(self) -> bool:
        return self.worker == 0

    def _on_sigterm(self, *_: Any) -> None:
        self._terminated = True

    def _of_any_worker(self, flag: bool) -> bool:
        return sum_over_workers(self._strategy, float(bool(flag))) > 0

    def _check_losses(self) -> None:
        losses, self._losses = self._losses, []
        for step, loss in losses:
            if not math.isfinite(float(loss)):
                self._finish_writing()
                of_epoch = f"{step - self.step + self._batch} of epoch {self._epoch + 1}"
                raise FloatingPointError(
                    f"The loss is {float(loss)} at step {step}, {of_epoch}; {self._newest()}."
                )

    def _save(self, wait: bool = False) -> None:
        self._check_losses()
        place = self.step, self._epoch, self._batch
        if place == self._saved:
            return self._finish_writing() if wait else None
        self._finish_writing()
        # All workers wait for the chief: a folder of this step that it still publishes is not to be filled.
        sum_over_workers(self._strategy, 0)
        with self._errors_said():
            work = self.folder.partial(self.step)
            knows_place = self._position.save(work / f"worker-{self.worker}")
            write_tensors(self._before_test or self._measures(), work / f"worker-{self.worker}.safetensors")
        if self._knows_place and not knows_place:
            LOG.warning(
                "The dataset cannot save its position: a resumed training would start its epoch again."
            )
        self._knows_place = knows_place
        sum_over_workers(self._strategy, 0)  # the chief waits for all workers
        self._saved, self._saved_at = place, time.monotonic()
        if not self._is_chief:
            return None
        state: dict[str, Any] = {
            "step": self.step,
            "epoch": self._epoch,
            "batch": self._batch,
            "workers": self._workers,
            "knows_place": knows_place,
            "history": self.history,
            "best": self._best,
            "tracked": {name: _state_of(callback) for name, callback in self.tracked.items()},
            "settings": self.settings,
        }
        tensors = _arrays(self._variables("model", "optimizer"))
        text = as_state(state)  # now: the history changes while it is written
        self._writing = self._writer.submit(
            self._write, self.step, state["best"]["step"], work, text, tensors
        )
        return self._finish_writing() if wait else None

    def _write(
        self, step: int, best: int | None, work: pathlib.Path, state: str, tensors: Mapping[str, np.ndarray]
    ) -> None:
        for name, value in tensors.items():
            if name.startswith("model") and value.dtype.kind == "f" and not are_finite(value):
                raise FloatingPointError(f"The weights are not finite after step {step}; {self._newest()}.")
        write_tensors(tensors, work / "state.safetensors")
        (work / STATE).write_text(state, "utf-8")
        self.folder.publish(step, best)

    def _finish_writing(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            with self._errors_said():
                writing.result()

    @contextlib.contextmanager
    def _errors_said(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                f"{self.folder.path}: a checkpoint could not be written ({error}); {self._newest()}."
            ) from error

    def _newest(self) -> str:
        steps = self.folder.steps()
        return f"the newest checkpoint is from step {steps[-1]}" if steps else "there is no checkpoint yet"

    def _restore(self, step: int) -> None:
        folder = self.folder.folder(step)
        state = read_state(folder, KINDS)
        for name in self._best.keys() - state["best"].keys():
            raise CheckpointError(folder / STATE, f"best.{name}", "an entry", "none")
        refuse_changes(self.settings, state["settings"])
        if self.tracked.keys() != state["tracked"].keys():
            raise ValueError(f"`tracked` was {', '.join(state['tracked'])}; it is {', '.join(self.tracked)}.")
        path = folder / "state.safetensors"
        tensors, _ = read_tensors(path)
        variables = self._variables("model", "optimizer")
        for name in sorted(tensors.keys() ^ variables.keys()):
            raise CheckpointError(path, name, "the same model and optimizer", "others")
        assign_all(path, [(variable, name, tensors[name]) for name, variable in variables.items()])
        self.step, self._epoch, self._batch = self._saved = state["step"], state["epoch"], state["batch"]
        self._best = state["best"]
        worker, why = self._place_in(folder, state)
        if self._batch and worker is None:
            LOG.warning("Epoch %d starts again from its beginning: %s.", self._epoch + 1, why)
            self._batch = 0
        self._position.begin(self._epoch, self._batch, worker)
        for name, callback in self.tracked.items():
            for attribute, value in state["tracked"][name].items():
                setattr(callback, attribute, value)
        self.history = state["history"]
        self.model.history.history = {name: list(values) for name, values in self.history.items()}
        if self._batch:
            path = folder / f"worker-{self.worker}.safetensors"
            self._resumed, _ = read_tensors(path)
            for name in sorted(self._resumed.keys() ^ self._measures().keys()):
                raise CheckpointError(path, name, "the same measures", "others")
        private.begin_at(self.model, self._epoch)
        if self._is_chief:
            LOG.info("Resuming at step %d, batch %d of epoch %d.", step, self._batch, self._epoch + 1)

    def _place_in(self, folder: pathlib.Path, state: Mapping[str, Any]) -> tuple[pathlib.Path | None, str]:
        """Where a checkpoint holds this worker's position in the data; or None, and why it is of no use."""
        worker = folder / f"worker-{self.worker}"
        if state["workers"] != self._workers:
            then, now, of = state["workers"], self._workers, "workers"
        else:
            then, now = map(_replicas_in, (read_shapes(f"{worker}.safetensors"), self._measures()))
            of = "replicas"
        if then != now:
            return None, f"step {state['step']} had {then} {of}, now there are {now}"
        return (worker if state["knows_place"] else None), "the dataset cannot save its position"

    def _variables(self, *kinds: str) -> dict[str, keras.Variable]:
        """{name: variable} with numbered names: names of optimizers and seed generators differ between
        processes.
        """
        measures = {id(variable) for variable in self.model.metrics_variables}
        variables = {
            "model": [variable for variable in self.model.variables if id(variable) not in measures],
            "optimizer": [x for optimizer in self.model.optimizers for x in optimizer.variables],
        }
        return {f"{kind}/{i}": variable for kind in kinds for i, variable in enumerate(variables[kind])}

    def _measures(self) -> dict[str, tf.Variable]:
        """{name: variable} for each replica of this worker; restoring only their sum would round
        differently.
        """
        return {
            f"{i}/{replica}": part
            for i, variable in enumerate(self.model.metrics_variables)
            for replica, part in enumerate(getattr(variable.value, "values", [variable.value]))
        }


def refuse_changes(now: Mapping[str, Any], then: Mapping[str, Any]) -> None:
    """Raise ValueError that names the settings that differ from the settings at the training's beginning."""
    changed = sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
    if changed:
        raise ValueError(
            "Resuming needs the settings with which the training began; these differ: "
            + ", ".join(f"{key} (now {now.get(key)}, then {then.get(key)})" for key in changed)
        )


def _replicas_in(measures: Iterable[str]) -> int:
    """How many replicas of a worker the names of its measures, "i/replica", are of."""
    return 1 + max((int(name.split("/")[1]) for name in measures), default=0)


def _state_of(callback: keras.callbacks.Callback) -> dict[str, Any]:
    arguments = inspect.signature(type(callback).__init__).parameters
    plain = bool | int | float | str | None
    return {
        name: value
        for name, value in vars(callback).items()
        if isinstance(value, plain) and name not in arguments and not name.startswith("_")
    }


def _arrays(variables: Mapping[str, keras.Variable]) -> dict[str, np.ndarray]:
    """Copies of the variables' values; training waits while they are made."""
    return {name: tf.convert_to_tensor(variable.value).numpy() for name, variable in variables.items()}
