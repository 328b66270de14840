"""Raw text files (and TFDS translation sets) to Python strings.

Every reader streams: a file is opened once and only its strings are kept. Whatever is wrong with a file is a
`DataError`, one line that names the file, the line (counted from 1), what was expected and what came.
"""

import csv
import functools
import gzip
import hashlib
import io
import itertools
import json
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
from babel import Locale

from keras_tfm.configs import parse_json

# Column names that mark a first row as a header; languages ("en", "pt-BR", "German") do so too.
KNOWN_COLUMNS = (
    ("source", "target"), ("src", "tgt"), ("input", "output"), ("question", "answer"),
    ("text", "summary"), ("document", "summary"), ("article", "summary"), ("article", "highlights"),
)  # fmt: skip

COUNTS = ("no", "one", "two", "three")

# A longer "line" is a binary file or a decompression bomb; texts of many megabytes are read as they are.
MAX_LINE_BYTES = 1 << 26


class DataError(ValueError):
    """Something is wrong with a data file; the message is one line for the person who owns the file."""

    def __init__(self, path, line: int | None, problem: str, unit: str = "line"):
        place = f"{path}, {unit} {line}" if line else f"{path}"
        super().__init__(f"{place}: {problem}")


class Columns(NamedTuple):
    """Which cells of a table are read: those `chosen`, all by name or all by position from 0, or else those
    that `known(lower-cased first row)` finds, or else the first ones, if there are as many as `names`.
    """

    names: tuple[str, ...]
    known: Callable[[list[str]], tuple[int, ...] | None]
    chosen: list | None = None


class Pairs(NamedTuple):
    """Two lists of equal length: `targets[i]` is what `sources[i]` should become."""

    sources: list[str]
    targets: list[str]


