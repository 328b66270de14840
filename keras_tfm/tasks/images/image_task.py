"""The base class of tasks that read images: what they take as images, and how it becomes the model's
input.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.asking import IMAGES
from keras_tfm.configs import Field, FieldError, Refusal
from keras_tfm.data.batches.images import check_images
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.images import read_images
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.log import Bar
from keras_tfm.serving.answering import Answerer
from keras_tfm.serving.examples import check_batch_size, check_column, listed, not_image
from keras_tfm.serving.image_readers import portion_of
from keras_tfm.serving.reading import Reader
from keras_tfm.tasks.images.decoded import DecodedImages, is_file, listed_images
from keras_tfm.tasks.media import MediaTask
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import Task
from keras_tfm.training.folder import Path

Kind = TypeVar("Kind", bound=Preprocessing)
NUM_EXAMPLES = 4  # on which an export is compared with its task
FIELDS = tuple(field.name for field in dataclasses.fields(Preprocessing))


class ImageTask(MediaTask):
    """A task that reads images. Its `config` is a `Preprocessing`, its model reads an input `images`.

    Images are arrays (B, H, W, C), or (B, H, W) for a model with one channel, with 8-bit values or floats
    from 0 to 1; they are resized to the model's size as the configuration says. Image files are taken too,
    each as a path or as bytes, one alone or a list.
    """

    input_files = IMAGES
    image_shape: tuple[int, int, int]

    def take_images(self, backbone: keras.Model) -> None:
        """Note the size of the model's images; ValueError if `config` is for other channels or another
        size.
        """
        self.image_shape = tuple(backbone.input["images"].shape[1:])
        check_channels(self.config, self.image_shape[-1])

    @property
    def preprocessing(self) -> Preprocessing:
        """How images become the model's input."""
        return preprocessing_in(self.config)

    @property
    def encoder(self) -> keras.Model:
        """The model without its head, which turns images into vectors."""
        return getattr(self.model, "backbone", self.model)

    def prepare(self, images: np.ndarray | tf.Tensor) -> tf.Tensor:
        """Raw images (B, H, W, C) as the model's input. Works in a graph and eagerly."""
        return self.config.prepared(tf.convert_to_tensor(images), *self.image_shape[:2])

    def check_images(self, images: Any) -> np.ndarray | ImageFiles:
        """The images as an array, or as files of the model's shape; ValueError for anything else."""
        return checked_images(images, self.image_shape, self.preprocessing)

    @property
    def own_reader(self) -> Reader:
        """Reads images as the training does, and as SavedModels do."""
        return DecodedImages(self.image_shape, self.preprocessing)

    @property
    def portion(self) -> Any:
        return portion_of(self.image_shape)

    def as_list(self, images: Any) -> Any:
        return listed_images(images)

    def image_parts(self, images: Any, batch_size: int) -> Iterator[np.ndarray]:
        """Images (B, H, W, C) of the model's size, from 0 to 1, in batches, with a progress bar; ValueError
        for a broken file.
        """
        check_batch_size(batch_size)
        images, reader = listed(self.as_list(images)), self.own_reader
        with Bar(total=len(images), desc="answering", unit="image") as bar:
            for first in range(0, len(images), batch_size):
                read = Answerer(reader).read_all(images[first : first + batch_size], first)
                (joined,) = reader.join([row for rows, _ in read for row in rows]).values()
                yield joined
                bar.update(len(read))

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_images(path, self.image_shape, columns, self.preprocessing)

    @property
    def file_fields(self) -> dict[str, Any]:
        return {"image_shape": self.image_shape, "preprocessing": self.preprocessing}

    def signature_of(
        self, run: Callable[[tf.Tensor], dict[str, tf.Tensor]], answers: dict[str, Any]
    ) -> Signature:
        """The `Signature` of the function `run` of raw images (B, H, W, C) of the model's size."""
        examples = np.random.default_rng(0).integers(0, 256, (NUM_EXAMPLES, *self.image_shape), "uint8")
        return Signature(
            reads={
                "kind": "images",
                "shape": list(self.image_shape),
                **resizing_entries(self.preprocessing),
            },
            function=lambda inputs: run(inputs["images"]),
            inputs={"images": tf.TensorSpec([None, *self.image_shape], tf.float32)},
            answers=answers,
            examples=list(examples),
        )


