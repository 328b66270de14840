"""Folders in the user's cache that hold what will be executed: nobody else may write to them."""

import os
import pathlib


def cache_folder(name: str) -> pathlib.Path:
    """$XDG_CACHE_HOME/keras_tfm/`name`, by default in ~/.cache."""
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return home / "keras_tfm" / name


def make_private(folder: pathlib.Path) -> None:
    """Make a folder, if there is none; PermissionError unless it belongs to this user, and nobody else may
    write to it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder}: expected a folder that only its owner, this user, writes to")


def is_on(variable: str) -> bool:
    """Whether the environment leaves a cache on; ValueError if the variable is neither 0 nor 1."""
    value = os.environ.get(variable, "1")
    if value not in ("0", "1"):
        raise ValueError(f"The environment variable {variable} must be 0 or 1; it is {value!r}.")
    return value == "1"