def read_pairs(paths, columns: Sequence[str | int] | None = None) -> Pairs:
    """Reads (source, target) pairs. `paths` is one .tsv (unquoted), .csv (RFC 4180) or .jsonl file, or a
    sequence of two parallel text files, each plain, .gz or .xz; or `"tfds:NAME[/CONFIG][:VERSION]#SPLIT"`.
    `columns` chooses the source and the target column, by name or by position from 0. A first row is a header
    when `columns` are names, when it holds a pair of `KNOWN_COLUMNS`, or when its two cells name languages.
    Strings come as they are, without the newline (LF or CRLF). Raises DataError when a file is missing,
    empty, cut short or not UTF-8, when rows or parallel files disagree in length, when a text is blank.
    """
    paths = [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
    chosen = Columns(("source", "target"), known_pair, parse_columns(columns))
    if len(paths) not in (1, 2):
        raise ValueError(f"paths: expected one file, or two parallel ones, got {len(paths)}")
    if len(paths) == 2:
        rows = _parallel_rows(*paths)
    elif paths[0].startswith("tfds:"):
        rows = _tfds_rows(paths[0], chosen)
    else:
        rows = ((row.text(0), row.text(1)) for row in read_rows(paths[0], chosen))
    pairs = Pairs([], [])
    for source, target in rows:
        pairs.sources.append(source)
        pairs.targets.append(target)
    if not pairs.sources:
        raise DataError(paths[0], None, "expected pairs of texts, the file is empty")
    return pairs


def read_lines(path) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file (plain, .gz or .xz), or of standard input for "-", each without
    its newline; empty lines are kept and an empty file has none. Raises DataError as `read_pairs` does.
    """
    return (text for _, text in numbered_lines(os.fspath(path)))


class Row(NamedTuple):
    """The chosen cells of a table's line: strings, or what JSON gives."""

    path: str
    line: int
    names: tuple[str, ...]
    cells: tuple

    def text(self, place: int) -> str:
        """The cell at `place`; DataError where it is no text, or blank."""
        return check_text(self.cells[place], self.path, self.line, self.names[place])

    def refuse(self, problem: str):
        """Raise DataError for this line."""
        raise DataError(self.path, self.line, problem)


def read_rows(path: str, columns: Columns) -> Iterator[Row]:
    """Yields the rows of one .tsv (unquoted), .csv (RFC 4180) or .jsonl file, plain, .gz or .xz. DataError as
    `read_pairs` raises it, blank cells apart.
    """
    match os.path.splitext(re.sub(r"\.(gz|xz)$", "", path.lower()))[1]:
        case ".tsv":
            return _table_rows(path, _tsv_records(path), columns)
        case ".csv":
            return _table_rows(path, _csv_records(path), columns)
        case ".jsonl":
            return _json_rows(path, columns)
    raise DataError(path, None, "expected a .tsv, .csv or .jsonl file, or two parallel text files")


def parse_columns(columns, counts=(2,)):
    """Names, or positions, of different columns, as many as one of `counts`; ValueError for others."""
    if columns is None:
        return None
    columns = [int(column) if str(column).isdecimal() else column for column in columns]
    kinds, several = {type(column) for column in columns}, len(set(columns)) == len(columns)
    if len(columns) not in counts or len(kinds) != 1 or not several:
        raise ValueError(
            f"columns: expected {' or '.join(map(COUNTS.__getitem__, counts))} different names, "
            f"or {' or '.join(map(COUNTS.__getitem__, counts))} positions from 0, got {columns}"
        )
    return columns


def _open(path: str) -> io.BufferedIOBase:
    match os.path.splitext(path)[1].lower():
        case ".gz":
            return gzip.open(path)
        case ".xz":
            return lzma.open(path)
    return open(path, "rb")


def numbered_lines(path: str, most: int | None = None) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, text): split at LF alone, for U+2028 and its like are text. DataError for a
    line of more than `most` bytes (None: `MAX_LINE_BYTES`), of which no more are read.
    """
    most = most or MAX_LINE_BYTES
    number = 0
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else _open(path) as file:
            while line := file.readline(most + 1):
                number += 1
                if len(line) > most:
                    raise DataError(path, number, f"expected text, got a line over {most:,} bytes")
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")  # the byte order mark that Windows writes
                yield number, line.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"expected UTF-8, got byte 0x{error.object[error.start]:02x} at position {error.start}"
        raise DataError(path, number, problem) from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(path, number + 1, f"expected a whole compressed file: {error}") from None
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None


def check_text(text, path: str, line: int | None, side: str, unit: str = "line") -> str:
    """`text`; DataError where it is no string, blank, or no Unicode."""
    if not isinstance(text, str):
        raise DataError(path, line, f"expected a string as {side}, got {json.dumps(text)[:60]}", unit)
    if not text or text.isspace():
        raise DataError(path, line, f"expected a text, the {side} is empty", unit)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise DataError(path, line, "expected Unicode text, got half of a surrogate pair", unit)
    return text


def _parallel_rows(source_path: str, target_path: str) -> Iterator[tuple[str, str]]:
    both = itertools.zip_longest(numbered_lines(source_path), numbered_lines(target_path))
    for line, (source, target) in enumerate(both, start=1):
        if source is None or target is None:
            longer, shorter = (source_path, target_path) if target is None else (target_path, source_path)
            problem = f"expected parallel files of one length, {shorter} has only {line - 1} lines"
            raise DataError(longer, line, problem)
        yield (
            check_text(source[1], source_path, line, "source"),
            check_text(target[1], target_path, line, "target"),
        )


def _table_rows(path: str, records: Iterator, columns: Columns) -> Iterator[Row]:
    places: Sequence[int]
    width, places = -1, ()
    for line, cells in records:
        if width < 0:
            width = len(cells)
            places, is_header = _choose_columns(path, cells, columns)
            if is_header:
                continue
        if len(cells) != width:
            raise DataError(path, line, f"expected {width} columns, got {len(cells)}")
        yield Row(path, line, columns.names, tuple(cells[place] for place in places))


def _tsv_records(path: str) -> Iterator[tuple[int, list[str]]]:
    for line, text in numbered_lines(path):
        yield line, text.split("\t")


def _csv_records(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (line where the record begins, cells): a quoted cell may hold newlines."""
    reader = csv.reader((text + "\n" for _, text in numbered_lines(path)), strict=True)
    limit = csv.field_size_limit(MAX_LINE_BYTES)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(path, line, f"expected CSV: {error}") from None
    finally:
        csv.field_size_limit(limit)


def _choose_columns(path: str, first_row: list[str], columns: Columns) -> tuple[Sequence[int], bool]:
    """Returns (positions of the columns, whether the first row is a header)."""
    cells, chosen = [cell.strip() for cell in first_row], columns.chosen
    known = columns.known([cell.lower() for cell in cells])
    if chosen is None:
        if known is None and len(cells) != len(columns.names):
            hint = (
                ""
                if len(cells) < len(columns.names)
                else f"; choose {COUNTS[len(columns.names)]} of them by name or position"
            )
            expected = f"{len(columns.names)} columns, {' and '.join(columns.names)}"
            raise DataError(path, 1, f"expected {expected}, got {len(cells)}{hint}")
        return known or range(len(cells)), known is not None
    if isinstance(chosen[0], int):
        if max(chosen) >= len(cells):
            raise DataError(path, 1, f"expected column {max(chosen)} (from 0), got {len(cells)} columns")
        return chosen, known is not None
    for name in chosen:
        if name not in cells:
            raise DataError(path, 1, f"expected a column named {name!r}, got {', '.join(cells)[:200]}")
    return [cells.index(name) for name in chosen], True


