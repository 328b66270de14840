"""Segmenting images: the class of every pixel, instances, or panoptic segments."""

import dataclasses
import logging
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import keras

from keras_tfm.configs import FieldError
from keras_tfm.data.batches.epochs import Batches
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.coco import is_coco, read_coco
from keras_tfm.data.sources.lines import DataError, Inputs, files_of
from keras_tfm.data.sources.masks import KINDS, Masks, has_pairs, images_in, read_masks
from keras_tfm.data.sources.segments import KINDS as KINDS_OF_SETS
from keras_tfm.data.sources.segments import Segments, read_segments
from keras_tfm.heads.coded_segmenter import CodedSegmenter
from keras_tfm.heads.map_decoders import maps_of
from keras_tfm.heads.segmentation import SemanticSegmenter
from keras_tfm.serving.examples import listed, refuse_empty
from keras_tfm.tasks.images.canvas_task import CanvasTask, looks_of, sized
from keras_tfm.tasks.images.decoded import listed_images
from keras_tfm.tasks.images.drawing import Pictures
from keras_tfm.tasks.images.image_task import check_reads_images, shape_and_preprocessing
from keras_tfm.tasks.learning import with_side
from keras_tfm.tasks.segmentation.coded import CodedInstances
from keras_tfm.tasks.segmentation.config import (
    ENTRIES,
    RATE_OF_PIXELS,
    RATE_OF_SETS,
    SegmentationTraining,
    SegmenterConfig,
    are_known,
    kind_of,
    with_classes,
)
from keras_tfm.tasks.segmentation.kind import SegmentationKind
from keras_tfm.tasks.segmentation.models import (
    ARCHITECTURES,
    MASK_SETS,
    PARTS,
    PROCESSORS,
    SEMANTIC,
    SegmenterOptions,
    SegmentingModel,
    check_tells,
    families_of,
    for_classes,
    head_class_of,
    segmenting,
)
from keras_tfm.tasks.segmentation.pixel_classes import PixelClasses
from keras_tfm.tasks.segmentation.sets import Instances, PanopticSegments
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import label_entries, refuse_columns
from keras_tfm.tasks.task_folder import is_task_folder
from keras_tfm.training.folder import Path

LOG = logging.getLogger(__name__)
BATCH = 16  # images that are answered at once
KINDS_OF_SEGMENTS: dict[str, type[SegmentationKind]] = {
    "semantic": PixelClasses,
    "instances": Instances,
    "panoptic": PanopticSegments,
}


