"""Classifying images: a vision backbone, a head, and what turns raw images into its input."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import keras
import numpy as np
import tensorflow as tf
import tqdm

import keras_tfm.models
from keras_tfm.configs import Config, Option, Rate, Size
from keras_tfm.data.batches.images import ImageBatches, check_images, scale_images
from keras_tfm.data.sources.images import decode_images, read_images, read_labelled_images
from keras_tfm.data.sources.inputs import Inputs
from keras_tfm.heads.classification import Classifier, classification_loss
from keras_tfm.tasks.learning import ModelOptions
from keras_tfm.tasks.measures import cross_entropy
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.task import load_any, make_backbone
from keras_tfm.tasks.trainable import TrainableTask
from keras_tfm.training.folder import Path
from keras_tfm.training.options import ImageTraining


@dataclasses.dataclass(frozen=True)
class ImageClassifierConfig(Config):
    """`class_names` are strings, or integers, in the order of the logits. Pixels from 0 to 1 become
    (x - `mean`) / `std`, each one number for all channels or one for each. `hidden_dim` and `dropout` are
    those of `ClassificationHead`.
    """

    class_names: tuple[str, ...] | tuple[int, ...]
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    hidden_dim: Size | None = None
    dropout: Rate = 0.0

    def __post_init__(self) -> None:
        for field in ("class_names", "mean", "std"):  # JSON keeps lists, callers bring arrays
            object.__setattr__(self, field, tuple(np.atleast_1d(getattr(self, field)).tolist()))
        names = self.class_names
        if len(set(names)) < max(2, len(names)) or {type(name) for name in names} not in ({str}, {int}):
            raise ValueError(
                f"`class_names` must be different strings, or integers, two at least; they are {names}."
            )
        super().__post_init__()
        if not all(value > 0 for value in self.std):
            raise ValueError(f"`std` must be positive; it is {self.std}.")


@dataclasses.dataclass(frozen=True)
class ImageOptions(ModelOptions):
    """A ViT with fresh weights."""

    size: Annotated[str, Option("a size of ViT")] = "tiny"

    def base(self) -> keras_tfm.models.ViTConfig:
        return keras_tfm.models.ViT.config_of_size(self.size)


class ImageClassifier(TrainableTask):
    """Images to class names by a `backbone` with a `pooled_output`, a `ViT` for example.

    Images are arrays (B, H, W, C), or (B, H, W) where the backbone takes one channel: 8-bit, or
    floating-point from 0 to 1; another size than the backbone's is resized. Labels are class names, or
    integers that count into names that are strings. `options` are the fields of `ImageClassifierConfig`.
    """

    name = "classify-images"
    help = "train a vision Transformer to tell what an image shows"
    files = (
        "folders of .png and .jpg images, a folder inside for each class; or an image and a label in "
        ".parquet files or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
    )
    columns = (2,)
    unit = "images"
    reads_lines = False
    held_out = (0.1, None)
    training = ImageTraining(epochs=30, patience=None, schedule="cosine", weight_decay=0.05)
    model_options = ImageOptions
    config_class = ImageClassifierConfig

    def __init__(self, backbone: keras.Model, class_names: Any, **options: Any):
        self.config = ImageClassifierConfig(class_names, **options)
        self.answer_names = self.config.class_names
        self.class_names = np.array(self.config.class_names)
        self.image_shape = tuple(backbone.input["images"].shape[1:])
        for field in ("mean", "std"):
            values = getattr(self.config, field)
            if len(values) not in (1, self.image_shape[-1]):
                raise ValueError(f"`{field}` must have 1 or {self.image_shape[-1]} values; it is {values}.")
        self.model = Classifier(backbone, len(self.class_names), self.config.hidden_dim, self.config.dropout)
        self._classify = tf.function(self.classify, autograph=False, reduce_retracing=True)

    @classmethod
    def from_size(cls, size: str, class_names: Any, **changes: Any) -> Self:
        """A classifier by a `ViT` of that size with fresh weights.

        `changes` replace fields of the size's configuration, for example `image_size=28`. Raises ValueError
        for an unknown size.
        """
        return cls(keras_tfm.models.ViT.from_size(size, **changes), class_names)

    @classmethod
    def make(
        cls,
        examples: tuple[np.ndarray, np.ndarray],
        options: ImageOptions,
        changes: Mapping[str, Any],
        **fields: Any,
    ) -> Self:
        backbone = keras_tfm.models.ViT.from_size(options.size, **changes)
        return cls(backbone, np.unique(examples[1]), **fields)

    @classmethod
    def reading(
        cls, options: ImageOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if start is not None:
            return {"image_shape": load_any(start).image_shape}
        config = dataclasses.replace(options.base(), **changes)
        height, width = np.broadcast_to(config.image_size, 2).tolist()
        return {"image_shape": (height, width, config.num_channels)}

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        image_shape: tuple[int, int, int] = (224, 224, 3),
        **fields: Any,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Images of that shape, and their classes' names."""
        height, width, channels = image_shape
        found = [read_labelled_images(path, height, width, channels, columns) for path in paths]
        names = [np.array(part.class_names)[part.labels] for part in found]
        return np.concatenate([part.images for part in found]), np.concatenate(names)

    @property
    def file_fields(self) -> dict[str, Any]:
        return {"image_shape": self.image_shape}

    def __call__(self, batch: Any, training: bool = False) -> tf.Tensor:
        """Logits (B, classes) of raw images, or of {"images": them}."""
        images = batch["images"] if isinstance(batch, dict) else batch
        return self.model({"images": self.prepare(self._check(images))}, training=training)

    def prepare(self, images: np.ndarray | tf.Tensor) -> tf.Tensor:
        """Raw images (B, H, W, C) as the model takes them, in a graph or out of one."""
        height, width, _ = self.image_shape
        return scale_images(images, height, width, self.config.mean, self.config.std)

    def batches(
        self, examples: tuple[np.ndarray, np.ndarray], training: ImageTraining, is_validation: bool = False
    ) -> ImageBatches:
        seed, max_shift = (None, 0) if is_validation else (training.seed, training.max_shift)
        images, labels = examples
        return ImageBatches(images, labels, self.prepare, training.batch_size, seed, max_shift)

    def objective(self, training: ImageTraining) -> dict[str, Any]:
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        return {"loss": classification_loss(), "weighted_metrics": [accuracy]}

    def predict(self, images: np.ndarray, probabilities: bool = False, batch_size: int = 64) -> np.ndarray:
        """The likeliest class name of each image: an array (B,); or, with `probabilities`, those of all."""
        values = self.probabilities(images, batch_size)
        return values if probabilities else self.class_names[values.argmax(-1)]

    def probabilities(self, images: np.ndarray, batch_size: int = 64) -> np.ndarray:
        """The probability of each class for each image: an array (B, classes)."""
        images = self._check(images)
        answers = [np.zeros((0, len(self.class_names)), "float32")]
        with tqdm.tqdm(total=len(images), unit="image", disable=len(images) <= batch_size) as bar:
            for first in range(0, len(images), batch_size):
                answers.append(self._classify(images[first : first + batch_size]).numpy())
                bar.update(len(answers[-1]))
        return np.concatenate(answers)

    def measure(self, examples: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
        """ "accuracy", from 0 to 1, and the mean cross-entropy, "loss", in nats."""
        images, labels = examples
        values = self.probabilities(images)
        return {"accuracy": np.mean(values.argmax(-1) == labels), "loss": cross_entropy(values, labels)}

    def classify(self, images: tf.Tensor) -> tf.Tensor:
        """Raw images (B, H, W, C) to probabilities (B, classes), wholly in the graph."""
        logits = self.model({"images": self.prepare(images)}, training=False)
        return tf.nn.softmax(tf.cast(logits, tf.float32))

    def _check(self, images: np.ndarray) -> np.ndarray:
        return check_images(images, self.image_shape[-1])

    def check_examples(self, examples: Any) -> tuple[np.ndarray, np.ndarray]:
        """(images, labels): images checked, labels (B,) that count into the class names."""
        if not isinstance(examples, tuple | list) or len(examples) != 2:
            raise ValueError(f"examples: expected (images, labels), got a {type(examples).__name__}")
        images, labels = self._check(examples[0]), np.asarray(examples[1])
        if not len(images):
            raise ValueError("`images` must not be empty.")
        if labels.shape != (len(images),):
            raise ValueError(
                f"`labels` must be one for each of {len(images)} images; the shape is {labels.shape}."
            )
        names = self.config.class_names
        if labels.dtype.kind in "iu" and isinstance(names[0], str):
            names = range(len(names))
        places = {name: place for place, name in enumerate(names)}
        unknown = sorted(set(labels.tolist()) - places.keys())
        if unknown:
            raise ValueError(f"`labels` must be among {list(names)}; {unknown[0]!r} is not.")
        return images, np.array([places[label] for label in labels.tolist()], "int32")

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        height, width, channels = self.image_shape
        return Inputs(*read_images(path, height, width, channels, columns))

    def export_endpoints(self) -> Endpoints:
        names = tf.constant([str(name) for name in self.class_names])

        def answer(images: tf.Tensor) -> dict[str, tf.Tensor]:
            probabilities = self.classify(images)
            labels = tf.gather(names, tf.argmax(probabilities, axis=-1))
            return {"label": labels, "probabilities": probabilities}

        return {
            "serving_default": (lambda image_bytes: answer(decode_images(image_bytes, *self.image_shape)),
                                [tf.TensorSpec([None], tf.string, "image_bytes")]),
            "images": (answer, [tf.TensorSpec([None, *self.image_shape], tf.float32, "images")]),
        }  # fmt: skip

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: ImageClassifierConfig, model: dict[str, Any]) -> Self:
        return cls(make_backbone(model), **dataclasses.asdict(config))
