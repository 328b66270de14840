"""Tables as rows, with columns chosen by name: .tsv, .csv, .jsonl and .parquet files, and data sets of TFDS.

A reader says which `Columns` it needs, and gets `Row`s of their cells from any kind of table.
"""

import csv
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, NoReturn

from keras_tfm.configs import number_in, parse_json
from keras_tfm.data.sources.lines import (
    MAX_LINE_BYTES,
    PREPARED,
    DataError,
    Paths,
    check_text,
    files_of,
    numbered_lines,
)
from keras_tfm.data.sources.named_sets import NamedSet, open_parquet, open_prepared

Found = Callable[[list[str]], tuple[int, ...] | None]
KINDS = "a .tsv, .csv, .jsonl or .parquet file or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
COUNTS = ("no", "one", "two", "three")


class Columns(NamedTuple):
    """Which columns of a table are read: the `chosen` ones, all by name or all by position from 0; else those
    that `known(lower-cased first row)` finds; else the first ones, if the table has as many columns as
    `names`.
    """

    names: tuple[str, ...]
    known: Found
    chosen: list | None = None


class Row(NamedTuple):
    """The chosen cells of one row: strings for .tsv and .csv, Python values for JSON, Parquet and TFDS.

    `number` counts the table's `unit` ("line", "row"); labels stored as numbers become their names if those
    are known.
    """

    path: str
    number: int
    names: tuple[str, ...]
    cells: tuple
    unit: str = "line"

    @property
    def place(self) -> str:
        """Where the row is, for example "line 3"."""
        return f"{self.unit} {self.number}"

    def text(self, place: int) -> str:
        """The cell at `place`; DataError unless it is a text that is not blank."""
        return check_text(self.cells[place], self.path, self.number, self.names[place], self.unit)

    def as_number(self, place: int) -> float:
        """The cell at `place` as a number; NaN if it is not a finite number."""
        value = self.cells[place]
        try:
            if isinstance(value, str):
                value = number_in(value)
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            return math.nan
        return number if math.isfinite(number) else math.nan

    def refuse(self, problem: str) -> NoReturn:
        """Raise a DataError about this row."""
        raise DataError(self.path, self.number, problem, self.unit)


def one_of_each(*groups: Sequence[str]) -> Found:
    """A function from names of columns to the position of one of each group, or to None if one is missing."""

    def find(cells: list[str]) -> tuple[int, ...] | None:
        found = [[cells.index(name) for name in names if name in cells][:1] for names in groups]
        return tuple(place for (place,) in found) if all(found) else None

    return find


def read_all(paths: Paths, columns: Columns, what: str, unknown: str | None = None) -> Iterator[Row]:
    """Yield the rows of all tables that `paths` name; DataError for an empty table, and as in `read_rows`."""
    for path in files_of(paths):
        rows = read_rows(path, columns, unknown)
        first = next(rows, None)
        if first is None:
            raise DataError(path, None, f"expected {what}, the file is empty")
        yield first
        yield from rows


def read_rows(path: str, columns: Columns, unknown: str | None = None) -> Iterator[Row]:
    """Yield the rows of a .tsv (unquoted), .csv (RFC 4180) or .jsonl file (plain, .gz or .xz), of a .parquet
    file or of a data set of TFDS. A file with another suffix is read as `unknown`, ".tsv" for example; None
    refuses it.

    DataError if the table is missing, truncated or not UTF-8, lacks the columns, or has rows of different
    lengths.
    """
    match kind_of(path) or unknown:
        case ".tsv":
            return _table_rows(path, _tsv_records(path), columns)
        case ".csv":
            return _table_rows(path, _csv_records(path), columns)
        case ".jsonl":
            return _json_rows(path, columns)
        case ".parquet":
            return _named_rows(path, open_parquet(path), columns)
        case "tfds:":
            return _named_rows(path, open_prepared(path), columns)
    raise DataError(path, None, f"expected {KINDS}")


def kind_of(path: str) -> str | None:
    """The suffix of a table's name without .gz or .xz, or "tfds:"; None if it is not the name of a table."""
    if path.startswith(PREPARED):
        return PREPARED
    match = re.search(r"\.(tsv|csv|jsonl)(?=(\.gz|\.xz)?$)|\.parquet$", path.lower())
    return match and match[0]


def is_table(path: str) -> bool:
    """Whether `read_rows` reads a file of this name."""
    return kind_of(path) is not None


def has_names(path: str) -> bool:
    """Whether it is a kind of table whose columns always have names."""
    return kind_of(path) in (".jsonl", ".parquet", PREPARED)


def refuse_columns_of_text(paths: Paths, columns: Sequence[str | int] | None) -> None:
    """Raise DataError if `columns` are chosen and none of the files is a table whose columns have names."""
    found = files_of(paths)
    if columns is not None and found and not any(map(has_names, found)):
        kinds = "a .jsonl or .parquet file, or tfds:NAME"
        raise DataError(found[0], None, f"expected {kinds} to choose columns of; this is read as text")


def parse_columns(columns: Sequence[str | int] | None, counts: Sequence[int] = (2,)) -> list | None:
    """Names, or positions, of distinct columns, as many as one of `counts`; ValueError otherwise."""
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
    """Yield (line where the record begins, cells); a quoted cell may contain newlines."""
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
    """Return (positions of the columns, whether the first row is a header)."""
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


def _named_rows(path: str, table: NamedSet, columns: Columns) -> Iterator[Row]:
    names = _chosen_names(path, columns)
    if names is None:
        fits = table.usual is not None and len(table.usual) == len(columns.names)
        names = list(table.usual or ()) if fits else _default_names(table.names, columns, path, None)
    for name in names:
        if name not in table.names:
            got = ", ".join(table.names)[:200]
            raise DataError(path, None, f"expected a column named {name!r}, got {got}")
    spelled = tuple(map(repr, names))
    for number, cells in enumerate(table.read(names), start=1):
        yield Row(path, number, spelled, cells, table.unit)


def _json_rows(path: str, columns: Columns) -> Iterator[Row]:
    names = _chosen_names(path, columns)
    for line, text in numbered_lines(path):
        try:
            record = parse_json(text)
        except ValueError as error:
            raise DataError(path, line, f"expected a JSON object: {error}") from None
        if isinstance(record, dict) and isinstance(record.get("translation"), dict):
            record = record["translation"]  # {"translation": {"en": ..., "de": ...}}
        if not isinstance(record, dict):
            raise DataError(path, line, f"expected a JSON object, got {text[:60]!r}")
        names = names or _default_names(list(record), columns, path, line)
        for name in names:
            if name not in record:
                raise DataError(path, line, f"expected a key {name!r}, got {', '.join(record)[:200]!r}")
        yield Row(path, line, tuple(map(repr, names)), tuple(record[name] for name in names))


def _chosen_names(path: str, columns: Columns) -> list[str] | None:
    if columns.chosen and isinstance(columns.chosen[0], int):
        raise ValueError(f"columns: {path} has names of columns, not positions, got {columns.chosen}")
    return columns.chosen


def _default_names(names: list[str], columns: Columns, path: str, line: int | None) -> list[str]:
    known = columns.known([name.lower() for name in names])
    if known is None and len(names) == len(columns.names):
        known = tuple(range(len(names)))
    if known is None:
        expected = " and ".join(columns.names)
        raise DataError(path, line, f"expected columns {expected}, got {', '.join(names)[:200]!r}")
    return [names[position] for position in known]
