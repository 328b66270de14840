"""Tables to rows by the names of their columns: .tsv, .csv, .jsonl and .parquet files, and sets of TFDS.

A reader of examples says which `Columns` it needs, and gets `Row`s of their cells, whatever holds them.
"""

import csv
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, NoReturn

from keras_tfm.configs import parse_json
from keras_tfm.data.sources.lines import (
    MAX_LINE_BYTES,
    PREPARED,
    DataError,
    check_text,
    files_of,
    numbered_lines,
)
from keras_tfm.data.sources.named_sets import NamedSet, open_parquet, open_prepared

KINDS = "a .tsv, .csv, .jsonl or .parquet file or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
COUNTS = ("no", "one", "two", "three")


class Columns(NamedTuple):
    """Which cells of a table are read: those `chosen`, all by name or all by position from 0, or else those
    that `known(lower-cased first row)` finds, or else the first ones, if there are as many as `names`.
    """

    names: tuple[str, ...]
    known: Callable[[list[str]], tuple[int, ...] | None]
    chosen: list | None = None


class Row(NamedTuple):
    """The chosen cells of a table's line, or of whichever `unit` the table counts: strings of .tsv and .csv,
    and what JSON, Parquet and TFDS give, labels by their names where those are known.
    """

    path: str
    number: int
    names: tuple[str, ...]
    cells: tuple
    unit: str = "line"

    @property
    def place(self) -> str:
        """Where it stands, "line 3"."""
        return f"{self.unit} {self.number}"

    def text(self, place: int) -> str:
        """The cell at `place`; DataError where it is no text, or blank."""
        return check_text(self.cells[place], self.path, self.number, self.names[place], self.unit)

    def as_number(self, place: int) -> float:
        """The cell at `place`; NaN where it is no finite number."""
        value = self.cells[place]
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            return math.nan
        return number if math.isfinite(number) else math.nan

    def refuse(self, problem: str) -> NoReturn:
        """Raise DataError for this line."""
        raise DataError(self.path, self.number, problem, self.unit)


def read_all(paths, columns: Columns, what: str, unknown: str | None = None) -> Iterator[Row]:
    """Yields the rows of one or several tables, which paths or patterns name; DataError where one is empty,
    for it should have had `what`, and as `read_rows` raises it.
    """
    for path in files_of(paths):
        rows = read_rows(path, columns, unknown)
        first = next(rows, None)
        if first is None:
            raise DataError(path, None, f"expected {what}, the file is empty")
        yield first
        yield from rows


def read_rows(path: str, columns: Columns, unknown: str | None = None) -> Iterator[Row]:
    """Yields the rows of one .tsv (unquoted), .csv (RFC 4180) or .jsonl file, plain, .gz or .xz, of one
    .parquet file or of one set of TFDS. DataError where it is missing, cut short or not UTF-8, where it has
    not these columns, where rows disagree in length. A name that says nothing is that of an `unknown` kind,
    ".tsv" for example; None refuses it.
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
    """The suffix of a table's name, that of a compression apart, or "tfds:"; None for what is no table."""
    if path.startswith(PREPARED):
        return PREPARED
    match = re.search(r"\.(tsv|csv|jsonl)(?=(\.gz|\.xz)?$)|\.parquet$", path.lower())
    return match and match[0]


def is_table(path: str) -> bool:
    """Whether `read_rows` reads it, by its name."""
    return kind_of(path) is not None


def has_names(path: str) -> bool:
    """Whether it is a table whose columns always have names."""
    return kind_of(path) in (".jsonl", ".parquet", PREPARED)


def parse_columns(columns: Sequence[str | int] | None, counts: Sequence[int] = (2,)) -> list | None:
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
