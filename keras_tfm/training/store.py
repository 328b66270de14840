"""Checkpoints on disk: folders `step-00001234`, each complete or absent.

A folder is filled under another name, listed with the hashes of its files in manifest.json, flushed to disk
and renamed. Readers trust only files that match the manifest.
"""

import hashlib
import json
import logging
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any, TextIO

from keras_tfm.configs import brief
from keras_tfm.training.folder import Path, lock
from keras_tfm.training.safetensors import UNTRAINED, CheckpointError, read_json, read_tensors

LOG = logging.getLogger(__name__)
MANIFEST = "manifest.json"
STATE = "state.json"
REPLACED = ".replaced"  # ends the name of a checkpoint while a later one of its step takes its place
NAMES = {int: "an integer", bool: "true or false", dict: "an object", list: "a list"}
LAYOUT = 1  # of state.json: raised when an older reader would misread a newer file


class CheckpointFolder:
    """The checkpoints of one training in the folder `path`: the newest `keep` ones, and the best."""

    def __init__(self, path: Path, keep: int = 3):
        self.path = pathlib.Path(path)
        self.keep = keep
        self._lock: TextIO | None = None

    def lock(self) -> None:
        """Lock the folder for this process until `unlock`; BlockingIOError if another process has locked
        it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = lock(self.path / ".lock")

    def unlock(self) -> None:
        """Let other processes train in this folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, lowest first; the checkpoints are not verified."""
        names = [path.name.removeprefix("step-") for path in self.path.glob("step-*")]
        return sorted(int(name) for name in names if name.isdecimal())

    def folder(self, step: int) -> pathlib.Path:
        """The folder of the checkpoint of `step`."""
        return self.path / f"step-{step:08d}"

    def partial(self, step: int) -> pathlib.Path:
        """The folder to fill for `step`, before `publish` renames it; several processes may fill it."""
        work = self.path / f".step-{step:08d}"
        work.mkdir(parents=True, exist_ok=True)
        return work

    def publish(self, step: int, best: int | None = None) -> None:
        """Turn the filled folder into the checkpoint of `step`, and remove old checkpoints, except the step
        `best`'s.
        """
        work, folder = self.partial(step), self.folder(step)
        files = {path.name: [path.stat().st_size, _digest(path)] for path in sorted(work.iterdir())}
        (work / MANIFEST).write_text(json.dumps(files, indent=1), "utf-8")
        for path in (*work.iterdir(), work):
            _force_to_disk(path)
        replaced = folder.with_name(f".{folder.name}{REPLACED}")
        if folder.exists():
            folder.rename(replaced)
        work.rename(folder)
        _force_to_disk(self.path)
        if replaced.exists():
            shutil.rmtree(replaced)
        for old in self.steps()[: -self.keep]:
            if old != best:
                self._remove(self.folder(old))

    def newest(self) -> int | None:
        """The step of the newest complete checkpoint, or None. Damaged ones are reported and moved aside."""
        for step in reversed(self.steps()):
            fault = _fault(self.folder(step))
            if fault is None:
                return step
            aside = self.folder(step).with_name(f"invalid-step-{step:08d}")
            self._remove(aside)
            self.folder(step).rename(aside)
            LOG.warning(
                "The checkpoint of step %d is damaged and was moved aside: %s: %s", step, aside, fault
            )
        return None

    def refuse_lost(self) -> None:
        """Raise CheckpointError if a training that is to resume has no whole checkpoint, but damaged ones, or
        in the RUN around this folder weights that are trained already: it would not begin where it began.
        """
        damaged = sorted(path.name for path in self.path.glob("invalid-step-*"))
        weights, got = self.path.parent / "model.safetensors", None
        if damaged:
            got = f"damaged ones alone ({', '.join(damaged[-3:])})"
        elif weights.is_file() and not UNTRAINED.items() <= read_tensors(weights)[1].items():
            got = "none beside weights that are trained already"
        if got is not None:
            remedy = "begin anew, or go on from the best weights as the start of another RUN"
            raise CheckpointError(self.path, None, "a checkpoint to resume from", f"{got}: {remedy}")

    def clear(self) -> None:
        """Remove unfinished folders of interrupted processes; a checkpoint that was to be replaced comes
        back.
        """
        for path in self.path.glob(f".step-*{REPLACED}"):
            folder = path.with_name(path.name.removeprefix(".").removesuffix(REPLACED))
            if not folder.exists():
                path.rename(folder)
        for path in self.path.glob(".step-*"):
            shutil.rmtree(path)

    def _remove(self, folder: pathlib.Path) -> None:
        """Rename before removing, which takes a while, so that no reader takes it for a checkpoint."""
        if folder.exists():
            shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}.old")))


def as_state(content: Mapping[str, Any]) -> str:
    """The text of a state.json, with its version."""
    return json.dumps({"layout": LAYOUT, **content})


def read_state(folder: pathlib.Path, kinds: Mapping[str, type]) -> dict[str, Any]:
    """The content of a checkpoint's state.json; CheckpointError, naming the entry, unless it has an entry of
    each of the `kinds`, {name: class}, and a layout that this version knows.
    """
    path = folder / STATE
    content = read_json(path)
    layout = content.get("layout", LAYOUT)  # the first versions wrote none
    if layout != LAYOUT:
        raise CheckpointError(path, "layout", f"{LAYOUT}, this version's layout", repr(layout)[:20])
    for name, kind in kinds.items():
        if name not in content:
            raise CheckpointError(path, name, f"an entry, {NAMES[kind]}", "none")
        if type(content[name]) is not kind:
            raise CheckpointError(path, name, NAMES[kind], brief(content[name]))
    return content


def _fault(folder: pathlib.Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        files = read_json(folder / MANIFEST)
        names = {path.name for path in folder.iterdir()} - {MANIFEST}
        if files.keys() != names:
            return f"{', '.join(sorted(files.keys() ^ names))}: missing, or not in {MANIFEST}"
        for name, (size, digest) in files.items():
            if (folder / name).stat().st_size != size or _digest(folder / name) != digest:
                return f"{name} has changed since it was written"
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return f"{MANIFEST}: {error}"
    return None


def _digest(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _force_to_disk(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
