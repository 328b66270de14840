"""Learning by sweeps: each one improves a model of NumPy arrays; the best is kept, and a run can be
resumed.
"""

import contextlib
import logging
import math
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.tasks.task import WEIGHTS
from keras_tfm.training.checkpoint import refuse_changes
from keras_tfm.training.folder import Path
from keras_tfm.training.metrics_file import write_rows
from keras_tfm.training.monitor import Monitor
from keras_tfm.training.options import Kept, Learning
from keras_tfm.training.safetensors import CheckpointError, read_tensors
from keras_tfm.training.store import STATE, CheckpointFolder, as_state, read_state
from keras_tfm.training.weights import write_tensors

LOG = logging.getLogger(__name__)


class State(NamedTuple):
    """The progress of learning: the metrics of each sweep, and how many seconds it took."""

    history: dict[str, list[float]]
    seconds: list[float]


def best_of_sweeps(
    model: Any,
    sweep: Callable[[], dict[str, float]],
    training: Learning,
    monitor: tuple[str, Any],
    *,
    save_best: Callable[[Path], Any],
    load_best: Callable[[Path], Any],
    run: Kept | None = None,
    save: Callable[..., None] | None = None,
    keep_record: Callable[[Path], None] | None = None,
    settings: Mapping[str, Any] | None = None,
    callbacks: Iterable[Any] = (),
) -> dict[str, list[float]]:
    """Call `sweep`, which improves and measures `model`, as often as `training` says: {metric: value per
    sweep}.

    `model` has `arrays()` and `set_arrays()`; it gets the arrays of the best sweep by `monitor` at the end.
    With a `run`, whose folder `save` creates, each sweep is stored there and can be resumed with the same
    `settings`, when `keep_record` is called; `save_best` and `load_best` write and read the file of the best
    weights. From `callbacks`, only `on_epoch_end(epoch, logs)` is called.
    """
    with _kept(run, save) as folder:
        state = State({}, [])
        if run is not None and run.resume:
            state = _restored(folder, model, settings)
            if keep_record is not None:
                keep_record(run.folder)
        judge, best = Monitor(*monitor), None
        while not _is_over(state, training, judge):
            began = time.perf_counter()
            logs = sweep()
            if not all(map(math.isfinite, logs.values())):
                raise FloatingPointError(f"A sweep ends with numbers that are not finite: {logs}.")
            for name, value in logs.items():
                state.history.setdefault(name, []).append(value)
            state.seconds.append(time.perf_counter() - began)
            is_best = _sweeps_since_best(state, judge) == 0
            if is_best:
                best = model.arrays()
            if folder is not None:
                if is_best:
                    save_best(folder.path.parent / WEIGHTS)
                _keep(folder, model, state, settings)
            number = len(state.seconds)
            measures = "  ".join(f"{name} {value:,.4f}" for name, value in logs.items())
            LOG.info("epoch %d/%d  %.1f s  %s", number, training.epochs, state.seconds[-1], measures)
            for callback in callbacks:
                callback.on_epoch_end(number - 1, logs)
        if best is not None:
            model.set_arrays(best)
        elif folder is not None and state.seconds:
            load_best(folder.path.parent / WEIGHTS)
    return state.history


def _sweeps_since_best(state: State, judge: Monitor) -> int:
    """How many sweeps came after the best one; of equal sweeps the last counts."""
    scores = [judge.score({judge.name: value}) for value in state.history[judge.name]]
    return int(np.argmin(scores[::-1]))


def _is_over(state: State, training: Learning, judge: Monitor) -> bool:
    if not state.seconds:
        return False
    is_late = training.minutes is not None and sum(state.seconds) > 60 * training.minutes
    waited = _sweeps_since_best(state, judge)
    is_settled = training.patience is not None and waited >= training.patience
    return is_late or is_settled or len(state.seconds) >= training.epochs


@contextlib.contextmanager
def _kept(run: Kept | None, save: Any) -> Iterator[CheckpointFolder | None]:
    """The folder of a run's checkpoints, locked for this process; `save` creates it unless the run is
    resumed.
    """
    if run is None:
        yield None
        return
    if not run.resume:
        save(run.folder, run.overwrite, trained=False)
    folder = CheckpointFolder(pathlib.Path(run.folder, "checkpoints"))
    folder.lock()
    try:
        folder.clear()
        yield folder
    finally:
        folder.unlock()


def _keep(folder: CheckpointFolder, model: Any, state: State, settings: Any) -> None:
    """Write a checkpoint of the sweep that has ended, and metrics.csv."""
    number = len(state.seconds)
    work = folder.partial(number)
    write_tensors(model.arrays(), work / "state.safetensors")
    (work / STATE).write_text(as_state({**state._asdict(), "settings": settings}), "utf-8")
    folder.publish(number)
    rows = [
        {"epoch": str(row + 1), "seconds": f"{state.seconds[row]:.2f}"}
        | {name: f"{values[row]:.7g}" for name, values in state.history.items()}
        for row in range(number)
    ]
    write_rows(folder.path.parent / "metrics.csv", rows)


def _restored(folder: CheckpointFolder | None, model: Any, settings: Any) -> State:
    """The state of the newest complete checkpoint, whose arrays `model` gets; a new state if there is
    none.
    """
    newest = None if folder is None else folder.newest()
    if folder is None or newest is None:
        if folder is not None:
            folder.refuse_lost()
        LOG.warning("There is no checkpoint: learning starts from scratch.")
        return State({}, [])
    content = read_state(folder.folder(newest), {"history": dict, "seconds": list, "settings": dict})
    refuse_changes(settings, content["settings"])
    path = folder.folder(newest) / "state.safetensors"
    try:
        model.set_arrays(read_tensors(path)[0])
    except KeyError as error:
        raise CheckpointError(path, str(error.args[0]), "an array", "none") from None
    LOG.info("Resuming after sweep %d.", newest)
    return State(content["history"], content["seconds"])
