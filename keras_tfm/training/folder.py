"""Files and folders that appear completely or not at all: they are written under another name, then
renamed.
"""

import contextlib
import fcntl
import fnmatch
import json
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Iterator
from typing import Any, TextIO

from keras_tfm.version import __version__

Path = str | os.PathLike[str]

MARK = "keras_tfm"  # the entry by which this package recognises its own config.json
SAVED_MODEL_MARK = "assets.extra/keras_tfm.json"  # servers ignore assets.extra
EXPORT_MARK = "serving.json"  # of the other formats

# Patterns of the files that this package writes into folders; * also matches folders.
OWN_FILES = (
    "config.json", "generation_config.json", "model.safetensors", ".model.safetensors.*",
    "tokenizer.*", "target_tokenizer.*", "tokenizer_config.json", "training.json", ".training.json.*",
    "checkpoints/.lock", "checkpoints/step-*", "checkpoints/.step-*", "checkpoints/invalid-step-*",
    "checkpoints/.invalid-step-*", "metrics.csv", ".metrics.csv.*", "metrics.png",
    "logs/*/events.out.tfevents.*", "saved_model.pb", "fingerprint.pb", "variables/variables.*",
    "assets/*", SAVED_MODEL_MARK, ".README.md.*", EXPORT_MARK, "serving.py", "serving/*", "model.onnx",
    "model.tflite", "model.xml", "model.bin", "model/*", "symbols.json", "spiece.model",
    "preprocessor_config.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json",
)  # fmt: skip
LOCK = "checkpoints/.lock"  # in a RUN: held by the process that trains there
CARD = "README.md"
# A line in generated model cards: whoever removes it keeps the file from being overwritten.
CARD_MARK = "<!-- keras-tfm writes this file anew, unless this line is gone. -->"


@contextlib.contextmanager
def new_folder(path: Path, overwrite: bool = False, as_run: bool = False) -> Iterator[pathlib.Path]:
    """Provide a temporary folder, which is renamed to `path` if the block ends without an error.

    `overwrite` replaces a folder that this package wrote, a RUN only where another RUN is written, `as_run`;
    see `refuse_existing` for the errors. No training can begin in the old folder meanwhile.
    """
    path = pathlib.Path(path)
    refuse_existing(path, overwrite, as_run=as_run)
    path.parent.mkdir(parents=True, exist_ok=True)
    work = _beside(path)
    work.mkdir()
    try:
        with _locked(path):
            yield work
            if path.exists():
                old = _beside(path)
                path.rename(old)
                try:
                    work.rename(path)
                except BaseException:
                    old.rename(path)
                    raise
                shutil.rmtree(old)
            else:
                work.rename(path)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[pathlib.Path]:
    """Provide a temporary path to write to, which is renamed to `path` if the block ends without an error.

    FileNotFoundError where its folder is missing.
    """
    path = pathlib.Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}")
    work = path.with_name(f".{path.name[:50]}.{secrets.token_hex(8)}")  # names of files end after 255 bytes
    try:
        work.touch(exist_ok=False)  # and never through a link that somebody has put there
        mode = work.stat().st_mode  # follows the process's umask, which some writers ignore
        yield work
        work.chmod(mode)
        os.replace(work, path)
    finally:
        work.unlink(missing_ok=True)


def mark_saved_model(folder: Path, **entries: Any) -> None:
    """Mark the SavedModel in `folder` as written by this package, so that it may be overwritten; `entries`
    stand beside the mark.
    """
    path = pathlib.Path(folder, SAVED_MODEL_MARK)
    path.parent.mkdir()
    path.write_text(json.dumps({MARK: __version__, **entries}, indent=2) + "\n", "utf-8")


def refuse_existing(
    path: Path, overwrite: bool = False, remedy: str = "overwrite it", as_run: bool = False
) -> None:
    """Raise FileExistsError if a new folder at `path` would replace something that it must not.

    An empty folder may be filled. With `overwrite`, a folder may be replaced if this package wrote it and
    nothing else is in it; otherwise the error suggests the `remedy`. Links and files are always refused. A
    RUN is replaced only if the new folder is one too, `as_run`, and never while it is training: that is a
    BlockingIOError.
    """
    path = pathlib.Path(path)
    if path.name in ("", ".."):
        raise FileExistsError(f"{path} is a folder to work in, and is not replaced: choose another name.")
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
    if not as_run and is_run(path):
        raise FileExistsError(f"{path} is a RUN, which only another RUN replaces: choose another name.")
    refuse_running(path)


def refuse_pattern(path: Path) -> None:
    """Raise ValueError for a name at which TensorFlow would not find what it has written: it takes the names
    of its files for patterns, and for UTF-8.
    """
    name = os.fspath(path)
    if set("*?[\\") & set(name) or any("\ud800" <= character <= "\udfff" for character in name):
        raise ValueError(
            f"{name!a}: TensorFlow finds no files under a name with *, ?, [, \\ or bytes outside UTF-8: "
            "choose another name."
        )


def refuse_running(run: Path) -> None:
    """Raise BlockingIOError if another process trains in the folder `run`."""
    with _locked(pathlib.Path(run)):
        pass


def lock(path: pathlib.Path) -> TextIO:
    """Lock the file `path`, which is made where it is missing, until the file is closed; BlockingIOError if
    it is locked already.
    """
    file = open(path, "w")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise BlockingIOError(f"{path.parent}: another process is training there.") from None
    return file


@contextlib.contextmanager
def _locked(run: pathlib.Path) -> Iterator[None]:
    """A scope in which no training can begin in the folder `run`; BlockingIOError if one runs there."""
    if not (run / LOCK).parent.is_dir():
        yield
        return
    with lock(run / LOCK):
        yield


def has_mark(folder: pathlib.Path) -> bool:
    """Whether the config.json, the SavedModel or the export in the folder says that this package wrote it."""
    return any(True for _ in _marked(folder, "config.json", SAVED_MODEL_MARK, EXPORT_MARK))


def is_run(folder: pathlib.Path) -> bool:
    """Whether the folder is a RUN, a saved task."""
    return any("task" in content for content in _marked(folder, "config.json"))


def _foreign_files(folder: pathlib.Path) -> list[str]:
    """The paths in `folder` that this package did not write; all of them if its mark is missing."""
    paths = []
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        paths += [pathlib.Path(parent, name) for name in (*files, *links)]
    is_marked = has_mark(folder)
    return sorted(
        name
        for path in paths
        for name in [path.relative_to(folder).as_posix()]
        if not is_marked or path.is_symlink() or not _is_own(path, name)
    )


def _is_own(path: pathlib.Path, name: str) -> bool:
    """Whether this package writes a file of this `name`, a path inside its folders."""
    if name == CARD:
        return is_own_card(path)
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in OWN_FILES)


def is_own_card(path: pathlib.Path) -> bool:
    """Whether the model card still has the mark of a generated one."""
    return CARD_MARK.partition(",")[0] in path.read_text("utf-8", errors="replace")


def _marked(folder: pathlib.Path, *names: str) -> Iterator[dict[str, Any]]:
    """Yield the contents of the JSON files with this package's mark."""
    for name in names:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            content = json.loads((folder / name).read_text("utf-8"))
            if isinstance(content, dict) and MARK in content:
                yield content


def _beside(path: pathlib.Path) -> pathlib.Path:
    """An unused name in the parent folder of `path`, short and of characters that TensorFlow can write."""
    plain = re.sub(r"[^\w.-]", "_", path.name, flags=re.ASCII)[:100]
    return path.with_name(f".{plain}.{secrets.token_hex(8)}")
