"""Attention within the rows of a table, with a gate on what is read and a bias for pairs of columns.

Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold", supplement, algorithms 7,
8, 13, 14, 17 and 19: all are one layer here, which differs in what its rows and its bias are.
"""

from typing import Any

from keras import ops

from keras_tfm.layers.attention.functional import add_bias
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.projections import HeadProjections, join_heads
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import combine_masks, key_mask_of, masked_mean


class GatedAttention(Attention):
    """Multi-head attention within each row of a table: (B, T, D), or (B, R, T, D) of R rows, in and out.

    Queries, keys and values have no biases. The averages of the heads are multiplied by sigmoid(Dense(x)) of
    the queries' x before the output layer. A new layer gives 0, so that a block begins as the identity.

    Args:
        num_heads: H, the number of heads.
        key_dim: K, the width of a head; by default D / `num_heads`.
        gated: whether there is a gate.
        num_key_value_heads: how many heads keys and values have; see `HeadProjections`.

    Raises:
        ValueError: for a `position` or a `window`, or if it is to decode: rows are sets.

    >>> layer, bias = keras_tfm.layers.GatedAttention(num_heads=2), np.zeros((1, 2, 5, 5))
    >>> layer(np.ones((1, 3, 5, 8)), bias=bias).shape
    TensorShape([1, 3, 5, 8])
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        gated: bool = True,
        num_key_value_heads: int | None = None,
        **kwargs: Any,
    ) -> None:
        projections = HeadProjections(
            num_heads,
            key_dim,
            use_bias=False,
            num_key_value_heads=num_key_value_heads,
            name="projections",
        )
        super().__init__(projections, **kwargs)
        for name in ("position", "window"):
            if (value := getattr(self, name)) is not None:
                raise ValueError(f"`{name}` must be None, as rows are sets; it is {value}.")
        self.input_spec = None
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.gated = gated
        self.num_key_value_heads = num_key_value_heads

    def build(self, query_shape, value_shape=None):  # type: ignore[override]
        super().build(query_shape, value_shape)
        if self.gated:
            width = self.num_heads * self.projections.value_width
            options = {"kernel_initializer": "zeros", "bias_initializer": "ones"}
            self.gate = Dense(width, "sigmoid", **options, name="gate")
            self.gate.build(query_shape)

    def _new_output(self, width):
        return Dense(width, kernel_initializer="zeros", name="output")

    def call(self, query, value=None, mask=None, bias=None, training=None):  # type: ignore[override]
        """(..., T, D) -> (..., T, D).

        `value` (..., S, Dv) is what is attended to, by default the queries' own row. `mask` (..., S), with
        axes of the size 1 where it is the same for all, is False where a key is hidden, and combined by AND
        with a mask that Keras carries; a row without a key reads 0. `bias` (B, H, T, S) is added to the
        scores of all rows of an example.
        """
        rows = _rows_of(query)
        heads = self.projections.project(rows, *(() if value is None else (_rows_of(value),)))
        carried = key_mask_of(query if value is None else value)
        mask = combine_masks(*(_rows_of_mask(x, query, heads[1]) for x in (mask, carried)))
        scores = self.score(*heads[:2])  # (N, H, T, S)
        if bias is not None:
            bias = bias if len(query.shape) == 3 else bias[:, None]  # (B, 1, H, T, S)
            split = (*ops.shape(query)[:-2], *ops.shape(scores)[1:])
            scores = ops.reshape(add_bias(ops.reshape(scores, split), bias), ops.shape(scores))
        averages = self.average(self.weigh(scores, mask, training), heads[2])  # (N, H, T, K)
        return ops.reshape(self.gated_output(averages, rows), ops.shape(query))

    def start(self, batch_size, max_length):
        """Raises ValueError: rows are sets, which have no next token."""
        raise ValueError(f"{self.name!r} attends within rows, which are sets: it cannot decode step by step.")

    def start_context(self, context, mask=None):
        """Raises ValueError, as `start` does."""
        self.start(None, None)

    def gated_output(self, averages, rows):
        """The output for the heads' averages (N, H, T, K) and what the gate is made of, (N, T, D)."""
        x = join_heads(averages)  # (N, T, H K)
        return self.output_projection(self.gate(rows) * x if self.gated else x)

    def compute_output_shape(self, query_shape, value_shape=None):  # type: ignore[override]
        return tuple(query_shape)


class GlobalAttention(GatedAttention):
    """Gated attention with one query for a whole row, the mean of the tokens: (B, R, T, D) in and out.

    Each head has a query of its own, keys and values are common to all; what the query reads passes to each
    token through the token's gate. The cost grows linearly with T (algorithm 19, "global attention").

    >>> keras_tfm.layers.GlobalAttention(num_heads=2)(np.ones((1, 3, 5, 8))).shape
    TensorShape([1, 3, 5, 8])
    """

    def __init__(self, num_heads: int, key_dim: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_heads, key_dim, num_key_value_heads=1, **kwargs)

    def build(self, x_shape):  # type: ignore[override]
        super().build(x_shape, x_shape)

    def call(self, x, mask=None, training=None):  # type: ignore[override]
        """(..., T, D) -> (..., T, D); `mask` (..., T) hides tokens, from the mean too."""
        rows = _rows_of(x)
        mask = combine_masks(*(_rows_of_mask(seen, x, rows) for seen in (mask, key_mask_of(x))))
        if mask is None:
            mean = ops.mean(rows, axis=1)
        else:
            mean = ops.cast(masked_mean(rows, mask[:, 0, 0]), rows.dtype)
        query, key, value = self.projections.project(mean[:, None], rows)
        averages = self.average(self.weigh(self.score(query, key), mask, training), value)  # (N, H, 1, K)
        return ops.reshape(self.gated_output(averages, rows), ops.shape(x))

    def compute_output_shape(self, x_shape):  # type: ignore[override]
        return tuple(x_shape)

    def compute_mask(self, x, previous_mask=None):
        return previous_mask


class OnColumns(SameShape):
    """Applies a layer for rows to the columns of a table: (B, R, T, D), seen as (B, T, R, D), in and out.

    >>> layer = keras_tfm.layers.OnColumns(keras_tfm.layers.GatedAttention(num_heads=2))
    >>> layer(np.ones((1, 3, 5, 8))).shape
    TensorShape([1, 3, 5, 8])
    """

    def __init__(self, layer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = layer

    def build(self, x_shape):
        size, rows, columns, dim = x_shape
        self.layer.build((size, columns, rows, dim))

    def call(self, x, mask=None, training=None):
        """(B, R, T, D) -> (B, R, T, D); `mask` (B, R, T)."""
        mask = None if mask is None else ops.swapaxes(mask, 1, 2)
        return ops.swapaxes(self.layer(ops.swapaxes(x, 1, 2), mask=mask, training=training), 1, 2)


def _rows_of(x):
    """(..., T, D) -> (N, T, D)."""
    *lead, length, dim = ops.shape(x)
    return ops.reshape(x, (_product(lead), length, dim))


def _rows_of_mask(mask, x, keys):
    """The mask (N, S) from one that broadcasts to (..., S), the rows of x (..., T, D) and their keys
    (N, ..., S, K).
    """
    if mask is None:
        return None
    lead, length = ops.shape(x)[:-2], ops.shape(keys)[-2]
    mask = ops.broadcast_to(mask, (*lead, length))
    return ops.reshape(mask, (_product(lead), length))


def _product(sizes):
    """The product of sizes, some of them tensors: an empty batch leaves none to be derived by -1."""
    product = 1
    for size in sizes:
        product = product * size
    return product
