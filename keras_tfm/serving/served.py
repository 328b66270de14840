"""Exported folders as functions of raw inputs."""

import contextlib
import os
import pathlib
from typing import Any, Literal, NamedTuple

import numpy as np

from .answers import ANSWERS
from .entries import checked, chosen, parameters_of
from .examples import (
    check_batch_size,
    listed,
    not_choices,
    not_image,
    not_pair,
    not_words,
    reasons,
    refuse_rows,
)
from .files import LAYOUT, NAME, SAVED_MODEL_NAME, check_files, digests_in, read_object
from .readers import READERS, as_choices, by_length, bytes_of, from_0_to_1
from .runtimes import RUNTIMES
from .writing import Writer


def load(folder, threads=None, check=True):
    """The exported task in `folder`, a function of raw inputs: a `Served`, a `Writer` or a `SavedModel`.

    Args:
        folder: a folder that `Task.export` or `keras-tfm export` wrote.
        threads: how many threads compute; by default one per core. A SavedModel leaves that to TensorFlow.
        check: whether to compare the files with the digests that were written with them, which reads them
            whole: a second for each gigabyte or two. Exports of earlier versions have none.

    Raises:
        ValueError: if the folder is no export, is damaged, or was written for a newer version of this file.
        ImportError: if a package that the folder needs is not installed.
    """
    folder = pathlib.Path(folder)
    description = describe(folder, check)
    if description.get("format") == "saved_model":
        return SavedModel(folder)
    kind = Writer if "decoding" in description else Served
    return kind(folder, description, threads or os.cpu_count() or 1)


class Function(NamedTuple):
    """What serving.json says of the function of numbers: its format, the names of its outputs, the most rows
    of a call and the lengths that it takes, None where any will do.
    """

    format: Literal[tuple(RUNTIMES)]  # type: ignore[valid-type]
    outputs: list[str]
    most_rows: int | None
    widths: list[int] | None


class Served:
    """A task in a format of its own: `served(examples)` gives {name: array}, as its SavedModel would.

    Examples are strings; for pairs, tuples of two; for words, lists of strings; for choices, (text, [choice,
    ...]); for questions, (question, context); for images, arrays or the paths or bytes of image files.
    `served.run(inputs)` computes the function of numbers alone, of which `served.read(examples)` gives the
    inputs, {name: array}.
    """

    def __init__(self, folder, description, threads=1):
        self.description = description
        read, reads = chosen(folder, READERS, description.get("reads"), "reads")
        answer, answers = chosen(folder, ANSWERS, description.get("answers"), "answers")
        own = {name: description[name] for name in parameters_of(Function) if name in description}
        function = Function(**checked(folder, Function, own, "function"))
        self._reader, self._finish = read(folder, **reads), answer(folder, **answers)
        self._runtime = RUNTIMES[function.format](folder, threads)
        self._outputs, self._most_rows, self._widths = function[1:]
        self._path = folder / NAME

    def __call__(self, examples, batch_size=32):
        """The answers to all `examples`, {name: array with one row per example}."""
        check_batch_size(batch_size)
        examples = listed(examples)
        groups = [self._reader.rows(example, place) for place, example in enumerate(examples)]
        rows = [row for group in groups for row in group]
        found: list[Any] = [None] * len(rows)
        lengths = [self._reader.length(row) for row in rows]
        for places in by_length(lengths, min(batch_size, self._most_rows or batch_size)):
            outputs = self.run(self._reader.join([rows[place] for place in places], self._widths))
            for number, place in enumerate(places):
                found[place] = {name: x[number] for name, x in outputs.items()}
        left = iter(found)
        answers = []
        for group, example in zip(groups, examples, strict=True):
            outputs = [next(left) for _ in group]
            try:
                answers.append(self._finish(outputs, group, example))
            except (KeyError, IndexError) as error:  # an output's name, the number of a label or a token
                raise ValueError(f"{self._path}: its answers do not fit its model: {error!r}") from None
        return {name: stacked([answer[name] for answer in answers]) for name in answers[0]} if answers else {}

    def read(self, examples):
        """The inputs of `run` for `examples`, padded to the longest."""
        rows = [row for place, x in enumerate(examples) for row in self._reader.rows(x, place)]
        return self._reader.join(rows, self._widths)

    def run(self, inputs):
        """The exported function: {name: array} to {name: array}; ValueError for sizes that it has not."""
        rows = max((len(x) for x in inputs.values()), default=0)
        if self._most_rows is not None and rows > self._most_rows:
            raise ValueError(f"the function takes {self._most_rows} rows at most, it was given {rows}")
        try:
            outputs = self._runtime(inputs)
        except KeyError as error:
            raise ValueError(f"{self._path}: its model reads {error}, which its inputs lack") from None
        if len(outputs) != len(self._outputs):
            raise ValueError(f"{self._path}: expected {len(outputs)} outputs, got {len(self._outputs)}")
        return dict(zip(self._outputs, outputs, strict=True))


