"""Exported folders as functions of raw inputs."""

import contextlib
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from . import plugins
from .answering import Answerer
from .answers import answer_of
from .entries import check, checked, parameters_of
from .examples import (
    Refused,
    is_file,
    listed,
    not_choices,
    not_image,
    not_in_memory,
    not_pair,
    not_video,
    not_words,
    reasons,
    refuse_rows,
    shown,
)
from .files import LAYOUT, NAME, SAVED_MODEL_NAME, check_files, digests_in, read_object
from .image_readers import bytes_of, from_0_to_1
from .point_readers import Clouds, PosePoints
from .readers import reader_of
from .reading import refused_or
from .runtimes import RUNTIMES
from .text_readers import as_choices, as_pair
from .writing import DECODERS

# Inputs that are given by their names alone, and those that two parts of an example are, in their order
NAMED = {"boxes", "track_boxes", "seed", "reference_bytes"}
PAIRS = {"text", "choices"}, {"text", "second"}, {"question", "context"}


def load(folder, threads=None, check=True, paths=True):
    """The exported task in `folder`, a function of raw inputs: a `Served` or a `SavedModel`.

    Args:
        folder: a folder that `Task.export` or `keras-tfm export` wrote.
        threads: how many threads compute; by default one per core. For a SavedModel TensorFlow decides.
        check: whether to compare the files with the digests that were written with them, which reads them
            whole: a second for each gigabyte or two. Exports of earlier versions have none.
        paths: whether a string may name a file of images, videos or points to open. A server whose clients
            are strangers passes False: examples are then the contents of files, or arrays.

    Raises:
        ValueError: if the folder is no export, is damaged, or was written for a newer version of this file.
        ImportError: if a package that the folder needs is not installed.
    """
    folder = pathlib.Path(folder)
    description = describe(folder, check)
    if description.get("format") == "saved_model":
        return SavedModel(folder, description.get("reads"), paths)
    return Served(folder, description, threads or os.cpu_count() or 1, paths)


class Function(NamedTuple):
    """What serving.json says of the function of numbers: its format, the names of its outputs, the most rows
    of a call and the lengths that it takes, None where any will do.
    """

    format: Literal[tuple(RUNTIMES)]  # type: ignore[valid-type]
    outputs: list[str]
    most_rows: int | None
    widths: list[int] | None


class Served(Answerer):
    """A task in a format of its own: `served(examples)` gives {name: array}, as its SavedModel would.

    Examples are strings; for pairs, tuples of two; for words, lists of strings; for choices, (text, [choice,
    ...]); for questions, (question, context); for images, arrays or the paths or bytes of image files; for
    videos, arrays (T, H, W, C), or the paths of video files or of folders of frames; for clouds of points,
    arrays (N, 3), or the paths or bytes of their files.
    `served.run(inputs)` computes the function of numbers alone, of which `served.read(examples)` gives the
    inputs, {name: array}; of a task that writes texts it is a `decoder`, which gives {"ids": the ids that are
    written for each row, with the end token}.
    """

    def __init__(self, folder, description, threads=1, paths=True):
        self.description = description
        plugins.require(description, folder / NAME)
        reader = reader_of(folder, description.get("reads"), paths)
        finish = answer_of(folder, description.get("answers"))
        self._path = folder / NAME
        if "decoding" in description:
            check(folder, "format", description.get("format"), Literal[tuple(DECODERS)])
            decode, decoding = DECODERS[description["format"]], description["decoding"]
            checked(folder, getattr(decode, "entries", decode), decoding, "decoding")
            function = self.decoder = decode(folder, threads, **decoding)
            run = self._decode
        else:
            own = {name: description[name] for name in parameters_of(Function) if name in description}
            function = Function(**checked(folder, Function, own, "function"))
            self._runtime, self._outputs = RUNTIMES[function.format](folder, threads), function.outputs
            run = self._run
        super().__init__(reader, run, self._checked(finish), function.most_rows, function.widths)

    def _checked(self, finish):
        """`finish`, with a ValueError for a damaged serving.json."""

        def checked_finish(outputs, rows, example):
            try:
                return finish(outputs, rows, example)
            except (KeyError, IndexError) as error:  # an output's name, the number of a label or a token
                raise ValueError(f"{self._path}: its answers do not fit its model: {error!r}") from None

        return checked_finish

    def _run(self, inputs):
        """The exported function: {name: array} to {name: array}; ValueError for sizes that it has not."""
        rows = max((len(x) for x in inputs.values()), default=0)
        if self.most_rows is not None and rows > self.most_rows:
            raise ValueError(f"the function takes {self.most_rows} rows at most, it was given {rows}")
        try:
            outputs = self._runtime(inputs)
        except KeyError as error:
            raise ValueError(f"{self._path}: its model reads {error}, which its inputs lack") from None
        if len(outputs) != len(self._outputs):
            raise ValueError(f"{self._path}: expected {len(outputs)} outputs, got {len(self._outputs)}")
        return dict(zip(self._outputs, outputs, strict=True))

    def _decode(self, inputs):
        """{"ids": the ids written for each row}."""
        try:
            return {"ids": self.decoder(inputs)}
        except (KeyError, IndexError, RuntimeError) as error:  # an input's name, an id, a runtime's own
            reason = " ".join(f"{error!r}".split())[:300]
            raise ValueError(f"{self._path}: what it says does not fit its model: {reason}") from None


