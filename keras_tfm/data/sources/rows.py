"""Tables as rows, with columns chosen by name: .tsv, .csv, .json, .jsonl and .parquet files, and data sets of
TFDS.

A reader says which `Columns` it needs, and gets `Row`s of their cells from any kind of table. `Layout` is
what users say of their tables: columns, header, quotes.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from keras_tfm.configs import Config, brief, number_in, parse_json
from keras_tfm.data.sources.lines import (
    PREPARED,
    DataError,
    Inputs,
    Path,
    Paths,
    check_text,
    files_of,
    inputs_in,
    json_lines,
    numbered_lines,
    read_input_lines,
    tell_blank_lines,
)
from keras_tfm.data.sources.named_sets import NamedSet, open_parquet, open_prepared
from keras_tfm.data.sources.separated import OTHER_SEPARATORS, SEPARATORS, OtherMarks, records_of

Found = Callable[[list[str]], tuple[int, ...] | None]
KINDS = "a .tsv, .csv, .jsonl or .parquet file or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
NAMED = "a .jsonl or .parquet file, or tfds:NAME"  # whose columns have names
MAX_BYTES_OF_JSON = 1 << 28  # longest line of a .json file, which is often one line
COUNTS = ("no", "one", "two", "three")


@dataclasses.dataclass(frozen=True)
class Layout(Config):
    r"""How a table is laid out, where its file does not say: what readers take as `columns` in place of names
    alone.

    Args:
        columns: the names of columns, or their positions from 0; None takes the columns with known names.
        header: whether the first row of a .tsv or .csv file holds names; None takes known names for a header.
        quoted: whether cells of a .tsv file may stand in quotes, as cells of a .csv file do.

    >>> import pathlib
    >>> _ = pathlib.Path("moods.tsv").write_text('Tweet\tMood\n"a ""good"" day"\tglad\n')
    >>> keras_tfm.data.read_labelled_texts("moods.tsv", keras_tfm.data.Layout(header=True, quoted=True))
    LabelledTexts(texts=['a "good" day'], labels=['glad'])
    """

    columns: Any = None
    header: bool | None = None
    quoted: bool = False

    @property
    def flag(self) -> str:
        """The option of the command line that says what differs from the default."""
        if self.columns is not None:
            return "--columns"
        return "--quoted" if self.header is None else "--header" if self.header else "--no-header"

    def names_in(self, path: str) -> list[str] | None:
        """The chosen columns of a table that has names of columns; ValueError for anything else."""
        if self.columns and isinstance(self.columns[0], int):
            raise ValueError(f"columns: {path} has names of columns, not positions, got {self.columns}")
        if self.header is not None or self.quoted:
            flag = dataclasses.replace(self, columns=None).flag
            raise ValueError(f"{flag}: {path} has names of columns, it is not a .tsv or .csv file")
        return self.columns

    def positions_in(self, path: str) -> list[int] | None:
        """The chosen columns of a text that has neither names of columns nor a header; DataError for anything
        else.
        """
        if self.columns and isinstance(self.columns[0], str):
            got = ", ".join(map(str, self.columns))[:200]
            raise DataError(path, None, f"--columns: expected positions from 0 in this text, got {got}")
        if self.header is not None or self.quoted:
            flag = dataclasses.replace(self, columns=None).flag
            raise DataError(path, None, f"{flag}: only for .tsv and .csv files; this is read as text")
        return self.columns


# Names of columns or positions from 0, or a whole layout; None takes the columns with known names.
ColumnNames = Sequence[str | int] | Layout | None


class Columns(NamedTuple):
    """Which columns of a table are read: the columns that the `layout` chooses, all by name or all by
    position from 0; else the columns that `known(lower-cased first row)` finds; else the first ones, if the
    table has as many columns as `names`. The last `num_labels` of them hold labels, which are not read and
    may be missing. Blank lines are skipped or, unless `skips_blank`, only at the end; with `tells_blank` a
    warning counts them.
    """

    names: tuple[str, ...]
    known: Found
    layout: Layout = Layout()
    skips_blank: bool = True
    tells_blank: bool = True
    num_labels: int = 0

    @property
    def num_read(self) -> int:
        """How many columns are read."""
        return len(self.names) - self.num_labels

    def unlabelled(self, found: Sequence) -> Sequence:
        """The columns in `found` that are read; `known` may find more than `names`."""
        return found[: self.num_read] if self.num_labels else found


class Row(NamedTuple):
    """The chosen cells of one row: strings for .tsv and .csv, Python values for JSON, Parquet and TFDS.

    `number` counts the table's `unit` ("line", "row"); labels stored as numbers become their names if the
    names are known. `may_be_header` marks a table's first row where nothing says whether it holds names.
    """

    path: str
    number: int
    names: tuple[str, ...]
    cells: tuple
    unit: str = "line"
    may_be_header: bool = False

    @property
    def place(self) -> str:
        """Where the row is, for example "line 3"."""
        return f"{self.unit} {self.number}"

    def text(self, place: int) -> str:
        """The cell at `place`; DataError unless it is a text that is not blank."""
        return check_text(self.cells[place], self.path, self.number, self.names[place], self.unit)

    def text_or_blank(self, place: int) -> str:
        """The cell at `place`; DataError unless it is a text, which may be blank."""
        text = self.cells[place]
        return text if isinstance(text, str) and (not text or text.isspace()) else self.text(place)

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
        places = [[cells.index(name) for name in names if name in cells][:1] for names in groups]
        return tuple(place for (place,) in places) if all(places) else None

    return find


def without_labels(
    names: tuple[str, ...], num_labels: int, known: Found, columns: ColumnNames = None
) -> Columns:
    """What `predict` reads of the columns `names`: all but the last, `num_labels` with labels, which may be
    missing. `columns` may name them too.
    """
    count = len(names) - num_labels
    layout = parse_layout(columns, range(count, len(names) + 1))
    layout = dataclasses.replace(layout, columns=layout.columns and layout.columns[:count])
    return Columns(names, known, layout, num_labels=num_labels)


def read_inputs(path: Path, columns: Columns, example: Callable[[Row], Any]) -> Inputs:
    """What `predict` answers: the `example` in each row of tables, or the lines of text files."""
    files = files_of(path)
    if not all(map(is_table, files)):
        refuse_layout(path, columns.layout)
        return read_input_lines(path)
    return inputs_in(files, lambda file: ((example(row), row.place) for row in read_rows(file, columns)))


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
    """Yield the rows of a .tsv (unquoted, unless the layout says otherwise), .csv (RFC 4180), .jsonl or .json
    file (an array of objects), all plain, .gz or .xz, of a .parquet file or of a data set of TFDS. A file of
    another suffix is read as `unknown`, ".tsv" for example; None refuses it. Blank lines are skipped, with a
    warning that counts them.

    DataError if the table is missing, truncated or not UTF-8, lacks the columns, or has rows of different
    lengths.
    """
    kind = kind_of(path) or unknown
    match kind:
        case ".tsv" | ".csv":
            return _table_rows(path, records_of(path, kind, columns.layout.quoted), columns, SEPARATORS[kind])
        case ".jsonl":
            return _json_rows(path, json_lines(path), columns)
        case ".json":
            return _json_rows(path, _array_of_json(path), columns)
        case ".parquet":
            return _named_rows(path, open_parquet(path), columns)
        case "tfds:":
            return _named_rows(path, open_prepared(path), columns)
    raise DataError(path, None, f"expected {KINDS}")


def kind_of(path: str) -> str | None:
    """The suffix of a table's name without .gz or .xz, or "tfds:"; None if it is not the name of a table."""
    if path.startswith(PREPARED):
        return PREPARED
    match = re.search(r"\.(tsv|csv|jsonl?)(?=(\.gz|\.xz)?$)|\.parquet$", path.lower())
    return match and match[0]


