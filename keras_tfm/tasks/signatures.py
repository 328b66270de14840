"""Types that the signatures of many tasks use."""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.rows import ColumnNames as ColumnNames

Endpoints = dict[str, tuple[Callable, list[tf.TensorSpec]]]  # {signature: (function, input signature)}
Arrays = dict[str, np.ndarray]


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
        reads: the "kind" of reader, one of `keras_tfm.serving.readers.READERS` or a plugin's, and its
            arguments, as JSON values; of a task that no format but a SavedModel carries, one of
            `keras_tfm.export.graph_readers.READERS`.
        function: {input: tensor} to {output: tensor}, in a graph; a `Writing` of tasks that write texts; a
            `SegmentationKind` of a segmenter.
        inputs: {input: its shape and kind}.
        answers: the "kind" of answer, one of `keras_tfm.serving.answers.ANSWERS` or a plugin's, and its
            arguments, as JSON values; otherwise as `reads`.
        examples: raw inputs, on which an export is compared with the task.
        write_files: writes the files that reader and answer need into a folder.
        tokenizer: of a reader of texts, what makes tokens of them in a graph.
        others: further endpoints of a SavedModel. No other format carries a task that has some.

    >>> examples = ["a good film", "a bad film"], ["+", "-"]
    >>> task = keras_tfm.tasks.TextClassifier.from_examples(examples, size="tiny", vocabulary_size=300)
    >>> signature = task.signature()
    >>> signature.reads["kind"], list(signature.inputs), signature.answers["kind"]
    ('texts', ['token_ids', 'segment_ids', 'padding_mask'], 'classes')
    """

    reads: dict[str, Any]
    function: Callable[..., dict[str, tf.Tensor]]
    inputs: dict[str, tf.TensorSpec]
    answers: dict[str, Any]
    examples: list
    write_files: Callable[[pathlib.Path], Any] = lambda folder: None
    tokenizer: Any = None
    others: Endpoints = {}
