"""Instances and panoptic segments: sets of masks, each of one class."""

import abc
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.segments import SegmentBatches, segment_targets
from keras_tfm.data.sources.mask_files import encoded_numbers
from keras_tfm.data.sources.segments import INSTANCES, PANOPTIC, WORDS, Segments
from keras_tfm.serving.examples import shown
from keras_tfm.tasks.images.average_precision import mask_precision
from keras_tfm.tasks.images.canvas_task import refuse_many, sizes_of
from keras_tfm.tasks.segmentation.drawing import draw_segments, write_numbers
from keras_tfm.tasks.segmentation.examples import checked_sets
from keras_tfm.tasks.segmentation.kind import SegmentationKind
from keras_tfm.tasks.segmentation.segments import (
    areas_and_boxes,
    instance_masks,
    panoptic_map,
    panoptic_quality,
)
from keras_tfm.tasks.signatures import Endpoints
from keras_tfm.training.folder import Path
from keras_tfm.training.options import SegmentationTraining

MOST = 100  # instances of an image that are told at most, as COCO counts them
AT_ONCE = 16  # images that are measured at once


class SegmentSetKind(SegmentationKind):
    """Sets of segments of one kind. Examples are `data.Segments`, or (images, masks, labels). Abstract: a
    subclass says what the model's predictions stand for.
    """

    kind: str
    covers: str  # "masks" or "segments": the entry of an answer that tells its pixels

    def __init__(self, task: Any):
        super().__init__(task)
        self._predict = tf.function(self.predictions, autograph=False, reduce_retracing=True)
        self._found = tf.function(self.found, autograph=False, reduce_retracing=True)

    @abc.abstractmethod
    def decoded(
        self, logits: tf.Tensor, masks: tf.Tensor, size: tf.Tensor, threshold: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The segments of an image of the `size` (2,), by the `logits` (Q, C + 1) and `masks` (Q, rows,
        columns) of queries: `classes` and `scores` (N,), and what they cover.
        """

    @abc.abstractmethod
    def masks_of(self, found: dict[str, Any]) -> tf.Tensor:
        """The mask of each segment (N, H, W), boolean, of what `decoded` gave, or of an answer."""

    @abc.abstractmethod
    def pngs(self, found: dict[str, tf.Tensor], most: int) -> tf.Tensor:
        """The covered pixels as PNGs: (), or (`most`,)."""

    @property
    def most(self) -> int:
        """How many segments an image has at most."""
        return min(MOST, self.task.model.backbone.config.num_queries)

    def check_examples(self, examples: Any, /) -> Segments:
        config = self.task.config
        if not isinstance(examples, Segments):
            if not isinstance(examples, tuple | list) or len(examples) != 3:
                kinds = "(images, masks, labels), or COCO's files,"
                raise ValueError(f"examples: expected {kinds} for {WORDS[self.kind]}, got {shown(examples)}")
            images = self.task.check_images(examples[0])
            sizes = sizes_of(images)
            examples = Segments(images, sizes, checked_sets(examples[1], examples[2], sizes, config))
        sets = examples.segments
        if sets.kind != self.kind:
            raise ValueError(f"examples: expected {WORDS[self.kind]}, got {WORDS[sets.kind]}")
        unknown = sorted({name for each in sets.segments for name, _ in each} - set(config.class_names))
        if unknown:
            raise ValueError(f"`labels` must be among {list(config.class_names)}; {unknown[0]!r} is not.")
        most = self.task.model.backbone.config.num_queries
        refuse_many("masks", sets.counts, most)
        return examples

    def batches(
        self, examples: Segments, training: SegmentationTraining, is_validation: bool
    ) -> SegmentBatches:
        canvas, shape = self.task.preprocessing, self.task.image_shape
        learning: dict[str, Any] = {
            "seed": training.seed,
            "flips": training.flip,
            "areas": (training.least_area, training.most_area),
        }
        return SegmentBatches(
            examples.images,
            examples.sizes,
            segment_targets(examples.segments, self.task.class_names, canvas, shape),
            max(examples.segments.counts, default=1),
            canvas,
            shape,
            training.batch_size,
            has_pixel_mask="pixel_mask" in self.task.model.input,
            **({} if is_validation else learning),
        )

    def predictions(self, images: tf.Tensor, sizes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Logits (B, Q, C + 1) and masks (B, Q, rows, columns) of raw images of the model's size (B, H, W,
        C), whose own `sizes` are (B, 2).
        """
        inputs = self.task.read_by_model(self.task.preprocessing.inputs(images, sizes))
        outputs = self.task.model(inputs, training=False)
        return outputs["logits"], outputs["masks"]

    def found(
        self, logits: tf.Tensor, masks: tf.Tensor, size: tf.Tensor, threshold: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The segments of one image, with `areas` and `boxes`, without what was padding."""
        masks = self.task.without_padding(tf.transpose(masks, (1, 2, 0)), size)
        found = self.decoded(logits, tf.transpose(masks, (2, 0, 1)), size, threshold)
        return found | areas_and_boxes(self.masks_of(found))

    def answers(self, images: tf.Tensor, sizes: np.ndarray, threshold: float) -> list[dict[str, Any]]:
        answers = []
        rows = zip(*self._predict(images, tf.constant(sizes)), tf.constant(sizes), strict=True)
        for logits, masks, size in rows:
            arrays = self._found(logits, masks, size, tf.constant(threshold, tf.float32))
            found = {name: x.numpy() for name, x in arrays.items()}
            labels = [self.task.class_names[number] for number in found["classes"]]
            parts = {name: found[name] for name in ("scores", "areas", "boxes")}
            answers.append({self.covers: found[self.covers], "labels": labels, **parts})
        return answers

    def draw(self, images: Any, found: Sequence[dict[str, Any]], folder: Path) -> None:
        draw_segments(images, found, [np.asarray(self.masks_of(answer)) for answer in found], folder)

    def write(self, images: Any, found: Sequence[dict[str, Any]], folder: Path) -> None:
        write_numbers(images, [self.numbers_of(answer) for answer in found], folder)

    @abc.abstractmethod
    def numbers_of(self, answer: dict[str, Any]) -> np.ndarray:
        """The number of each pixel's segment (H, W), from 1, 0 for none."""

    def as_line(self, answer: dict[str, Any]) -> str:
        rounded = {
            "size": list(self.numbers_of(answer).shape),
            "labels": answer["labels"],
            "scores": np.round(answer["scores"].astype("float64"), 4).tolist(),
            "areas": answer["areas"].tolist(),
            "boxes": answer["boxes"].astype(int).tolist(),
        }
        return json.dumps(rounded, ensure_ascii=False)

    def answers_to(self, examples: Segments, threshold: float) -> Iterator[dict[str, Any]]:
        """The answer to each of the examples, a few at a time, as masks take much memory."""
        for canvas, own in self.task.canvases(examples.images, examples.sizes, AT_ONCE):
            yield from self.answers(canvas, own, threshold)

    def export_endpoints(self) -> Endpoints:
        height, width = self.task.image_shape[:2]
        names, threshold = tf.constant(self.task.class_names), tf.constant(self.least_score)

        def filled(x: tf.Tensor) -> tf.Tensor:
            """`x` (N, ...) with zeros, or empty texts, up to `most` rows."""
            filling = [[0, self.most - tf.shape(x)[0]], *[[0, 0]] * (x.shape.rank - 1)]
            padded = tf.pad(x, filling, constant_values="" if x.dtype == tf.string else 0)
            return tf.ensure_shape(padded, (self.most, *x.shape[1:]))

        def parts(found: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            told = {"labels": tf.gather(names, found["classes"])}
            told |= {name: found[name] for name in ("scores", "areas", "boxes")}
            return {name: filled(x) for name, x in told.items()}

        def of_image(item: tuple) -> dict[str, tf.Tensor]:
            found = self.found(item[0], item[1], tf.constant([height, width], tf.int64), threshold)
            covered = found[self.covers]
            covered = filled(covered) if self.covers == "masks" else covered
            return parts(found) | {self.covers: tf.ensure_shape(covered, covered_spec.shape)}

        def of_file(item: tuple) -> dict[str, tf.Tensor]:
            found = self.found(item[0], item[1], item[2], threshold)
            return parts(found) | {"png": self.pngs(found, self.most)}

        def mapped(function: Any, specs: dict[str, tf.TensorSpec], *items: tf.Tensor) -> dict[str, tf.Tensor]:
            return tf.map_fn(function, items, fn_output_signature=specs)

        told = {
            "labels": tf.TensorSpec((self.most,), tf.string),
            "scores": tf.TensorSpec((self.most,), tf.float32),
            "areas": tf.TensorSpec((self.most,), tf.int32),
            "boxes": tf.TensorSpec((self.most, 4), tf.float32),
        }
        covered_spec, png = self.specs(height, width)

        def of_images(images: tf.Tensor, sizes: tf.Tensor) -> dict[str, tf.Tensor]:
            return mapped(of_image, told | {self.covers: covered_spec}, *self.predictions(images, sizes))

        def of_files(images: tf.Tensor, sizes: tf.Tensor) -> dict[str, tf.Tensor]:
            return mapped(of_file, told | {"png": png}, *self.predictions(images, sizes), sizes)

        return self.task.canvas_endpoints(of_images, of_files)

    @property
    @abc.abstractmethod
    def least_score(self) -> float:
        """The score of segments from which the export tells of them."""

    @abc.abstractmethod
    def specs(self, height: int, width: int) -> tuple[tf.TensorSpec, tf.TensorSpec]:
        """What the export has of the covered pixels of an array, and of a file."""


class Instances(SegmentSetKind):
    """Objects, whose masks may overlap; see `instance_masks`."""

    kind, covers = INSTANCES, "masks"
    least_score = 0.0

    def decoded(
        self, logits: tf.Tensor, masks: tf.Tensor, size: tf.Tensor, threshold: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        return instance_masks(logits, masks, size, threshold, self.most)

    def masks_of(self, found: dict[str, Any]) -> tf.Tensor:
        return found["masks"]

    def numbers_of(self, answer: dict[str, Any]) -> np.ndarray:
        masks = answer["masks"]
        numbers = np.zeros(masks.shape[1:], "int32")
        for number in range(len(masks), 0, -1):
            numbers[masks[number - 1]] = number
        return numbers

    def measure(self, examples: Segments) -> dict[str, Any]:
        return mask_precision(examples.segments, self.answers_to(examples, 0.0))

    def pngs(self, found: dict[str, tf.Tensor], most: int) -> tf.Tensor:
        encoded = tf.map_fn(
            lambda mask: tf.io.encode_png(tf.where(mask, tf.constant(255, tf.uint8), 0)[..., None]),
            found["masks"],
            fn_output_signature=tf.TensorSpec((), tf.string),
        )
        padded = tf.pad(encoded, [[0, most - tf.shape(encoded)[0]]], constant_values="")
        return tf.ensure_shape(padded, (most,))

    def specs(self, height: int, width: int) -> tuple[tf.TensorSpec, tf.TensorSpec]:
        masks = tf.TensorSpec((self.most, height, width), tf.bool)
        return masks, tf.TensorSpec((self.most,), tf.string)


class PanopticSegments(SegmentSetKind):
    """Segments that share the pixels, of things and of stuff; see `panoptic_segments`."""

    kind, covers = PANOPTIC, "segments"

    @property
    def least_score(self) -> float:
        return self.task.config.threshold

    @property
    def most(self) -> int:
        return self.task.model.backbone.config.num_queries

    @property
    def stuff(self) -> set[int]:
        """The numbers of the classes of stuff."""
        return {self.task.class_names.index(name) for name in self.task.config.stuff}

    def decoded(
        self, logits: tf.Tensor, masks: tf.Tensor, size: tf.Tensor, threshold: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        return panoptic_map(logits, masks, size, threshold, fused=self.stuff)

    def masks_of(self, found: dict[str, Any]) -> tf.Tensor:
        numbers = tf.range(1, tf.shape(found["scores"])[0] + 1)
        return tf.equal(found["segments"][None], numbers[:, None, None])

    def numbers_of(self, answer: dict[str, Any]) -> np.ndarray:
        return answer["segments"]

    def measure(self, examples: Segments) -> dict[str, Any]:
        number = {name: place for place, name in enumerate(self.task.class_names)}
        things = set(number.values()) - self.stuff

        def truth() -> Iterator[tuple[np.ndarray, dict[int, int]]]:
            for masks, labels in examples.segments:
                numbers = np.zeros(masks.shape[1:], "int32")
                for place, mask in enumerate(masks, 1):
                    numbers[mask] = place
                yield numbers, {place: number[name] for place, name in enumerate(labels, 1)}

        def found() -> Iterator[tuple[np.ndarray, dict[int, int]]]:
            for answer in self.answers_to(examples, self.task.config.threshold):
                names = enumerate(answer["labels"], 1)
                yield answer["segments"], {place: number[name] for place, name in names}

        groups = {"things": things, "stuff": self.stuff}
        return panoptic_quality(zip(truth(), found(), strict=True), groups)

    def pngs(self, found: dict[str, tf.Tensor], most: int) -> tf.Tensor:
        return encoded_numbers(found["segments"])

    def specs(self, height: int, width: int) -> tuple[tf.TensorSpec, tf.TensorSpec]:
        segments = tf.TensorSpec((height, width), tf.int32)
        return segments, tf.TensorSpec((), tf.string)
