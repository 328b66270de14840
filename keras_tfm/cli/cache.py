"""Folders in the user's cache that hold what will be executed: nobody else may write to them."""

import os
import pathlib
import stat


def cache_folder(name: str) -> pathlib.Path:
    """$XDG_CACHE_HOME/keras_tfm/`name`, by default in ~/.cache."""
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return home / "keras_tfm" / name


def make_private(folder: pathlib.Path) -> None:
    """Make a folder and the one around it, where they are not there; PermissionError unless both belong to
    this user, nobody else may write to them, and nobody may put others in their place.
    """
    for own in (folder.parent, folder):
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = own.stat()
        if own == folder.parent and status.st_uid == os.getuid() and not status.st_mode & stat.S_IWOTH:
            own.chmod(status.st_mode & 0o755)  # earlier versions left it to the umask
            status = own.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(f"{own}: expected a folder that only its owner, this user, writes to")
    for around in folder.resolve().parents:
        mode = around.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise PermissionError(f"{around}: expected a folder to which not everybody writes")


def is_on(variable: str) -> bool:
    """Whether the environment leaves a cache on; ValueError if the variable is neither 0 nor 1."""
    value = os.environ.get(variable, "1")
    if value not in ("0", "1"):
        raise ValueError(f"The environment variable {variable} must be 0 or 1; it is {value!r}.")
    return value == "1"
