"""The numbers by which a `PoseEstimator` turns poses of the data into its model's, and its configuration."""

import dataclasses
from typing import Annotated, Any

import numpy as np

from keras_tfm.configs import Between, Config, Natural, Option, Positive, Refusal
from keras_tfm.data.sources.poses import Joints
from keras_tfm.tasks.points.drawing import Upwards

Finite = Annotated[float, Between(-1e300, 1e300)]
Place = tuple[Finite, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoseEstimatorConfig(Config):
    """How numbers of the data become numbers of the model.

    Args:
        reference: (J, 3), the mean pose of the training data, from which the model decodes.
        joint_scale: the root mean square of what differs from it.
        point_mean: (2,), the mean of joints in images; a cloud's own mean is moved to the origin instead.
        point_scale: the root mean square of points around it.
        root: the joint from which all joints are measured, or None.
        joint_names: (J,) strings, or none.
        edges: the pairs of joints that are bones, which are drawn.
        vertical: the axis that points upwards in drawings.
    """

    reference: tuple[Place, ...]
    joint_scale: Positive = 1.0
    point_mean: Place = (0.0, 0.0)
    point_scale: Positive = 1.0
    root: Annotated[
        Natural | None,
        Option("joint, counted from 0, from which all joints are measured", default="the data's origin"),
    ] = None
    joint_names: tuple[str, ...] = ()
    edges: tuple[tuple[Natural, ...], ...] = ()
    vertical: Annotated[
        Upwards, Option("axis that points upwards in drawings; -y in the coordinates of most cameras")
    ] = "y"

    def __post_init__(self) -> None:
        super().__post_init__()
        count = len(self.reference)
        Joints([self.reference], self.joint_names, self.edges or ())  # refuses what does not fit
        if self.root is not None and self.root >= count:
            raise Refusal("root", f"a joint, 0 to {count - 1}", self.root)


def normalisation(points: np.ndarray, joints: Joints, root: int | None) -> dict[str, Any]:
    """The fields of a `PoseEstimatorConfig` that training data say."""
    if root is not None and root >= joints.places.shape[1]:
        raise Refusal("root", f"a joint, 0 to {joints.places.shape[1] - 1}", root)
    places, mean = from_root(joints.places, root), points.mean(axis=(0, 1))
    if points.shape[2] == 3:
        mean = points.mean(axis=1, keepdims=True)  # (N, 1, 3)
        places = places - mean if root is None else places
    reference = places.mean(axis=0)
    return {
        "reference": tuple(map(tuple, reference.tolist())),
        "joint_scale": float(np.sqrt(np.mean((places - reference) ** 2))) or 1.0,
        "point_mean": tuple(mean.tolist()) if points.shape[2] == 2 else (0.0, 0.0),
        "point_scale": float(np.sqrt(np.mean((points - mean) ** 2))) or 1.0,
    }


def from_root(places: np.ndarray, root: int | None) -> np.ndarray:
    """Joints (N, J, 3), measured from one of them."""
    return places if root is None else places - places[:, root : root + 1]
