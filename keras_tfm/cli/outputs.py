"""What a command may write: an output never replaces an input of the same command, nor a part of a RUN.

Whole folders replace only what this package wrote (`training.folder.refuse_existing`), single files only what
--overwrite names.
"""

import contextlib
import glob
import os
import pathlib
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

REMEDY = "pass --overwrite"


def refuse_folder(
    out: str,
    inputs: Iterable[str | None],
    overwrite: bool = False,
    remedy: str = REMEDY,
    as_run: bool = False,
) -> None:
    """Raise OSError if a new folder `out` would replace something that it must not.

    That is one of the `inputs`, paths or None, or a folder that holds one; see also `refuse_existing`.
    """
    from keras_tfm.training.folder import refuse_existing

    for path in _existing(inputs):
        if _is_in(path, out):
            raise FileExistsError(f"{out}: {path} is read from there, and not replaced: choose another name.")
    refuse_existing(out, overwrite, remedy, as_run)


def refuse_inside(out: str, option: str, inputs: Iterable[str | None]) -> None:
    """Raise ValueError if the folder `out` would lie in one of the folders that `option` reads: it would be
    read as data the next time.
    """
    for path in _existing(inputs):
        if os.path.isdir(path) and _is_in(out, path):
            raise ValueError(f"--out: expected a folder outside of {option} {path}, got {out}")


def refuse_no_file(out: str | os.PathLike) -> None:
    """Raise OSError if `out` exists and is a folder, a link, a device or a pipe."""
    path = pathlib.Path(out)
    if path.is_dir():
        raise IsADirectoryError(f"{out} is a folder, not a file: choose another name.")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        kind = "link" if path.is_symlink() else "device or a pipe"
        raise FileExistsError(f"{out} is a {kind}, and a file is to be written: choose another name.")


def refuse_file(out: str | os.PathLike, inputs: Iterable[str | None] = (), overwrite: bool = False) -> None:
    """Raise OSError unless a single file may be written to `out`.

    An existing one is replaced only by `overwrite`; never a link, a device, a folder, or one of the `inputs`:
    files, folders of files, patterns, or "-" for standard input. A folder that this package wrote holds its
    own files alone, since another one would keep it from being replaced.
    """
    path = pathlib.Path(out)
    refuse_no_file(path)
    if not path.parent.exists():
        raise FileNotFoundError(f"{out}: the folder {path.parent} does not exist.")
    if not path.parent.is_dir():
        raise NotADirectoryError(f"{out}: {path.parent} is a file, not a folder: choose another name.")
    refuse_within(path)
    if not os.path.lexists(path):
        return
    if any(_is_same(path, source) or _is_in(out, source) for source in _existing(inputs)):
        raise FileExistsError(f"{out} is read by this command, and not replaced: choose another name.")
    if not overwrite:
        raise FileExistsError(f"{out} exists already: choose another name, or {REMEDY}.")


def refuse_within(out: str | os.PathLike) -> None:
    """Raise FileExistsError if `out` lies in a folder that this package wrote."""
    from keras_tfm.training.folder import has_mark

    for folder in pathlib.Path(out).resolve().parents:
        if has_mark(folder):
            raise FileExistsError(f"{out} lies in {folder}, a RUN or an export: choose another folder.")


def pictures_in(
    folders: Mapping[str, str],
    examples: Any,
    source: str,
    overwrite: bool = False,
    suffixes: Mapping[str, str] = types.MappingProxyType({}),
) -> dict[str, list]:
    """{option: the file of a picture of each of the images} in its folder, a PNG unless `suffixes` has
    another ending for the option; OSError if one may not be written. The `examples` were read from `source`.
    """
    from keras_tfm.tasks.images.drawing import picture_paths

    read = [source, *(example for example in examples if isinstance(example, str))]
    paths = {
        option: picture_paths(examples, folder, suffixes.get(option, ".png"))
        for option, folder in folders.items()
    }
    for option, each in paths.items():
        refuse_within(pathlib.Path(folders[option], "a picture"))
        for path in filter(os.path.lexists, each):
            if not path.suffix and path.is_dir():  # for frames, which are many files
                raise FileExistsError(f"{path} exists already: choose another folder for --{option}.")
            refuse_file(path, read, overwrite)
    return paths


def _existing(inputs: Iterable[str | None]) -> Iterator[str]:
    """The inputs that are there, "-" included, the files of patterns one by one."""
    for path in inputs:
        if path is not None and (path == "-" or os.path.exists(path)):
            yield path
        elif path is not None and glob.has_magic(path):
            yield from glob.glob(path, recursive=True)


def _is_same(path: pathlib.Path, source: str) -> bool:
    """Whether two paths are one file, through links too."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(0) if source == "-" else os.stat(source))
    return False


def _is_in(path: str | os.PathLike, folder: str | os.PathLike) -> bool:
    """Whether `path` is `folder`, or lies in it."""
    inner, outer = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([inner, outer]) == outer
