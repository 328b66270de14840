"""The kinds of segmentation: a `Segmenter` delegates to an object of one of them."""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.canvas import CanvasBatches
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.tasks.images.canvas_task import canvas_batches
from keras_tfm.tasks.images.drawing import Pictures
from keras_tfm.tasks.segmentation.config import SegmentationTraining, SegmenterConfig
from keras_tfm.tasks.segmentation.models import SegmentingModel


class SegmentationKind(abc.ABC):
    """How a `model` learns and answers one kind of segmentation, of images on a `canvas`, for the classes of
    a `config`. Abstract. Raw images of the model's size are (B, H, W, C), their own `sizes` (B, 2).
    """

    def __init__(self, model: SegmentingModel, canvas: Canvas, config: SegmenterConfig):
        self.model, self.canvas, self.config = model, canvas, config
        self.image_shape: tuple[int, int, int] = tuple(model.input["images"].shape[1:])
        self._predictions = tf.function(self.predictions, autograph=False, reduce_retracing=True)
        self._found = tf.function(self.found, autograph=False, reduce_retracing=True)

    @property
    def least_score(self) -> float:
        """The score of segments from which they are measured and exported."""
        return 0.0

    def outputs(self, images: tf.Tensor, sizes: tf.Tensor) -> Any:
        """All that the model gives for raw images."""
        inputs = self.canvas.inputs(images, sizes)
        return self.model({name: inputs[name] for name in self.model.input}, training=False)

    def without_padding(self, x: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        """The part of a map (rows, columns, D) of a whole canvas that belongs to its image of the `size`
        (2,), in the canvas's resolution; unchanged where images are stretched.
        """
        if not self.canvas.keep_aspect:
            return x
        height, width = self.image_shape[:2]
        rows, columns = tf.unstack(self.canvas.content(size, height, width))
        return tf.image.resize(x, (height, width))[:rows, :columns]

    @abc.abstractmethod
    def check_examples(self, examples: Any, check_images: Callable, /) -> Any:
        """The examples in the form that the other methods take, their images as `check_images` gives them;
        ValueError for others.
        """

    @abc.abstractmethod
    def targets(self, examples: Any) -> tuple[Any, int | None]:
        """The masks of `CanvasBatches`, and the most in a set of them; None for one mask of each image."""

    def batches(self, examples: Any, training: SegmentationTraining, is_validation: bool) -> CanvasBatches:
        """The batches to train on, or the batches for validation."""
        targets, most = self.targets(examples)
        places = (self.canvas, self.image_shape, training, is_validation, training.most_area)
        return canvas_batches(examples, targets, *places, inputs=self.model.input, most=most)

    @abc.abstractmethod
    def predictions(self, images: tf.Tensor, sizes: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """What the model predicts of raw images."""

    found: Callable[..., dict[str, tf.Tensor]]
    """What one image shows, by its `predictions`, its size (2,) and a threshold."""

    @abc.abstractmethod
    def answer(self, found: dict[str, np.ndarray]) -> dict[str, Any]:
        """The answer by what was `found` in an image."""

    def answers(self, images: tf.Tensor, sizes: np.ndarray, threshold: float) -> Iterator[dict[str, Any]]:
        """The answers to raw images."""
        own, least = tf.constant(sizes), tf.constant(threshold, tf.float32)
        for row in zip(*self._predictions(images, own), own, strict=True):
            yield self.answer({name: x.numpy() for name, x in self._found(*row, least).items()})

    @abc.abstractmethod
    def draw(self, images: Any, found: Sequence[dict[str, Any]], folder: Pictures) -> None:
        """Write the images, with what was `found` over them, to a `folder`."""

    @abc.abstractmethod
    def write(self, images: Any, found: Sequence[dict[str, Any]], folder: Pictures) -> None:
        """Write the masks that were `found` to a `folder`."""

    @abc.abstractmethod
    def as_line(self, answer: dict[str, Any]) -> str:
        """An answer as JSON."""

    @abc.abstractmethod
    def measure(self, examples: Any, answers: Iterator[dict[str, Any]]) -> dict[str, Any]:
        """How good the `answers` to `examples` are, segments of the `least_score` and above."""

    @abc.abstractmethod
    def of_images(self, images: tf.Tensor, sizes: tf.Tensor) -> dict[str, tf.Tensor]:
        """What an export answers to raw images of the model's size."""

    @abc.abstractmethod
    def of_files(self, images: tf.Tensor, sizes: tf.Tensor) -> dict[str, tf.Tensor]:
        """What an export answers to files, whose raw images have other `sizes` of their own."""