class SavedModel:
    """A SavedModel as `Served` is: `served(examples)` gives {name: array}, with strings for texts."""

    def __init__(self, folder):
        import tensorflow as tf

        with contextlib.suppress(ImportError):  # only the models of texts need its operations
            import tensorflow_text  # noqa: F401
        self._loaded = tf.saved_model.load(str(folder))  # kept: its signatures refer to it weakly
        self._constant, self._signatures = tf.constant, self._loaded.signatures
        if "serving_default" not in self._signatures:
            raise ValueError(f"{folder}: expected a SavedModel with the signature serving_default")

    def __call__(self, examples, batch_size=None):
        """The answers to all `examples`, in one batch: of a forecaster rows of numbers, of a recommender
        users, of any other task what `Served` takes. All texts to choose for need as many choices.
        """
        examples = listed(examples)
        if not examples:
            return {}
        are_images = "images" in self._signatures and isinstance(examples[0], np.ndarray)
        signature = self._signatures["images" if are_images else "serving_default"]
        inputs = inputs_of(signature.structured_input_signature[1], examples)
        answers = signature(**{name: self._constant(x) for name, x in inputs.items()})
        return {name: _decoded(x.numpy()) for name, x in answers.items()}


def inputs_of(names, examples):
    """{input: values} for a SavedModel's signature whose inputs have these `names`."""
    if "images" in names:
        refuse_rows(reasons(examples, not_image))
        return {"images": np.stack([from_0_to_1(image) for image in examples])}
    if "image_bytes" in names:
        refuse_rows(reasons(examples, not_image))
        return {"image_bytes": [bytes_of(example, place) for place, example in enumerate(examples)]}
    if "values" in names:
        return {"values": np.array(examples, "float32")}
    if "choices" in names:
        refuse_rows(reasons(examples, not_choices))
        texts, choices = zip(*(as_choices(example) for example in examples), strict=True)
        return {"text": texts, "choices": choices}
    for first, second in (("text", "second"), ("question", "context")):
        if second in names:
            refuse_rows(reasons(examples, not_pair))
            pairs = [example.split("\t") if isinstance(example, str) else example for example in examples]
            return dict(zip((first, second), zip(*pairs, strict=True), strict=True))
    (name,) = names  # "text", of which words are parts, or "user"
    refuse_rows(reasons(examples, not_words))
    return {name: [example if isinstance(example, str) else " ".join(example) for example in examples]}


def stacked(values):
    """Values as one array; vectors of several lengths are padded with zeros."""
    if len({np.shape(value) for value in values}) == 1:
        return np.array(values)
    longest = max(map(len, values))
    return np.array([np.pad(value, (0, longest - len(value))) for value in values])


def is_export(folder):
    """Whether `folder` is that of an export."""
    return any(pathlib.Path(folder, name).is_file() for name in ("saved_model.pb", NAME))


def describe(folder, check=True):
    """What an exported folder says of itself: {"format": ..., "task": ..., ...}, once its files were compared
    with their digests; ValueError if it is no export, is damaged, or was written for a newer version.
    """
    folder = pathlib.Path(folder)
    if (folder / "saved_model.pb").is_file():
        path = folder / SAVED_MODEL_NAME
        content = {"format": "saved_model", **(read_object(path) if path.is_file() else {})}
    else:
        path = folder / NAME
        content = _description(path)
    digests = digests_in(content, path)
    if check:
        check_files(folder, digests)
    return content


def _description(path):
    if not path.is_file():
        raise ValueError(f"{path.parent}: expected an exported folder, with {NAME} or saved_model.pb in it")
    content = read_object(path)
    if "layout" not in content:
        raise ValueError(f"{path}: expected an object with its layout, the file is damaged")
    layout = content["layout"]
    if type(layout) is not int or layout != LAYOUT:
        raise ValueError(
            f"{path}: expected layout {LAYOUT}, got {layout!r:.20}, written by keras_tfm "
            f"{content.get('keras_tfm')!r:.20}: use the `serving` beside it"
        )
    return content


def _decoded(x):
    """Strings of bytes as text."""
    return (
        np.vectorize(lambda text: text.decode("utf-8", "replace"), otypes="O")(x).astype(str)
        if x.dtype == object
        else x
    )
