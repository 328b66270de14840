"""Exported folders as functions of raw inputs."""

import contextlib
import os
import pathlib
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from . import plugins
from .answering import Answerer
from .answers import answer_of
from .entries import check, checked, parameters_of
from .examples import (
    Refused,
    listed,
    not_choices,
    not_image,
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


def load(folder, threads=None, check=True):
    """The exported task in `folder`, a function of raw inputs: a `Served` or a `SavedModel`.

    Args:
        folder: a folder that `Task.export` or `keras-tfm export` wrote.
        threads: how many threads compute; by default one per core. For a SavedModel TensorFlow decides.
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
    return Served(folder, description, threads or os.cpu_count() or 1)


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

    def __init__(self, folder, description, threads=1):
        self.description = description
        plugins.require(description, folder / NAME)
        reader = reader_of(folder, description.get("reads"))
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
    """A SavedModel as `Served` is: `served(examples)` gives {name: array}, with strings for texts."""

    def __init__(self, folder):
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
        if "serving_default" not in self._signatures:
            raise ValueError(f"{folder}: expected a SavedModel with the signature serving_default")
        self.inputs = tuple(self._signatures["serving_default"].structured_input_signature[1])

    def __call__(self, examples, batch_size=None):
        """The answers to all `examples`, in one batch. A forecaster takes rows of numbers, a recommender
        users, a task of videos clips of the model's size or lists of their frames' image files, any other
        task what `Served` takes. All questions with choices need the same number of choices. An example may
        also be {input: value} of the signature serving_default: trackers, generators of images and what takes
        references need that, and the "png" of a generator are bytes.
        """
        examples = listed(examples)
        if not examples:
            return {}
        arrays = [name for name in ("images", "videos") if name in self._signatures]
        are_arrays = bool(arrays) and isinstance(examples[0], np.ndarray)
        signature = self._signatures[arrays[0] if are_arrays else "serving_default"]
        specs = signature.structured_input_signature[1]
        inputs = inputs_of(specs, examples)
        answers = signature(**{name: self._constant(x, specs[name].dtype) for name, x in inputs.items()})
        return {name: x.numpy() if name == "png" else _decoded(x.numpy()) for name, x in answers.items()}


def inputs_of(names, examples):
    """{input: values} for a SavedModel's signature whose inputs have these `names`."""
    if {"boxes", "track_boxes", "seed", "reference_bytes"} & set(names) or any(
        isinstance(example, Mapping) for example in examples
    ):
        refuse_rows(reasons(examples, lambda example: not_named(example, names)))
        return {name: [example[name] for example in examples] for name in names}
    if "images" in names:
        refuse_rows(reasons(examples, not_image))
        return {"images": np.stack([from_0_to_1(image) for image in examples])}
    if "videos" in names:
        shape = tuple(names["videos"].shape[1:])

        def not_clip(video):
            is_clip = np.shape(video) == shape
            problem = None if is_clip else f"expected a clip of the shape {shape}, got {np.shape(video)}"
            return not_video(video) or problem

        refuse_rows(reasons(examples, not_clip))
        return {"videos": np.stack([from_0_to_1(video) for video in examples])}
    if "points" in names:
        count, coordinates = names["points"].shape[1:]
        make = PosePoints(None, count, 2) if coordinates == 2 else Clouds(None, count, 1, normalize=False)
        read = [refused_or(make.row, example) for example in examples]
        refuse_rows({row: str(x) for row, x in enumerate(read) if isinstance(x, Refused)})
        return make.join(read)
    if "frame_bytes" in names:
        length = names["frame_bytes"].shape[1]
        read = [refused_or(frames_of, example, length) for example in examples]
        refuse_rows({row: str(x) for row, x in enumerate(read) if isinstance(x, Refused)})
        return {"frame_bytes": read}
    if "image_bytes" in names:
        refuse_rows(reasons(examples, not_image))
        found = [refused_or(bytes_of, example) for example in examples]
        refuse_rows({row: str(x) for row, x in enumerate(found) if isinstance(x, Refused)})
        return {"image_bytes": found}
    if "values" in names:
        return {"values": np.array(examples, "float64")}
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
    return {name: [example if isinstance(example, str) else " ".join(example) for example in examples]}


def not_named(example, names):
    """Named values are a mapping, {input: value}."""
    if isinstance(example, Mapping) and set(example) == set(names):
        return None
    got = sorted(example) if isinstance(example, Mapping) else shown(example)
    return f"expected {{input: value}} of {', '.join(sorted(names))}, got {got}"


def frames_of(example, length):
    """The bytes of the image files that are a clip's frames, given by bytes or paths; raises `Refused`."""
    if not isinstance(example, list | tuple) or len(example) != length:
        raise Refused(f"expected an array, or a list of {length} image files, got {shown(example)}")
    if any(not isinstance(frame, str | bytes | os.PathLike) for frame in example):
        raise Refused("expected frames by the paths or the bytes of image files, got others")
    return [bytes_of(frame) for frame in example]


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
    """Strings of bytes as text."""
    return (
        np.vectorize(lambda text: text.decode("utf-8", "replace"), otypes="O")(x).astype(str)
        if x.dtype == object
        else x
    )
