"""Detecting objects in images: a set of boxes, their names and scores, for each."""

import dataclasses
import logging
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Between, Option, Size
from keras_tfm.data.batches.canvas import CanvasBatches
from keras_tfm.data.batches.targets import IGNORED, NO_OBJECT, object_targets
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.crowds import details_of
from keras_tfm.data.sources.objects import (
    KINDS,
    CrowdedObjects,
    Objects,
    checked_boxes,
    found_in,
    objects_in,
    objects_of,
    read_objects,
)
from keras_tfm.heads.base import SetPredictor
from keras_tfm.heads.candidate_detectors import CandidateDetector
from keras_tfm.heads.detectors import detector_around
from keras_tfm.heads.object_detector import ObjectDetector, ReferencedDetector
from keras_tfm.heads.patch_detector import PatchDetector
from keras_tfm.layers.boxes import corners_of
from keras_tfm.models import DETR, PED, RTDETR, SMCA, TSPFCOS, TSPRCNN, ConditionalDETR, DeformableDETR
from keras_tfm.models.detection.backbones import BACKBONES, AroundBackbone, ModelAroundBackbone
from keras_tfm.serving.examples import listed, not_list, not_texts, refuse_empty, refuse_unknown
from keras_tfm.tasks.images.average_precision import average_precision
from keras_tfm.tasks.images.canvas_task import (
    CanvasTask,
    canvas_batches,
    copy_heads,
    looks_of,
    refuse_many,
    sized,
)
from keras_tfm.tasks.images.decoded import listed_images
from keras_tfm.tasks.images.drawing import Pictures, draw_objects
from keras_tfm.tasks.images.image_task import check_reads_images
from keras_tfm.tasks.images.miss_rate import miss_rate
from keras_tfm.tasks.learning import ModelOptions, family_among, with_side
from keras_tfm.tasks.records import rounded_line
from keras_tfm.tasks.signatures import Signature
from keras_tfm.tasks.task import label_entries
from keras_tfm.training.folder import Path
from keras_tfm.training.options import LeastArea, MirroredTraining

LOG = logging.getLogger(__name__)

