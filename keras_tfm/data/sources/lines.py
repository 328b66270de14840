"""Paths to files, files to lines, and the error for a file with a mistake.

A file is opened once and read line by line. A mistake in it is a `DataError`, which names the file, the line
(counted from 1), what was expected and what was found.
"""

import glob
import gzip
import io
import json
import logging
import lzma
import os
import pathlib
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from keras_tfm.configs import parse_json

LOG = logging.getLogger(__name__)

Path = str | os.PathLike[str]
Paths = Path | Iterable[Path]  # one or several, which may be patterns

# Examples to answer, each with its place, "line 3" for instance.
Inputs = Iterator[tuple[Any, str]]

TEXT_FILES = (".txt", ".txt.gz", ".txt.xz")
LINES = (".jsonl", ".jsonl.gz", ".jsonl.xz")  # how the names of JSON lines end
PREPARED = "tfds:"  # prefix for data sets of TensorFlow Datasets

# A longer "line" is a binary file or a decompression bomb; texts of many megabytes are fine.
MAX_LINE_BYTES = 1 << 26
MOST_TOLD = 3  # how many skipped images, lines or other units a warning names


class DataError(ValueError):
    """A mistake in a data file; the message is one line for the person who owns the file.

    >>> keras_tfm.data.read_pairs("missing.tsv")
    Traceback (most recent call last):
    ...
    keras_tfm.data.sources.lines.DataError: missing.tsv: cannot be read: No such file or directory
    """

    def __init__(self, path: str | os.PathLike, line: int | None, problem: str, unit: str = "line") -> None:
        self.problem = problem
        place = f"{path}, {unit} {line}" if line else f"{path}"
        super().__init__(f"{place}: {problem}")


def files_of(paths: Paths) -> list[str]:
    """The files that one or several paths stand for; a pattern ("data/*.tsv", "**" for nested folders) stands
    for its matches, sorted by name. DataError for a pattern without matches.
    """
    files: list[str] = []
    for path in [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]:
        is_pattern = glob.has_magic(path) and not path.startswith(PREPARED) and not os.path.exists(path)
        matches = sorted(glob.glob(path, recursive=True)) if is_pattern else [path]
        if not matches:
            raise DataError(path, None, "expected files, but nothing matches the pattern")
        files += matches
    return files


def text_files(path: str) -> Sequence[str]:
    """The text files in a folder, sorted by name, or the path itself; DataError for a folder without text
    files.
    """
    if not os.path.isdir(path):
        return [path]
    files = sorted(str(file) for file in pathlib.Path(path).iterdir() if file.name.endswith(TEXT_FILES))
    if not files:
        raise DataError(path, None, f"expected text files, {', '.join(TEXT_FILES)}; the folder has none")
    return files


def by_stem(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """{name without its ending: what has it in the folder, sorted}; the name of a folder is whole. Empty for
    what is no folder.
    """
    found: dict[str, list[pathlib.Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        found.setdefault(path.name if path.is_dir() else path.stem, []).append(path)
    return found


def read_input_lines(path: Path) -> Inputs:
    """The lines of a text file (plain, .gz or .xz), of all files of a pattern or folder, or of standard input
    for "-", each with its place.
    """
    files = [file for source in files_of(path) for file in text_files(source)]
    return inputs_in(files, lambda file: as_inputs(numbered_lines(file)))


def as_inputs(lines: Iterable[tuple[int, str]]) -> Inputs:
    """Numbered lines as examples with their places."""
    return ((text, f"line {number}") for number, text in lines)


def inputs_in(files: Sequence[str], read: Callable[[str], Inputs]) -> Inputs:
    """What `read` finds in each of the files; of several files, a place names its own."""
    for file in files:
        for example, place in read(file):
            yield example, place if len(files) == 1 else f"{file}, {place}"


def numbered_lines(
    path: str, most: int | None = None, standard_input=None, errors: str = "strict"
) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text). Only LF ends a line, since U+2028 and similar characters are text.

    "-" reads the binary stream `standard_input`, by default sys.stdin's. DataError for a line of more than
    `most` bytes (by default `MAX_LINE_BYTES`), for UTF-16, and for a line that is not UTF-8 unless `errors`,
    "replace" for example, says what its text is then.
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
                if number == 1:
                    refuse_utf_16(path, line)
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")  # the byte order mark that Windows writes
                yield number, line.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise DataError(path, number, no_utf_8(error)) from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(path, number + 1, f"expected a whole compressed file: {error}") from None
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None


def no_utf_8(error: UnicodeDecodeError) -> str:
    """What is wrong with bytes that are no UTF-8, in words."""
    byte = error.object[error.start : error.start + 1]
    problem = f"expected UTF-8, got byte 0x{byte.hex()} at position {error.start}"
    if letter := byte.decode("cp1252", "ignore"):
        problem += f", which is {letter} in CP-1252; to convert: iconv -f CP1252 -t UTF-8"
    return problem


def json_lines(path: str) -> Iterator[tuple[int, Any]]:
    """Yield (line number from 1, value) of JSON lines; a warning counts blank ones. DataError for a line that
    is no JSON.
    """
    blank: list[int] = []
    for line, text in numbered_lines(path):
        if not text.strip():
            blank.append(line)
            continue
        try:
            yield line, parse_json(text)
        except ValueError as error:
            raise DataError(path, line, f"expected a JSON object: {error}") from None
    tell_blank_lines(path, blank)


def refuse_utf_16(path: str, data: bytes) -> None:
    """Raise DataError if the first bytes of a file look like UTF-16: they are its byte order mark, or every
    other byte is 0.
    """
    has_mark = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if has_mark or (len(data) >= 8 and data.count(0) * 5 >= len(data) * 2):
        raise DataError(path, 1, "expected UTF-8, got UTF-16; to convert: iconv -f UTF-16 -t UTF-8")


def tell_left_out(problems: Mapping[str, str], count: int, unit: str = "images") -> None:
    """Warn, in one line, about skipped images or other units, if there are any."""
    if not problems:
        return
    few = [f"{place} ({problem})" for place, problem in list(problems.items())[:MOST_TOLD]]
    if len(problems) > len(few):
        few.append(f"{len(problems) - len(few):,} more")
    examples = ", ".join(few)
    LOG.warning("%s of %s %s are skipped: %s", f"{len(problems):,}", f"{count:,}", unit, examples)


def tell_blank_lines(path: str, lines: Sequence[int]) -> None:
    """Warn, in one line, about blank lines that were skipped, if there are any."""
    if lines:
        few = ", ".join(map(str, lines[:MOST_TOLD])) + (", …" if len(lines) > MOST_TOLD else "")
        count = "1 blank line" if len(lines) == 1 else f"{len(lines):,} blank lines"
        LOG.warning("%s: skipped %s: %s", path, count, few)


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
