"""Examples as columns of equal length: their rows, and a digest of them."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_tfm.data.sources.files import fingerprint
from keras_tfm.data.sources.text_stream import TextStream


def columns_of(examples: Any) -> Sequence:
    """The columns of examples; a list is a single column."""
    return examples if isinstance(examples, tuple) else (examples,)


def rows_of(examples: Any, rows: np.ndarray) -> Any:
    """These `rows` of every column, in the form of the examples: a tuple of columns, or a list."""
    columns = [
        column[rows] if hasattr(column, "dtype") else [column[row] for row in rows]
        for column in columns_of(examples)
    ]
    if not isinstance(examples, tuple):
        return columns[0]
    return type(examples)(*columns) if hasattr(examples, "_fields") else tuple(columns)


def fingerprint_of(examples: Any) -> str:
    """A digest of the examples, by which a resumed training recognises them."""
    if isinstance(examples, TextStream):
        return examples.fingerprint()
    return fingerprint(*map(plain, columns_of(examples)))


def plain(column: Any) -> Any:
    """A column in the form that `fingerprint` takes: an array, or strings."""
    if hasattr(column, "identity"):  # images that are read from the disk on demand
        return list(column.identity())
    is_array = hasattr(column, "dtype") and column.dtype != np.dtype(object)
    if is_array or all(isinstance(item, str) for item in column):
        return column
    return [repr(keras.tree.map_structure(_unabridged, item)) for item in column]


def _unabridged(value: Any) -> Any:
    """An array as its fingerprint: NumPy leaves out the middle of a large one. Other values as they are."""
    return fingerprint(plain(value)) if isinstance(value, np.ndarray) else value
