"""Poses: the joints of a body or a hand in space, from their places in an image or from a cloud of points."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Count, FieldError, Option, Refusal
from keras_tfm.data.batches.arrays import ArrayBatches
from keras_tfm.data.batches.epochs import Batches, HeldOut
from keras_tfm.data.batches.points import PointBatches
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.points import PointClouds, read_points
from keras_tfm.data.sources.poses import (
    INPUTS,
    Joints,
    Poses,
    checked_array,
    read_pose_points,
    read_poses,
    refuse_mismatch,
)
from keras_tfm.models.families import OnDemand
from keras_tfm.serving.examples import as_columns, listed
from keras_tfm.serving.point_readers import PosePoints
from keras_tfm.tasks.asking import AskedTask
from keras_tfm.tasks.baselines import Baselines
from keras_tfm.tasks.images.decoded import is_file
from keras_tfm.tasks.images.drawing import Pictures
from keras_tfm.tasks.points.drawing import draw_poses
from keras_tfm.tasks.points.point_families import PointOptions
from keras_tfm.tasks.points.pose_config import PoseEstimatorConfig, from_root, normalisation
from keras_tfm.tasks.points.pose_measures import correct_joints
from keras_tfm.tasks.records import rounded
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import load_any, refuse_columns
from keras_tfm.tasks.trainable import TrainableTask
from keras_tfm.training.folder import Path
from keras_tfm.training.model import FunctionalModel
from keras_tfm.training.options import Training

MEAN_POSE = "the mean pose"
FAMILIES = OnDemand({"hot-net": "HOTNet", "hand-transformer": "HandTransformer"})
COORDINATES = {"hot-net": 2, "hand-transformer": 3}  # of the points that a family reads
NUM_EXAMPLES = 4  # on which an export is compared with its task


@dataclasses.dataclass(frozen=True)
class PoseOptions(PointOptions):
    """A model of poses with fresh weights, which has as many joints as the data."""

    families: ClassVar[Any] = FAMILIES
    needed_fields: ClassVar[tuple[str, ...]] = ("num_joints",)
    family: Annotated[
        str, Option("hot-net reads the joints in an image, hand-transformer a cloud of points")
    ] = "hot-net"
    size: Annotated[str, Option("base, or tiny, for some thousands of poses")] = "tiny"
    num_points: Annotated[
        Count | None,
        Option(
            "points that hand-transformer reads of a cloud; larger clouds are sampled",
            default="set by --size",
        ),
    ] = None


@dataclasses.dataclass(frozen=True)
class PoseTraining(Training):
    """By default the warm-up takes a tenth of the steps. Each epoch shows other points of larger clouds."""

    batch_size: Annotated[Count, Option("poses in a batch")] = 64


class PoseEstimator(AskedTask, TrainableTask):
    """Finds the joints of a pose in space by a `model`, a `HOTNet`, from their places in an image, or a
    `HandTransformer`, from a cloud of points.

    Examples are (points, joints): joints in images (N, J, 2), or clouds (N, P, 3), and `data.Joints` or an
    array (N, J, 3). Clouds and joints share their space and unit. An answer is an array (J, 3) in the unit
    of the joints. `fields` are fields of `PoseEstimatorConfig`.

    >>> joints = np.random.default_rng(0).normal(size=(16, 5, 3))
    >>> task = keras_tfm.tasks.PoseEstimator.from_poses((joints[..., :2], joints), edges=[(0, 1)])
    >>> history = task.fit((joints[..., :2], joints), epochs=1)
    >>> task.predict(joints[:2, :, :2]).shape
    (2, 5, 3)
    """

    name = "keypoints"
    start = "a RUN of this task"
    files = ".npz with joints (N, J, 3) and joints_2d (N, J, 2), or points (N, P, 3)"
    examples_class = Poses
    unit = "poses"
    held_out = HeldOut(0.1, 1_000)
    training = PoseTraining(
        epochs=30, patience=None, learning_rate=2e-3, schedule="cosine", weight_decay=1e-4
    )
    judged_by = ("val_error", "min")
    model_options = PoseOptions
    config_class = PoseEstimatorConfig
    config: PoseEstimatorConfig
    reads_lines = False

    def __init__(self, model: keras.Model, config: PoseEstimatorConfig | None = None, **fields: Any):
        config = PoseEstimatorConfig(**fields) if config is None else dataclasses.replace(config, **fields)
        shapes = {name: tuple(x.shape[1:]) for name, x in model.input.items()}
        count = len(config.reference)
        if set(shapes) != {"points", "reference"} or shapes["reference"] != (count, 3):
            expected = f"a model of `points` and a `reference` ({count}, 3)"
            raise ValueError(f"expected {expected}, got one of {shapes}")
        self.model, self.config, self.point_shape = model, config, shapes["points"]

    @classmethod
    def from_poses(
        cls,
        examples: Any,
        family: Literal["hot-net", "hand-transformer"] = "hot-net",
        size: str = "tiny",
        changes: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Self:
        """An estimator with fresh weights for the joints of these `examples`, whose mean pose is its
        reference; `changes` replace fields of the size's configuration.
        """
        return cls.make(_as_poses(examples), PoseOptions(family=family, size=size), changes or {}, **fields)

    @classmethod
    def make(cls, examples: Poses, options: PoseOptions, changes: Mapping[str, Any], **fields: Any) -> Self:
        points, joints, coordinates = examples.points, examples.joints, COORDINATES[options.family]
        if points.shape[2] != coordinates:
            expected = f"{options.family} reads {INPUTS[coordinates]}, (N, count, {coordinates})"
            raise FieldError(f"{{family}}: {expected}; got {points.shape}")
        count = joints.places.shape[1]
        if changes.get("num_joints", count) != count:
            raise Refusal("num_joints", f"{count}, the joints of the data", changes["num_joints"])
        model = options.model({**changes, "num_joints": count})
        skeleton = {"joint_names": tuple(joints.names), "edges": tuple(joints.edges)} | fields
        return cls(model, **normalisation(points, joints, fields.get("root")), **skeleton)

    @classmethod
    def reading(
        cls, options: PoseOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if start is not None:
            return cls.adopt(load_any(start), None).file_fields
        options.base()  # refuses an unknown family
        return {"coordinates": COORDINATES[options.family]}

    @property
    def file_fields(self) -> dict[str, Any]:
        return {"coordinates": self.point_shape[1]}

    @classmethod
    def read_files(
        cls, paths: Sequence[Path], columns: ColumnNames = None, coordinates: int = 2, **fields: Any
    ) -> Poses:
        """Poses with points of so many `coordinates`."""
        refuse_columns(columns, f"{cls.name!r} reads no tables: {cls.files}")
        return read_poses(paths, coordinates)

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """The estimator with its weights and its configuration, in which `fields` are replaced; by another
        root the reference is that of `examples`.
        """
        task = cls.checked(task)
        if examples is not None and fields.get("root", task.config.root) != task.config.root:
            poses = _as_poses(examples)
            fields = normalisation(poses.points, poses.joints, fields["root"]) | fields
        return cls(task.model, task.config, **fields) if fields else task

    @classmethod
    def describe(cls, examples: Poses) -> str:
        return f"{len(examples.joints):,} poses of {examples.joints.places.shape[1]} joints"

    def check_examples(self, examples: Any, /) -> Poses:
        found = _as_poses(examples)
        (num_points, coordinates), count = self.point_shape, len(self.config.reference)
        if found.joints.places.shape[1] != count:
            got = found.joints.places.shape[1]
            raise ValueError(f"`joints`: expected {count} joints, as the model has them, got {got}")
        if found.points.shape[2] != coordinates:
            expected = f"the shape (N, {num_points}, {coordinates})"
            raise ValueError(f"`points`: expected {expected}, got {found.points.shape}")
        return found

    def batches(self, examples: Poses, training: PoseTraining, is_validation: bool = False) -> Batches:
        seed = None if is_validation else training.seed
        joints = from_root(examples.joints.places, self.config.root).astype("float32")
        if self.point_shape[1] == 2:
            points, targets = self.normalised(examples.points.astype("float32"), joints)
            return ArrayBatches({"points": points}, targets, training.batch_size, seed)
        clouds = PointClouds(list(examples.points))
        return PoseBatches(clouds, joints, self.normalised, training.batch_size, self.point_shape[0], seed)

    def learner(self, training: Any) -> keras.Model:
        """The model around the configuration's reference pose."""
        points = self.model.input["points"]
        reference = keras.ops.zeros_like(points[:, :1, :1]) + self._reference  # (B, J, 3)
        joints = self.model({"points": points, "reference": reference})["joints"]
        return FunctionalModel({"points": points}, joints, name=self.model.name)

    def objective(self, training: Any) -> dict[str, Any]:
        def error(targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
            apart = tf.norm(tf.cast(outputs, tf.float32) - targets, axis=-1)  # (B, J)
            return self.config.joint_scale * tf.reduce_mean(apart, axis=-1)

        return {
            "loss": keras.losses.MeanSquaredError("mean_with_sample_weight", name="loss"),
            "weighted_metrics": [keras.metrics.MeanMetricWrapper(error, name="error")],
        }

    def baselines(self, examples: Poses, validation: Poses, seed: int) -> Baselines:
        joints, found = self._truth(validation), self._mean_poses(validation)
        rules = {MEAN_POSE: float(np.linalg.norm(found - joints, axis=-1).mean())}
        return Baselines("val_error", "min", rules, len(joints))

    def measure(self, examples: Poses) -> dict[str, Any]:
        """In the unit of the joints "mean_error", their mean distance from where they are, and
        "mean_pose_error", the same of the mean pose; "pck", in percent, the joints nearer than a tenth of the
        largest side of their pose's box, and "auc", the mean of this over all thresholds from 0 to that.
        """
        joints = self._truth(examples)
        found = self.predict(list(examples.points), batch_size=self.training.batch_size)
        return {
            "mean_error": np.linalg.norm(found - joints, axis=-1).mean(),
            "mean_pose_error": np.linalg.norm(self._mean_poses(examples) - joints, axis=-1).mean(),
            **correct_joints(found, joints),
        }

    def _truth(self, examples: Poses) -> np.ndarray:
        return from_root(examples.joints.places, self.config.root)

    def _mean_poses(self, examples: Poses) -> np.ndarray:
        """The mean pose for each example, (N, J, 3), around its cloud."""
        rows = np.stack([self.own_reader.row(points) for points in examples.points])
        return np.asarray(self.config.reference) + np.asarray(self._origin(rows))

    def _origin(self, points: Any) -> Any:
        """Where answers are measured from (B, 1, 3), or 0: the mean of a cloud (B, P, 3), without a root."""
        return 0.0 if self.point_shape[1] == 2 or self.config.root is not None else _centre(points)

    def normalised(self, points: Any, joints: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """The model's `points` and targets, by points (B, P, 2 or 3) and the `joints` (B, J, 3) from their
        root.
        """
        reference = tf.constant(self.config.reference, tf.float32)
        targets = (joints - self._origin(points) - reference) / self.config.joint_scale
        return self.prepare(points), targets

    def prepare(self, points: Any) -> tf.Tensor:
        """Points (B, P, 2 or 3) as the model's input. Works in a graph and eagerly."""
        points = tf.convert_to_tensor(points, tf.float32)
        middle = tf.constant(self.config.point_mean) if self.point_shape[1] == 2 else _centre(points)
        return (points - middle) / self.config.point_scale

    @property
    def _reference(self) -> np.ndarray:
        """The reference pose as the model's input (J, 3): around its mean, of a root mean square of 1."""
        pose = np.asarray(self.config.reference)
        pose = pose - pose.mean(axis=0)
        return (pose / (np.sqrt(np.mean(pose**2)) or 1.0)).astype("float32")

    def find(self, points: tf.Tensor) -> tf.Tensor:
        """Points (B, P, 2 or 3) to joints (B, J, 3), in the units of the data. Runs in a graph."""
        reference = tf.tile(self._reference[None], [tf.shape(points)[0], 1, 1])
        outputs = self.model({"points": self.prepare(points), "reference": reference}, training=False)
        moves = self.config.joint_scale * tf.cast(outputs["joints"], tf.float32)
        return tf.constant(self.config.reference, tf.float32) + moves + self._origin(points)

    def __call__(self, batch: Any, training: bool = False) -> tf.Tensor:
        """Joints (B, J, 3) for points (B, P, 2 or 3), or for {"points": them}."""
        points = batch["points"] if isinstance(batch, dict) else batch
        return self.find(tf.constant(np.stack([self.own_reader.row(x) for x in points])))

    def predict(self, points: Any, /, *, batch_size: int = 64, draw: Pictures | None = None) -> np.ndarray:
        """Joints (N, J, 3). With `draw`, a folder, a picture of each pose from three sides is written there,
        or to a file for each.
        """
        points = [points] if is_file(points) else listed(points)
        found = [answer["joints"] for answer in self.ask(points, batch_size)]
        joints = np.array(found, "float32").reshape(-1, len(self.config.reference), 3)
        if draw is not None:
            num_points = self.point_shape[0] if self.point_shape[1] == 3 else None
            draw_poses(joints, self.config.edges, points, num_points, self.config.vertical, draw)
        return joints

    def as_value(self, answer: np.ndarray) -> Any:
        """The place of each joint, by its name where joints have names."""
        places = [list(map(rounded, place)) for place in answer.tolist()]
        names = self.config.joint_names
        return dict(zip(names, places, strict=True)) if names else places

    def as_line(self, answer: np.ndarray) -> str:
        return " ".join(",".join(f"{x:.6g}" for x in place) for place in answer.tolist())

    @property
    def own_reader(self) -> PosePoints:
        """Reads points as exports do, without the files of one."""
        return PosePoints(None, *self.point_shape)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        """The rows of an .npz of poses; for a model of clouds also files, folders and tables of clouds."""
        coordinates = self.point_shape[1]
        if coordinates == 3 and not str(path).lower().endswith(".npz"):
            return read_points(path, columns)
        refuse_columns(columns, f"{self.name!r} reads no tables: {self.files}")
        return read_pose_points(path, coordinates)

    def signature(self) -> Signature:
        names = {"labels": list(self.config.joint_names)} if self.config.joint_names else {}
        num_points, num_coordinates = self.point_shape
        noise = np.random.default_rng(0).normal(size=(NUM_EXAMPLES, *self.point_shape))
        return Signature(
            reads={"kind": "pose points", "num_points": num_points, "num_coordinates": num_coordinates},
            function=lambda inputs: {"joints": self.find(inputs["points"])},
            inputs={"points": tf.TensorSpec([None, *self.point_shape], tf.float32)},
            answers={"kind": "arrays", **names},
            examples=list(noise * self.config.point_scale),
        )


class PoseBatches(PointBatches):
    """Batches ({"points": (B, P, 3)}, targets (B, J, 3)) of clouds and joints, as `normalised` makes them of
    both.
    """

    def __init__(self, clouds: PointClouds, joints: np.ndarray, normalised: Callable, *rest: Any):
        super().__init__(clouds, joints, tf.identity, *rest)
        self.normalised = normalised

    def _batch(self, step: tf.Tensor, rows: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        inputs, joints = super()._batch(step, rows)
        points, targets = self.normalised(inputs["points"], joints)
        return {"points": points}, targets


def _centre(points: Any) -> tf.Tensor:
    return tf.reduce_mean(points, axis=1, keepdims=True)


def _as_poses(examples: Any) -> Poses:
    """Examples in the form of `Poses`; ValueError as from `data.Joints` and `read_poses`."""
    points, joints = as_columns(examples, "points", "joints")
    joints = joints if isinstance(joints, Joints) else Joints(joints)
    points = checked_array("points", points, *INPUTS)
    refuse_mismatch(points, joints)
    return Poses(points, joints)
