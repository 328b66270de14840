"""Image classification: a vision backbone, a head, and the preprocessing of raw images."""

import dataclasses
import pathlib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self

import keras
import numpy as np
import tensorflow as tf

import keras_tfm.models
from keras_tfm.configs import Count, Option
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.images import read_labelled_images
from keras_tfm.heads.classification import Classifier
from keras_tfm.heads.distilled import DistilledClassifier
from keras_tfm.tasks.classes import Augmented, ClassesConfig, VisualClassifyingTask
from keras_tfm.tasks.images.distillation import (
    Distilled,
    Taught,
    distillation_objective,
    distilled_model,
    teacher_of,
)
from keras_tfm.tasks.images.image_encoder import ImageEncoder
from keras_tfm.tasks.images.image_families import ClassifierOptions, ImageOptions
from keras_tfm.tasks.images.image_task import (
    ImageTask,
    check_reads_images,
    image_shape_of,
    preprocessing_in,
    shape_and_preprocessing,
    with_image_size,
)
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import load_any
from keras_tfm.tasks.task_folder import is_task_folder
from keras_tfm.training.folder import Path
from keras_tfm.training.options import PartlyTrained


@dataclasses.dataclass(frozen=True)
class ImageClassifierConfig(ClassesConfig):
    """The classes, the head, and the preprocessing of an `ImageClassifier`.

    Args:
        class_names: strings, or integers, in the order of the logits.
        hidden_dim: width of a hidden layer of the head, or None.
        dropout: dropout rate before the head's last layer.
    """


# The default batch: few images in large batches are too few steps for the averages of batch normalisation.
MOST_IMAGES, MIN_BATCHES = 64, 16


