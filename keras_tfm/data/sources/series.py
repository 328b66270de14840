"""A series of numbers out of a table, and histories of one out of lines."""

import math
from collections.abc import Sequence

import numpy as np

from keras_tfm.data.sources.inputs import Inputs, read_input_lines
from keras_tfm.data.sources.lines import files_of
from keras_tfm.data.sources.rows import Columns, Row, is_table, parse_columns, read_all

VALUES = ("value", "values", "y", "close", "count", "price", "target", "temperature")


def read_series(paths, columns: Sequence[str | int] | None = None) -> np.ndarray:
    """Reads the numbers of one column of a .csv, .tsv, .jsonl or .parquet file, in its order: (N,).

    `columns` names it, or gives its position from 0; by default it is the only one, or one of a known name.
    ValueError for several files, DataError, with the line, where something is no finite number.
    """
    paths = [paths] if isinstance(paths, str) or not isinstance(paths, Sequence) else paths
    files = [path for found in paths for path in files_of(found)]
    if len(files) != 1:
        raise ValueError(f"paths: expected one file, a series, got {len(files)}")
    rows = read_all(files[0], Columns(("value",), known_series, parse_columns(columns, (1,))), "a series")
    return np.array([_number(row) for row in rows])


def known_series(cells: list[str]) -> tuple[int, ...] | None:
    """Where a header's values stand; None if it is no header."""
    name = next((name for name in VALUES if name in cells), None)
    return None if name is None else (cells.index(name),)


def read_histories(path, columns: Sequence[str | int] | None = None) -> Inputs:
    """The last values of series: lines of numbers, commas or spaces between, or the column of one table."""
    files = files_of(path)
    if len(files) == 1 and is_table(files[0]):
        return Inputs([read_series(files, columns)], ["the series"])
    return read_input_lines(path)


def parse_numbers(line: str) -> np.ndarray:
    """The numbers of a line, commas or spaces between; ValueError for what is none."""
    return np.array([float(cell) for cell in line.replace(",", " ").split()])


def _number(row: Row) -> float:
    number = row.as_number(0)
    if math.isnan(number):
        row.refuse(f"expected a finite number, got {row.cells[0]!r:.60}")
    return number
