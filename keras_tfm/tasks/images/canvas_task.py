"""The base class of tasks that say where things are in an image.

The model reads an image whole, on a canvas of its own size; answers are in pixels of the image's own size.
"""

import abc
import dataclasses
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Field, FieldError
from keras_tfm.data.batches.canvas import CanvasBatches
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.serving.examples import as_columns, checked_columns, refuse_unequal
from keras_tfm.tasks.images.decoded import ImagesOnCanvas, Sized, listed_images, own_size
from keras_tfm.tasks.images.image_task import (
    ImageTask,
    check_reads_images,
    image_shape_of,
    preprocessing_in,
    shape_and_preprocessing,
    with_image_size,
)
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import load_any, refuse_columns
from keras_tfm.tasks.task_folder import is_task_folder
from keras_tfm.tasks.trainable import FineTunedTask
from keras_tfm.training.folder import Path

LOG = logging.getLogger(__name__)


class CanvasTask(ImageTask, FineTunedTask):
    """A task whose answers are places in an image. Its `config` is a `Canvas`, with `class_names` where they
    are of classes; its model has a `learner` and a `loss_of_training`.
    """

    unit = "images"
    digits = 2
    held_out = HeldOut(0.1)
    gives_new_heads = True
    annotations: ClassVar[Any]  # a function of the path of a file: the pictures that it annotates
    from_files: ClassVar[Any]  # a function of paths, a shape and a `Canvas`: the examples in the files
    usual_shape: ClassVar[tuple[int, int, int]] = (800, 800, 3)
    ranked: ClassVar[tuple[str, ...]] = ()  # the entries of an answer that are in the order of its scores
    config: Any

    def __init__(self, backbone: keras.Model, class_names: Sequence[str], **fields: Any):
        self.config = self.config_class(class_names=tuple(class_names), **fields)
        self.class_names = list(self.config.class_names)
        if self.takes(backbone) and backbone.num_classes != len(self.class_names):
            raise ValueError(
                f"`class_names` must be {backbone.num_classes}, as the head has them; they are "
                f"{len(self.class_names)}."
            )
        self.take_model(backbone)

    def settled(self, training: Any, examples: Any) -> Any:
        training = super().settled(training, examples)
        if training.flip is not None:
            return training
        names = self.class_names
        flip = not (names and all(re.fullmatch(r"\w|\d+", name) for name in names))
        if not flip and self.is_chief:
            LOG.info("images are not mirrored: letters and digits would be other ones; --flip mirrors them")
        return dataclasses.replace(training, flip=flip)

    def take_model(self, backbone: keras.Model) -> None:
        """Note the `backbone`, with a head of its own or a fresh one, for images of the configuration's
        size.
        """
        model = backbone if self.takes(backbone) else None
        old = backbone if model is None else model.backbone
        resized = with_image_size(old, self.config.image_size)
        self.model = self.with_head(resized) if model is None else model.on(resized)
        self.take_images(self.model.backbone)

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """A task with the other's weights and its configuration, in which `fields` are replaced."""
        return cls(cls.checked(task).model, **{**dataclasses.asdict(task.config), **fields})

    @abc.abstractmethod
    def with_head(self, backbone: keras.Model) -> keras.Model:
        """The `backbone` with a fresh head of the task's classes."""

    def __call__(self, batch: Any, training: bool = False) -> Any:
        """What the model gives for raw images, or for {"images": them}."""
        images = batch["images"] if isinstance(batch, dict) else batch
        inputs = self.model_inputs(images)
        return self.model({name: inputs[name] for name in self.model.input}, training=training)

    def objective(self, training: Any) -> dict[str, Any]:
        return {"loss": self.model.loss_of_training()}

    def learner(self, training: Any) -> keras.Model:
        return self.model.learner()

    @property
    def own_reader(self) -> ImagesOnCanvas:
        return ImagesOnCanvas(self.image_shape, self.preprocessing)

    def signature_of(self, run: Callable, answers: dict[str, Any]) -> Signature:
        """The `Signature` of the function `run` of {"images": raw ones on the canvas (B, H, W, C), "sizes":
        their own ones (B, 2)}.
        """
        signature = super().signature_of(run, answers)
        return signature._replace(
            reads={**signature.reads, "kind": "canvas"},
            function=run,
            inputs={**signature.inputs, "sizes": tf.TensorSpec([None, 2], tf.int64)},
        )

    @property
    def preprocessing(self) -> Canvas:
        """How images become the model's input."""
        return Canvas(**dataclasses.asdict(preprocessing_in(self.config)))

    @classmethod
    def reading(cls, options: Any, changes: Mapping[str, Any], start: Path | None = None) -> dict[str, Any]:
        if start is not None:
            task = load_any(start) if is_task_folder(start) else cls.published()(start)
            if isinstance(task, cls):
                return task.file_fields
            return {"image_shape": check_reads_images(task).image_shape, **looks_of(task)}
        return {"image_shape": image_shape_of(dataclasses.replace(options.base(), **changes))}

    @classmethod
    def read_files(
        cls, paths: Sequence[Path], columns: ColumnNames = None, image_shape: Any = None, **fields: Any
    ) -> Any:
        """Images of that shape, or of the side `image_size`, and what is in them."""
        refuse_columns(columns, f"{cls.name!r} reads no tables: {cls.files}")
        shape, canvas = shape_and_preprocessing(image_shape or cls.usual_shape, Canvas(), **fields)
        return cls.from_files(paths, shape, canvas)

    @property
    def file_fields(self) -> dict[str, Any]:
        return {"image_shape": self.image_shape, **dataclasses.asdict(self.preprocessing)}

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        path = os.fspath(path)
        if not path.lower().endswith((".json", ".jsonl", ".jsonl.gz", ".jsonl.xz", ".odgt")):
            return super().read_inputs(path, columns)
        refuse_columns(columns, f"{self.name!r} reads no tables: {self.files}")
        return ((picture.source, picture.place) for picture in type(self).annotations(path))

    def surest(self, images: Any, threshold: float | None, batch_size: int) -> list[dict[str, Any]]:
        """What is found in each image with a score of `threshold`, or of the configuration's, and above."""
        least, found = self.config.threshold if threshold is None else threshold, []
        for answer in self.ask(images, batch_size):
            count = int(np.sum(answer["scores"] >= least))
            found.append({name: x[:count] if name in self.ranked else x for name, x in answer.items()})
        return found

    def as_value(self, answer: dict[str, Any]) -> Any:
        """What `as_line` writes: no masks."""
        return json.loads(self.as_line(answer))

    def columns_in(self, examples: Any, **kinds: Callable[[Any], str | None]) -> tuple[Any, ...]:
        """The images of `examples`, checked, their own sizes, and further columns; see `checked_columns`."""
        images, *columns = as_columns(examples, "images", *kinds)
        images = self.check_images(images)
        refuse_unequal(images=images, **dict(zip(kinds, columns, strict=True)))
        return images, sizes_of(images), *checked_columns(columns, **kinds)

    def model_inputs(self, images: Any) -> dict[str, tf.Tensor]:
        """The model's inputs for images, as `ImageTask` has them; DataError for a broken file."""
        images = self.check_images(images)
        canvas = self.preprocessing.fitted(tf.constant(np.asarray(images)), *self.image_shape[:2])
        return self.preprocessing.inputs(canvas, sizes_of(images))


