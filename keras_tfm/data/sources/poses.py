"""Poses in .npz files: the joints of bodies or hands in space, and what they are to be found from.

    joints       (N, J, 3)   where the joints are, in any unit of length
    joints_2d    (N, J, 2)   where the same joints are in an image; or
    points       (N, P, 3)   points of a cloud, in the space and the unit of `joints`
    joint_names  (J,)        their names, which may be missing
    edges        (E, 2)      the two joints of each bone, counted from 0, which may be missing

A file may hold both `joints_2d` and `points`; a file to answer needs no `joints`.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.lines import DataError, Inputs, Path, Paths, files_of
from keras_tfm.data.sources.npz import read_npz

INPUTS = {2: "joints_2d", 3: "points"}  # {how many coordinates a model's points have: the array of them}
FAMILIES = {2: "hot-net", 3: "hand-transformer"}  # on the command line


class Joints:
    """The joints of N poses, `places` (N, J, 3), their `names` (J,) and the pairs of joints, `edges` (E, 2),
    that are bones. An integer selects the places of one pose, a slice or an array several poses.

    Raises:
        ValueError: for arrays of other shapes, numbers that are not finite, and edges of no joints.

    >>> joints = keras_tfm.data.Joints(np.zeros((4, 2, 3)), names=["root", "tip"], edges=[(0, 1)])
    >>> len(joints), joints[0].shape, joints[np.array([1, 3])].edges
    (4, (2, 3), [(0, 1)])
    """

    dtype = np.dtype("float32")

    def __init__(self, places: Any, names: Sequence[Any] = (), edges: Any = ()):
        self.places = checked_array("joints", places, 3).astype(self.dtype)
        count = self.places.shape[1]
        self.names = list(map(str, names))
        if len(self.names) not in (0, count) or len(set(self.names)) < len(self.names):
            raise ValueError(f"`joint_names`: expected {count} different ones, got {self.names!r:.60}")
        array = np.asarray(edges)
        if array.size and (array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu"):
            raise ValueError(f"`edges`: expected pairs of joints (E, 2), got {array.dtype} {array.shape}")
        if array.size and not 0 <= array.min() <= array.max() < count:
            got = f"{array.min()} to {array.max()}"
            raise ValueError(f"`edges`: expected joints from 0 to {count - 1}, got {got}")
        self.edges = [(int(first), int(second)) for first, second in array.reshape(-1, 2)]

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.places)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, int | np.integer):
            return self.places[rows]
        return Joints(self.places[rows], self.names, self.edges)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.places, dtype)

    def identity(self) -> Iterator[str]:
        """A string that changes if the joints change."""
        yield f"{self.names} {self.edges} {hashlib.sha256(self.places.tobytes()).hexdigest()}"


class Poses(NamedTuple):
    """`points` (N, P, 3) of clouds, or (N, J, 2) in images, and the `joints` (N, J, 3) to be found from them.

    >>> joints = keras_tfm.data.Joints(np.eye(3)[None].repeat(4, 0))
    >>> poses = keras_tfm.data.Poses(np.asarray(joints)[..., :2], joints)
    >>> poses.points.shape
    (4, 3, 2)
    """

    points: np.ndarray
    joints: Joints


def checked_array(name: str, values: Any, *coordinates: int) -> np.ndarray:
    """`values` as an array (N, P, one of the `coordinates`); ValueError for other shapes, no rows, and
    numbers that are not finite.
    """
    try:
        array = np.asarray(values)
    except ValueError:  # lists of several lengths
        array = np.zeros(0, object)
    is_right = array.ndim == 3 and array.shape[2] in coordinates and array.dtype.kind in "iuf"
    if not is_right or not array.shape[1]:
        got = f"{array.dtype} {array.shape}" if array.dtype.kind != "O" else brief(values)
        last = " or ".join(map(str, coordinates))
        raise ValueError(f"`{name}`: expected numbers of the shape (N, count, {last}), got {got}")
    if not len(array):
        raise ValueError(f"`{name}`: expected poses, there are none")
    are_finite = np.isfinite(array).all(axis=(1, 2))
    if not are_finite.all():
        row = int(are_finite.argmin())
        wrong = array[row][~np.isfinite(array[row])][0]
        raise ValueError(f"`{name}`: expected finite numbers, row {row} has {wrong}")
    return array.astype("float64")


def refuse_mismatch(points: np.ndarray, joints: Joints) -> None:
    """Raise ValueError unless there are as many `points` as `joints` and, in images, of each pose too; and
    for poses whose points are all equal.
    """
    if len(points) != len(joints):
        raise ValueError(f"examples: expected as many points as joints, got {len(points)} and {len(joints)}")
    if points.shape[2] == 2 and points.shape[1] != joints.places.shape[1]:
        counts = f"{points.shape[1]} in the image and {joints.places.shape[1]} in space"
        raise ValueError(f"examples: expected the same joints in the image and in space, got {counts}")
    are_equal = (points == points[:, :1]).all(axis=(1, 2))
    if points.shape[1] > 1 and are_equal.any():
        raise ValueError(f"`{INPUTS[points.shape[2]]}`: expected points that differ, row "
                         f"{int(are_equal.argmax())} has equal ones alone")  # fmt: skip


def read_poses(paths: Paths, coordinates: int = 2) -> Poses:
    """The poses in one or several .npz files, from `joints_2d` for 2 `coordinates`, from `points` for 3.

    Raises:
        DataError: for a file that cannot be read, an array that is missing or wrong, and files of different
            joints.

    >>> np.savez("poses.npz", joints=np.eye(3)[None], joints_2d=np.eye(3)[None, :, :2])
    >>> keras_tfm.data.read_poses("poses.npz").joints.places.shape
    (1, 3, 3)
    """
    files = files_of(paths)
    parts: list[Poses] = []
    for file in files:
        arrays = _arrays(file, coordinates, needed=("joints", INPUTS[coordinates]))
        try:
            joints = Joints(arrays["joints"], list(arrays.get("joint_names", ())), arrays.get("edges", ()))
            points = checked_array(INPUTS[coordinates], arrays[INPUTS[coordinates]], coordinates)
            refuse_mismatch(points, joints)
        except ValueError as error:
            raise DataError(file, None, str(error)) from None
        first = parts[0] if parts else Poses(points, joints)
        _refuse_others(file, files[0], first, Poses(points, joints))
        parts.append(Poses(points, joints))
    places = np.concatenate([part.joints.places for part in parts])
    points = np.concatenate([part.points for part in parts])
    return Poses(points, Joints(places, parts[0].joints.names, parts[0].joints.edges))


def read_pose_points(paths: Paths, coordinates: int = 2) -> Inputs:
    """The points (P, `coordinates`) of each pose in .npz files as for `read_poses`, each with its place."""
    files = files_of(paths)
    for file in files:
        name = INPUTS[coordinates]
        points = _arrays(file, coordinates, needed=(name,))[name]
        if points.ndim != 3:
            raise DataError(file, None, f"`{name}`: expected (N, count, {coordinates}), got {points.shape}")
        for row, each in enumerate(points):
            yield each, f"row {row}" if len(files) == 1 else f"{file}, row {row}"


def write_poses(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write {name: array} of poses, as `read_poses` takes them, to a new .npz file.

    >>> keras_tfm.data.write_poses("found.npz", {"joints": np.zeros((2, 21, 3))})
    >>> np.load("found.npz")["joints"].shape
    (2, 21, 3)
    """
    named: dict[str, Any] = {name: np.asarray(x) for name, x in arrays.items()}
    with open(path, "xb") as file:
        np.savez_compressed(file, **named)


