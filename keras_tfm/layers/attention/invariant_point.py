"""Attention among rigid frames that no rotation or translation of them all changes.

Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold", supplement, algorithm 22.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.attention.tap import tap
from keras_tfm.layers.base import SameShape, require_sizes
from keras_tfm.layers.compiler.products import split
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.frames import Frames
from keras_tfm.layers.masks import in_float32, masked_softmax, out_of_float16

POINT_SCALE = 4.5  # in the weight of squared distances, sqrt(1 / (4.5 P)), line 7


class InvariantPointAttention(SameShape):
    """Residues (B, N, D), each with a frame, attend to each other: (B, N, D) in and out.

    The score of j for i is a product of queries and keys, a bias from the pair ij, and the squared distances
    between points that i and j place in their frames. What i reads are values, points as its own frame sees
    them, their distances from it, and pairs. Distances do not change when all frames move together. The
    points are computed in float32. A new layer gives 0.

    Args:
        num_heads: H.
        key_dim: K, the width of a head's queries, keys and values.
        num_query_points: P, of a head's queries and keys.
        num_value_points: of a head's values.
        epsilon: added to squared distances before the root.

    >>> layer, x = keras_tfm.layers.InvariantPointAttention(num_heads=2, key_dim=4), np.ones((1, 5, 8))
    >>> frames = keras_tfm.layers.identity_frames((1, 5))
    >>> layer(x, np.ones((1, 5, 5, 6)), *frames).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        num_query_points: int = 4,
        num_value_points: int = 8,
        epsilon: float = 1e-8,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # angstroms are wrong in lower precision
        sizes = {"num_query_points": num_query_points, "num_value_points": num_value_points}
        require_sizes(num_heads=num_heads, key_dim=key_dim, **sizes)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.num_query_points = num_query_points
        self.num_value_points = num_value_points
        self.epsilon = epsilon
        self.query_key_value = Dense(3 * num_heads * key_dim)
        self.points = Dense(3 * num_heads * (2 * num_query_points + num_value_points))
        self.pair_bias = Dense(num_heads)

    def build(self, x_shape, pair_shape, rotation_shape=None, translation_shape=None):
        self.query_key_value.build(x_shape)
        self.points.build(x_shape)
        self.pair_bias.build(pair_shape)
        # softplus of it is 1
        initial = keras.initializers.Constant(0.541324854612918)
        self.point_weights = self.add_weight((self.num_heads,), initial, name="point_weights")
        self.output_projection = Dense(x_shape[-1], kernel_initializer="zeros", name="output")
        width = self.num_heads * (self.key_dim + 4 * self.num_value_points + pair_shape[-1])
        self.output_projection.build((*x_shape[:-1], width))

    def call(self, x, pair, rotation, translation, mask=None):
        """(B, N, D) for `pair` (B, N, N, P), frames of `rotation` (B, N, 3, 3) and `translation` (B, N, 3),
        and `mask` (B, N), False at padding.
        """
        x, pair = (ops.cast(y, self.compute_dtype) for y in (x, pair))
        frames = Frames(in_float32(rotation), in_float32(translation)).with_axes(1)
        query, key, value = split(self.query_key_value(x), (self.num_heads * self.key_dim,) * 3)
        query, key, value = (self._heads(part) for part in (query, key, value))  # (B, N, H, K)
        query_points, key_points, value_points = self._points(x, frames)  # (B, N, H, P, 3)
        scores = (
            ops.einsum("bihk,bjhk->bhij", *map(out_of_float16, (query, key))) * (3 * self.key_dim) ** -0.5
        )
        scores = in_float32(scores) + in_float32(ops.transpose(self.pair_bias(pair), (0, 3, 1, 2))) * 3**-0.5
        scores = scores - self._distances(query_points, key_points)
        if mask is not None:
            mask = ops.cast(mask, "bool")[:, None, None]  # (B, 1, 1, N)
        weights = masked_softmax(scores, mask)  # (B, H, N, N)
        tap(self, weights)
        in_common = ops.einsum("bhij,bjhpc->bihpc", weights, value_points)
        points = frames.with_axes(1).invert_apply(in_common)  # (B, N, H, P, 3)
        norms = ops.sqrt(ops.sum(ops.square(points), axis=-1) + self.epsilon)
        weights = ops.cast(weights, value.dtype)
        values = ops.einsum("bhij,bjhk->bihk", weights, value)
        pairs = ops.einsum("bhij,bijp->bihp", weights, pair)
        points = [points[..., axis] for axis in range(3)]
        parts = [ops.cast(part, x.dtype) for part in (values, *points, norms, pairs)]
        return self.output_projection(ops.concatenate([_joined(part) for part in parts], axis=-1))

    def _heads(self, x):
        """(B, N, H K) -> (B, N, H, K)."""
        return ops.reshape(x, (*ops.shape(x)[:2], self.num_heads, x.shape[-1] // self.num_heads))

    def _points(self, x, frames):
        """The points of queries, keys and values as seen from outside the frames: (B, N, H, P, 3)."""
        counts = (self.num_query_points, self.num_query_points, self.num_value_points)
        points = in_float32(self.points(x))
        size = ops.shape(points)[:2]
        points = ops.reshape(points, (*size, self.num_heads, sum(counts), 3))
        points = frames.with_axes(1).apply(points)
        first, second, _ = counts
        return ops.split(points, (first, first + second), axis=3)

    def _distances(self, query_points, key_points):
        """What squared distances take from the scores: (B, H, N, N).

        The differences are formed before they are squared: the squares of far points would lose them.
        """
        differences = query_points[:, :, None] - key_points[:, None]  # (B, N, N, H, P, 3)
        squares = ops.sum(ops.square(differences), axis=(-1, -2))  # (B, N, N, H)
        scale = 0.5 * (3 * POINT_SCALE * self.num_query_points) ** -0.5
        weights = ops.softplus(in_float32(self.point_weights)) * scale
        return ops.transpose(squares * weights, (0, 3, 1, 2))


def _joined(x):
    """(B, N, H, ...) -> (B, N, H ...)."""
    width = 1
    for size in x.shape[2:]:
        width *= size
    return ops.reshape(x, (*ops.shape(x)[:2], width))
