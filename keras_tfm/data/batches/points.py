"""Batches of clouds of points, with labels, and how clouds are changed in training."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import numpy as np
import tensorflow as tf

from keras_tfm.configs import Between, Config, Option
from keras_tfm.data.batches.epochs import Batches, count_batches, rows_of_epoch
from keras_tfm.data.sources.points import PointClouds
from keras_tfm.serving.point_files import AXES, order_of

Turns = Literal["none", "vertical", "all"]
Axis = Literal["x", "y", "z"]


@dataclasses.dataclass(frozen=True)
class PointChanges(Config):
    """How clouds that were prepared, of radius 1 by default, are changed at random, each by itself.

    Args:
        turns: "vertical" turns a cloud by any angle about the vertical axis, "all" in any way.
        jitter: the standard deviation of what is added to each coordinate.
        scaling: a cloud becomes larger or smaller by a factor up to 1 + `scaling`.
    """

    turns: Annotated[
        Turns, Option("turn clouds at random: about the vertical axis alone, or in all directions")
    ] = "vertical"
    jitter: Annotated[
        Annotated[float, Between(0, 1)],
        Option("standard deviation of the noise on each coordinate; a cloud's radius is 1"),
    ] = 0.01
    scaling: Annotated[
        Annotated[float, Between(0, 10)],
        Option("clouds become larger or smaller at random, by a factor up to 1 + R"),
    ] = 0.25


@dataclasses.dataclass(frozen=True)
class PointAugmentation(PointChanges):
    """`PointChanges` of clouds whose `vertical` axis points upwards.

    >>> points = np.eye(3, dtype="float32")[None]
    >>> change = keras_tfm.data.PointAugmentation(turns="vertical", jitter=0.0, scaling=0.0)
    >>> change(points, seed=(1, 2)).numpy()[0, 2].tolist()  # it stays on the axis
    [0.0, 0.0, 1.0]
    """

    vertical: Axis = "z"

    def __call__(self, points: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Clouds (B, N, 3), changed as the `seed` (2,) says. Runs in a graph."""
        points, size = tf.convert_to_tensor(points), tf.shape(points)[0]
        turning, scaling, noise = tf.unstack(tf.random.split(seed, 3))
        if self.turns != "none":
            points = tf.einsum("bnc,bdc->bnd", points, self._rotations(size, turning))
        if self.scaling:
            most = math.log1p(self.scaling)
            points *= tf.exp(tf.random.stateless_uniform([size, 1, 1], scaling, -most, most))
        if self.jitter:
            points += self.jitter * tf.random.stateless_normal(tf.shape(points), noise)
        return points

    def _rotations(self, size, seed):
        """Matrices (B, 3, 3) of unit quaternions w, x, y, z: Shoemake 1992, "Uniform Random Rotations"."""
        quaternions = tf.random.stateless_normal([size, 4], seed)
        if self.turns == "vertical":
            is_kept = [axis in ("w", self.vertical) for axis in ("w", *AXES)]
            quaternions = tf.where(is_kept, quaternions, 0.0)
        w, x, y, z = tf.unstack(tf.math.l2_normalize(quaternions, axis=-1), axis=-1)
        rows = (
            (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
            (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
            (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
        )
        return tf.stack([tf.stack(row, axis=-1) for row in rows], axis=1)


class PointBatches(Batches):
    """Batches ({"points": (B, `num_points`, 3)}, labels (B,)) of `PointClouds`.

    A cloud's points stand in the order in which `serving.point_files` draws them; the first are shown. With a
    `seed` each epoch is shuffled and begins anywhere in that order, so that it shows other points of a larger
    cloud, and is changed by `augmentation`; examples that do not fill a batch are left out of the epoch.
    `prepare` makes the model's input.

    >>> clouds = keras_tfm.data.PointClouds([np.eye(3)] * 5)
    >>> batches = keras_tfm.data.PointBatches(clouds, np.arange(5), lambda points: points, 2, num_points=4)
    >>> inputs, labels = next(iter(batches.dataset()))
    >>> inputs["points"].shape, labels.numpy().tolist()
    (TensorShape([2, 4, 3]), [0, 1])
    """

    def __init__(
        self,
        clouds: PointClouds,
        labels: Sequence[int] | np.ndarray,
        prepare: Callable[[tf.Tensor], tf.Tensor],
        batch_size: int,
        num_points: int,
        seed: int | None = None,
        augmentation: PointAugmentation | None = None,
    ) -> None:
        with tf.device("cpu"):  # a data set may be larger than an accelerator's memory
            ordered = [cloud[order_of(len(cloud), num_points)] for cloud in clouds]
            self.points = tf.constant(np.concatenate(ordered))
            self.sizes = tf.constant(clouds.sizes, tf.int64)
            self.labels = tf.constant(labels)
        self.firsts = tf.cumsum(self.sizes, exclusive=True)
        self.prepare, self.num_points = prepare, num_points
        self.seed, self.augmentation = seed, augmentation
        self.batch_size = min(batch_size, len(clouds))
        self.num_batches = count_batches(len(clouds), self.batch_size, seed)

    def _epoch(self, number):
        order = rows_of_epoch(len(self.labels), self.seed, number)
        rows = tf.data.Dataset.from_tensor_slices(order).batch(self.batch_size, self.seed is not None)
        return rows.enumerate().map(lambda step, rows: self._batch(tf.stack([number, step]), rows))

    def _batch(self, step, rows):
        sizes, places = tf.gather(self.sizes, rows)[:, None], tf.range(self.num_points, dtype=tf.int64)[None]
        if self.seed is not None:
            key = tf.random.experimental.stateless_fold_in(step, self.seed)
            starting, changing = tf.unstack(tf.random.split(key, 2))
            shares = tf.random.stateless_uniform(tf.shape(sizes), starting, dtype=tf.float64)
            places += tf.cast(shares * tf.cast(sizes, tf.float64), tf.int64)
        places = tf.gather(self.firsts, rows)[:, None] + places % sizes  # (B, N)
        points = self.prepare(tf.gather(self.points, places))
        if self.seed is not None and self.augmentation is not None:
            points = self.augmentation(points, changing)
        return {"points": points}, tf.gather(self.labels, rows)
