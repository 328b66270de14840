"""Clouds of points (B, N, 3): which of them stand for all, which are near, and attention among neighbours.

    farthest_points   M of N points, each as far as possible from those before it
    nearest_points    the K points nearest to each of M places: indices (B, M, K)
    gather_points     the vectors at such indices: (B, N, D), (B, M, K) -> (B, M, K, D)
    interpolate       vectors of M points as vectors of N others near to them

A cloud is a set: in another order of the points the indices are others, and name the same points. Only the
sampling depends on the order: it begins at the first point. Qi et al. 2017, "PointNet++: Deep Hierarchical
Feature Learning on Point Sets in a Metric Space", section 3; for attention, Zhao et al. 2021, "Point
Transformer".
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.attention.tap import tap
from keras_tfm.layers.base import WithoutMask, require_sizes
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import in_float32, masked_softmax
from keras_tfm.layers.signatures import Tensor


def squared_distances(places: Tensor, points: Tensor) -> Tensor:
    """Between `places` (..., M, 3) and `points` (..., N, 3), in float32: (..., M, N).

    Differences are squared, axis by axis: equal points have the distance 0, as |a|^2 - 2ab + |b|^2 has not.

    >>> keras_tfm.layers.squared_distances(np.zeros((1, 1, 3)), np.array([[[3.0, 4.0, 0.0]]])).numpy()
    array([[[25.]]], dtype=float32)
    """
    places, points = (ops.cast(x, "float32") for x in (places, points))
    axes = [places[..., :, None, i] - points[..., None, :, i] for i in range(points.shape[-1])]
    return sum(map(ops.square, axes[1:]), ops.square(axes[0]))


def farthest_points(points: Tensor, count: int, least_norm: float = 0.0) -> Tensor:
    """The indices of `count` of the `points` (B, N, 3), each the farthest from all before it: (B, count).

    The first is the first of the list; of points that are equally far the first one is chosen, so that points
    repeat where fewer than `count` differ. Points no farther from the origin than `least_norm` are chosen as
    the first alone. Raises ValueError for more than there are. Qi et al. 2017, section 3.2.

    >>> line = np.array([[[0, 0, 0], [1, 0, 0], [5, 0, 0], [3, 0, 0]]], "float32")
    >>> keras_tfm.layers.farthest_points(line, 3).numpy().tolist()
    [[0, 2, 3]]
    """
    _refuse_more_than(points.shape[1], count)
    points = ops.stop_gradient(ops.cast(points, "float32"))
    farther = ops.sum(ops.square(points), axis=-1) > least_norm**2 if least_norm else None  # (B, N)
    steps = ops.arange(count, dtype="int32")
    chosen = ops.zeros_like(points[:, :1, 0], "int32")  # (B, 1)
    distances = ops.full_like(points[..., 0], float("inf"))

    def choose(step, state):
        order, chosen, distances = state
        order = ops.where(steps == step, chosen, order)
        distances = ops.minimum(distances, squared_distances(gather_points(points, chosen), points)[:, 0])
        eligible = distances if farther is None else ops.where(farther, distances, -1.0)
        return order, ops.cast(ops.argmax(eligible, axis=-1, keepdims=True), "int32"), distances

    order = ops.zeros_like(chosen) + ops.zeros_like(steps)  # (B, count)
    return ops.fori_loop(0, count, choose, (order, chosen, distances))[0]


def nearest_points(places: Tensor, points: Tensor, count: int) -> Tensor:
    """The indices of the `count` of `points` (B, N, 3) nearest to each of `places` (B, M, 3): (B, M, count).

    The nearest comes first, and of equally near ones the first of the list. Raises ValueError for more than
    there are. All M N distances are computed.

    >>> line = np.array([[[0, 0, 0], [1, 0, 0], [5, 0, 0], [3, 0, 0]]], "float32")
    >>> keras_tfm.layers.nearest_points(line, line, 2).numpy().tolist()
    [[[0, 1], [1, 0], [2, 3], [3, 1]]]
    """
    _refuse_more_than(points.shape[1], count)
    distances = squared_distances(*map(ops.stop_gradient, (places, points)))
    return ops.cast(ops.top_k(-distances, count)[1], "int32")


def _refuse_more_than(size, count):
    require_sizes(count=count)
    if size is not None and count > size:
        raise ValueError(
            f"`count` must be at most the number of points, {size}; it is {count}. Ask for fewer, or repeat "
            "points."
        )


def gather_points(x: Tensor, indices: Tensor) -> Tensor:
    """The rows of `x` (B, N, D) at `indices` (B, M) or (B, M, K): (B, M, D) or (B, M, K, D).

    >>> keras_tfm.layers.gather_points(np.array([[[1.0], [2.0]]]), np.array([[1, 0, 1]]))[0, :, 0].numpy()
    array([2., 1., 2.])
    """
    size, length = ops.shape(x)[:2]
    first = length * ops.arange(size, dtype="int32")
    first = ops.reshape(first, (-1, *[1] * (len(indices.shape) - 1)))
    return ops.take(ops.reshape(x, (-1, x.shape[-1])), first + ops.cast(indices, "int32"), axis=0)


def interpolate(x: Tensor, points: Tensor, places: Tensor, count: int = 3, power: float = 2.0) -> Tensor:
    """At `places` (B, N, 3), the means of the vectors `x` (B, M, D) of the `count` nearest `points` (B, M,
    3): (B, N, D).

    A point at the distance d has the weight 1 / (d^power + 1e-8): a place at a point has that point's vector.
    Qi et al. 2017, eq. 2. Raises ValueError for more points than there are.

    >>> points, places = np.array([[[0.0, 0, 0], [4, 0, 0]]]), np.array([[[1.0, 0, 0]]])
    >>> keras_tfm.layers.interpolate(np.array([[[0.0], [8.0]]]), points, places, 2, power=1).numpy().round(3)
    array([[[2.]]])
    """
    nearest = nearest_points(places, points, count)
    apart = ops.cast(places, "float32")[:, :, None] - gather_points(ops.cast(points, "float32"), nearest)
    squares = ops.sum(ops.square(apart), axis=-1)  # (B, N, K)
    # The root of 0 has no gradient.
    distances = squares if power == 2 else ops.maximum(squares, 1e-20) ** (power / 2)
    weights = 1 / (distances + 1e-8)
    weights = weights / ops.sum(weights, axis=-1, keepdims=True)
    return ops.cast(ops.einsum("bnk,bnkd->bnd", weights, in_float32(gather_points(x, nearest))), x.dtype)


def nan_where_points_are_not_finite(x: Tensor, points: Tensor) -> Tensor:
    """`x` (B, ...), but NaN throughout for a cloud of which a coordinate is NaN or infinite.

    Such a point has no distance from others, and a maximum would pass over it.

    >>> points = np.array([[[0.0, np.nan, 0.0]], [[0.0, 0.0, 0.0]]])
    >>> keras_tfm.layers.nan_where_points_are_not_finite(np.ones((2, 2)), points).numpy()
    array([[nan, nan],
           [ 1.,  1.]])
    """
    is_finite = ops.all(ops.isfinite(points), axis=(1, 2))
    is_finite = ops.reshape(is_finite, (-1, *[1] * (len(x.shape) - 1)))
    return ops.where(is_finite, x, ops.cast(float("nan"), x.dtype))


class OfPoints(WithoutMask):
    """A layer for coordinates, which stay in float32 or float64 in lower precision. Abstract."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)


