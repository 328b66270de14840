"""Semantic segmentation: the class of every pixel."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.masks import Masks
from keras_tfm.data.sources.segments import Segments
from keras_tfm.serving.examples import as_columns
from keras_tfm.tasks.images.canvas_task import sizes_of
from keras_tfm.tasks.images.drawing import Pictures
from keras_tfm.tasks.segmentation.config import (
    checked_masks,
    labels_on_canvas,
    overlap,
    summary,
)
from keras_tfm.tasks.segmentation.drawing import draw_masks, write_masks
from keras_tfm.tasks.segmentation.kind import SegmentationKind


class PixelClasses(SegmentationKind):
    """A class for every pixel. Examples are `data.Masks`; an answer is a mask of the classes' values."""

    kind = "pixel-classes"

    def check_examples(self, examples: Any, check_images: Callable, /) -> Masks:
        if isinstance(examples, Segments):
            raise ValueError("examples: expected a mask of classes for each image, got COCO's segments")
        if not isinstance(examples, Masks):
            images, masks = as_columns(examples, "images", "masks")
            images = check_images(images)
            sizes = sizes_of(images)
            examples = Masks(images, sizes, checked_masks(masks, sizes, self.config))
        return examples

    def targets(self, examples: Masks) -> tuple[Any, None]:
        return labels_on_canvas(examples.masks, self.config, self.canvas, self.image_shape), None

    def predictions(self, outputs: Any) -> dict[str, tf.Tensor]:
        """The scores of classes (B, rows, columns, classes), float32."""
        return {"logits": self.model.class_scores(outputs)}

    def answers(self) -> dict[str, Any]:
        return {"labels": self.config.class_names, "values": self.config.class_values}

    def found(
        self, logits: tf.Tensor, size: tf.Tensor, threshold: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """The values of the classes `mask` (H, W), uint8, and their probabilities `scores` (H, W)."""
        return self._classes(tf.image.resize(self.without_padding(logits, size), tf.cast(size, tf.int32)))

    def on_canvas(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """What `found` gives, of images of the model's size, with their padding."""
        return self._classes(tf.image.resize(logits, self.image_shape[:2]))

    def _classes(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """The classes of the highest `logits` (..., classes)."""
        values = tf.gather(tf.constant(self.config.class_values, tf.uint8), tf.argmax(logits, axis=-1))
        return {"mask": values, "scores": tf.reduce_max(self.model.probabilities(logits), axis=-1)}

    def answer(self, found: dict[str, np.ndarray]) -> dict[str, Any]:
        return summary(found["mask"], found["scores"], self.config.names)

    def draw(self, images: Any, found: Sequence[dict[str, Any]], folder: Pictures) -> None:
        draw_masks(images, found, self.config.names, folder)

    def write(self, images: Any, found: Sequence[dict[str, Any]], folder: Pictures) -> None:
        write_masks(images, found, folder)

    def as_line(self, answer: dict[str, Any]) -> str:
        rounded = {"size": list(answer["mask"].shape)} | {
            part: {name: round(value, 4) for name, value in answer[part].items()}
            for part in ("shares", "scores")
        }
        return json.dumps(rounded, ensure_ascii=False)

    def measure(self, examples: Masks, answers: Iterator[dict[str, Any]]) -> dict[str, Any]:
        masks = (answer["mask"] for answer in answers)
        return overlap(examples.masks, masks, self.config.class_values)
