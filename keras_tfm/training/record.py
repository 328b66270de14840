"""RUN/training.json: the options, versions and data of a training, and its results."""

import importlib.metadata
import json
import math
import pathlib
import types
from collections.abc import Mapping
from typing import Any

from keras_tfm.training.folder import Path, new_file
from keras_tfm.training.monitor import Mode, Monitor
from keras_tfm.training.safetensors import read_json

NAME = "training.json"
PACKAGES = ("keras-tfm", "tensorflow", "keras", "tensorflow-text", "numpy")


def versions() -> dict[str, str]:
    """{package: version} of the installed packages on which the numbers of a training depend."""
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def results(
    history: dict[str, list],
    monitor: tuple[str, Mode],
    before: Mapping[str, Any] = types.MappingProxyType({}),
) -> dict:
    """The best epoch, counted from 1, its metrics, and the number of epochs; {} if no epoch has a value of
    the `monitor`, a name and a mode, that is a number. A resumed training has results from `before`: its best
    epoch may be one that a time limit cut, which the `history` holds as it was when it had ended.
    """
    name, _ = monitor
    judge = Monitor(*monitor)
    scores = [judge.score({name: value}) for value in history.get(name, ())]
    best, least = None, math.inf
    for epoch, score in enumerate(scores):
        if judge.is_best(score, least):
            best, least = epoch, score
    if name in before and not judge.is_best(least, judge.score(before)):
        return {**before, "epochs": len(scores)}
    if best is None:
        return {}
    measures = {name: values[best] for name, values in history.items() if len(values) > best}
    return {"best_epoch": best + 1, "epochs": len(scores), **measures}


def write_record(folder: Path, content: dict) -> None:
    """Write `content` to training.json in the RUN `folder`, completely or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    with new_file(pathlib.Path(folder, NAME)) as path:
        path.write_text(text, "utf-8", "backslashreplace")  # of names of files that are no UTF-8


def refuse_other_data(record: dict, now: dict[str, str]) -> None:
    """Raise ValueError if a training is resumed with the data of `now`, and its `record` has others."""
    then = record.get("data") or now
    if then.get("fingerprint", now.get("fingerprint")) != now.get("fingerprint"):
        files = ", ".join(record.get("command", {}).get("data", ())) or "the examples of fit"
        raise ValueError(
            f"Resuming needs the data with which the training began; these differ: {then.get('train')} to "
            f"train on then, {now.get('train')} now, of {files}"
        )


def read_record(folder: Path) -> dict:
    """The content of a RUN's training.json, {} if there is none; CheckpointError if it is damaged."""
    path = pathlib.Path(folder, NAME)
    return read_json(path) if path.is_file() else {}
