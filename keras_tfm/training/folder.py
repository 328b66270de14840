"""Files and folders that appear whole or not at all: written beside, then renamed."""

import contextlib
import fnmatch
import json
import os
import pathlib
import secrets
import shutil
from collections.abc import Iterator

from keras_tfm.version import __version__

Path = str | os.PathLike[str]

MARK = "keras_tfm"  # the entry of a config.json that this package has written
SAVED_MODEL_MARK = "assets.extra/keras_tfm.json"  # servers pass over what stands in assets.extra

# What the package writes into folders, by its path there; * stands for folders too.
OWN_FILES = (
    "config.json", "generation_config.json", "model.safetensors", ".model.safetensors.*",
    "tokenizer.*", "target_tokenizer.*", "tokenizer_config.json", "training.json", ".training.json.*",
    "checkpoints/.lock", "checkpoints/step-*", "checkpoints/.step-*", "checkpoints/invalid-step-*",
    "checkpoints/.invalid-step-*", "metrics.csv", ".metrics.csv.*", "metrics.png",
    "logs/*/events.out.tfevents.*", "saved_model.pb", "fingerprint.pb", "variables/variables.*",
    "assets/*", SAVED_MODEL_MARK, ".README.md.*",
)  # fmt: skip
CARD = "README.md"
# In a model card: who takes the line out has made the file their own.
CARD_MARK = "<!-- keras-tfm writes this file anew after each training, unless this line is gone. -->"


@contextlib.contextmanager
def new_folder(path: Path, overwrite: bool = False) -> Iterator[pathlib.Path]:
    """Give a temporary folder to fill, which takes the name `path` when the block ends well.

    Raises FileExistsError as `refuse_existing` does; `overwrite` replaces a folder that this package wrote.
    """
    path = pathlib.Path(path)
    refuse_existing(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    work = _beside(path)
    work.mkdir()
    try:
        yield work
        if path.exists():
            old = _beside(path)
            path.rename(old)
            work.rename(path)
            shutil.rmtree(old)
        else:
            work.rename(path)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[pathlib.Path]:
    """Give a temporary path to write, which takes the name `path` when the block ends well."""
    path = pathlib.Path(path)
    work = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        work.touch()
        mode = work.stat().st_mode  # as the process's umask has it, which not every writer heeds
        yield work
        work.chmod(mode)
        os.replace(work, path)
    finally:
        work.unlink(missing_ok=True)


def mark_saved_model(folder: Path) -> None:
    """Say in a SavedModel's `folder` that this package wrote it, so that it may be replaced."""
    path = pathlib.Path(folder, SAVED_MODEL_MARK)
    path.parent.mkdir()
    path.write_text(json.dumps({MARK: __version__}) + "\n", "utf-8")


def refuse_existing(path: Path, overwrite: bool = False, remedy: str = "overwrite it") -> None:
    """Raise FileExistsError where something stands at `path` that a new folder must not replace.

    An empty folder may be filled. With `overwrite` a folder may be replaced that this package wrote, and
    in which nothing else stands; without, the error names the `remedy`. Links and files are always refused.
    """
    path = pathlib.Path(path)
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        kind = "link" if path.is_symlink() else "file"
        raise FileExistsError(f"{path} is a {kind}, and a folder is to be written: choose another name.")
    if not path.exists() or not any(path.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(f"{path} exists already: choose another name, or {remedy}.")
    foreign = _foreign_files(path)
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise FileExistsError(
            f"{path} holds files that keras_tfm did not write, and is not replaced: "
            f"{', '.join(foreign[:3])}{more}. Choose another name, or remove the folder yourself."
        )


def _foreign_files(folder: pathlib.Path) -> list[str]:
    """The paths in `folder` that this package did not write: all of them where its mark is missing."""
    paths = []
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        paths += [pathlib.Path(parent, name) for name in (*files, *links)]
    is_marked = _has_mark(folder)
    return sorted(
        name
        for path in paths
        for name in [path.relative_to(folder).as_posix()]
        if not is_marked or path.is_symlink() or not _is_own(path, name)
    )


def _is_own(path: pathlib.Path, name: str) -> bool:
    """Whether the package writes a file of this `name`, the path within a folder that it wrote."""
    if name == CARD:
        return is_own_card(path)
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in OWN_FILES)


def is_own_card(path: pathlib.Path) -> bool:
    """Whether a model card is as it was written, as far as its mark tells."""
    return CARD_MARK in path.read_text("utf-8", errors="replace")


def _has_mark(folder: pathlib.Path) -> bool:
    """Whether this package has written the folder, as far as its config.json or SavedModel tells."""
    for name in ("config.json", SAVED_MODEL_MARK):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            content = json.loads((folder / name).read_text("utf-8"))
            if isinstance(content, dict) and MARK in content:
                return True
    return False


def _beside(path: pathlib.Path) -> pathlib.Path:
    """A name in the folder of `path` that is not taken."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}")
