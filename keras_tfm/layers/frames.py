"""Rigid frames: a rotation R (..., 3, 3) and a translation t (..., 3), which take a point x to R x + t.

Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold", supplement, section 1.8.
All is computed in float32: angstroms in half precision would be wrong in the first decimal.
"""

from typing import NamedTuple

import numpy as np
from keras import ops

from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.normalization import unit
from keras_tfm.layers.points import squared_distances
from keras_tfm.layers.signatures import Tensor


class Frames(NamedTuple):
    """Frames as their `rotation` (..., 3, 3) and `translation` (..., 3).

    >>> frames = keras_tfm.layers.identity_frames((2,))
    >>> frames.apply(np.ones((2, 3), "float32")).shape
    TensorShape([2, 3])
    """

    rotation: Tensor
    translation: Tensor

    def apply(self, points: Tensor) -> Tensor:
        """Local `points` (..., 3) in the frames' surroundings."""
        return rotated(self.rotation, points) + self.translation

    def invert_apply(self, points: Tensor) -> Tensor:
        """`points` (..., 3) as each frame sees them."""
        return rotated(ops.swapaxes(self.rotation, -1, -2), points - self.translation)

    def compose(self, other: "Frames") -> "Frames":
        """The frames that first do `other`, then these."""
        return Frames(_product(self.rotation, other.rotation), self.apply(other.translation))

    def with_axes(self, count: int) -> "Frames":
        """The same with `count` axes of the size 1 behind the batch's, for points that have more axes."""
        rotation, translation = self
        for _ in range(count):
            rotation, translation = rotation[..., None, :, :], translation[..., None, :]
        return Frames(rotation, translation)

    def scaled(self, factor: float) -> "Frames":
        """The same with translations times `factor`."""
        return Frames(self.rotation, self.translation * factor)

    def matrices(self) -> Tensor:
        """(..., 4, 4), the last row 0, 0, 0, 1."""
        upper = ops.concatenate([self.rotation, self.translation[..., None]], axis=-1)  # (..., 3, 4)
        last = ops.zeros_like(upper[..., :1, :]) + ops.convert_to_tensor([0.0, 0.0, 0.0, 1.0])
        return ops.concatenate([upper, last], axis=-2)


def identity_frames(shape: tuple) -> Frames:
    """Frames of this `shape` that leave points as they are.

    >>> keras_tfm.layers.identity_frames((1,)).rotation.numpy().tolist()
    [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]
    """
    return Frames(ops.broadcast_to(ops.eye(3), (*shape, 3, 3)), ops.zeros((*shape, 3)))


def frames_of_matrices(matrices: Tensor) -> Frames:
    """The `Frames` of (..., 4, 4).

    >>> keras_tfm.layers.frames_of_matrices(np.eye(4, dtype="float32")).translation.numpy().tolist()
    [0.0, 0.0, 0.0]
    """
    matrices = in_float32(ops.convert_to_tensor(matrices))
    return Frames(matrices[..., :3, :3], matrices[..., :3, 3])


def frames_of_points(first: Tensor, origin: Tensor, third: Tensor) -> Frames:
    """Frames from three points (..., 3) each, by Gram and Schmidt: x from the origin to the `third`, the
    `first` in the plane of x and y (algorithm 21). For a backbone: N, CA, C.

    >>> x, y = np.array([[1.0, 0.0, 0.0]], "float32"), np.array([[0.0, 1.0, 0.0]], "float32")
    >>> keras_tfm.layers.frames_of_points(y, 0 * x, x).rotation.numpy().tolist()
    [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]
    """
    origin = in_float32(ops.convert_to_tensor(origin))
    x = unit(in_float32(ops.convert_to_tensor(third)) - origin)
    y = in_float32(ops.convert_to_tensor(first)) - origin
    y = unit(y - x * ops.sum(x * y, axis=-1, keepdims=True))
    return Frames(ops.stack([x, y, ops.cross(x, y)], axis=-1), origin)


def rotation_of_quaternion(quaternion: Tensor) -> Tensor:
    """The rotation (..., 3, 3) of a unit quaternion (..., 4), its real part first.

    >>> keras_tfm.layers.rotation_of_quaternion(np.array([0.0, 1.0, 0.0, 0.0], "float32")).numpy().tolist()
    [[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]]
    """
    a, b, c, d = ops.unstack(in_float32(ops.convert_to_tensor(quaternion)), 4, axis=-1)
    rows = [
        (a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)),
        (2 * (b * c + a * d), a * a - b * b + c * c - d * d, 2 * (c * d - a * b)),
        (2 * (b * d - a * c), 2 * (c * d + a * b), a * a - b * b - c * c + d * d),
    ]
    return ops.stack([ops.stack(row, axis=-1) for row in rows], axis=-2)


def frames_of_quaternions(numbers: Tensor) -> Frames:
    """The `Frames` of unit quaternions and places side by side (..., 7).

    >>> frames = keras_tfm.layers.frames_of_quaternions(np.array([1.0, 0.0, 0.0, 0.0, 5.0, 6.0, 7.0]))
    >>> frames.translation.numpy().tolist()
    [5.0, 6.0, 7.0]
    """
    numbers = ops.convert_to_tensor(numbers)
    return Frames(rotation_of_quaternion(numbers[..., :4]), in_float32(numbers[..., 4:]))


def turned(quaternion, vector):
    """The unit quaternion (..., 4) of (1, b, c, d), the `vector` (..., 3) scaled to length 1, and then
    `quaternion` (algorithm 23).
    """
    a, b, c, d = ops.unstack(quaternion, 4, axis=-1)
    x, y, z = ops.unstack(vector, 3, axis=-1)
    product = [
        a - b * x - c * y - d * z,
        b + a * x + c * z - d * y,
        c + a * y + d * x - b * z,
        d + a * z + b * y - c * x,
    ]
    return unit(ops.stack(product, axis=-1))


def distance_bins(positions, nearest, farthest, num_bins):
    """The bins, from 0, that the distances of `positions` (..., N, 3) fall in: (..., N, N), int32.

    The `num_bins` - 1 edges lie evenly from `nearest` to `farthest`.
    """
    return bins_of(squared_distances(positions, positions), nearest, farthest, num_bins)


def bins_of(squares, nearest, farthest, num_bins):
    """The bins, from 0, of distances whose squares are `squares` (...), as in `distance_bins`."""
    edges = np.linspace(nearest, farthest, num_bins - 1, dtype="float32") ** 2
    return ops.sum(ops.cast(squares[..., None] > edges, "int32"), axis=-1)


def rotated(rotation, points):
    """R x for `rotation` (..., 3, 3) and `points` (..., 3), whose leading axes broadcast.

    Three products and sums: a product of matrices would round in the lower precision of tensor cores.
    """
    return ops.sum(rotation * points[..., None, :], axis=-1)


def _product(first, second):
    """Products of matrices (..., 3, 3), whose leading axes broadcast."""
    # Not one product and a sum: TensorFlow broadcasts no more than six axes.
    return sum(first[..., :, k, None] * second[..., k, None, :] for k in range(3))