FAMILIES: dict[str, type[ModelAroundBackbone]] = {
    "deformable-detr": DeformableDETR,
    "conditional-detr": ConditionalDETR,
    "detr": DETR,
    "smca": SMCA,
    "rt-detr": RTDETR,
    "ped": PED,
    "tsp-fcos": TSPFCOS,
    "tsp-rcnn": TSPRCNN,
}
DETECTORS: tuple[type[SetPredictor], ...] = (ObjectDetector, ReferencedDetector, CandidateDetector)
# {model: the prefix of transformers' image processor for it}
PROCESSORS: dict[type[ModelAroundBackbone], str] = {
    DETR: "Detr",
    ConditionalDETR: "ConditionalDetr",
    DeformableDETR: "DeformableDetr",
    RTDETR: "RTDetr",
}
Score = Annotated[float, Between(0, 1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DetectorConfig(Canvas):
    """`class_names` are strings, in the order of the logits. Objects that score `threshold` or more are in
    the answers.
    """

    class_names: tuple[str, ...]
    threshold: Annotated[Score, Option("the score, from 0 to 1, from which predict returns an object")] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.class_names or len(set(self.class_names)) < len(self.class_names):
            raise ValueError(f"`class_names` must be different strings; they are {self.class_names}.")


@dataclasses.dataclass(frozen=True)
class DetectorOptions(ModelOptions):
    """A detector with fresh weights; --config changes its `backbone`, for example, and `backbone_config`."""

    family: Annotated[str, Option(f"kind of detector: {', '.join(FAMILIES)}")] = "deformable-detr"
    size: Annotated[
        str,
        Option(
            "a published size of the family, such as 50, around a ResNet-50, or tiny, for images of some "
            "96 x 96 pixels"
        ),
    ] = "tiny"
    num_queries: Annotated[
        Size | None,
        Option("most objects that are found in an image", flag="--queries", default="set by --size"),
    ] = None

    @property
    def model_class(self) -> type[ModelAroundBackbone]:
        """The class of the family; ValueError for an unknown family."""
        return family_among(FAMILIES, self.family, ("image_size", "num_channels", "num_queries"))

    def base(self) -> AroundBackbone:
        changes = {} if self.num_queries is None else {"num_queries": self.num_queries}
        return self.model_class.config_of_size(self.size, **changes)


@dataclasses.dataclass(frozen=True)
class DetectionTraining(MirroredTraining):
    """By default the warm-up takes a tenth of the steps."""

    least_area: LeastArea = 1.0


class Detector(CanvasTask):
    """Images, as `ImageTask` has them, to the objects in them, by a `backbone`, a `DETR`, or one with a head.

    Examples are (images, boxes, labels): of each image its boxes, (left, top, right, bottom) in its own
    pixels, and their names; perhaps also, for each box, the box of what is visible, None for the whole, and
    1 where it surrounds a crowd, a region to ignore. An answer is {"boxes": (M, 4) in pixels, "labels": M
    names, "scores": (M,)}, the surest first. `fields` are fields of `DetectorConfig`.

    >>> backbone = keras_tfm.models.DETR.from_size("tiny", image_size=32, num_layers=1, num_decoder_layers=1)
    >>> task = keras_tfm.tasks.Detector(backbone, ["cat", "dog"])
    >>> images = np.zeros((8, 32, 32, 3), "uint8")
    >>> history = task.fit((images, [[[0, 0, 16, 16]]] * 8, [["cat"]] * 8), epochs=1)
    >>> sorted(task.predict(images[:1])[0])
    ['boxes', 'labels', 'scores']
    """

    name = "detect"
    start = (
        "a RUN, of this task, of pretrain-images --method updetr or, for its backbone, of classify-images, "
        "or a transformers folder or hub id"
    )
    files = KINDS
    examples_class = Objects
    training = DetectionTraining(patience=None, learning_rate=1e-3, schedule="cosine", weight_decay=1e-4)
    given_weights = types.MappingProxyType({"epochs": 50, "learning_rate": 1e-4})
    optimizer_options = {"global_clipnorm": 0.1}  # Carion et al. 2020, appendix A.4
    model_options = DetectorOptions
    annotations = staticmethod(found_in)
    from_files = staticmethod(read_objects)
    ranked = "boxes", "labels", "scores"
    config_class = DetectorConfig
    config: DetectorConfig

    def with_head(self, backbone: keras.Model) -> keras.Model:
        return detector_around(backbone, len(self.class_names))

    @classmethod
    def with_names(cls, model: keras.Model, class_names: Sequence[str], **fields: Any) -> Self:
        """A task for other classes, with the weights of a `model` but its classifier's."""
        task = cls(model.backbone, class_names, **fields)
        copy_heads(model, task.model, "box_head")
        return task

    @classmethod
    def make(
        cls, examples: Objects, options: DetectorOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        config = dataclasses.asdict(options.base()) | with_side(changes, fields)
        names, family = names_of(examples), options.model_class
        if "num_classes" in config:  # of families that choose queries by their classes
            config["num_classes"] = len(names)
        make: Any = family
        return cls(make(family.config_class.from_json(config)), names, **fields)

    @classmethod
    def describe(cls, examples: Objects | CrowdedObjects) -> str:
        count = sum(map(len, objects_in(examples).boxes))
        return f"{len(examples.images):,} images with {count:,} objects"

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """A task of this kind: the other's weights, its head where it knows the examples' classes; of a
        pre-trained detector all but its classes'; of a classifier its backbone's, with a fresh Transformer
        around it.
        """
        task = check_reads_images(task)
        if isinstance(task, cls):
            kept = {**dataclasses.asdict(task.config), **fields}
            if set(names_of(examples)) <= set(task.class_names):
                return cls(task.model, **kept)
            return cls.with_names(task.model, **{**kept, "class_names": names_of(examples)})
        kept = looks_of(task) | fields
        if isinstance(task.model, PatchDetector):
            made = cls(task.model.detector(), names_of(examples), **kept)
            copy_heads(task.model, made.model, "box_head")
            return made
        backbone = task.encoder
        if type(backbone).__name__ not in BACKBONES:
            known = ", ".join(BACKBONES)
            raise ValueError(f"--from: expected a backbone with maps, {known}; got {type(backbone).__name__}")
        return cls(DETR.around(backbone), names_of(examples), **kept)

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, DETECTORS)

    @classmethod
    def from_huggingface(cls, name: Path, examples: Any = None, **fields: Any) -> Self:
        """The task in the folder `name`, or of this hub id; for `examples` of other classes with a new head.

        CheckpointError where something is not as it must be. Images are prepared as the folder's
        preprocessor_config.json says; where it gives the size of their shorter side, they stand whole on a
        square canvas of it. Without that file they are whole, padded, with ImageNet's mean and deviation;
        for RT-DETR stretched.
        """
        from keras_tfm.convert import CheckpointError, find_folder, from_huggingface
        from keras_tfm.convert.preprocessing import canvas_fields_of, label_names

        folder = find_folder(name)
        model = from_huggingface(folder)
        if not cls.takes(model):
            raise CheckpointError(name, "architectures", "a detector of objects", type(model).__name__)
        names = label_names(folder, model.num_classes)
        published = canvas_fields_of(folder, model)
        if examples is not None and not set(names_of(examples)) <= set(names):
            return cls.with_names(model, names_of(examples), **{**published, **fields})
        return cls(model, names, **{**published, **fields})

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: config.json, preprocessor_config.json, model.safetensors.

        ValueError for a backbone that has no counterpart there, and where images keep their aspect on a
        canvas that is no square, or for an RT-DETR.
        """
        from keras_tfm.convert import save_huggingface
        from keras_tfm.convert.preprocessing import canvas_writer

        writers: list = []
        if name := PROCESSORS.get(type(self.model.backbone)):
            writers.append(canvas_writer(self.preprocessing, self.image_shape, f"{name}ImageProcessor"))
        save_huggingface(self.model, folder, overwrite, label_entries(self.class_names), writers=writers)

    def check_examples(self, examples: Any, /) -> Objects | CrowdedObjects:
        """Images with their sizes, boxes as parts of their sides, and names that the task knows."""
        if not isinstance(examples, Objects | CrowdedObjects):
            examples = self._as_objects(examples)
        refuse_empty(examples.images, "images")
        refuse_unknown(names_of(examples), self.class_names, "labels")
        most = self.model.backbone.config.num_queries
        refuse_many("boxes", map(len, objects_in(examples).labels), most)
        return examples

    def _as_objects(self, examples: Any) -> Objects | CrowdedObjects:
        """Examples with boxes in pixels as `check_examples` gives them."""
        kinds = {"boxes": not_list, "labels": not_texts, "visible": not_list, "iscrowd": not_list}
        count = len(examples) - 1 if isinstance(examples, tuple | list) else 0
        kinds = {name: kinds[name] for name in list(kinds)[: max(2, count)]}
        images, sizes, *columns = self.columns_in(examples, **kinds)
        found = []
        for row, (boxes, *names) in enumerate(zip(*columns, strict=True)):
            found.append((f"image {row}", [*map(list, boxes)], details_of(f"image {row}", *names)))
        return objects_of(images, sizes, checked_boxes(found, sizes))

    def batches(
        self,
        examples: Objects | CrowdedObjects,
        training: DetectionTraining,
        is_validation: bool = False,
    ) -> CanvasBatches:
        if isinstance(examples, CrowdedObjects):
            family = None if self.model.takes_visible else type(self.model.backbone).__name__
            if not is_validation:
                tell_skipped(examples, family)
            examples = examples if family is None else examples.objects
        inputs = ("images", "pixel_mask", *(["objects"] if self.model.takes_objects else []))
        places = (self.preprocessing, self.image_shape, training, is_validation)
        targets = targets_of(examples, self.class_names)
        return canvas_batches(examples, targets, *places, inputs=inputs, are_objects=True)

    def detect(self, images: tf.Tensor, sizes: tf.Tensor) -> dict[str, tf.Tensor]:
        """All objects of raw images of the model's size (B, H, W, C), whose own `sizes` are (B, 2): `boxes`
        (B, Q, 4) in their own pixels, `classes` (B, Q) and `scores` (B, Q), the surest first.
        """
        boxes, classes, scores = self.by_query(self.preprocessing.inputs(images, sizes))
        scores, order = tf.math.top_k(scores, scores.shape[1])
        classes = tf.gather(classes, order, batch_dims=1)
        scale = tf.cast(tf.gather(sizes, [1, 0, 1, 0], axis=1), tf.float32)[:, None]
        boxes = tf.gather(boxes * scale, order, batch_dims=1)
        return {"boxes": boxes, "classes": classes, "scores": scores}

    def by_query(self, inputs: Mapping[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The likeliest object of each query for the model's inputs: its box (B, Q, 4) in parts of the
        image's sides, its class (B, Q) and its score (B, Q).
        """
        outputs = self.model(inputs, training=False)
        probabilities = self.model.probabilities(outputs["logits"])
        boxes = tf.clip_by_value(corners_of(tf.cast(outputs["boxes"], tf.float32)), 0.0, 1.0)
        return boxes, tf.argmax(probabilities, axis=-1), tf.reduce_max(probabilities, axis=-1)

    def predict(
        self,
        images: Any,
        /,
        *,
        threshold: float | None = None,
        draw: Pictures | None = None,
        batch_size: int = 16,
    ) -> list[dict[str, Any]]:
        """The objects of each image of a score of `threshold`, by default the configuration's, and above.

        With `draw`, a folder, pictures with the boxes over them are written there, or to a file for each.
        """
        images = listed(listed_images(images))
        found = self.surest(images, threshold, batch_size)
        if draw is not None:
            draw_objects(images, found, self.class_names, draw)
        return found

    def as_line(self, answer: dict[str, Any]) -> str:
        return rounded_line(answer, {"boxes": 2, "scores": 4})

    def measure(self, examples: Objects | CrowdedObjects) -> dict[str, Any]:
        """COCO's average precision, from 0 to 100: "ap" over overlaps from 0.5 to 0.95, "ap50" and "ap75".

        Where the examples say what is visible, also "mr", MR^-2, from 100 down to 0; see `miss_rate`.
        """
        found = self.predict(sized(examples), threshold=0.0)
        measures = average_precision(examples, found)
        if isinstance(examples, CrowdedObjects) and examples.has_hidden_parts:
            measures["mr"] = miss_rate(examples, found)
        return measures

    def signature(self) -> Signature:
        """All objects that the model gives, of scores down to 0: the caller chooses."""
        answers = {"kind": "boxes", "labels": self.class_names}
        return self.signature_of(lambda inputs: self.detect(**inputs), answers)


def names_of(examples: Any) -> list[str]:
    """The names of the classes of examples, in order."""
    examples = objects_in(examples)
    labels = examples.labels if hasattr(examples, "labels") else examples[2]
    return sorted({name for names in labels for name in names})


def targets_of(examples: Objects | CrowdedObjects, class_names: Sequence[str]) -> np.ndarray:
    """`object_targets` of the examples, whose classes are places among the `class_names`."""
    number = {name: float(place) for place, name in enumerate(class_names)}
    if isinstance(examples, Objects):
        classes = [[number[name] for name in names] for names in examples.labels]
        return object_targets(examples.boxes, classes)
    classes = [
        [
            IGNORED if is_crowd else NO_OBJECT if is_difficult else number[name]
            for name, is_crowd, is_difficult in zip(*image, strict=True)
        ]
        for image in zip(examples.labels, examples.is_crowd, examples.is_difficult, strict=True)
    ]
    return object_targets(examples.boxes, classes, examples.visible)


def tell_skipped(examples: CrowdedObjects, family: str | None) -> None:
    """Warn of what is not learnt: difficult objects and, by a `family` of whole objects, all but these."""
    crowds, difficult = (
        sum(int(marks.sum()) for marks in column) for column in (examples.is_crowd, examples.is_difficult)
    )
    if difficult:
        LOG.warning("%s boxes of difficult objects are skipped", f"{difficult:,}")
    unused = [f"{crowds:,} boxes around crowds"] * (crowds > 0)
    unused += ["visible boxes"] * examples.has_hidden_parts
    if unused and family is not None:
        LOG.warning("%s are skipped: %s learns whole objects alone", " and ".join(unused), family)
