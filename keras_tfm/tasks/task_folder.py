"""The folder of a saved task: whether there is one, its config.json, and whether its files are unchanged."""

import pathlib
import re
from typing import Any

from keras_tfm.configs import brief
from keras_tfm.serving import plugins
from keras_tfm.serving.files import digest_of
from keras_tfm.training.folder import Path
from keras_tfm.training.safetensors import CheckpointError, read_json
from keras_tfm.version import __version__


class TaskError(ValueError):
    """A task's folder that cannot be used: the message names the file, what was expected and what was
    found.

    >>> keras_tfm.tasks.load("missing")
    Traceback (most recent call last):
        ...
    keras_tfm.tasks.task_folder.TaskError: missing: there is no such folder
    """


def is_task_folder(path: Path) -> bool:
    """Whether a task was saved at `path`; False for a folder of Hugging Face and where nothing exists."""
    try:
        return "task" in read_json(pathlib.Path(path, "config.json"))
    except CheckpointError:
        return False


def read_config(folder: Path) -> dict[str, Any]:
    """The content of a task folder's config.json; TaskError if the file is missing, or not a task's."""
    path = pathlib.Path(folder) / "config.json"
    if not path.parent.exists():
        raise TaskError(f"{folder}: there is no such folder")
    if not path.exists():
        raise TaskError(f"{folder}: no task folder, it has no config.json")
    try:
        content = read_json(path)
    except CheckpointError as error:
        raise TaskError(str(error)) from None
    for name, kind in (("task", str), ("config", dict), ("model", dict)):
        if not isinstance(content.get(name), kind):
            words = {str: "a string", dict: "an object"}[kind]
            raise TaskError(f"{path}: expected {words} as {name!r}, got {brief(content.get(name))}")
    version = content.get("keras_tfm", __version__)
    if not isinstance(version, str) or not re.match(r"\d{1,9}\.\d{1,9}", version):
        raise TaskError(f"{path}: expected the version that wrote it as 'keras_tfm', got {brief(version)}")
    if _release(version) > _release(__version__):
        raise TaskError(f"{path}: written by keras_tfm {version}, newer than this one, {__version__}")
    try:
        plugins.require(content, path)
    except ValueError as error:
        raise TaskError(str(error)) from None
    return content


def _release(version: str) -> list[int]:
    """The first two numbers of a version; the third one never changes the format."""
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


def check_files(folder: pathlib.Path, digests: Any) -> None:
    """Raise TaskError unless `folder` holds the files that were saved next to the weights, unchanged.

    With the tokenizer of another model the weights would give meaningless answers.
    """
    if not isinstance(digests, dict):
        raise TaskError(f"{folder}/config.json: expected an object as 'files', got {brief(digests)}")
    for name, digest in digests.items():
        path = folder / name
        if pathlib.PurePath(name).name != name or not path.is_file():
            raise TaskError(f"{folder}: expected the file {brief(name)}, as its config.json says, got none")
        if digest_of(path) != digest:
            raise TaskError(f"{path}: expected the file that was saved with these weights, got another")