def is_table(path: str) -> bool:
    """Whether `read_rows` reads a file of this name."""
    return kind_of(path) is not None


def has_names(path: str) -> bool:
    """Whether it is a kind of table whose columns always have names."""
    return kind_of(path) in (".json", ".jsonl", ".parquet", PREPARED)


def names_in_first_row(path: str, layout: Layout) -> list[str]:
    """The names of a table's columns or, in a .tsv or .csv file, the cells of its first row."""
    match kind := kind_of(path):
        case ".tsv" | ".csv":
            rows = ([cell.strip() for cell in cells] for _, cells in records_of(path, kind, layout.quoted))
            return next(filter(any, rows), [])
        case ".json" | ".jsonl":
            objects = json_lines(path) if kind == ".jsonl" else _array_of_json(path)
            _, first = next(objects, (0, None))
            return list(first) if isinstance(first, dict) else []
        case ".parquet":
            return open_parquet(path).names
        case "tfds:":
            return open_prepared(path).names
    return []


def refuse_layout(path: Path, layout: Layout, kinds: str = KINDS) -> None:
    """Raise DataError for a layout of what is read as text, not as a table of one of these `kinds`."""
    if layout != Layout():
        raise DataError(path, None, f"{layout.flag}: expected {kinds}; this is read as text")