class Segmenter(CanvasTask):
    """Images, as `ImageTask` has them, to their segments, by a `backbone` or one with a head.

    The configuration's field `segments` says which segments. "semantic": examples are (images, masks),
    whole numbers (H, W) of each image's own size, which the configuration maps to classes; an answer is
    {"mask": (H, W), "shares": {name: part of the pixels}, "scores": {name: mean probability in its pixels}}.
    "instances" and "panoptic": examples are (images, masks, labels), of each image M masks (M, H, W), 0 or 1,
    and their M names; of instances perhaps also, for each mask, 1 where it covers a crowd, a region where
    nothing is wrong. An answer has "labels", "scores", "areas" in pixels and "boxes" (left, top, right,
    bottom) of N segments, and of instances their "masks" (N, H, W), boolean, which may overlap, of panoptic
    segments the map "segments" (H, W) of their numbers from 1, 0 for none. `fields` are fields of
    `SegmenterConfig`.

    >>> sizes = {"image_size": 8, "patch_size": 4, "num_layers": 2, "dim": 32, "num_heads": 2}
    >>> backbone = keras_tfm.models.ViT.from_size("B/16", intermediate_dim=64, **sizes)
    >>> task = keras_tfm.tasks.Segmenter(backbone, ["ground", "cat"])
    >>> images, masks = np.zeros((8, 8, 8, 3), "uint8"), np.zeros((8, 8, 8), "uint8")
    >>> history = task.fit((images, masks), epochs=1)
    >>> task.predict(images[:1])[0]["mask"].shape
    (8, 8)
    """

    name = "segment"
    start = "a RUN, of this task or, for its backbone, of classify-images, or a transformers folder or hub id"
    files = (
        f"{KINDS}, for the class of every pixel; {KINDS_OF_SETS}, for instances or panoptic segments, which "
        f"need --family {families_of('panoptic')}, and for instances istr too"
    )
    examples_class = Masks
    training = SegmentationTraining(patience=None, schedule="cosine", weight_decay=0.01)
    given_weights = types.MappingProxyType({"epochs": 50, "learning_rate": 1e-4})
    model_options = SegmenterOptions
    make_head = staticmethod(segmenting)
    config_class = SegmenterConfig
    config: SegmenterConfig

    def __init__(self, backbone: keras.Model, class_names: Sequence[str], **fields: Any):
        super().__init__(backbone, class_names, **fields)
        check_tells(type(self.model), self.config.segments)
        kind = KINDS_OF_SEGMENTS[self.config.segments]
        if isinstance(self.model, CodedSegmenter):
            kind = CodedInstances
        self.kind = kind(self.model, self.preprocessing, self.config)

    def with_head(self, backbone: keras.Model) -> keras.Model:
        return segmenting(backbone, len(self.class_names))

    @classmethod
    def make(
        cls, examples: Any, options: SegmenterOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        changes = with_side(changes, fields)
        fields = with_classes(fields, examples)
        check_tells(head_class_of(options.model_class), fields["segments"])
        return cls(options.whole(changes, len(fields["class_names"])), **fields)

    @classmethod
    def reading(cls, options: Any, changes: Mapping[str, Any], start: Path | None = None) -> dict[str, Any]:
        fields = super().reading(options, changes, start)
        # Masks may be of other classes than those of the start, for which it gets a new head, and of a folder
        # of others' with another value for none.
        dropped = {"names"} if start is None or is_task_folder(start) else {"names", "ignored"}
        return {name: value for name, value in fields.items() if name not in dropped}

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        image_shape: tuple[int, int, int] = (512, 512, 3),
        names: Mapping[int, str] | None = None,
        ignored: int = 255,
        **fields: Any,
    ) -> Masks | Segments:
        """Images of that shape, or of the side `image_size`, and their masks, or the segments of COCO's
        files.
        """
        refuse_columns(columns, f"{cls.name!r} reads no tables: {cls.files}")
        shape, canvas = shape_and_preprocessing(image_shape, Canvas(), **fields)
        if any(map(is_coco, files_of(paths))):
            return read_segments(paths, shape, canvas)
        return read_masks(paths, shape, canvas, names, ignored)

    def settled(self, training: SegmentationTraining, examples: Any) -> SegmentationTraining:
        if training.learning_rate is None:
            rate = RATE_OF_PIXELS if isinstance(self.model, SemanticSegmenter) else RATE_OF_SETS
            training = dataclasses.replace(training, learning_rate=rate)
        return super().settled(training, examples)

    @property
    def file_fields(self) -> dict[str, Any]:
        return {**super().file_fields, "names": self.config.names, "ignored": self.config.ignored}

    @classmethod
    def describe(cls, examples: Any) -> str:
        if not isinstance(examples, Segments):
            return super().describe(examples)
        return f"{len(examples.images):,} images with {sum(examples.segments.counts):,} segments"

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """A task of this kind: the other's weights, its classes where it knows the examples' classes; from a
        classifier it takes the backbone's weights, with a fresh decoder.
        """
        task = check_reads_images(task)
        if isinstance(task, cls):
            kept = {**dataclasses.asdict(task.config), **fields}
            if are_known(examples, task.config):
                return cls(task.model, **{**kept, **kind_of(examples, task.config.stuff)})
            return cls.with_classes(task.model, examples, **kept)
        try:
            maps_of(task.encoder)
        except ValueError as error:
            raise ValueError(f"--from: {error}") from None
        return cls(task.encoder, **with_classes({**looks_of(task), **fields}, examples))

    @classmethod
    def with_classes(cls, model: SegmentingModel, examples: Any, **fields: Any) -> Self:
        """A task for the classes of `examples`, with the weights of a `model` but its classifier's."""
        fields = with_classes(fields, examples)
        return cls(for_classes(model, len(fields["class_names"])), **fields)

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, tuple(PARTS))

    @classmethod
    def from_huggingface(cls, name: Path, examples: Any = None, **fields: Any) -> Self:
        """The task in the folder `name`, or of this hub id; for `examples` of other classes with a new head.

        A folder of this package says which segments they are. Of others' a DETR is taken to predict panoptic
        segments, none of which are stuff, another model the class of every pixel. CheckpointError where
        something is not as it must be.
        """
        from keras_tfm.convert import CheckpointError, find_folder, from_huggingface
        from keras_tfm.convert.folder import read_config
        from keras_tfm.convert.preprocessing import canvas_fields_of, label_names, shifts_labels

        folder = find_folder(name)
        model = from_huggingface(folder)
        if not cls.takes(model):
            raise CheckpointError(name, "architectures", ARCHITECTURES, type(model).__name__)
        names = label_names(folder, model.num_classes)
        published = {"class_names": names, **canvas_fields_of(folder, model)}
        if not isinstance(model, SEMANTIC):
            published |= {"segments": "panoptic"}
        elif shifts_labels(folder):
            published |= {"class_values": tuple(range(1, len(names) + 1)), "ignored": 0}
        entries = read_config(folder)
        own = {field: entries.get(entry) for field, entry in ENTRIES.items()}
        is_own = own["class_names"] == names  # not after a training by transformers for other classes
        task = cls(model, **{**published, **(own if is_own else {}), **fields})
        if examples is None:
            if isinstance(model, MASK_SETS) and not is_own and "segments" not in fields:
                taken = "classes of pixels" if isinstance(model, SEMANTIC) else "panoptic ones without stuff"
                LOG.warning("%s does not say of which kind its segments are: taken as %s", name, taken)
            return task
        if are_known(examples, task.config):
            kept = {**dataclasses.asdict(task.config), **kind_of(examples, task.config.stuff)}
            return cls(task.model, **kept)
        kept = {**dataclasses.asdict(task.preprocessing), "threshold": task.config.threshold, **fields}
        return cls.with_classes(task.model, examples, **kept)

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: config.json, preprocessor_config.json, model.safetensors.

        ValueError where images keep their aspect, but on the square of a DETR; TypeError for a model that has
        no counterpart there.
        """
        from keras_tfm.convert import save_huggingface
        from keras_tfm.convert.preprocessing import canvas_writer

        kind = f"{PROCESSORS[type(self.model)]}ImageProcessor"
        writer = canvas_writer(
            self.preprocessing,
            self.image_shape,
            kind,
            do_reduce_labels=self.config.ignored == 0,
        )
        entries = {entry: getattr(self.config, field) for field, entry in ENTRIES.items()}
        entries |= label_entries(self.class_names)
        save_huggingface(self.model, folder, overwrite, entries, writers=[writer])

    def check_examples(self, examples: Any, /) -> Any:
        """Images with their sizes, and masks or segments of the task's classes."""
        examples = self.kind.check_examples(examples, self.check_images)
        refuse_empty(examples.images, "images")
        return examples

    def batches(self, examples: Any, training: SegmentationTraining, is_validation: bool = False) -> Batches:
        crowds = examples.segments.crowds if isinstance(examples, Segments) else []
        if not is_validation and (count := sum(map(len, crowds))):
            LOG.warning("%s crowds are skipped: a model learns single objects alone", f"{count:,}")
        return self.kind.batches(examples, training, is_validation)

    def learn(
        self, examples: Any, validation: Any, training: Any, callbacks: Iterable[Any], **keeping: Any
    ) -> dict[str, list[float]]:
        self.kind.before_training(self.kind.batches(examples, training, is_validation=False))
        return super().learn(examples, validation, training, callbacks, **keeping)

    def predict(
        self,
        images: Any,
        /,
        *,
        draw: Pictures | None = None,
        masks: Pictures | None = None,
        batch_size: int = BATCH,
        threshold: float | None = None,
    ) -> list[dict[str, Any]]:
        """What is seen in each image, at its own size; instances, and panoptic segments, of a score of
        `threshold`, by default the configuration's, and above.

        With `draw`, a folder or a file for each, pictures with the masks over them are written there, and
        with `masks` the masks: PNGs of the classes' values, or of the numbers of segments from 1, in the
        order of the answer, as R + 256 G + 256² B; the surest of instances that overlap is on top.
        """
        if threshold is None:
            threshold = self.config.threshold
        elif self.config.segments == "semantic":
            raise FieldError(
                "{threshold} is of instances and panoptic segments; classes of pixels have none."
            )
        images = listed(listed_images(images))
        found = self.ask(images, batch_size, self.kind.finish(threshold))
        if draw is not None:
            self.kind.draw(images, found, draw)
        if masks is not None:
            self.kind.write(images, found, masks)
        return found

    def as_line(self, answer: dict[str, Any]) -> str:
        return self.kind.as_line(answer)

    def measure(self, examples: Any) -> dict[str, Any]:
        """From 0 to 100, at the images' own sizes. "semantic": "miou", the mean intersection over union of
        classes, and "pixel_accuracy". "instances": COCO's average precision of masks, "ap", "ap50" and
        "ap75". "panoptic": "pq", "sq" and "rq", and of "things" and of "stuff" alone "pq_things" and so on.
        """
        answers = self.each(sized(examples), BATCH, self.kind.finish(self.kind.least_score))
        return self.kind.measure(examples, (answer for _, answer in answers))  # masks take much memory

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        path = os.fspath(path)
        if has_pairs(path) or is_coco(path):
            refuse_columns(columns, f"{self.name!r} reads no tables: {self.files}")
            found = [pair[1:] for pair in read_coco(path).paths()] if is_coco(path) else images_in(path)
            if not found:
                raise DataError(path, None, "expected images, there are none")
            return iter(found)
        return super().read_inputs(path, columns)

    @property
    def own_answer(self) -> Callable:
        return self.kind.finish(self.config.threshold)

    def signature(self) -> Signature:
        """For arrays of the model's size, and the bytes of files of any size. "semantic": `masks` of the
        model's size, with the probability of each pixel's class, the `labels` and their `label_values` in the
        masks, of files also `png`, masks of their own
        sizes. Otherwise `labels`, `scores`, `areas` and `boxes` of the segments, behind which scores are 0:
        all instances, down to a score of 0, or panoptic segments; of arrays `masks` of each instance, or the
        map `segments`, of files `png`, of each instance, 255 inside, or the map's numbers as colours.
        """
        return self.signature_of(self.kind, {"kind": self.kind.kind, **self.kind.answers()})
