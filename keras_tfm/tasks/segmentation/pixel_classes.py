"""Semantic segmentation: the class of every pixel."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.masks import MaskBatches
from keras_tfm.data.sources.masks import Masks
from keras_tfm.data.sources.segments import Segments
from keras_tfm.serving.examples import as_columns
from keras_tfm.tasks.images.canvas_task import sizes_of
from keras_tfm.tasks.segmentation.config import checked_masks, labels_on_canvas, overlap, summary
from keras_tfm.tasks.segmentation.drawing import draw_masks, write_masks
from keras_tfm.tasks.segmentation.kind import SegmentationKind
from keras_tfm.tasks.signatures import Endpoints, labels_beside
from keras_tfm.training.folder import Path
from keras_tfm.training.options import SegmentationTraining

if TYPE_CHECKING:
    from keras_tfm.tasks.segmentation.segmenter import Segmenter


class PixelClasses(SegmentationKind):
    """A class for every pixel. Examples are `data.Masks`; an answer is a mask of the classes' values."""

    def __init__(self, task: "Segmenter"):
        super().__init__(task)
        self.class_values = np.array(task.config.class_values, "uint8")
        self._logits = tf.function(self.logits, autograph=False, reduce_retracing=True)
        self._at_size = tf.function(self.at_size, autograph=False, reduce_retracing=True)

    def check_examples(self, examples: Any, /) -> Masks:
        if isinstance(examples, Segments):
            raise ValueError("examples: expected a mask of classes for each image, got COCO's segments")
        if not isinstance(examples, Masks):
            images, masks = as_columns(examples, "images", "masks")
            images = self.task.check_images(images)
            sizes = sizes_of(images)
            examples = Masks(images, sizes, checked_masks(masks, sizes, self.task.config))
        return examples

    def batches(self, examples: Masks, training: SegmentationTraining, is_validation: bool) -> MaskBatches:
        canvas, shape = self.task.preprocessing, self.task.image_shape
        labels = labels_on_canvas(examples.masks, self.task.config, canvas, shape)
        areas = training.least_area, training.most_area
        learning: dict[str, Any] = {"seed": training.seed, "flips": training.flip, "areas": areas}
        return MaskBatches(
            examples.images,
            examples.sizes,
            labels,
            canvas,
            shape,
            training.batch_size,
            **({} if is_validation else learning),
        )

    def logits(self, images: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
        """The scores of classes (B, rows, columns, classes), float32, in raw images of the model's size (B,
        H, W, C), whose own `sizes` are (B, 2).
        """
        inputs, model = self.task.preprocessing.inputs(images, sizes), self.task.model
        return model.class_scores(model({"images": inputs["images"]}, training=False))

    def at_size(self, logits: tf.Tensor, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(The values of the classes (H, W), uint8, their probabilities (H, W)) of an image of the `size`
        (2,), by its scores (rows, columns, classes), without what was padding.
        """
        logits = tf.image.resize(self.task.without_padding(logits, size), tf.cast(size, tf.int32))
        probabilities = self.task.model.probabilities(logits)
        values = tf.gather(tf.constant(self.class_values), tf.argmax(logits, axis=-1))
        return values, tf.reduce_max(probabilities, axis=-1)

    def answers(self, images: tf.Tensor, sizes: np.ndarray, threshold: float) -> list[dict[str, Any]]:
        found = []
        for logits, size in zip(self._logits(images, tf.constant(sizes)), tf.constant(sizes), strict=True):
            mask, scores = (x.numpy() for x in self._at_size(logits, size))
            found.append(summary(mask, scores, self.task.config.names))
        return found

    def draw(self, images: Any, found: Sequence[dict[str, Any]], folder: Path) -> None:
        draw_masks(images, found, self.task.config.names, folder)

    def write(self, images: Any, found: Sequence[dict[str, Any]], folder: Path) -> None:
        write_masks(images, found, folder)

    def as_line(self, answer: dict[str, Any]) -> str:
        rounded = {"size": list(answer["mask"].shape)} | {
            part: {name: round(value, 4) for name, value in answer[part].items()}
            for part in ("shares", "scores")
        }
        return json.dumps(rounded, ensure_ascii=False)

    def measure(self, examples: Masks) -> dict[str, Any]:
        answers = self.task.predict(examples.images, sizes=examples.sizes)
        masks = (answer["mask"] for answer in answers)
        return overlap(examples.masks, masks, self.task.config.class_values)

    def export_endpoints(self) -> Endpoints:
        height, width = self.task.image_shape[:2]

        def answer(logits: tf.Tensor) -> dict[str, tf.Tensor]:
            resized = tf.image.resize(logits, (height, width))
            values = tf.gather(tf.constant(self.class_values), tf.argmax(resized, axis=-1))
            scores = tf.reduce_max(self.task.model.probabilities(resized), axis=-1)
            labels = labels_beside(self.task.class_names, values)
            numbers = tf.tile(tf.constant(self.class_values)[None], [tf.shape(values)[0], 1])
            return {"masks": values, "scores": scores, "labels": labels, "label_values": numbers}

        def of_files(images: tf.Tensor, sizes: tf.Tensor) -> dict[str, tf.Tensor]:
            logits = self.logits(images, sizes)
            encoded = tf.map_fn(
                lambda item: tf.io.encode_png(self.at_size(*item)[0][..., None]),
                (logits, sizes),
                fn_output_signature=tf.TensorSpec((), tf.string),
            )
            return answer(logits) | {"png": encoded}

        return self.task.canvas_endpoints(lambda images, sizes: answer(self.logits(images, sizes)), of_files)