def refuse_columns_of_text(paths: Paths, columns: ColumnNames) -> None:
    """Raise DataError if `columns` are chosen and none of the files is a table."""
    files = files_of(paths)
    if columns is not None and files and not any(map(is_table, files)):
        raise DataError(files[0], None, f"expected {KINDS} to choose columns of; this is read as text")


def parse_layout(columns: ColumnNames, counts: Sequence[int] = (2,)) -> Layout:
    """The layout of a table, with its columns checked: names, or positions, of distinct columns, as many as
    one of `counts`; ValueError otherwise.
    """
    layout = columns if isinstance(columns, Layout) else Layout(columns)
    if layout.columns is None:
        return layout
    if isinstance(layout.columns, str):
        raise ValueError(
            f"columns: expected a list, got a single text, {layout.columns!r:.80}: write [...] around names "
            "(several files are one argument, a list)"
        )
    chosen = [int(column) if str(column).isdecimal() else column for column in layout.columns]
    kinds, several = {type(column) for column in chosen}, len(set(chosen)) == len(chosen)
    if len(chosen) not in counts or len(kinds) != 1 or not several:
        raise ValueError(
            f"columns: expected {' or '.join(map(COUNTS.__getitem__, counts))} different names, "
            f"or {' or '.join(map(COUNTS.__getitem__, counts))} positions from 0, got {chosen}"
        )
    if layout.header is False and kinds == {str}:
        raise ValueError(f"header: a table without a header has no names of columns, got {chosen}")
    return dataclasses.replace(layout, columns=chosen)


def _table_rows(path: str, records: Iterator, columns: Columns, separator: str) -> Iterator[Row]:
    places: Sequence[int]
    width, places = -1, ()
    blank: list[int] = []
    may_be_header = False
    marks = OtherMarks(path, (), separator)
    for line, cells in records:
        if not any(cell.strip() for cell in cells):
            blank.append(line)
            continue
        if blank and not columns.skips_blank:
            raise DataError(path, blank[0], f"expected {' and '.join(columns.names)}, the line is blank")
        if width < 0:
            width = len(cells)
            places, is_header = _choose_columns(path, line, cells, columns, separator)
            if columns.layout == Layout():
                marks = OtherMarks(path, cells, separator)
            if is_header:
                continue
            may_be_header = columns.layout.header is None
        if len(cells) != width:
            problem = f"expected {_counted(width)}, got {len(cells)}{marks.hint}"
            raise DataError(path, line, problem)
        marks.see(cells)
        yield Row(
            path, line, columns.names, tuple(cells[place] for place in places), may_be_header=may_be_header
        )
        may_be_header = False
    marks.tell()
    if columns.tells_blank:
        tell_blank_lines(path, blank)


def _choose_columns(
    path: str, line: int, first_row: list[str], columns: Columns, separator: str
) -> tuple[Sequence[int], bool]:
    """Return (positions of the columns, whether the first row is a header)."""
    cells, layout = [cell.strip() for cell in first_row], columns.layout
    known = None if layout.header is False else columns.known([cell.lower() for cell in cells])
    is_header = known is not None if layout.header is None else layout.header
    chosen, hint = layout.columns, OtherMarks(path, first_row, separator).hint
    if chosen is None:
        count = columns.num_read
        if known is None and not count <= len(cells) <= len(columns.names):
            if len(cells) > count:
                hint = f"; choose {COUNTS[count]} of them by name or position"
            expected = f"{_counted(count)}, {' and '.join(columns.names[:count])}"
            raise DataError(path, line, f"expected {expected}, got {len(cells)}{hint}")
        if known is None and layout.header is not False:
            refuse_separator(path, line, first_row, lambda names: columns.known([x.lower() for x in names]))
        return columns.unlabelled(known or range(len(cells))), is_header
    if isinstance(chosen[0], int):
        if max(chosen) >= len(cells):
            got = f"got {_counted(len(cells))}{hint}"
            raise DataError(path, line, f"expected column {max(chosen)} (from 0), {got}")
        return chosen, is_header
    for name in chosen:
        if name not in cells:
            got = ", ".join(cells)[:200] + hint
            raise DataError(path, line, f"expected a column named {name!r}, got {got}")
    return [cells.index(name) for name in chosen], True