def known_pair(cells: list[str]) -> tuple[int, int] | None:
    """Where a header's source and target stand; None if it names no such pair."""
    for source, target in KNOWN_COLUMNS:
        if source in cells and target in cells:
            return cells.index(source), cells.index(target)
    languages = len(cells) == 2 and cells[0] != cells[1] and all(map(_is_language, cells))
    return (0, 1) if languages else None


def _is_language(name: str) -> bool:
    """Whether a lower-case name is a language: "de", "pt-br", "german"; three letters are too often words."""
    return re.sub(r"[-_]\w{2,4}$", "", name) in _languages()


@functools.cache
def _languages() -> frozenset[str]:
    names = Locale("en").languages  # {"de": "German", ...}
    return frozenset(code for code in names if len(code) == 2) | {name.lower() for name in names.values()}


def _json_rows(path: str, columns: Columns) -> Iterator[Row]:
    names = columns.chosen
    if names and isinstance(names[0], int):
        raise ValueError(f"columns: JSON objects have names, not positions, got {names}")
    for line, text in numbered_lines(path):
        try:
            record = parse_json(text)
        except ValueError as error:
            raise DataError(path, line, f"expected a JSON object: {error}") from None
        if isinstance(record, dict) and isinstance(record.get("translation"), dict):
            record = record["translation"]  # {"translation": {"en": ..., "de": ...}}
        if not isinstance(record, dict):
            raise DataError(path, line, f"expected a JSON object, got {text[:60]!r}")
        names = names or _default_keys(record, columns, path, line)
        for name in names:
            if name not in record:
                raise DataError(path, line, f"expected a key {name!r}, got {', '.join(record)[:200]!r}")
        yield Row(path, line, tuple(map(repr, names)), tuple(record[name] for name in names))


def _default_keys(keys, columns: Columns, path: str, line: int | None) -> list[str]:
    keys = list(keys)
    known = columns.known([key.lower() for key in keys])
    if known is None and len(keys) == len(columns.names):
        known = tuple(range(len(keys)))
    if known is None:
        expected = " and ".join(columns.names)
        raise DataError(path, line, f"expected keys {expected}, got {', '.join(keys)[:200]!r}")
    return [keys[position] for position in known]


def _tfds_rows(path: str, columns: Columns) -> Iterator[tuple[str, str]]:
    match = re.fullmatch(r"tfds:(?P<name>[^#]+)#(?P<split>.+)", path)
    if match is None:
        raise DataError(path, None, "expected tfds:NAME[/CONFIG][:VERSION]#SPLIT")
    import tensorflow_datasets as tfds  # heavy, and needed here alone

    try:
        builder = tfds.builder(match["name"])
        builder.download_and_prepare()
        dataset = builder.as_dataset(split=match["split"])
    except (ValueError, OSError, RuntimeError, AssertionError) as error:
        raise DataError(path, None, " ".join(str(error).split())[:300]) from None
    features = builder.info.features
    texts = [key for key, feature in features.items() if isinstance(feature, tfds.features.Text)]
    keys = columns.chosen or builder.info.supervised_keys
    names = keys or _default_keys(texts, columns, path, None)
    if len(names) != 2 or any(name not in texts for name in names):
        raise DataError(path, None, f"expected two of the text features {', '.join(texts)}, got {names}")
    for number, example in enumerate(tfds.as_numpy(dataset), start=1):
        source, target = (check_text(example[name].decode(), path, number, name, "example") for name in names)
        yield source, target


def fingerprint(*columns) -> str:
    """A hash of lists of strings, or of arrays, by which a later run knows that its data are the same."""
    digest = hashlib.sha256()
    for column in columns:
        if isinstance(column, np.ndarray):
            digest.update(f"{column.dtype} {column.shape}".encode() + np.ascontiguousarray(column).data)
        else:
            for text in (str(len(column)), *column):
                data = text.encode("utf-8", "surrogatepass")
                digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]
