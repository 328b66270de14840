"""Records of .tsv and .csv files: what ends them, their quotes, and other marks that part their cells."""

import csv
import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from keras_tfm.data.sources.lines import MAX_LINE_BYTES, DataError, numbered_lines

LOG = logging.getLogger(__name__)

SEPARATORS = {".csv": ",", ".tsv": "\t"}
OTHER_SEPARATORS = {";": "';'", "\t": "tabs", ",": "','", "|": "'|'", "::": "'::'"}
FEWEST_ALIKE, MOST_ALIKE = 3, 20  # rows of one cell that are looked at for another separator


def records_of(path: str, kind: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """The numbered lines of a file of this `kind`, of `SEPARATORS`, as cells, which may be `quoted` in a .tsv
    file too. DataError for a file that cannot be read so.
    """
    read = _quoted_records if kind == ".csv" or quoted else _plain_records
    return read(path, SEPARATORS[kind])


def _plain_records(path: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    line, are_quoted = 0, True
    lines = numbered_lines(path)
    begin = list(itertools.islice(lines, 2))
    if len(begin) == 1:  # without LF, CR ends a line, as in files of old Macs; beside LF it is text
        begin = list(enumerate(begin[0][1].split("\r"), 1))
    for line, text in itertools.chain(begin, lines):
        are_quoted = are_quoted and text.startswith('"')
        yield line, text.split(separator)
    if line > 1 and are_quoted:
        LOG.warning("%s: all lines begin with a quote, which counts as text; --quoted reads quotes", path)


def _quoted_records(path: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line where the record begins, cells); a quoted cell may contain newlines. CR alone ends a record
    too, as in files of old Macs. A quote inside quotes is doubled, or else is \\" in the whole file.
    """
    line = 1
    try:
        for line, following, cells in _parsed(_ended_lines(path), separator):
            yield line, cells
            line = following
    except csv.Error as error:
        lines = list(_ended_lines(path))
        if not _escapes(lines, line, separator):
            first = lines[0].rstrip("\r\n").split(separator)
            hint = OtherMarks(path, first, separator).hint
            problem = f"expected {'CSV' if separator == ',' else 'quoted cells'}: {error}"
            problem += hint or '; a quote inside quotes is doubled, not \\"'
            raise DataError(path, line, problem) from None
        begun = line - 1
        for line, _, cells in _parsed(lines[begun:], separator, escapechar="\\"):
            yield begun + line, cells


def _ended_lines(path: str) -> Iterator[str]:
    """The lines with the CR or LF that ends them."""
    for _, text in numbered_lines(path):
        yield from re.findall(r"[^\r]*\r|[^\r]+", f"{text}\n") if "\r" in text else [f"{text}\n"]


def _parsed(lines: Iterable[str], separator: str, **options: Any) -> Iterator[tuple[int, int, list[str]]]:
    """Yield (line where the record begins, line after it, cells); csv.Error for anything else."""
    reader = csv.reader(lines, strict=True, delimiter=separator, **options)
    limit, line = csv.field_size_limit(MAX_LINE_BYTES), 1
    try:
        for cells in reader:
            yield line, reader.line_num + 1, cells
            line = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)


def _escapes(lines: list[str], first: int, separator: str) -> bool:
    """Whether the `lines`, where doubled quotes explain all before line `first`, can only be read with
    backslashes that escape: no other backslashes, and no quotes doubled.
    """
    if any("\\" in text for text in lines[: first - 1]):
        return False
    for text in lines[first - 1 :]:
        rest = re.sub(r'\\["\\]', "", text)
        cells = rest.rstrip("\r\n").split(separator)
        if "\\" in rest or any('""' in cell and cell != '""' for cell in cells):
            return False
    try:
        return all(True for _ in _parsed(lines[first - 1 :], separator, escapechar="\\"))
    except csv.Error:
        return False


class OtherMarks:
    """The marks that may separate cells instead of the `separator`, in a table whose rows are one cell each:
    those that all rows seen so far have as often as the first `row`. A `row` of several cells has none.
    """

    def __init__(self, path: str, row: Sequence[str], separator: str) -> None:
        self.path, self.expected, self.num_rows = path, OTHER_SEPARATORS[separator], 0
        marks = [mark for mark in OTHER_SEPARATORS if mark != separator and len(row) == 1 and mark in row[0]]
        self.counts = {mark: row[0].count(mark) for mark in marks}

    @property
    def hint(self) -> str:
        """The end of an error's line, which says what may be wrong; nothing if there are no such marks."""
        if not self.counts:
            return ""
        kind = "csv" if self.expected == OTHER_SEPARATORS[","] else "tsv"
        return f"; are {self._first} between the cells? a .{kind} file has {self.expected}"

    @property
    def _first(self) -> str:
        return OTHER_SEPARATORS[next(iter(self.counts))]

    def see(self, row: Sequence[str]) -> None:
        """Another row; of enough of them the user is told."""
        if not self.counts:
            return
        self.num_rows += 1
        self.counts = {
            mark: count
            for mark, count in self.counts.items()  # a mark before a space is text
            if row[0].count(mark) == count and f"{mark} " not in row[0]
        }
        if self.num_rows == MOST_ALIKE:
            self.tell()

    def tell(self) -> None:
        """Warn once, if there were some rows, that they seem to have another separator, which may also be
        text.
        """
        if self.counts and self.num_rows >= FEWEST_ALIKE:
            LOG.warning(
                "%s: every row is one cell, which is read whole, with as many %s as the others; if %s "
                "separate cells, write the table with %s",
                self.path,
                self._first,
                self._first,
                self.expected,
            )
            self.counts = {}
