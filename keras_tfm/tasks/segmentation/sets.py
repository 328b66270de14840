"""Instances and panoptic segments: sets of masks, each of one class."""

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.targets import segment_targets
from keras_tfm.data.sources.segments import INSTANCES, PANOPTIC, WORDS, Segments
from keras_tfm.serving.examples import refuse_unknown, shown
from keras_tfm.tasks.images.average_precision import mask_precision
from keras_tfm.tasks.images.canvas_task import refuse_many, sizes_of
from keras_tfm.tasks.images.drawing import Pictures
from keras_tfm.tasks.records import rounded_line
from keras_tfm.tasks.segmentation.drawing import draw_segments, write_numbers
from keras_tfm.tasks.segmentation.examples import checked_sets
from keras_tfm.tasks.segmentation.kind import SegmentationKind
from keras_tfm.tasks.segmentation.segments import (
    areas_and_boxes,
    instance_masks,
    panoptic_map,
    panoptic_quality,
)

MOST = 100  # instances of an image that are returned at most, as COCO counts them
SCORED = ("scores", "areas", "boxes")  # the entries of an answer that are numbers for each segment


class SegmentSetKind(SegmentationKind):
    """Sets of segments of one kind. Examples are `data.Segments`, or (images, masks, labels), of instances
    perhaps with `iscrowd`. Abstract: a subclass says what the model's predictions stand for.
    """

    covers: str  # "masks" or "segments": the entry of an answer that has its pixels

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

    @property
    def most(self) -> int:
        """How many segments an image has at most."""
        return min(MOST, self.model.backbone.config.num_queries)

    def check_examples(self, examples: Any, check_images: Callable, /) -> Segments:
        config = self.config
        if not isinstance(examples, Segments):
            counts = (3, 4) if self.kind == INSTANCES else (3,)
            if not isinstance(examples, tuple | list) or len(examples) not in counts:
                perhaps = ", perhaps iscrowd," if self.kind == INSTANCES else ","
                kinds = f"(images, masks, labels){perhaps} or COCO's files,"
                raise ValueError(f"examples: expected {kinds} for {WORDS[self.kind]}, got {shown(examples)}")
            images = check_images(examples[0])
            sizes = sizes_of(images)
            examples = Segments(images, sizes, checked_sets(sizes, config, *examples[1:]))
        sets = examples.segments
        if sets.kind != self.kind:
            raise ValueError(f"examples: expected {WORDS[self.kind]}, got {WORDS[sets.kind]}")
        names = (name for each in sets.segments for name, _ in each)
        refuse_unknown(names, config.class_names, "labels")
        most = self.model.backbone.config.num_queries
        refuse_many("masks", sets.counts, most)
        return examples

    def targets(self, examples: Segments) -> tuple[Any, int]:
        sets = examples.segments
        targets = segment_targets(sets, self.config.class_names, self.canvas, self.image_shape)
        return targets, max(1, *sets.counts)

    def predictions(self, outputs: Any) -> dict[str, tf.Tensor]:
        """Logits (B, Q, C + 1) and masks (B, Q, rows, columns)."""
        return {name: outputs[name] for name in ("logits", "masks")}

    def answers(self) -> dict[str, Any]:
        return {
            "labels": self.config.class_names,
            "most": self.most,
            "shape": self.image_shape[:2],
            "threshold": self.least_score,
        }

    def found(
        self, logits: tf.Tensor, masks: tf.Tensor, size: tf.Tensor, threshold: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The segments of one image, with `areas` and `boxes`, without what was padding."""
        masks = self.without_padding(tf.transpose(masks, (1, 2, 0)), size)
        found = self.decoded(logits, tf.transpose(masks, (2, 0, 1)), size, threshold)
        return found | areas_and_boxes(self.masks_of(found))

    def answer(self, found: dict[str, np.ndarray]) -> dict[str, Any]:
        labels = [self.config.class_names[number] for number in found["classes"]]
        parts = {name: found[name] for name in SCORED}
        return {self.covers: found[self.covers], "labels": labels, **parts}

    def draw(self, images: Any, found: Sequence[dict[str, Any]], folder: Pictures) -> None:
        draw_segments(images, found, [np.asarray(self.masks_of(answer)) for answer in found], folder)

    def write(self, images: Any, found: Sequence[dict[str, Any]], folder: Pictures) -> None:
        write_numbers(images, [self.numbers_of(answer) for answer in found], folder)

    @abc.abstractmethod
    def numbers_of(self, answer: dict[str, Any]) -> np.ndarray:
        """The number of each pixel's segment (H, W), from 1, 0 for none."""

    def as_line(self, answer: dict[str, Any]) -> str:
        size, boxes = self.numbers_of(answer).shape, answer["boxes"].astype(int)
        parts = {name: answer[name] for name in ("labels", "scores", "areas")}
        return rounded_line({"size": size, **parts, "boxes": boxes}, {"scores": 4})


class Instances(SegmentSetKind):
    """Objects, whose masks may overlap; see `instance_masks`."""

    kind, covers = INSTANCES, "masks"

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

    def measure(self, examples: Segments, answers: Iterator[dict[str, Any]]) -> dict[str, Any]:
        return mask_precision(examples.segments, answers)


class PanopticSegments(SegmentSetKind):
    """Segments that share the pixels, of things and of stuff; see `panoptic_segments`."""

    kind, covers = PANOPTIC, "segments"

    @property
    def least_score(self) -> float:
        return self.config.threshold

    @property
    def most(self) -> int:
        return self.model.backbone.config.num_queries

    @property
    def stuff(self) -> set[int]:
        """The numbers of the classes of stuff."""
        return {self.config.class_names.index(name) for name in self.config.stuff}

    def decoded(
        self, logits: tf.Tensor, masks: tf.Tensor, size: tf.Tensor, threshold: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        return panoptic_map(logits, masks, size, threshold, fused=self.stuff)

    def masks_of(self, found: dict[str, Any]) -> tf.Tensor:
        numbers = tf.range(1, tf.shape(found["scores"])[0] + 1)
        return tf.equal(found["segments"][None], numbers[:, None, None])

    def numbers_of(self, answer: dict[str, Any]) -> np.ndarray:
        return answer["segments"]

    def measure(self, examples: Segments, answers: Iterator[dict[str, Any]]) -> dict[str, Any]:
        number = {name: place for place, name in enumerate(self.config.class_names)}
        things = set(number.values()) - self.stuff

        def truth() -> Iterator[tuple[np.ndarray, dict[int, int]]]:
            for masks, labels in examples.segments:
                numbers = np.zeros(masks.shape[1:], "int32")
                for place, mask in enumerate(masks, 1):
                    numbers[mask] = place
                yield numbers, {place: number[name] for place, name in enumerate(labels, 1)}

        def found() -> Iterator[tuple[np.ndarray, dict[int, int]]]:
            for answer in answers:
                names = enumerate(answer["labels"], 1)
                yield answer["segments"], {place: number[name] for place, name in names}

        groups = {"things": things, "stuff": self.stuff}
        return panoptic_quality(zip(truth(), found(), strict=True), groups)