def _arrays(file: str, coordinates: int, needed: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of a file by name, of which some are `needed`."""
    optional = "joint_names", "edges"
    names: list[str] = []

    def choose(has: list[str]) -> list[str]:
        for name in needed:
            if name not in has:
                hint, other = "", INPUTS[5 - coordinates]
                if name == INPUTS[coordinates] and other in has:
                    hint = f"; --family {FAMILIES[5 - coordinates]} reads {other}"
                listed = ", ".join(has)[:200] or "none"
                raise DataError(file, None, f"expected an array {name}, got {listed}{hint}")
        names.extend([*needed, *(name for name in optional if name in has)])
        return names

    if not os.fspath(file).lower().endswith(".npz"):
        raise DataError(file, None, "expected an .npz of poses")
    return dict(zip(names, read_npz(file, choose, "poses"), strict=True))


def _refuse_others(file: str, first_file: str, first: Poses, poses: Poses) -> None:
    """DataError for poses of other joints, or of clouds of other sizes, than the first file's."""
    kinds = [(p.joints.places.shape[1], p.joints.names, p.joints.edges) for p in (first, poses)]
    if kinds[0] != kinds[1]:
        expected = f"{kinds[0][0]} joints, their names and edges, as in {first_file}"
        raise DataError(file, None, f"expected the {expected}; got {kinds[1][0]} others")
    counts = [p.points.shape[1] for p in (first, poses)]
    if counts[0] != counts[1]:
        raise DataError(file, None, f"expected {counts[0]} points, as in {first_file}, got {counts[1]}")
