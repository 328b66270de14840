"""Pairs of texts, and lines, out of files; and the fingerprint of what was read."""

import functools
import hashlib
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from babel import Locale

from keras_tfm.data.sources.lines import DataError, check_text, files_of, numbered_lines
from keras_tfm.data.sources.rows import KINDS, Columns, is_table, parse_columns, read_all

# Column names that mark a first row as a header; languages ("en", "pt-BR", "German") do so too.
KNOWN_COLUMNS = (
    ("source", "target"), ("src", "tgt"), ("input", "output"), ("question", "answer"),
    ("text", "summary"), ("document", "summary"), ("article", "summary"), ("article", "highlights"),
)  # fmt: skip


class Pairs(NamedTuple):
    """Two lists of equal length: `targets[i]` is what `sources[i]` should become."""

    sources: list[str]
    targets: list[str]


def read_pairs(paths, columns: Sequence[str | int] | None = None) -> Pairs:
    """Reads (source, target) pairs out of tables: .tsv (unquoted), .csv (RFC 4180) or .jsonl files, plain,
    .gz or .xz, .parquet files and `"tfds:NAME[/CONFIG][:VERSION]#SPLIT"`; or out of two parallel text files.
    A path may be a pattern, "data/*.tsv". `columns` chooses the source and the target column, by name or, in
    .tsv and .csv, by position from 0. A first row there is a header when `columns` are names, when it holds
    a pair of `KNOWN_COLUMNS`, or when its two cells name languages. Strings come as they are, without the
    newline (LF or CRLF). Raises DataError when a file is missing, empty, cut short or not UTF-8, when rows
    or parallel files disagree in length, when a text is blank.
    """
    chosen = Columns(("source", "target"), known_pair, parse_columns(columns))
    files = files_of(paths)
    pairs = Pairs([], [])
    rows: Iterator[tuple[str, str]]
    if all(map(is_table, files)):
        rows = ((row.text(0), row.text(1)) for row in read_all(files, chosen, "pairs of texts"))
    elif len(files) == 2:
        rows = _parallel_rows(*files)
    elif len(files) == 1:
        raise DataError(files[0], None, f"expected {KINDS}, or two parallel text files")
    else:
        raise ValueError(f"paths: expected tables, or two parallel text files, got {len(files)}")
    for source, target in rows:
        pairs.sources.append(source)
        pairs.targets.append(target)
    if not pairs.sources:
        raise DataError(files[0], None, "expected pairs of texts, the file is empty")
    return pairs


def read_lines(path) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file (plain, .gz or .xz), or of standard input for "-", each without
    its newline; empty lines are kept and an empty file has none. Raises DataError as `read_pairs` does.
    """
    return (text for _, text in numbered_lines(os.fspath(path)))


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