class SavedModel:
    """A SavedModel as `Served` is: `served(examples)` gives {name: array}, with strings for texts. `reads`
    describes the reader of clouds, which earlier exports do not name.
    """

    def __init__(self, folder, reads=None, paths=True):
        import tensorflow as tf

        with contextlib.suppress(ImportError):  # only the models of texts need its operations
            import tensorflow_text  # noqa: F401
        try:
            self._loaded = tf.saved_model.load(str(folder))  # kept: its signatures refer to it weakly
        except RuntimeError as error:  # TensorFlow's for an unknown operation
            raise ImportError(
                f"{folder}: TensorFlow lacks an operation of it, as it does of models that read texts where "
                f"tensorflow-text is missing (pip install tensorflow-text): {error!s:.120}"
            ) from error
        self._constant, self._signatures = tf.constant, self._loaded.signatures
        self._refusals = tf.errors.InvalidArgumentError, tf.errors.UnimplementedError
        if "serving_default" not in self._signatures:
            raise ValueError(f"{folder}: expected a SavedModel with the signature serving_default")
        self._reader = None if reads is None else reader_of(pathlib.Path(folder), reads)
        self._paths = paths
        self.inputs = tuple(self._signatures["serving_default"].structured_input_signature[1])

    def __call__(self, examples, batch_size=None):
        """The answers to all `examples`, in one batch. A forecaster takes rows of numbers or lines of them, a
        recommender users, a task of videos clips of the model's size or lists of their frames' image files,
        any other task what `Served` takes. All questions with choices need the same number of choices. An
        example may also be {input: value} of the signature serving_default: trackers, generators of images
        and what takes references need that, and the "png" of a generator are bytes. ValueError for an example
        that cannot be answered; if only the model notices, as with prompts that are too long, it names no
        row.
        """
        examples = listed(examples)
        if not examples:
            return {}
        arrays = [name for name in ("images", "videos") if name in self._signatures]
        are_arrays = bool(arrays) and isinstance(examples[0], np.ndarray)
        signature = self._signatures[arrays[0] if are_arrays else "serving_default"]
        specs = signature.structured_input_signature[1]
        inputs = inputs_of(specs, examples, self._reader, self._paths)
        tensors = {name: self._constant(x, specs[name].dtype) for name, x in inputs.items()}
        try:
            answers = signature(**tensors)
        except self._refusals as error:
            raise ValueError(_reason(error.message)) from None
        return {name: x.numpy() if name == "png" else _decoded(x.numpy()) for name, x in answers.items()}


def _reason(message):
    """What an operation of a graph says was wrong, in one line, without where in the graph it is."""
    message = message.rpartition("<stack traces unavailable>")[2].partition("[[{{")[0]
    return re.sub(r"^assertion failed: \[(.*?)\].*", r"\1", " ".join(message.split())[:300])


