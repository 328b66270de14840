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
    a `config`. Abstract. It is the function of a `Signature`: of raw "images" of the model's size (B, H, W,
    C), and of their own "sizes" (B, 2).
    """

    kind: str  # of its answers in a `Signature`

    def __init__(self, model: SegmentingModel, canvas: Canvas, config: SegmenterConfig):
        self.model, self.canvas, self.config = model, canvas, config
        self.image_shape: tuple[int, int, int] = tuple(model.input["images"].shape[1:])
        self._found = tf.function(self.found, autograph=False, reduce_retracing=True)

    @property
    def least_score(self) -> float:
        """The score of segments from which they are measured and exported."""
        return 0.0

    def __call__(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """What the model predicts, beside the own "size" of each image."""
        own = self.canvas.inputs(**inputs)
        outputs = self.model({name: own[name] for name in self.model.input}, training=False)
        return {**self.predictions(outputs), "size": inputs["sizes"]}

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

    def before_training(self, batches: CanvasBatches) -> None:
        """Give the model what it needs to know of the `batches` that it will learn from: by default
        nothing.
        """
        return

    @abc.abstractmethod
    def predictions(self, outputs: Any) -> dict[str, tf.Tensor]:
        """What `found` takes, of all that the model gives."""

    found: Callable[..., dict[str, tf.Tensor]]
    """What one image shows, by its `predictions`, its size (2,) and a threshold."""

    @abc.abstractmethod
    def answers(self) -> dict[str, Any]:
        """The entries of the answer in a `Signature` besides its kind."""

    @abc.abstractmethod
    def answer(self, found: dict[str, np.ndarray]) -> dict[str, Any]:
        """The answer by what was `found` in an image."""

    def finish(self, threshold: float) -> Callable[..., dict[str, Any]]:
        """What makes answers with this threshold, as `AskedTask.each` takes it."""
        least = tf.constant(threshold, tf.float32)

        def finish(outputs: list, rows: list, example: Any) -> dict[str, Any]:
            found = self._found(**{name: tf.constant(x) for name, x in outputs[0].items()}, threshold=least)
            return self.answer({name: x.numpy() for name, x in found.items()})

        return finish

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