class FarthestPoints(OfPoints):
    """`farthest_points`, as a layer: (B, N, 3) -> indices (B, `count`).

    >>> keras_tfm.layers.FarthestPoints(2)(np.eye(3)[None]).shape
    TensorShape([1, 2])
    """

    def __init__(self, count: int, least_norm: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(count=count)
        self.count = count
        self.least_norm = least_norm

    def call(self, points):
        """(B, N, 3) -> (B, count)."""
        return farthest_points(points, self.count, self.least_norm)

    def compute_output_spec(self, points):
        _refuse_more_than(points.shape[1], self.count)
        return keras.KerasTensor((points.shape[0], self.count), "int32")


class NearestPoints(OfPoints):
    """`nearest_points`, as a layer: (B, M, 3), (B, N, 3) -> indices (B, M, `count`).

    >>> keras_tfm.layers.NearestPoints(2)(np.eye(3)[None], np.eye(3)[None]).shape
    TensorShape([1, 3, 2])
    """

    def __init__(self, count: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(count=count)
        self.count = count

    def call(self, places, points):
        """(B, M, 3), (B, N, 3) -> (B, M, count)."""
        return nearest_points(places, points, self.count)

    def compute_output_spec(self, places, points):
        _refuse_more_than(points.shape[1], self.count)
        return keras.KerasTensor((*places.shape[:2], self.count), "int32")


class GatherPoints(OfPoints):
    """`gather_points`, as a layer: (B, N, D), indices (B, M) or (B, M, K) -> (B, M, D) or (B, M, K, D).

    The dtype stays, so that coordinates keep theirs in lower precision.

    >>> keras_tfm.layers.GatherPoints()(np.eye(3)[None], np.array([[2, 0]])).shape
    TensorShape([1, 2, 3])
    """

    def call(self, x, indices):
        """(B, N, D), (B, M, ...) -> (B, M, ..., D)."""
        return gather_points(x, indices)

    def compute_output_spec(self, x, indices):
        return keras.KerasTensor((*indices.shape, x.shape[-1]), x.dtype)


class PointInterpolation(OfPoints):
    """`interpolate`, as a layer: (B, M, D), (B, M, 3), (B, N, 3) -> (B, N, D).

    >>> keras_tfm.layers.PointInterpolation()(np.ones((1, 3, 8)), np.eye(3)[None], np.ones((1, 5, 3))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(self, count: int = 3, power: float = 2.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(count=count)
        self.count = count
        self.power = power

    def call(self, x, points, places):
        """(B, M, D), (B, M, 3), (B, N, 3) -> (B, N, D)."""
        x = ops.cast(x, self.compute_dtype)
        return interpolate(x, points, places, self.count, self.power)

    def compute_output_shape(self, x_shape, points_shape, places_shape):
        _refuse_more_than(points_shape[1], self.count)
        return (*places_shape[:2], x_shape[-1])


class VectorAttention(OfPoints):
    """Attention of each point to its K neighbours, with a weight for each feature: (B, N, D) -> (B, N, C).

    y_i = sum over j of softmax over j of weighing(q_i - k_j + d_ij) times (v_j + d_ij), with d_ij =
    position(p_i - p_j) for points p: Zhao et al. 2021, eq. 3.

    Args:
        dim: C, the width of queries, keys and values.
        position: a layer that makes (..., C) of offsets (..., 3).
        weighing: a layer (..., C) -> (..., G): the C features are C / G groups of G that share their weights.
        use_bias: whether queries, keys and values have biases.

    Recorded weights (see `record_attention`) are (B, G, N, K), of the neighbours in their order.

    >>> position, weighing = keras.layers.Dense(8), keras_tfm.layers.FeedForward(8)
    >>> layer = keras_tfm.layers.VectorAttention(8, position, weighing)
    >>> points, neighbours = np.ones((1, 5, 3)), np.zeros((1, 5, 2), "int32")
    >>> layer(np.ones((1, 5, 4)), points, neighbours).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self,
        dim: int,
        position: keras.layers.Layer,
        weighing: keras.layers.Layer,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(dim=dim)
        self.dim = dim
        self.position = position
        self.weighing = weighing
        self.use_bias = use_bias
        self.query, self.key, self.value = (Dense(dim, use_bias=use_bias) for _ in range(3))

    def build(self, x_shape, points_shape=None, neighbours_shape=None):
        for layer in (self.query, self.key, self.value):
            layer.build(x_shape)
        batch_size, length, count = neighbours_shape or (None, None, None)
        shape = (batch_size, length, count, self.dim)
        self.position.build((*shape[:3], 3 if points_shape is None else points_shape[-1]))
        self.weighing.build(shape)
        width = self.weighing.compute_output_shape(shape)[-1]
        if self.dim % width:
            raise ValueError(
                f"`weighing` must give a divisor of `dim`, {self.dim}; it gives {width} numbers."
            )

    def call(self, x, points, neighbours, training=None):
        """Vectors `x` (B, N, D) of `points` (B, N, 3), which attend to their `neighbours`, indices (B, N, K):
        (B, N, C).
        """
        x = ops.cast(x, self.compute_dtype)
        offsets = points[:, :, None] - gather_points(points, neighbours)  # (B, N, K, 3)
        position = self.position(ops.cast(offsets, self.compute_dtype), training=training)  # (B, N, K, C)
        key, value = (gather_points(layer(x), neighbours) for layer in (self.key, self.value))
        scores = self.weighing(self.query(x)[:, :, None] - key + position, training=training)
        weights = masked_softmax(ops.swapaxes(scores, 2, 3))  # (B, N, G, K)
        tap(self, ops.swapaxes(weights, 1, 2))
        weights = ops.cast(ops.swapaxes(weights, 2, 3), x.dtype)[:, :, :, None]  # (B, N, K, 1, G)
        (batch_size, length, count, _), width = ops.shape(position), scores.shape[-1]
        shape = (batch_size, length, count, self.dim // width, width)
        values = ops.reshape(value + position, shape)  # (B, N, K, C / G, G)
        return ops.reshape(ops.sum(weights * values, axis=2), (batch_size, length, self.dim))  # (B, N, C)

    def compute_output_shape(self, x_shape, points_shape, neighbours_shape):
        return (*x_shape[:2], self.dim)
