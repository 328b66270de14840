"""Attention along one axis of a map or of a video, and the gated attention of MedT.

Ho et al. 2019, "Axial Attention in Multidimensional Transformers"; Wang et al. 2020, "Axial-DeepLab";
Valanarasu et al. 2021, "Medical Transformer: Gated Axial-Attention for Medical Image Segmentation". A cell
attends to the cells of its column, then to the cells of its row; after both it has seen the whole map:

    . a .        . . .
    . x .  then  b x b
    . a .        . . .

The tokens of a video are such a map too, a row for each moment: along its columns attention sees other
moments of one place, along its rows the other places of a moment (Bertasius et al. 2021, "Is Space-Time
Attention All You Need for Video Understanding?"; Arnab et al. 2021, "ViViT", section 3.3).
"""

from typing import Any, Literal

import keras
from keras import ops

from keras_tfm.layers.attention.tap import tap
from keras_tfm.layers.base import Layer, SameShape, require_sizes
from keras_tfm.layers.convolution import BatchNormalization
from keras_tfm.layers.dense import Dense

Axis = Literal["height", "width"]
# The gates' initial values, from the authors' code; positions count more as the gates learn.
GATES = {"query": 0.1, "key": 0.1, "value": 1.0, "value_position": 0.1}


class AxisAttention(Layer):
    """Applies a self-attention layer along one axis of a map: (B, rows, columns, D), D' wide afterwards.

    Args:
        attention: a self-attention layer for sequences (B, T, D).
        axis: "height", where the cells of a column are a sequence, or "width", where the cells of a row are.

    >>> attention = keras_tfm.layers.MultiHeadAttention(num_heads=2)
    >>> keras_tfm.layers.AxisAttention(attention, "height")(np.ones((1, 4, 6, 8))).shape
    TensorShape([1, 4, 6, 8])
    """

    def __init__(self, attention: keras.layers.Layer, axis: Axis, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if axis not in ("height", "width"):
            raise ValueError(f"`axis` must be 'height' or 'width'; it is {axis!r}.")
        self.attention = attention
        self.axis = axis

    def build(self, x_shape):
        if len(x_shape) != 4:
            raise ValueError(f"`x` must have the shape (B, height, width, D); it is {tuple(x_shape)}.")
        self.attention.build((None, x_shape[1 if self.axis == "height" else 2], x_shape[3]))

    def call(self, x, training=None):
        """(B, rows, columns, D) -> (B, rows, columns, D')."""
        return _along(self.attention, x, self.axis == "height", training)

    def compute_output_shape(self, x_shape):
        shape = (x_shape[0], x_shape[1 if self.axis == "height" else 2], x_shape[3])
        return (*x_shape[:3], self.attention.compute_output_shape(shape)[-1])


def _along(attention, x, is_vertical, training):
    """`attention` on each column, or each row, of a map x (B, rows, columns, D): (B, rows, columns, D')."""
    if is_vertical:
        x = ops.transpose(x, (0, 2, 1, 3))  # (B, columns, rows, D)
    lines, length, dim = x.shape[1:]
    y = attention(ops.reshape(x, (-1, length, dim)), training=training)
    y = ops.reshape(y, (-1, lines, length, y.shape[-1]))  # (B, lines, T, D')
    return ops.transpose(y, (0, 2, 1, 3)) if is_vertical else y


class DividedAttention(SameShape):
    """Applies a self-attention layer to the tokens of a video along time alone, or space alone: (B, P + F N,
    D) in and out.

    The tokens are P class tokens, then the N places of each of F moments. Along "time" a place attends to
    itself at all moments; class tokens take no part, and their outputs are zeros. Along "space" the places
    of a moment attend to each other and to the class tokens; a class token's output is the mean of what it
    reads at each moment.

    Args:
        attention: a self-attention layer for sequences (B, T, D), D wide afterwards.
        axis: "time" or "space".
        num_moments: F.
        prefix: P, the number of class tokens.

    >>> attention = keras_tfm.layers.MultiHeadAttention(num_heads=2)
    >>> keras_tfm.layers.DividedAttention(attention, "time", num_moments=3)(np.ones((1, 12, 8))).shape
    TensorShape([1, 12, 8])
    """

    def __init__(
        self,
        attention: keras.layers.Layer,
        axis: Literal["time", "space"],
        num_moments: int,
        prefix: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if axis not in ("time", "space"):
            raise ValueError(f"`axis` must be 'time' or 'space'; it is {axis!r}.")
        require_sizes(num_moments=num_moments)
        self.attention = attention
        self.axis = axis
        self.num_moments = num_moments
        self.prefix = prefix

    def build(self, x_shape):
        places, rest = divmod((x_shape[1] or 0) - self.prefix, self.num_moments)
        if rest or places < 1:
            raise ValueError(
                f"`x` must have {self.prefix} class tokens and then as many places for each of "
                f"{self.num_moments} moments; its shape is {tuple(x_shape)}."
            )
        length = self.num_moments if self.axis == "time" else self.prefix + places
        self.attention.build((None, length, x_shape[2]))

    def call(self, x, training=None):
        """(B, P + F N, D) -> (B, P + F N, D)."""
        prefix, length, dim = self.prefix, x.shape[1], x.shape[2]
        num_places = (length - prefix) // self.num_moments
        places = ops.reshape(x[:, prefix:], (-1, self.num_moments, num_places, dim))  # (B, F, N, D)
        if self.axis == "time":
            y = ops.reshape(_along(self.attention, places, True, training), (-1, length - prefix, dim))
            return ops.pad(y, ((0, 0), (prefix, 0), (0, 0))) if prefix else y  # (B, P + F N, D)
        if not prefix:
            return ops.reshape(_along(self.attention, places, False, training), (-1, length, dim))
        shape = (ops.shape(x)[0], self.num_moments, prefix, dim)
        tokens = ops.broadcast_to(x[:, None, :prefix], shape)
        y = _along(self.attention, ops.concatenate([tokens, places], axis=2), False, training)
        tokens = ops.mean(y[:, :, :prefix], axis=1)  # (B, P, D)
        return ops.concatenate([tokens, ops.reshape(y[:, :, prefix:], (-1, length - prefix, dim))], axis=1)


class GatedAxialAttention(Layer):
    """Self-attention (B, T, D) -> (B, T, `dim`) whose queries, keys and values meet vectors of distances.

    With G the gates and r the vectors of the distance from i to j, the scores are the sum of three numbers,
    each batch-normalised: q_i k_j, G_Q q_i r^q and G_K k_j r^k. What is read is the sum of G_V1 v_j and G_V2
    r^v by their softmax, both batch-normalised (Valanarasu et al. 2021, eq. 3). Queries and keys are half as
    wide as values. Scores are not scaled: the norm does that.

    Args:
        dim: the width of the output.
        num_heads: H, which divides `dim`.
        position: "gated"; "relative", without gates (Wang et al. 2020, eq. 4); or "none", without distances.

    Raises:
        ValueError: if `dim` is not a multiple of twice `num_heads`, or T is not known and not "none".

    >>> keras_tfm.layers.GatedAxialAttention(dim=8, num_heads=2)(np.ones((1, 5, 6))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        position: Literal["gated", "relative", "none"] = "gated",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if num_heads < 1 or dim < 1 or dim % (2 * num_heads):
            raise ValueError(
                f"`dim` must be a multiple of twice `num_heads`; they are {dim} and {num_heads}."
            )
        if position not in ("gated", "relative", "none"):
            raise ValueError(f"`position` must be 'gated', 'relative' or 'none'; it is {position!r}.")
        self.dim = dim
        self.num_heads = num_heads
        self.position = position
        self.projection = Dense(2 * dim, use_bias=False)
        self.projection_norm = BatchNormalization()
        self.score_norm = BatchNormalization()
        self.output_norm = BatchNormalization()

    @property
    def widths(self):
        """The widths of a head's queries, keys and values."""
        width = self.dim // self.num_heads
        return width // 2, width // 2, width

    def build(self, x_shape):
        batch_size, length, _ = x_shape
        has_position = self.position != "none"
        if has_position and length is None:
            raise ValueError("The length T of `x` must be known, for the table of distances.")
        self.projection.build(x_shape)
        self.projection_norm.build((batch_size, length, 2 * self.dim))
        self.score_norm.build((batch_size, length, length, (3 if has_position else 1) * self.num_heads))
        self.output_norm.build((batch_size, length, (2 if has_position else 1) * self.dim))
        if has_position:
            self.length = length
            width = self.dim // self.num_heads
            initializer = keras.initializers.RandomNormal(stddev=width**-0.5)
            self.table = self.add_weight((2 * length - 1, 2 * width), initializer, name="table")
        if self.position == "gated":
            self.gates = [
                self.add_weight((), keras.initializers.Constant(value), name=f"{name}_gate")
                for name, value in GATES.items()
            ]

    def call(self, x, training=None):
        """(B, T, D) -> (B, T, dim)."""
        length, num_heads = x.shape[1], self.num_heads
        x = self.projection_norm(self.projection(x), training=training)
        x = ops.reshape(x, (-1, length, num_heads, 2 * self.dim // num_heads))
        first, second, _ = self.widths
        query, key, value = ops.split(x, (first, first + second), axis=3)  # (B, T, H, K)
        scores = [ops.einsum("bihc,bjhc->bijh", query, key)]
        if self.position != "none":
            of_query, of_key, of_value = self._distances()
            scores.append(ops.einsum("bihc,ijc->bijh", query, of_query))
            scores.append(ops.einsum("bjhc,jic->bijh", key, of_key))
        scores = self._gated(scores, (None, 0, 1))
        scores = self.score_norm(ops.concatenate(scores, axis=-1), training=training)
        scores = ops.reshape(scores, (-1, length, length, scores.shape[-1] // num_heads, num_heads))
        scores = ops.cast(ops.sum(scores, axis=3), "float32")
        weights = ops.cast(ops.softmax(scores, axis=2), x.dtype)  # (B, T, T, H)
        tap(self, ops.transpose(weights, (0, 3, 1, 2)))
        outputs = [ops.einsum("bijh,bjhc->bihc", weights, value)]
        if self.position != "none":
            outputs.append(ops.einsum("bijh,ijc->bihc", weights, of_value))
        outputs = ops.stack(self._gated(outputs, (2, 3)), axis=-1)  # (B, T, H, K, 1 or 2)
        count = outputs.shape[-1]
        outputs = self.output_norm(ops.reshape(outputs, (-1, length, count * self.dim)), training=training)
        return ops.sum(ops.reshape(outputs, (-1, length, self.dim, count)), axis=-1)

    def _gated(self, parts, gates):
        """The `parts`, each times its gate, given by number (None: no gate)."""
        if self.position != "gated":
            return parts
        pairs = zip(parts, gates, strict=True)
        return [x if i is None else x * ops.cast(self.gates[i], x.dtype) for x, i in pairs]

    def _distances(self):
        """The vectors of the distance from each place to each, for queries, keys and values: (T, T, K)."""
        places = ops.arange(self.length)
        distances = places[:, None] - places + self.length - 1  # (T, T)
        first, second, _ = self.widths
        table = ops.cast(self.table, self.compute_dtype)
        return ops.split(ops.take(table, distances, axis=0), (first, first + second), axis=-1)

    def compute_output_shape(self, x_shape):
        return (*x_shape[:2], self.dim)