def refuse_separator(path: str, line: int, row: Sequence[str], holds: Callable[[list[str]], Any]) -> None:
    """Raise DataError if a table's first `row` is one cell, of names that the table `holds` with another mark
    between them than a .tsv or .csv file has.
    """
    separator = SEPARATORS.get(kind_of(path) or "")
    if separator is None or len(row) != 1:
        return
    for mark in OTHER_SEPARATORS:
        names = [name.strip() for name in row[0].split(mark)]
        if len(names) > 1 and holds(names):
            expected, got = OTHER_SEPARATORS[separator], OTHER_SEPARATORS[mark]
            problem = f"expected {expected} between the cells of a {kind_of(path)} file, got {got} in"
            raise DataError(
                path, line, f"{problem} {brief(row[0])}: write the table with {expected}, or pass --no-header"
            )


def _counted(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _named_rows(path: str, table: NamedSet, columns: Columns) -> Iterator[Row]:
    names = columns.layout.names_in(path) or _default_names(table.names, columns, path, None, table.usual)
    for name in names:
        if name not in table.names:
            got = ", ".join(table.names)[:200]
            raise DataError(path, None, f"expected a column named {name!r}, got {got}")
    spelled = tuple(map(repr, names))
    for number, cells in enumerate(table.read(names), start=1):
        yield Row(path, number, spelled, cells, table.unit)


def _json_rows(path: str, records: Iterator[tuple[int, Any]], columns: Columns) -> Iterator[Row]:
    names, unit = columns.layout.names_in(path), "item" if kind_of(path) == ".json" else "line"
    for number, record in records:
        if isinstance(record, dict) and isinstance(record.get("translation"), dict):
            record = record["translation"]  # {"translation": {"en": ..., "de": ...}}
        if not isinstance(record, dict):
            raise DataError(path, number, f"expected a JSON object, got {brief(record):.60}", unit)
        names = names or _default_names(list(record), columns, path, number)
        for name in names:
            if name not in record:
                problem = f"expected a key {name!r}, got {', '.join(record)[:200]!r}"
                raise DataError(path, number, problem, unit)
        yield Row(path, number, tuple(map(repr, names)), tuple(record[name] for name in names), unit)


def _array_of_json(path: str) -> Iterator[tuple[int, Any]]:
    """The numbered items of a JSON array, which may be the "data" of an object, or of lines of JSON."""
    text = "\n".join(text for _, text in numbered_lines(path, MAX_BYTES_OF_JSON))
    try:
        content = parse_json(text)
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            return json_lines(path)  # the library `datasets` calls them .json too
        raise DataError(path, None, f"expected a JSON array of objects: {error}") from None
    if isinstance(content, dict):
        content = content.get("data", content)
    if not isinstance(content, list):
        raise DataError(path, None, f"expected a JSON array of objects, got {brief(content):.60}")
    return iter(enumerate(content, start=1))


def _default_names(
    names: list[str], columns: Columns, path: str, line: int | None, usual: Sequence[str] | None = None
) -> list[str]:
    """The columns to read: the `usual` ones, the ones with known names, or all, if their number fits."""
    known, count = columns.known([name.lower() for name in names]), columns.num_read
    for width in range(len(columns.names), count - 1, -1):
        if usual is not None and len(usual) == width:
            return list(columns.unlabelled(usual))
        if known is not None:
            return [names[position] for position in columns.unlabelled(known)]
        if len(names) == width:
            return list(columns.unlabelled(names))
    expected = " and ".join(columns.names[:count])
    raise DataError(path, line, f"expected columns {expected}, got {', '.join(names)[:200]!r}")