def checked_images(
    images: Any, shape: tuple[int, int, int], preprocessing: Preprocessing
) -> np.ndarray | ImageFiles:
    """Images as an array, or as files of the `shape` of a model's; ValueError for anything else."""
    if is_file(images):
        images = [images]
    if isinstance(images, ImageFiles):
        return ImageFiles(images.sources, shape, preprocessing, images.places)
    if isinstance(images, list | tuple) and images:
        check_column(images, "images", not_image)
        if all(map(is_file, images)):
            return ImageFiles(images, shape, preprocessing)
        refuse_unlike(images)
    return check_images(images, shape[-1])


def check_channels(config: Preprocessing, channels: int) -> None:
    """Raise ValueError for a configuration whose mean, or standard deviation, is of other channels."""
    for field in ("mean", "std"):
        values = getattr(config, field)
        if len(values) not in (1, channels):
            raise FieldError("{} must have 1 or {} values; it is {}.", Field(field), channels, values)


def refuse_unlike(images: Sequence[Any]) -> None:
    """Raise ValueError for a list of images that makes no single array: files among arrays, several sizes."""
    if len(kinds := sorted({"a file" if is_file(image) else "an array" for image in images})) > 1:
        raise ValueError(f"`images` must be arrays alone or files alone; they are {' and '.join(kinds)}.")
    if len(shapes := sorted({np.shape(image) for image in images})) > 1:
        raise ValueError(f"`images` must have one size to be arrays; they have {str(shapes[:4])[1:-1]}.")


def resizing_entries(preprocessing: Preprocessing) -> dict[str, Any]:
    """How images are resized, as arguments of a reader in `serving`."""
    names = ("interpolation", "crop_fraction", "keep_aspect", "rounds_crop")
    return {name: getattr(preprocessing, name) for name in names}


def preprocessing_in(config: Preprocessing) -> Preprocessing:
    """The part of a task's configuration that describes the preprocessing of images."""
    return Preprocessing(**{name: getattr(config, name) for name in FIELDS})


def with_fields(preprocessing: Kind, fields: Mapping[str, Any]) -> Kind:
    """`preprocessing` with those `fields` that belong to it."""
    return dataclasses.replace(preprocessing, **{name: fields[name] for name in FIELDS if name in fields})


def image_shape_of(config: Any) -> tuple[int, int, int]:
    """The (height, width, channels) of the images that a model of this configuration reads."""
    height, width = np.broadcast_to(config.image_size, 2).tolist()
    return height, width, config.num_channels


def check_reads_images(task: Task) -> Any:
    """The task, unchanged; ValueError if it does not read images."""
    if not isinstance(task, ImageTask):
        raise ValueError(f"--from: a {task.name!r} task reads no images")
    return task


def shape_and_preprocessing(
    image_shape: tuple[int, int, int] = (224, 224, 3),
    preprocessing: Preprocessing | None = None,
    **fields: Any,
) -> tuple[tuple[int, int, int], Any]:
    """The shape and the preprocessing with which images are read.

    A field `image_size` sets both sides of the shape; other `fields` replace fields of `preprocessing`.
    """
    side = fields.get("image_size")
    shape = image_shape if side is None else (side, side, image_shape[-1])
    return shape, with_fields(preprocessing or Preprocessing(), fields)


def with_image_size(backbone: keras.Model, image_size: int | None) -> keras.Model:
    """The backbone with its weights, for images of another size; ValueError if its weights depend on the
    size.
    """
    height, width, _ = backbone.input["images"].shape[1:]
    if image_size is None or (height, width) == (image_size, image_size):
        return backbone
    if hasattr(backbone, "with_image_size"):
        return backbone.with_image_size(image_size)
    resized = backbone.with_fresh_weights(image_size=image_size)
    pairs = list(zip(resized.weights, backbone.weights, strict=False))
    if len(resized.weights) != len(backbone.weights) or any(new.shape != old.shape for new, old in pairs):
        name = type(backbone).__name__
        raise Refusal("image_size", f"{height}, since weights of {name} depend on it", image_size)
    for new, old in pairs:
        new.assign(old)
    return resized