def looks_of(task: Any) -> dict[str, Any]:
    """What a task keeps of the preprocessing of another one around whose backbone it is made. It reads
    images whole, also where the other one reads their middle.
    """
    return {name: getattr(task.config, name) for name in ("mean", "std", "interpolation")}


def canvas_batches(
    examples: Any,
    targets: Any,
    canvas: Canvas,
    shape: tuple[int, int, int],
    training: Any,
    is_validation: bool,
    most_area: float = 1.0,
    make: type[CanvasBatches] = CanvasBatches,
    **options: Any,
) -> Any:
    """Batches of `examples` with their `targets`, of the class `make`; batches to train on are shuffled,
    mirrored and cropped.
    """
    if not is_validation:
        areas = training.least_area, most_area
        options |= {"seed": training.seed, "flips": training.flip, "areas": areas}
    return make(examples.images, examples.sizes, targets, canvas, shape, training.batch_size, **options)


def refuse_many(name: str, counts: Iterable[int], most: int) -> None:
    """ValueError where an image has more than `most` of what the argument `name` holds."""
    many = [(row, count) for row, count in enumerate(counts) if count > most]
    if many:
        row, count = many[0]
        others = f" ({len(many) - 1:,} more images have too many)" if len(many) > 1 else ""
        raise FieldError(
            "{}: expected at most {}, the model's queries, in an image; image {} has {:,}{}",
            Field(name),
            most,
            row,
            count,
            others,
        )


def sizes_of(images: Any) -> np.ndarray:
    """The own (height, width) of each image, (N, 2); (1, 1) of a file that has none."""
    if not isinstance(images, ImageFiles):
        return np.broadcast_to(np.array(images.shape[1:3], "int64"), (len(images), 2))
    return np.array(list(map(own_size, images.sources)), "int64").reshape(-1, 2)


def sized(examples: Any) -> list[Sized]:
    """The images of examples, which stand on the canvas or are files, beside their own sizes."""
    return list(map(Sized, listed_images(examples.images), examples.sizes))


def copy_heads(source: keras.Model, target: keras.Model, names: str | tuple[str, ...]) -> None:
    """Copy weights from `source` to `target` for heads whose names begin with `names`."""
    for layer in target.layers:
        if layer.name.startswith(names):
            layer.set_weights(source.get_layer(layer.name).get_weights())
