"""The readers of points: clouds, files and arrays, and the points from which a pose is found."""

import numpy as np

from .examples import Refused, check, not_joints
from .image_readers import MOST_VALUES
from .point_files import cloud_of, moved, refuse_few, sampled
from .reading import Reader


class Clouds(Reader):
    """Clouds (B, `num_points`, 3), float32: of larger ones some points, smaller ones repeat theirs.

    Args:
        num_points: how many points the model reads.
        least_points: clouds of fewer are refused: the model looks at so many neighbours of a point.
        normalize: whether a cloud's place does not matter; it is then moved to the origin before coordinates
            are rounded to float32.
    """

    def __init__(self, folder, num_points: int, least_points: int, normalize: bool):
        self._count, self._least, self._normalize = num_points, least_points, normalize
        self.portion = 64 * max(1, MOST_VALUES // (64 * 3 * num_points))

    def row(self, example):
        points = cloud_of(example, self._count)
        refuse_few(points, self._least)
        points = sampled(points, self._count)
        return moved(points) if self._normalize else points.astype("float32")

    def join(self, rows, widths=None):
        return {"points": np.stack(rows)}


class PosePoints(Reader):
    """What a pose is found from: the places of its joints in an image (B, `num_points`, 2), or a cloud of
    points (B, `num_points`, 3), as `Clouds` has it. Points that are all equal are refused.
    """

    def __init__(self, folder, num_points: int, num_coordinates: int):
        self._count, self._coordinates = num_points, num_coordinates

    def row(self, example):
        if self._coordinates == 3:
            points = sampled(cloud_of(example, self._count), self._count)
        else:
            check(example, not_joints)
            points = np.asarray(example, "float64")
            if len(points) != self._count:
                raise Refused(f"expected the places of {self._count} joints, got {len(points)}")
        if self._count > 1 and (points == points[:1]).all():
            raise Refused("expected points that differ, got equal ones alone")
        return points.astype("float32")

    def join(self, rows, widths=None):
        return {"points": np.stack(rows)}