def inputs_of(specs, examples, reader=None, paths=True):
    """{input: values} for a SavedModel's signature of these `specs`, {input: its shape}. Clouds are read by a
    `reader`; without `paths` files are given by their bytes alone.
    """
    names = set(specs)
    by_name = names & NAMED or (len(names) > 1 and names not in PAIRS)
    if by_name or any(isinstance(example, Mapping) for example in examples):
        refuse_rows(reasons(examples, lambda example: not_named(example, names)))
        columns = {name: [example[name] for example in examples] for name in names}
        return {
            name: _files(specs[name], column, paths) if name.endswith("_bytes") else column
            for name, column in columns.items()
        }
    if "images" in names or "videos" in names:
        (name,) = names
        shape = tuple(specs[name].shape[1:])
        refuse_rows(reasons(examples, lambda example: _not_array(example, shape)))
        return {name: np.stack([from_0_to_1(example) for example in examples])}
    if "points" in names:
        refuse_rows({} if paths else reasons(examples, not_in_memory))
        count, coordinates = specs["points"].shape[1:]
        if reader is None:
            reader = PosePoints(None, count, 2) if coordinates == 2 else Clouds(None, count, 1, False)
        return reader.join(_read(reader.row, examples))
    if "frame_bytes" in names or "image_bytes" in names:
        (name,) = names
        return {name: _files(specs[name], examples, paths)}
    if "values" in names:
        return {"values": np.array(_read(series_of, examples), "float64")}
    if "choices" in names:
        refuse_rows(reasons(examples, not_choices))
        texts, choices = zip(*(as_choices(example) for example in examples), strict=True)
        return {"text": texts, "choices": choices}
    for first, second in (("text", "second"), ("question", "context")):
        if second in names:
            refuse_rows(reasons(examples, not_pair))
            return dict(zip((first, second), zip(*map(as_pair, examples), strict=True), strict=True))
    (name,) = names  # "text", of which words are parts, or "user"
    refuse_rows(reasons(examples, not_words))
    # A tab makes two texts of one where both are read, and is as good as a space between words.
    return {name: [example if isinstance(example, str) else "\t".join(example) for example in examples]}


def _read(read, examples):
    """What `read` gives for each of the `examples`; ValueError for the first that it refuses."""
    found = [refused_or(read, example) for example in examples]
    refuse_rows({row: str(x) for row, x in enumerate(found) if isinstance(x, Refused)})
    return found


def _files(spec, examples, paths):
    """The bytes of an image file for each of the `examples`, or, where the `spec` says so, of its frames."""
    refuse_rows({} if paths else reasons(examples, not_in_memory))
    if len(spec.shape) == 1:
        return _read(file_of, examples)
    return _read(lambda example: frames_of(example, spec.shape[1]), examples)


def _not_array(example, shape):
    """An array of this shape, an image or a clip, of 8-bit values or of floats from 0 to 1."""
    what, kind = ("an image", not_image) if len(shape) == 3 else ("a clip", not_video)
    if (problem := kind(example)) is not None:
        return problem
    if not isinstance(example, np.ndarray):
        return f"expected an array, as the first is, got {shown(example)}"
    is_grey = len(shape) == 3 and shape[-1] == 1
    if example.shape not in (shape, shape[:-1] if is_grey else shape):
        return f"expected {what} of the shape {shape}, got {example.shape}"
    return None


def not_named(example, names):
    """Named values are a mapping, {input: value}."""
    if isinstance(example, Mapping) and set(example) == set(names):
        return None
    got = sorted(example) if isinstance(example, Mapping) else shown(example)
    return f"expected {{input: value}} of {', '.join(sorted(names))}, got {got}"


def file_of(example):
    """The bytes of an image file, given by itself or by its path; raises `Refused`."""
    if not is_file(example):
        raise Refused(f"expected the path or the bytes of an image file, got {shown(example)}")
    return bytes_of(example)


def frames_of(example, length):
    """The bytes of the image files that are a clip's frames, given by bytes or paths; raises `Refused`."""
    if not isinstance(example, list | tuple) or len(example) != length:
        raise Refused(f"expected an array, or a list of {length} image files, got {shown(example)}")
    return [file_of(frame) for frame in example]


def series_of(example):
    """The numbers of a series, or of a line of them, separated by commas or spaces; raises `Refused`."""
    with contextlib.suppress(ValueError, TypeError):
        numbers = example.replace(",", " ").split() if isinstance(example, str) else example
        values = np.array(numbers, "float64")
        if np.isfinite(values).all():
            return values
    raise Refused(f"expected finite numbers, got {shown(example)}")


def is_export(folder):
    """Whether `folder` holds an export."""
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
    """Strings of bytes as text, objects: NumPy's own strings would lose a NUL at the end."""
    return np.vectorize(lambda text: text.decode("utf-8", "replace"), "O")(x) if x.dtype == object else x