@dataclasses.dataclass(frozen=True)
class ImageTraining(Augmented, Distilled, PartlyTrained):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: Annotated[
        Count | None,
        Option("images in a batch", default="64, or fewer so that an epoch has 16 batches"),
    ] = None

    def settled(self, num_examples: int) -> Self:
        usual = min(MOST_IMAGES, max(1, num_examples // MIN_BATCHES))
        return dataclasses.replace(self, batch_size=self.batch_size or usual)


class ImageClassifier(ImageTask, VisualClassifyingTask):
    """Names the class of each image, by a vision `backbone` with a `pooled_output`, such as `ViT`.

    Args:
        backbone: a model without a head, which gets a new one, or a model with its head.
        class_names: strings, or integers, in the order of the logits.
        options: further fields of `ImageClassifierConfig`. An `image_size` other than the backbone's makes a
            copy of the backbone for that size.

    Images are what `ImageTask` describes. A label is a class name; if names are strings, it may also be their
    index. A backbone with a `distilled_output` (DeiT) gets a `DistilledClassifier` as its head.

    >>> names, sizes = ["dark", "light"], {"image_size": 8, "patch_size": 4}
    >>> task = keras_tfm.tasks.ImageClassifier.from_size("tiny", names, **sizes)
    >>> images = np.repeat(np.array([0, 255] * 8, "uint8"), 8 * 8 * 3).reshape(16, 8, 8, 3)
    >>> history = task.fit((images, names * 8), epochs=1)
    >>> task.predict(images).shape
    (16,)
    """

    name = "classify-images"
    start = "a RUN of this task or a related one, or a folder or hub id of transformers or timm"
    files = (
        "a folder with a folder of images per class; .npz or idx files (train-images-idx3-ubyte.gz, its "
        "labels beside it); images and labels in .parquet files or tfds:NAME[/CONFIG][:VERSION]#SPLIT; or a "
        ".csv, .tsv or .jsonl table of paths, relative to it, and labels"
    )
    unit = "images"
    training = ImageTraining(
        epochs=30, patience=None, schedule="cosine", weight_decay=0.05, label_smoothing=0.1
    )
    given_weights = types.MappingProxyType({"learning_rate": 1e-4, "label_smoothing": 0.0})
    judged_by = ("val_accuracy", "max")  # the loss rises again while answers still improve
    model_options = ClassifierOptions
    config_class = ImageClassifierConfig

    def take(self, backbone: keras.Model) -> None:
        self.take_images(backbone)

    def with_head(self, model: keras.Model) -> keras.Model:
        """A classifier with the configured classes and image size, and the weights of `model`."""
        side, count = self.config.image_size, len(self.class_names)
        if hasattr(model, "backbone"):
            return model.on(with_image_size(model.backbone, side))
        backbone = with_image_size(model, side)
        if "distilled_output" in backbone.output:
            return DistilledClassifier(backbone, count, self.config.dropout)
        return Classifier(backbone, count, self.config.hidden_dim, self.config.dropout)

    @classmethod
    def from_size(cls, size: str, class_names: Any, **changes: Any) -> Self:
        """A classifier with a `ViT` of this size and fresh weights.

        `changes` replace fields of the size's configuration, for example `image_size=28`; ValueError for an
        unknown size or field.
        """
        return cls(keras_tfm.models.ViT.from_size(size, **changes), class_names)

    @property
    def input_size(self) -> str:
        return "{} x {} pixels".format(*self.image_shape)

    @classmethod
    def reading(
        cls, options: ImageOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if start is not None:
            task = load_any(start) if is_task_folder(start) else ImageEncoder.from_huggingface(start)
            return check_reads_images(task).file_fields
        return {"image_shape": image_shape_of(dataclasses.replace(options.base(), **changes))}

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        in_memory: bool = True,
        **fields: Any,
    ) -> tuple[np.ndarray | ImageFiles, np.ndarray]:
        """Images, of the shape and preprocessing that the fields describe, and the names of their classes.

        With `in_memory=False` files are decoded when they are needed, and keep their names.
        """
        shape, preprocessing = shape_and_preprocessing(**fields)
        found = read_labelled_images(paths, *shape, columns, preprocessing, in_memory)
        return found.images, np.array(found.class_names)[found.labels]

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """A classifier with the other task's preprocessing, and its head if that knows the examples'
        classes.
        """
        task = check_reads_images(task)
        kept = dataclasses.asdict(preprocessing_in(task.config)) | fields
        if isinstance(task, cls) and set(np.unique(examples[1]).tolist()) <= set(map(str, task.class_names)):
            return cls(task.model, **dataclasses.asdict(task.config) | kept)
        return cls(task.encoder, np.unique(examples[1]), **kept)

    def __call__(self, batch: Any, training: bool = False) -> tf.Tensor:
        """Logits (B, classes) for raw images, or for {"images": raw images}."""
        images = batch["images"] if isinstance(batch, dict) else batch
        return self.model({"images": self.prepare(self._as_array(images))}, training=training)

    def _as_array(self, images: Any) -> np.ndarray:
        return np.asarray(self.check_images(images))

    def check_inputs(self, images: Any) -> Any:
        return self.check_images(images)

    def objective(self, training: ImageTraining) -> dict[str, Any]:
        return super().objective(training) if training.teacher is None else distillation_objective(training)

    def learner(self, training: ImageTraining) -> keras.Model:
        return self.model if training.teacher is None else distilled_model(self.model)

    def learn(
        self, examples: Any, validation: Any, training: Any, callbacks: Iterable[Any], **keeping: Any
    ) -> dict[str, list[float]]:
        if training.teacher is not None:
            with self.model.distribute_strategy.scope():
                teacher = load_any(training.teacher)
            callbacks = [*callbacks, Taught(teacher_of(teacher, self))]
        return super().learn(examples, validation, training, callbacks, **keeping)

    def classify(self, images: tf.Tensor) -> tf.Tensor:
        """Raw images (B, H, W, C) to probabilities (B, classes). Runs in a graph."""
        logits = self.model({"images": self.prepare(images)}, training=False)
        return tf.nn.softmax(tf.cast(logits, tf.float32))

    def signature(self) -> Signature:
        answers = {"kind": "classes", "labels": [str(name) for name in self.class_names]}
        return self.signature_of(lambda images: {"probabilities": self.classify(images)}, answers)

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: ImageClassifierConfig, model: dict[str, Any]) -> Self:
        head: Any = {"num_classes": len(config.class_names), "dropout": config.dropout}
        if "head" not in model:  # an earlier RUN
            head |= {"class": "Classifier", "hidden_dim": config.hidden_dim}
        elif model["head"] == "distilled":
            head |= {"class": "DistilledClassifier"}
        else:
            head = model["head"]
        return super().load_parts(folder, config, {**model, "head": head})
