"""Types that the signatures of many tasks use."""

import pathlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.rows import ColumnNames as ColumnNames

Endpoints = dict[str, tuple[Callable, list[tf.TensorSpec]]]  # {signature: (function, input signature)}
Arrays = dict[str, np.ndarray]


def labels_beside(labels: Iterable[Any], values: tf.Tensor) -> tf.Tensor:
    """The names of labels for each row of `values` (B, ...), strings (B, labels): servers want a row of every
    output for each example.
    """
    names = tf.constant(list(map(str, labels)), tf.string)
    return tf.tile(names[None], [tf.shape(values)[0], 1])


class Inspection(NamedTuple):
    """What comes before `predict`: the `refusals` of examples, {row: reason}; how many of the others are cut;
    and these others, which `predict` takes.
    """

    refusals: dict[int, str]
    num_cut: int
    examples: list


class Signature(NamedTuple):
    """What a task reads, computes and answers, said once: `predict`, SavedModels and other formats follow.

    Args:
        reads: the "kind" of reader in `keras_tfm.serving.READERS`, and its arguments, as JSON values.
        function: {input: tensor} to {output: tensor}, in a graph; a `Writing` of tasks that write texts.
        inputs: {input: its shape and kind}.
        answers: the "kind" of answer in `keras_tfm.serving.ANSWERS`, and its arguments, as JSON values.
        write_files: writes the files that reader and answer need into a folder.
        examples: raw inputs, on which an export is compared with the task.
        tokenizer: of a reader of texts, what makes tokens of them in a graph.
        others: further endpoints of a SavedModel. No other format carries a task that has some.
    """

    reads: dict[str, Any]
    function: Callable[..., dict[str, tf.Tensor]]
    inputs: dict[str, tf.TensorSpec]
    answers: dict[str, Any]
    write_files: Callable[[pathlib.Path], Any]
    examples: list
    tokenizer: Any = None
    others: Endpoints = {}
