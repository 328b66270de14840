"""Pairs of texts, and lines, from files; and the fingerprint of data."""

import functools
import hashlib
import itertools
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from babel import Locale

from keras_tfm.data.sources.lines import (
    DataError,
    Inputs,
    Path,
    Paths,
    check_text,
    files_of,
    numbered_lines,
    tell_blank_lines,
    tell_left_out,
)
from keras_tfm.data.sources.rows import (
    KINDS,
    ColumnNames,
    Columns,
    is_table,
    one_of_each,
    parse_layout,
    read_all,
    read_inputs,
    refuse_columns_of_text,
    without_labels,
)

# Column names that mark a first row as a header, as do languages ("en", "pt-BR", "German").
KNOWN_COLUMNS = (
    ("source", "target"), ("src", "tgt"), ("input", "output"), ("question", "answer"),
    ("text", "summary"), ("document", "summary"), ("article", "summary"), ("article", "highlights"),
)  # fmt: skip


class Pairs(NamedTuple):
    """Two lists of equal length: `targets[i]` belongs to `sources[i]`.

    >>> from keras_tfm.data.worlds import date_pairs
    >>> pairs = date_pairs(3, seed=3)
    >>> len(pairs.sources), pairs.targets[0]
    (3, '2062-04-20')
    """

    sources: list[str]
    targets: list[str]


def read_pairs(paths: Paths, columns: ColumnNames = None) -> Pairs:
    r"""Read (source, target) pairs from tables, or from two parallel text files.

    Args:
        paths: one or several paths or patterns ("data/*.tsv"): .tsv (unquoted), .csv (RFC 4180) or .jsonl
            files, plain, .gz or .xz; .parquet files; `"tfds:NAME[/CONFIG][:VERSION]#SPLIT"`; or two text
            files.
        columns: the source and the target column, by name or, for .tsv and .csv, by position from 0; or a
            `Layout`.

    The first row of a .tsv or .csv is a header if `columns` are names, if it contains a pair of
    `KNOWN_COLUMNS`, if it consists of two names of languages, or if the layout says so. Strings are returned
    unchanged, without the newline. Blank lines, and pairs of parallel files of which one line is blank, are
    skipped with a warning that counts them.

    Raises:
        DataError: if a file is missing, empty, truncated or not UTF-8, if rows or parallel files differ in
            length, or if a text in a table is blank.

    >>> import pathlib
    >>> _ = pathlib.Path("pairs.tsv").write_text("one\teins\ntwo\tzwei\n")
    >>> keras_tfm.data.read_pairs("pairs.tsv")
    Pairs(sources=['one', 'two'], targets=['eins', 'zwei'])
    """
    chosen = Columns(("source", "target"), known_pair, parse_layout(columns))
    files = files_of(paths)
    pairs = Pairs([], [])
    rows: Iterator[tuple[str, str]]
    if all(map(is_table, files)):
        rows = ((row.text(0), row.text(1)) for row in read_all(files, chosen, "pairs of texts"))
    elif len(files) == 2:
        refuse_columns_of_text(files, columns)
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


def read_sources(path: Path, columns: ColumnNames = None) -> Inputs:
    """Sources to answer: the lines of a text file, or the source column of a table."""
    find = one_of_each(sorted({source for source, _ in KNOWN_COLUMNS}))
    chosen = without_labels(("source", "target"), 1, lambda cells: known_pair(cells) or find(cells), columns)
    return read_inputs(path, chosen, lambda row: row.text_or_blank(0))


def read_lines(path: Path) -> Iterator[str]:
    r"""Yield the lines of a UTF-8 text file (plain, .gz or .xz), or of standard input for "-", without
    newlines.

    Empty lines are kept. DataError if the file is missing, truncated or not UTF-8.

    >>> import pathlib
    >>> _ = pathlib.Path("texts.txt").write_text("A cat.\n\nA dog.\n")
    >>> list(keras_tfm.data.read_lines("texts.txt"))
    ['A cat.', '', 'A dog.']
    """
    return (text for _, text in numbered_lines(os.fspath(path)))


def _parallel_rows(source_path: str, target_path: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of lines; warn about blank lines, in both files or in one, which are skipped."""
    both = itertools.zip_longest(numbered_lines(source_path), numbered_lines(target_path))
    blank: list[int] = []
    alone: dict[str, str] = {}  # {place: why} of lines that are blank in one file only
    lengths, line = [0, 0], 0
    for line, sides in enumerate(both, start=1):
        lengths = [length + (side is not None) for length, side in zip(lengths, sides, strict=True)]
        source, target = ("" if side is None else side[1] for side in sides)
        if not source.strip() and not target.strip():
            blank.append(line)
            continue
        if None in sides:
            ended = sides.index(None)
            paths = source_path, target_path
            problem = f"expected parallel files of one length, {paths[ended]} has only {lengths[ended]} lines"
            raise DataError(paths[1 - ended], line, problem)
        if source.strip() and target.strip():
            yield (
                check_text(source, source_path, line, "source"),
                check_text(target, target_path, line, "target"),
            )
        else:
            path = target_path if source.strip() else source_path
            alone[f"{path}, line {line}"] = "the line is blank"
    tell_blank_lines(f"{source_path}, {target_path}", blank)
    tell_left_out(alone, line - len(blank), "pairs")


def known_pair(cells: list[str]) -> tuple[int, int] | None:
    """The positions of source and target in a header; None if it names no known pair."""
    for source, target in KNOWN_COLUMNS:
        if source in cells and target in cells:
            return cells.index(source), cells.index(target)
    languages = len(cells) == 2 and cells[0] != cells[1] and all(map(_is_language, cells))
    return (0, 1) if languages else None


def _is_language(name: str) -> bool:
    """Whether a lower-case name is a language ("de", "pt-br", "german"); three-letter codes are too often
    words.
    """
    return re.sub(r"[-_]\w{2,4}$", "", name) in _languages()


@functools.cache
def _languages() -> frozenset[str]:
    names = Locale("en").languages  # {"de": "German", ...}
    return frozenset(code for code in names if len(code) == 2) | {name.lower() for name in names.values()}


def fingerprint(*columns) -> str:
    """A hash of lists of strings, or of arrays, by which a later run recognises the same data. An array of
    objects counts as a list.

    >>> from keras_tfm.data.sources.files import fingerprint
    >>> fingerprint(["a", "b"]) == fingerprint(["a", "b"]) != fingerprint(["ab"])
    True
    """
    digest = hashlib.sha256()
    for column in columns:
        if isinstance(column, np.ndarray) and column.dtype != object:
            digest.update(f"{column.dtype} {column.shape}".encode() + np.ascontiguousarray(column).data)
        else:
            for text in (str(len(column)), *column):
                data = text.encode("utf-8", "surrogatepass")
                digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]
