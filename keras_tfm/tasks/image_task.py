"""What tasks that read images share: what they take as images, and how those become a model's input."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.images import check_images
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.images import decode_images, read_images
from keras_tfm.data.sources.inputs import Inputs
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.log import Bar
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.task import Task, refuse_rows
from keras_tfm.training.folder import Path

Kind = TypeVar("Kind", bound=Preprocessing)
FIELDS = tuple(field.name for field in dataclasses.fields(Preprocessing))


class ImageTask(Task):
    """A task whose `config` is a `Preprocessing`, and whose model reads `images` (B, *image_shape).

    Images are arrays (B, H, W, C), or (B, H, W) where the model takes one channel: 8-bit, or floating-point
    from 0 to 1; another size than the model's is resized as the configuration says. Or they are image files,
    a path or bytes each, one or a list.
    """

    reads_lines = False
    image_shape: tuple[int, int, int]

    def take_images(self, backbone: keras.Model) -> None:
        """Know the model's images; ValueError where the configuration has other channels or another size."""
        self.image_shape = tuple(backbone.input["images"].shape[1:])
        for field in ("mean", "std"):
            values = getattr(self.config, field)
            if len(values) not in (1, self.image_shape[-1]):
                raise ValueError(f"`{field}` must have 1 or {self.image_shape[-1]} values; it is {values}.")

    @property
    def preprocessing(self) -> Preprocessing:
        """How images become the model's input."""
        return preprocessing_in(self.config)

    @property
    def encoder(self) -> keras.Model:
        """The model without a head, which makes vectors of images and which other heads stand on."""
        return getattr(self.model, "backbone", self.model)

    def prepare(self, images: np.ndarray | tf.Tensor) -> tf.Tensor:
        """Raw images (B, H, W, C) as the model takes them, in a graph or out of one."""
        return self.config.prepared(tf.convert_to_tensor(images), *self.image_shape[:2])

    def check_images(self, images: Any) -> np.ndarray | ImageFiles:
        """An array, or files of the model's shape; ValueError for what are no images."""
        if is_file(images):
            images = [images]
        if isinstance(images, ImageFiles):
            return ImageFiles(images.sources, self.image_shape, self.preprocessing, images.places)
        if isinstance(images, list | tuple) and images and all(map(is_file, images)):
            return ImageFiles(images, self.image_shape, self.preprocessing)
        return check_images(images, self.image_shape[-1])

    def answers(self, images: Any, answer: Callable, width: int, batch_size: int) -> np.ndarray:
        """`answer` to all the images, batch by batch: an array (B, width); ValueError for a broken file."""
        found = [answer(part).numpy() for part in self.image_parts(images, batch_size)]
        return np.concatenate([np.zeros((0, width), "float32"), *found])

    def image_parts(self, images: Any, batch_size: int) -> Iterator[np.ndarray]:
        """Raw images (B, H, W, C), batch by batch, with a progress bar; ValueError for a broken file."""
        images = self.check_images(images)
        with Bar(total=len(images), desc="answering", unit="image") as bar:
            for first in range(0, len(images), batch_size):
                part: Any = images[first : first + batch_size]
                if isinstance(part, ImageFiles):
                    part, problems = part.read()
                    refuse_rows({first + row: problem for row, problem in problems.items()})
                yield part
                bar.update(len(part))

    def refusals(self, examples: Any, **options: Any) -> dict[int, str]:
        files = [row for row, example in enumerate(examples) if is_file(example)]
        if not files:
            return {}
        sources = [examples[row] for row in files]
        _, problems = ImageFiles(sources, self.image_shape, self.preprocessing).read(is_kept=False)
        return {files[row]: problem for row, problem in problems.items()}

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return Inputs(*read_images(path, self.image_shape, columns, self.preprocessing))

    @property
    def file_fields(self) -> dict[str, Any]:
        return {"image_shape": self.image_shape, "preprocessing": self.preprocessing}

    def endpoints(self, answer: Callable) -> Endpoints:
        """Signatures for the bytes of image files of any size, and for images from 0 to 1 of the model's."""
        return {
            "serving_default": (
                lambda image_bytes: answer(decode_images(image_bytes, *self.image_shape, self.preprocessing)),
                [tf.TensorSpec([None], tf.string, "image_bytes")],
            ),
            "images": (answer, [tf.TensorSpec([None, *self.image_shape], tf.float32, "images")]),
        }


def is_file(image: Any) -> bool:
    """Whether it is an image's file, a path or its content, rather than an array."""
    return isinstance(image, str | bytes | os.PathLike)


def preprocessing_in(config: Preprocessing) -> Preprocessing:
    """The part of a task's configuration that is about its images."""
    return Preprocessing(**{name: getattr(config, name) for name in FIELDS})


def with_fields(preprocessing: Kind, fields: Mapping[str, Any]) -> Kind:
    """`preprocessing` with those of the `fields` that are its own."""
    return dataclasses.replace(preprocessing, **{name: fields[name] for name in FIELDS if name in fields})


def image_shape_of(config: Any) -> tuple[int, int, int]:
    """The (height, width, channels) of the images that a model of this configuration reads."""
    height, width = np.broadcast_to(config.image_size, 2).tolist()
    return height, width, config.num_channels


def check_reads_images(task: Task) -> Any:
    """The task; ValueError where it reads no images."""
    if not isinstance(task, ImageTask):
        raise ValueError(f"--from: a {task.name!r} task reads no images")
    return task


def shape_and_preprocessing(
    image_shape: tuple[int, int, int] = (224, 224, 3),
    preprocessing: Preprocessing | None = None,
    **fields: Any,
) -> tuple[tuple[int, int, int], Preprocessing]:
    """How images are read: of that shape, or of the side `image_size`, with what the `fields` of a
    configuration change of the `preprocessing`.
    """
    side = fields.get("image_size")
    shape = image_shape if side is None else (side, side, image_shape[-1])
    return shape, with_fields(preprocessing or Preprocessing(), fields)


def with_image_size(backbone: keras.Model, image_size: int | None) -> keras.Model:
    """The backbone for images of another size, with its weights; ValueError where they are bound to one."""
    height, width, _ = backbone.input["images"].shape[1:]
    if image_size is None or (height, width) == (image_size, image_size):
        return backbone
    if hasattr(backbone, "with_image_size"):
        return backbone.with_image_size(image_size)
    config = dataclasses.replace(backbone.config, image_size=image_size)
    resized = type(backbone)(config, name=backbone.name, dtype=backbone.dtype_policy)
    pairs = list(zip(resized.weights, backbone.weights, strict=False))
    if len(resized.weights) != len(backbone.weights) or any(new.shape != old.shape for new, old in pairs):
        name = type(backbone).__name__
        raise ValueError(f"`image_size` must be {height}, for {name} has weights for it; it is {image_size}.")
    for new, old in pairs:
        new.assign(old)
    return resized
