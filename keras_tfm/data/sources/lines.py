"""Paths to files, files to lines, and the error for a file with a mistake.

A file is opened once and read line by line. A mistake in it is a `DataError`, which names the file, the line
(counted from 1), what was expected and what was found.
"""

import glob
import gzip
import io
import json
import lzma
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext

Path = str | os.PathLike[str]
Paths = Path | Iterable[Path]  # one or several, which may be patterns

PREPARED = "tfds:"  # prefix for data sets of TensorFlow Datasets

# A longer "line" is a binary file or a decompression bomb; texts of many megabytes are fine.
MAX_LINE_BYTES = 1 << 26


class DataError(ValueError):
    """A mistake in a data file; the message is one line for the person who owns the file.

    >>> keras_tfm.data.read_pairs("missing.tsv")
    Traceback (most recent call last):
    ...
    keras_tfm.data.sources.lines.DataError: missing.tsv: cannot be read: No such file or directory
    """

    def __init__(self, path: str | os.PathLike, line: int | None, problem: str, unit: str = "line") -> None:
        place = f"{path}, {unit} {line}" if line else f"{path}"
        super().__init__(f"{place}: {problem}")


def files_of(paths: Paths) -> list[str]:
    """The files that one or several paths stand for; a pattern ("data/*.tsv", "**" for nested folders) stands
    for its matches, sorted by name. DataError for a pattern without matches.
    """
    files: list[str] = []
    for path in [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]:
        is_pattern = glob.has_magic(path) and not path.startswith(PREPARED) and not os.path.exists(path)
        found = sorted(glob.glob(path, recursive=True)) if is_pattern else [path]
        if not found:
            raise DataError(path, None, "expected files, but nothing matches the pattern")
        files += found
    return files


def numbered_lines(
    path: str, most: int | None = None, standard_input=None, errors: str = "strict"
) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text). Only LF ends a line, since U+2028 and similar characters are text.

    "-" reads the binary stream `standard_input`, by default that of sys.stdin. DataError for a line of more
    than `most` bytes (by default `MAX_LINE_BYTES`), and for one that is not UTF-8 unless `errors` is
    "replace".
    """
    most = most or MAX_LINE_BYTES
    number = 0
    try:
        if path == "-" and standard_input is None and sys.stdin is None:
            raise DataError(path, None, "expected lines, standard input is closed")
        with nullcontext(standard_input or sys.stdin.buffer) if path == "-" else _open(path) as file:
            while line := file.readline(most + 1):
                number += 1
                if len(line) > most:
                    raise DataError(path, number, f"expected text, got a line over {most:,} bytes")
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")  # the byte order mark that Windows writes
                yield number, line.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        problem = f"expected UTF-8, got byte 0x{error.object[error.start]:02x} at position {error.start}"
        raise DataError(path, number, problem) from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(path, number + 1, f"expected a whole compressed file: {error}") from None
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None


def check_text(text, path: str, line: int | None, side: str, unit: str = "line") -> str:
    """`text` itself; DataError unless it is a string that is not blank and valid Unicode."""
    if not isinstance(text, str):
        got = json.dumps(text, default=repr)[:60]
        raise DataError(path, line, f"expected a string as {side}, got {got}", unit)
    if not text or text.isspace():
        raise DataError(path, line, f"expected a text, the {side} is empty", unit)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise DataError(path, line, "expected Unicode text, got half of a surrogate pair", unit)
    return text


def _open(path: str) -> io.BufferedIOBase:
    match os.path.splitext(path)[1].lower():
        case ".gz":
            return gzip.open(path)
        case ".xz":
            return lzma.open(path)
    return open(path, "rb")
