"""Reading safetensors files, including truncated, damaged and malicious ones: each byte is checked, or all
refused.

The `safetensors` package writes these files but does not read them here: it accepts duplicate names and
meaningless sizes, and knows no bfloat16 with NumPy.
"""

import collections
import math
import mmap
import os
import stat
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np

from keras_tfm import configs
from keras_tfm.training.folder import Path


class CheckpointError(ValueError):
    """A file of weights, or a configuration, that cannot be used.

    Args:
        path: the file.
        key: the name of the weight or entry; None for the file itself.
        expected, got: what was expected and what was found, in words.

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> keras_tfm.training.load_weights(model, "missing.safetensors")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    keras_tfm.training.safetensors.CheckpointError: missing.safetensors: expected a file to read, got ...
    """

    def __init__(self, path: Path, key: str | None, expected: str, got: str):
        self.path, self.key, self.expected, self.got = path, key, expected, got
        place = path if key is None else f"{path}: {key}"
        super().__init__(f"{place}: expected {expected}, got {got}.")


DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # read as float32, which holds it exactly
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "<u1",
    "BOOL": "|b1",
}
UNTRAINED = {"trained": "no"}  # metadata of a file with the initial weights of a training
MAX_JSON = 25_000_000  # bytes: the longest header that Hugging Face's hub accepts


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read a file: ({name: array}, {metadata key: text}); CheckpointError unless it is complete and
    consistent.

    The arrays are read-only views of the mapped file; bfloat16 is converted to float32.
    """
    header, metadata, data = _mapped(path)
    return {name: _tensor(path, name, entry, data) for name, entry in header.items()}, metadata


def let_go(tensors: Iterable[np.ndarray]) -> None:
    """Let the pages of files that arrays of `read_tensors` show leave this process's memory: they are read
    again when they are used.
    """
    files: dict[int, mmap.mmap] = {}
    for tensor in tensors:
        base: Any = tensor
        while isinstance(base, np.ndarray):
            base = base.base
        if isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap):
            files[id(base.obj)] = base.obj
    for file in files.values():
        if hasattr(mmap, "MADV_DONTNEED"):  # macOS has none
            file.madvise(mmap.MADV_DONTNEED)


def read_shapes(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """{name: (its kind of number, "F32" for instance, and its shape)} of the tensors in a file, of which only
    the header is read; it raises what `read_tensors` raises.
    """
    return {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in _mapped(path)[0].items()}


def _mapped(path: Path) -> tuple[dict[str, Any], dict[str, str], memoryview]:
    """A file's header, its metadata, and the bytes of its tensors, which are mapped, not read."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or 8 + length > size:
            raise CheckpointError(
                path, None, f"a whole safetensors file, header of {length} bytes", f"{size} bytes"
            )
        if length > MAX_JSON:
            raise CheckpointError(path, None, f"a header of at most {MAX_JSON} bytes", f"{length}")
        header = parse_json(file.read(length), path)
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[8 + length :]
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise CheckpointError(path, "__metadata__", "texts by name", repr(metadata)[:80])
    _check_layout(path, header, len(data))
    return header, metadata, data


def read_json(path: Path, kind: type = dict) -> Any:
    """The object, or with `kind` list the list, in a JSON file; CheckpointError for anything else, and for
    duplicate names.
    """
    with open_regular(path) as file:
        text = file.read(MAX_JSON + 1)
    if len(text) > MAX_JSON:
        raise CheckpointError(path, None, f"at most {MAX_JSON} bytes of JSON", "more")
    return parse_json(text, path, kind)


def parse_json(text: bytes, path: Path, kind: type = dict) -> Any:
    """The object or list in the JSON text `text`, which came from the file `path`; see `read_json`."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            ((twice, _),) = collections.Counter(name for name, _ in pairs).most_common(1)
            raise CheckpointError(path, twice, "one entry of this name", "several")
        return result

    try:
        result = configs.parse_json(text.decode("utf-8"), object_pairs_hook=unique)
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(path, None, "JSON", f"text that is not ({error})") from None
    if not isinstance(result, kind):
        expected = "a JSON object" if kind is dict else "a JSON list"
        raise CheckpointError(path, None, expected, repr(result)[:80])
    return result


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read bytes; CheckpointError if it is missing, a pipe or a folder."""
    try:
        # O_NONBLOCK: opening a named pipe would otherwise wait until somebody writes to it.
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise CheckpointError(path, None, "a file to read", str(error.strerror).lower()) from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise CheckpointError(path, None, "a regular file", "something else")
    return os.fdopen(file, "rb")


def _check_layout(path: Path, header: dict[str, Any], size: int) -> None:
    """Raise CheckpointError unless the tensors in `header` fill `size` bytes without gaps."""
    for name, entry in header.items():
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise CheckpointError(path, name, "dtype, shape and data_offsets", repr(entry)[:80])
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in DTYPES:
            raise CheckpointError(path, name, f"a dtype of {', '.join(DTYPES)}", repr(entry["dtype"])[:80])
        if not _are_sizes(entry["shape"]) or not _are_sizes(entry["data_offsets"], 2):
            raise CheckpointError(path, name, "a shape and two offsets", repr(entry)[:200])
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        num_bytes = math.prod(entry["shape"]) * np.dtype(DTYPES[entry["dtype"]]).itemsize
        if begin != end or stop - begin != num_bytes:
            raise CheckpointError(
                path, name, f"{num_bytes} bytes from {end}", f"the bytes from {begin} to {stop}"
            )
        end = stop
    if end != size:
        raise CheckpointError(path, None, f"{end} bytes of tensors", f"{size}")


def _are_sizes(values: Any, count: int | None = None) -> bool:
    return (
        isinstance(values, list)
        and all(type(value) is int and 0 <= value < 2**63 for value in values)
        and (len(values) == count if count else len(values) <= 32)
    )


def _tensor(path: Path, name: str, entry: dict[str, Any], data: memoryview) -> np.ndarray:
    begin, stop = entry["data_offsets"]
    try:
        tensor = np.frombuffer(data[begin:stop], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    except ValueError as error:  # the shape (0, 2^62) has no bytes, but is too large for NumPy
        raise CheckpointError(path, name, "a shape that NumPy knows", f"{entry['shape']} ({error})") from None
    return tensor if entry["dtype"] != "BF16" else (tensor.astype("u4") << 16).view("f4")
