"""Classification of clouds of points: a model of points, a head, and how clouds are normalised."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Count, Option
from keras_tfm.data.batches.points import Axis, PointAugmentation, PointBatches, PointChanges
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.points import PointClouds, read_labelled_points, read_points
from keras_tfm.heads.classification import Classifier
from keras_tfm.serving.examples import Refused, listed
from keras_tfm.serving.point_files import cloud_of, moved, refuse_few
from keras_tfm.serving.point_readers import Clouds
from keras_tfm.tasks.classes import ClassifyingTask, ClassNames
from keras_tfm.tasks.images.decoded import is_file
from keras_tfm.tasks.images.drawing import Pictures
from keras_tfm.tasks.points.drawing import draw_clouds
from keras_tfm.tasks.points.point_families import PointOptions, least_points
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import load_any
from keras_tfm.training.folder import Path
from keras_tfm.training.options import PartlyTrained, WeightedClasses

LEAST_RADIUS = 1e-6  # of the largest coordinate: less is its rounding
NUM_EXAMPLES = 4  # on which an export is compared with its task


@dataclasses.dataclass(frozen=True)
class PointClassifierConfig(ClassNames):
    """The classes and the head of a `PointClassifier`, and what it does to clouds.

    Args:
        class_names: strings, or integers, in the order of the logits.
        hidden_dim: width of a hidden layer of the head, or None.
        dropout: dropout rate before the head's last layer.
        normalize: whether clouds are moved to the origin and become of radius 1.
        vertical: the axis that points upwards.
    """

    normalize: Annotated[
        bool,
        Option("move clouds to the origin and scale them to the radius 1; off where size matters"),
    ] = True
    vertical: Annotated[Axis, Option("the axis that points upwards, in drawings too")] = "z"


@dataclasses.dataclass(frozen=True)
class PointTraining(PointChanges, WeightedClasses, PartlyTrained):
    """Each epoch shows other points of larger clouds. By default the warm-up takes a tenth of the steps."""

    batch_size: Annotated[Count, Option("clouds in a batch")] = 32


class PointClassifier(ClassifyingTask):
    """Names what each cloud of points is, by a `backbone` that reads `points`, such as `PCT`.

    Args:
        backbone: a model without a head, which gets a new one, or a model with its head.
        class_names: strings, or integers, in the order of the logits.
        options: further fields of `PointClassifierConfig`.

    Clouds are arrays (n, 3), or files of points or meshes by paths or bytes, one alone or a list; an array
    (B, n, 3) is B clouds. From a cloud with more points than the model reads some are chosen, others repeat
    theirs. A label is a class name; if names are strings, it may also be their index.

    >>> task = keras_tfm.tasks.PointClassifier.from_size("tiny", ["flat", "round"], num_points=64)
    >>> clouds = np.random.default_rng(0).normal(size=(16, 80, 3))
    >>> clouds[::2, :, 2] = 0
    >>> history = task.fit((clouds, ["flat", "round"] * 8), epochs=1)
    >>> task.predict(clouds).shape
    (16,)
    """

    name = "classify-points"
    start = "a RUN of this task"
    files = (
        "a folder with a folder per class of clouds of points or meshes (.ply, .off, .npz, or text with "
        "three numbers or more in a line); or a .csv, .tsv or .jsonl table of paths and labels"
    )
    unit = "clouds"
    training = PointTraining(epochs=30, patience=None, schedule="cosine", weight_decay=0.05)
    model_options = PointOptions
    config_class = PointClassifierConfig
    point_shape: tuple[int, int]  # how many points the model reads, and 3

    def take(self, backbone: keras.Model) -> None:
        shape = {name: tuple(x.shape) for name, x in backbone.input.items()}
        if set(shape) != {"points"} or shape["points"][2] != 3:
            raise ValueError(f"expected a model of `points` (B, N, 3) alone, got one of {shape}")
        self.point_shape = shape["points"][1:]

    @classmethod
    def from_size(cls, size: str, class_names: Any, **changes: Any) -> Self:
        """A classifier with a `PCT` of this size and fresh weights.

        `changes` replace fields of the size's configuration, for example `num_points=512`; ValueError for an
        unknown size or field.
        """
        return cls(PointOptions(size=size).model(changes), class_names)

    @property
    def num_points(self) -> int:
        """How many points the model reads."""
        return self.point_shape[0]

    @property
    def least_points(self) -> int:
        """How many points a cloud has at least: as many as neighbours that the model looks at."""
        return least_points(self.encoder.config)

    @property
    def input_size(self) -> str:
        return f"{self.num_points} points"

    @property
    def file_fields(self) -> dict[str, Any]:
        return {
            "num_points": self.num_points,
            "least": self.least_points,
            "normalize": self.config.normalize,
        }

    @classmethod
    def reading(
        cls, options: PointOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if start is not None:
            return cls.checked(load_any(start)).file_fields
        config = dataclasses.replace(options.base(), **options.sized(changes))
        return {"num_points": config.num_points, "least": least_points(config)}

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        num_points: int = 1024,
        least: int = 1,
        normalize: bool = True,
        **fields: Any,
    ) -> tuple[PointClouds, np.ndarray]:
        """Clouds of at least so many points, and the names of their classes."""
        found = read_labelled_points(paths, num_points, least, columns, normalize)
        return found.clouds, np.array(found.class_names)[found.labels]

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """A classifier with the other's configuration, and its head if that knows the examples' classes."""
        kept = dataclasses.asdict(cls.checked(task).config) | fields
        names = kept.pop("class_names")
        if set(np.unique(examples[1]).tolist()) <= set(map(str, names)):
            return cls(task.model, names, **kept)
        return cls(task.encoder, np.unique(examples[1]), **kept)

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, Classifier) and "points" in model.input

    def prepare(self, points: Any) -> tf.Tensor:
        """Sampled clouds (B, N, 3) as the model's input. Works in a graph and eagerly."""
        points = tf.cast(points, tf.float32)
        return normalized(points) if self.config.normalize else points

    def __call__(self, batch: Any, training: bool = False) -> tf.Tensor:
        """Logits (B, classes) for clouds, or for {"points": clouds}."""
        clouds = batch["points"] if isinstance(batch, dict) else batch
        rows = [self.own_reader.row(cloud) for cloud in clouds]
        return self.model({"points": self.prepare(np.stack(rows))}, training=training)

    def check_inputs(self, clouds: Any) -> PointClouds:
        found, sources = [], listed(self.as_list(clouds), "`clouds`")
        for row, source in enumerate(sources):
            try:
                points = cloud_of(source, self.num_points)
                refuse_few(points, self.least_points)
            except Refused as refused:
                raise ValueError(f"`clouds`, row {row}: {refused}") from None
            found.append(moved(points) if self.config.normalize else points)
        return PointClouds(found)

    def batches(
        self, examples: tuple[PointClouds, np.ndarray], training: PointTraining, is_validation: bool = False
    ) -> PointBatches:
        changes = training.turns, training.jitter, training.scaling, self.config.vertical
        learning: dict[str, Any] = {"seed": training.seed, "augmentation": PointAugmentation(*changes)}
        learning = {} if is_validation else learning
        batches = PointBatches(*examples, self.prepare, training.batch_size, self.num_points, **learning)
        if not is_validation:
            self.weigh_classes(batches, examples, training)
        return batches

    def predict(
        self,
        clouds: Any,
        /,
        *,
        probabilities: bool = False,
        batch_size: int = 64,
        draw: Pictures | None = None,
    ) -> np.ndarray:
        """As `ClassifyingTask.predict`. With `draw`, a folder, a picture of each cloud from three sides, with
        its name, is written there, or to a file for each.
        """
        values = self._seen(clouds, draw, batch_size)
        return values if probabilities else self.class_names[values.argmax(-1)]

    def records(
        self,
        clouds: Any,
        /,
        *,
        probabilities: bool = False,
        batch_size: int = 64,
        draw: Pictures | None = None,
    ) -> list[dict[str, Any]]:
        return self.records_in(self._seen(clouds, draw, batch_size), probabilities)

    def _seen(self, clouds: Any, draw: Pictures | None, batch_size: int) -> np.ndarray:
        """The `probabilities` of clouds, which are drawn."""
        clouds = listed(self.as_list(clouds))
        values = self.probabilities(clouds, batch_size)
        if draw is not None:
            best = zip(self.class_names[values.argmax(-1)], values.max(-1), strict=True)
            texts = [f"{name} {value:.2f}" for name, value in best]
            draw_clouds(clouds, texts, self.num_points, self.config.vertical, draw)
        return values

    @property
    def own_reader(self) -> Clouds:
        """Reads clouds as exports do, without the files of one."""
        return Clouds(None, self.num_points, self.least_points, self.config.normalize)

    @property
    def portion(self) -> Any:
        return self.own_reader.portion

    def as_list(self, clouds: Any) -> Any:
        if is_file(clouds):
            return [clouds]
        return list(clouds) if isinstance(clouds, PointClouds) else clouds

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_points(path, columns)

    def classify(self, points: tf.Tensor) -> tf.Tensor:
        """Sampled clouds (B, N, 3) to probabilities (B, classes). Runs in a graph."""
        logits = self.model({"points": self.prepare(points)}, training=False)
        return tf.nn.softmax(tf.cast(logits, tf.float32))

    def signature(self) -> Signature:
        return Signature(
            reads={
                "kind": "clouds",
                "num_points": self.num_points,
                "least_points": self.least_points,
                "normalize": self.config.normalize,
            },
            function=lambda inputs: {"probabilities": self.classify(inputs["points"])},
            inputs={"points": tf.TensorSpec([None, *self.point_shape], tf.float32)},
            answers={"kind": "classes", "labels": [str(name) for name in self.class_names]},
            examples=list(np.random.default_rng(0).normal(size=(NUM_EXAMPLES, *self.point_shape))),
        )


def normalized(points: tf.Tensor) -> tf.Tensor:
    """Clouds (B, N, 3) around their means, of radius 1; equal points become zeros."""
    largest = tf.reduce_max(tf.abs(points), axis=(1, 2), keepdims=True)  # whose square may be infinite
    points = tf.math.divide_no_nan(points, largest)
    points -= tf.reduce_mean(points, axis=1, keepdims=True)
    radius = tf.sqrt(tf.reduce_max(tf.reduce_sum(points**2, axis=2, keepdims=True), axis=1, keepdims=True))
    return tf.where(radius > LEAST_RADIUS, points / radius, 0.0)
