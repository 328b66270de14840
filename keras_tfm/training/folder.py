"""Files and folders that appear whole or not at all: written beside, then renamed."""

import contextlib
import os
import pathlib
import shutil
import tempfile


@contextlib.contextmanager
def new_folder(path, overwrite=False):
    """Give a temporary folder to fill, which takes the name `path` when the block ends well.

    Raises FileExistsError where `path` exists, unless `overwrite` replaces it.
    """
    path = pathlib.Path(path)
    refuse_existing(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield work
        work.chmod(0o777 & ~_umask())
        if path.exists():
            old = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
            path.rename(old / path.name)
            work.rename(path)
            shutil.rmtree(old)
        else:
            work.rename(path)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


@contextlib.contextmanager
def new_file(path):
    """Give a temporary path to write, which takes the name `path` when the block ends well."""
    path = pathlib.Path(path)
    work = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield work
        os.replace(work, path)
    finally:
        work.unlink(missing_ok=True)


def refuse_existing(path, allowed=False, remedy="overwrite it"):
    """Raise FileExistsError, naming the `remedy`, where `path` exists and that is not `allowed`."""
    if pathlib.Path(path).exists() and not allowed:
        raise FileExistsError(f"{path} exists already: choose another name, or {remedy}.")


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
