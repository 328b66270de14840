"""What models of clouds of points have in common: their input, and how a cloud becomes a smaller one."""

import dataclasses
from typing import Annotated, Any, NamedTuple

import keras
from keras import ops

from keras_tfm.configs import Between, Config
from keras_tfm.layers.points import FarthestPoints, GatherPoints, NearestPoints

Points = Annotated[int, Between(1, 2**16)]  # of a cloud; all pairs have their distance computed


@dataclasses.dataclass(frozen=True)
class CloudConfig(Config):
    """Clouds have `num_points` points each: larger ones are sampled, smaller ones repeat some."""

    num_points: Points = 1024


def cloud_input(config, width=3):
    """The input `points` (B, N, `width`): three coordinates, and what else is known of a point."""
    return keras.Input((config.num_points, width), name="points")


class Neighbourhoods(NamedTuple):
    """M of the N points of a cloud, and what lies around each of them.

    `indices` (B, M) are their places among the N, `points` (B, M, 3) themselves, `neighbours` (B, M, K) the
    indices, among the N, of the nearest K.
    """

    indices: Any
    points: Any
    neighbours: Any

    def of(self, x):
        """The vectors `x` (B, N, D) of the neighbours: (B, M, K, D)."""
        return GatherPoints()(x, self.neighbours)

    def centres_of(self, x):
        """The vectors `x` (B, N, D) of the M points, with an axis for the neighbours: (B, M, 1, D)."""
        return GatherPoints()(x, ops.expand_dims(self.indices, 2))

    def offsets(self, points):
        """From the M points to their neighbours among `points` (B, N, 3): (B, M, K, 3)."""
        return self.of(points) - ops.expand_dims(self.points, 2)


def neighbourhoods(points, count, num_neighbours, stage, least_norm=0.0):
    """The `Neighbourhoods` of the `count` points of `points` (B, N, 3) that are farthest from each other."""
    indices = FarthestPoints(count, least_norm, name=f"stage_{stage}_sampling")(points)
    centres = GatherPoints()(points, indices)
    near = NearestPoints(num_neighbours, name=f"stage_{stage}_neighbours")(centres, points)
    return Neighbourhoods(indices, centres, near)
