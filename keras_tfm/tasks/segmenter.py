"""Segmenting images: the class of every pixel."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.masks import MaskBatches
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.inputs import Inputs
from keras_tfm.data.sources.masks import KINDS, Masks, has_pairs, images_in, read_masks
from keras_tfm.heads.map_decoders import maps_of
from keras_tfm.tasks.canvas_task import CanvasTask, sizes_of
from keras_tfm.tasks.image_task import check_reads_images, shape_and_preprocessing, with_image_size
from keras_tfm.tasks.mask_drawing import draw_masks, write_masks
from keras_tfm.tasks.segmentation import (
    SegmenterConfig,
    are_known,
    checked_masks,
    labels_on_canvas,
    names_in,
    overlap,
    summary,
    with_classes,
)
from keras_tfm.tasks.segmenting_models import (
    ARCHITECTURES,
    PARTS,
    PROCESSORS,
    SegmenterOptions,
    SegmentingModel,
    describe,
    distinct,
    made_of,
    segmenting,
    with_head_of,
)
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.task import refuse_columns
from keras_tfm.training.folder import Path
from keras_tfm.training.options import SegmentationTraining


class Segmenter(CanvasTask):
    """Images, as `ImageTask` has them, to the class of every pixel, by a `backbone` or one with a head.

    Examples are (images, masks), whole numbers (H, W) of each image's own size, by which the configuration
    tells classes. An answer is {"mask": (H, W), "shares": {name: part of the pixels}, "scores": {name: mean
    probability in its pixels}}. `options` are the fields of `SegmenterConfig`.

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
    help = "train a segmenter: the class of every pixel of an image"
    files = KINDS
    examples_class = Masks
    training = SegmentationTraining(
        epochs=50, patience=None, learning_rate=1e-3, schedule="cosine", weight_decay=0.01
    )
    rate_divisor = 10
    model_options = SegmenterOptions
    config_class = SegmenterConfig
    config: SegmenterConfig

    def __init__(self, backbone: keras.Model, class_names: Sequence[str], **options: Any):
        self.config = SegmenterConfig(class_names=tuple(class_names), **options)
        self.class_names = list(self.config.class_names)
        self.class_values = np.array(self.config.class_values, "uint8")
        count = len(self.class_names)
        head = backbone if self.takes(backbone) else None
        if head is not None and head.num_classes != count:
            raise ValueError(
                f"`class_names` must be {head.num_classes}, as the head has them; they are {count}."
            )
        old = backbone if head is None else head.backbone
        model = with_image_size(old, self.config.image_size)
        if head is None:
            self.model = segmenting(model, count)
        else:
            self.model = head if model is old else with_head_of(model, count, head)
        self.take_images(self.model.backbone)
        self._logits = tf.function(self.logits, autograph=False, reduce_retracing=True)
        self._at_size = tf.function(self.at_size, autograph=False, reduce_retracing=True)

    @classmethod
    def make(
        cls, examples: Masks, options: SegmenterOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        if fields.get("image_size") is not None:
            changes = {**changes, "image_size": fields["image_size"]}
        fields = with_classes(fields, examples)
        return cls(options.whole(changes, len(fields["class_names"])), **fields)

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        image_shape: tuple[int, int, int] = (512, 512, 3),
        names: Mapping[int, str] | None = None,
        ignored: int = 255,
        **fields: Any,
    ) -> Masks:
        """Images of that shape, or of the side `image_size`, and their masks."""
        refuse_columns(columns, f"{cls.name!r} reads no tables: {cls.files}")
        canvas = shape_and_preprocessing(image_shape, Canvas(), **fields)
        return read_masks(paths, *canvas, names, ignored)

    @property
    def file_fields(self) -> dict[str, Any]:
        return {**super().file_fields, "names": self.config.names, "ignored": self.config.ignored}

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """A task of this kind: the other's weights, its classes where it knows those of the examples; of a
        classifier its backbone's, with a fresh decoder.
        """
        task = check_reads_images(task)
        if isinstance(task, cls):
            kept = {**dataclasses.asdict(task.config), **fields}
            if are_known(names_in(examples[-1]), task.config):
                return cls(task.model, **kept)
            return cls.with_classes(task.model, examples, **kept)
        try:
            maps_of(task.encoder)
        except ValueError as error:
            raise ValueError(f"--from: {error}") from None
        kept = {name: getattr(task.config, name) for name in ("mean", "std", "interpolation")}
        return cls(task.encoder, **with_classes({**kept, **fields}, examples))

    @classmethod
    def with_classes(cls, model: SegmentingModel, examples: Any, **fields: Any) -> Self:
        """A task for the classes of `examples`: the weights of a `model` but for those that tell its own."""
        fields = with_classes(fields, examples)
        new = with_head_of(model.backbone, len(fields["class_names"]), model, has_classes=False)
        return cls(new, **fields)

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, tuple(PARTS))

    @classmethod
    def from_huggingface(cls, name: Path, examples: Any = None, **options: Any) -> Self:
        """The task in the folder `name`, or of this hub id; for `examples` of other classes with a new head.

        CheckpointError where something is not as it must be.
        """
        from keras_tfm.convert import CheckpointError, find_folder, from_huggingface
        from keras_tfm.convert.preprocessing import canvas_fields_of, label_names, shifts_labels

        folder = find_folder(name)
        model = from_huggingface(folder)
        if not cls.takes(model):
            raise CheckpointError(name, "architectures", ARCHITECTURES, type(model).__name__)
        names = distinct(label_names(folder, model.num_classes))
        published = {"class_names": names, **canvas_fields_of(folder)}
        if shifts_labels(folder):
            published |= {"class_values": tuple(range(1, len(names) + 1)), "ignored": 0}
        task = cls(model, **{**published, **options})
        if examples is None or are_known(names_in(examples[-1]), task.config):
            return task
        kept = {**dataclasses.asdict(task.preprocessing), **options}
        return cls.with_classes(task.model, examples, **kept)

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: config.json, preprocessor_config.json, model.safetensors.

        ValueError where images keep their aspect, TypeError for a model that has no counterpart there.
        """
        from keras_tfm.convert import save_huggingface
        from keras_tfm.convert.preprocessing import preprocessor_writer

        kind = f"{PROCESSORS[type(self.model)]}ImageProcessor"
        if self.config.keep_aspect:
            raise ValueError(f"{kind} stretches images; `keep_aspect` is True.")
        labels = {str(number): name for number, name in enumerate(self.class_names)}
        entries = {"id2label": labels, "label2id": {name: int(number) for number, name in labels.items()}}
        writer = preprocessor_writer(
            self.preprocessing,
            self.image_shape,
            kind,
            do_reduce_labels=self.config.ignored == 0,
        )
        save_huggingface(self.model, folder, overwrite, entries, writers=[writer])

    def __call__(self, batch: Any, training: bool = False) -> tf.Tensor:
        """What the model gives, by default logits (B, rows, columns, classes), for raw images, or {"images":
        them}.
        """
        images = batch["images"] if isinstance(batch, dict) else batch
        return self.model({"images": self.model_inputs(images)["images"]}, training=training)

    def check_examples(self, examples: Any, /) -> Masks:
        """Images with their sizes, and masks of the task's classes."""
        if not isinstance(examples, Masks):
            if not isinstance(examples, tuple | list) or len(examples) != 2:
                raise ValueError(f"examples: expected (images, masks), got a {type(examples).__name__}")
            images = self.check_images(examples[0])
            sizes = sizes_of(images)
            examples = Masks(images, sizes, checked_masks(examples[1], sizes, self.config))
        if not len(examples.images):
            raise ValueError("`images` must not be empty.")
        return examples

    def batches(
        self, examples: Masks, training: SegmentationTraining, is_validation: bool = False
    ) -> MaskBatches:
        canvas = self.preprocessing
        labels = labels_on_canvas(examples.masks, self.config, canvas, self.image_shape)
        areas = training.least_area, training.most_area
        learning: dict[str, Any] = {"seed": training.seed, "flips": training.flip, "areas": areas}
        return MaskBatches(
            examples.images,
            examples.sizes,
            labels,
            canvas,
            self.image_shape,
            training.batch_size,
            **({} if is_validation else learning),
        )

    def objective(self, training: SegmentationTraining) -> dict[str, Any]:
        return {"loss": self.model.loss_of_training()}

    def learner(self, training: SegmentationTraining) -> keras.Model:
        return self.model.learner()

    def logits(self, images: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
        """The scores of classes (B, rows, columns, classes), float32, in raw images of the model's size (B,
        H, W, C), whose own `sizes` are (B, 2).
        """
        inputs = self.preprocessing.inputs(images, sizes)
        return self.model.class_scores(self.model({"images": inputs["images"]}, training=False))

    def at_size(self, logits: tf.Tensor, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """(The values of the classes (H, W), uint8, their probabilities (H, W)) of an image of the `size`
        (2,), by its scores (rows, columns, classes), without what was padding.
        """
        height, width = self.image_shape[:2]
        if self.config.keep_aspect:
            rows, columns = tf.unstack(self.preprocessing.content(size, height, width))
            logits = tf.image.resize(logits, (height, width))[:rows, :columns]
        logits = tf.image.resize(logits, tf.cast(size, tf.int32))
        probabilities = self.model.probabilities(logits)
        values = tf.gather(tf.constant(self.class_values), tf.argmax(logits, axis=-1))
        return values, tf.reduce_max(probabilities, axis=-1)

    def predict(
        self,
        images: Any,
        draw: Path | None = None,
        masks: Path | None = None,
        batch_size: int = 16,
        sizes: np.ndarray | None = None,
    ) -> list[dict[str, Any]]:
        """The mask of each image, of its own size.

        With `draw`, a folder, pictures with the masks over them are written there, and with `masks` the
        masks, as PNGs of the classes' values. `sizes` (N, 2) are the own ones of images that stand on the
        model's canvas already.
        """
        images = self.check_images(images)
        found: list[dict[str, Any]] = []
        for canvas, own in self.canvases(images, sizes, batch_size):
            for logits, size in zip(self._logits(canvas, tf.constant(own)), tf.constant(own), strict=True):
                mask, scores = (x.numpy() for x in self._at_size(logits, size))
                found.append(summary(mask, scores, self.config.names))
        if draw is not None:
            draw_masks(images, found, self.config.names, draw)
        if masks is not None:
            write_masks(images, found, masks)
        return found

    def as_line(self, answer: dict[str, Any]) -> str:
        rounded = {"size": list(answer["mask"].shape)} | {
            part: {name: round(value, 4) for name, value in answer[part].items()}
            for part in ("shares", "scores")
        }
        return json.dumps(rounded, ensure_ascii=False)

    def measure(self, examples: Masks) -> dict[str, Any]:
        """ "miou", the mean intersection over union of classes, and "pixel_accuracy", from 0 to 100, at the
        images' own sizes.
        """
        answers = self.predict(examples.images, sizes=examples.sizes)
        return overlap(examples.masks, (answer["mask"] for answer in answers), self.config.class_values)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        if has_pairs(os.fspath(path)):
            refuse_columns(columns, f"{self.name!r} reads no tables: {self.files}")
            paths, places = zip(*images_in(os.fspath(path)), strict=True)
            return Inputs(list(paths), list(places))
        return super().read_inputs(path, columns)

    def export_endpoints(self) -> Endpoints:
        """Masks of the model's size, with the probability of each pixel's class; of the bytes of files
        `png` too, masks of the files' own sizes.
        """
        height, width = self.image_shape[:2]

        def answer(logits: tf.Tensor) -> dict[str, tf.Tensor]:
            resized = tf.image.resize(logits, (height, width))
            values = tf.gather(tf.constant(self.class_values), tf.argmax(resized, axis=-1))
            return {"masks": values, "scores": tf.reduce_max(self.model.probabilities(resized), axis=-1)}

        def of_files(images: tf.Tensor, sizes: tf.Tensor) -> dict[str, tf.Tensor]:
            logits = self.logits(images, sizes)
            encoded = tf.map_fn(
                lambda item: tf.io.encode_png(self.at_size(*item)[0][..., None]),
                (logits, sizes),
                fn_output_signature=tf.TensorSpec((), tf.string),
            )
            return answer(logits) | {"png": encoded}

        return self.canvas_endpoints(lambda images, sizes: answer(self.logits(images, sizes)), of_files)

    def describe_model(self) -> dict[str, Any]:
        return describe(self.model)

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: SegmenterConfig, model: dict[str, Any]) -> Self:
        return cls(made_of(model, len(config.class_names)), **dataclasses.asdict(config))
