"""Types that the signatures of many tasks use."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

ColumnNames = Sequence[str | int] | None  # names or numbers from 0; None takes the columns with known names
Endpoints = dict[str, tuple[Callable, list[tf.TensorSpec]]]  # {signature: (function, input signature)}
Arrays = dict[str, np.ndarray]


class Served(NamedTuple):
    """A task as a function of numbers, and what stands before and after it: for formats without strings.

    Args:
        function: {input: tensor} to {output: tensor}, in a graph.
        inputs: {input: its shape and kind}.
        reads: the "kind" of reader in `keras_tfm.serving.READERS`, and its arguments, as JSON values.
        answers: the same of `keras_tfm.serving.ANSWERS`.
        write_reader: writes the files that the reader needs into a folder.
        examples: raw inputs, on which an export is compared with the task.
        encode: raw inputs as the task itself reads them, {input: array}.
    """

    function: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]
    inputs: dict[str, tf.TensorSpec]
    reads: dict[str, Any]
    answers: dict[str, Any]
    write_reader: Callable[[pathlib.Path], Any]
    examples: list
    encode: Callable[[list], Arrays]
