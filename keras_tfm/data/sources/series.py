"""A series of numbers from a table, and histories from lines."""

import math

import numpy as np

from keras_tfm.configs import number_in
from keras_tfm.data.sources.lines import Inputs, Path, Paths, files_of, read_input_lines
from keras_tfm.data.sources.rows import (
    ColumnNames,
    Columns,
    Row,
    is_table,
    parse_layout,
    read_all,
    refuse_layout,
)

VALUES = ("value", "values", "y", "close", "count", "price", "target", "temperature")


def read_series(paths: Paths, columns: ColumnNames = None) -> np.ndarray:
    """The numbers (N,) in one column of a .csv, .tsv, .jsonl or .parquet file, in order.

    `columns` names the column, or gives its position from 0; by default it is the only one, or one with a
    known name.

    Raises:
        ValueError: for more than one file.
        DataError: for a value that is not a finite number; the message names the line.
    """
    files = files_of(paths)
    if len(files) != 1:
        raise ValueError(f"paths: expected one file, a series, got {len(files)}")
    rows = read_all(files[0], _columns(columns), "a series")
    return np.array([_number(row) for row in rows])


def _columns(columns: ColumnNames) -> Columns:
    """The one column of a series, in which a blank line is a missing value."""
    return Columns(("value",), known_series, parse_layout(columns, (1,)), skips_blank=False)


def known_series(cells: list[str]) -> tuple[int, ...] | None:
    """The position of the values in a header; None if it is not a header."""
    name = next((name for name in VALUES if name in cells), None)
    return None if name is None else (cells.index(name),)


def read_histories(path: Path, columns: ColumnNames = None) -> Inputs:
    """Series to continue: lines of numbers, separated by commas or spaces, or the column of one table."""
    files = files_of(path)
    if len(files) == 1 and is_table(files[0]):
        return iter([(read_series(files, columns), "the series")])
    refuse_layout(path, parse_layout(columns, (1,)))
    return read_input_lines(path)


def parse_numbers(line: str) -> np.ndarray:
    """The numbers in a line, separated by commas or spaces; ValueError for anything else."""
    return np.array([number_in(cell) for cell in line.replace(",", " ").split()])


def _number(row: Row) -> float:
    number = row.as_number(0)
    if math.isnan(number):
        row.refuse(f"expected a finite number, got {row.cells[0]!r:.60}")
    return number
