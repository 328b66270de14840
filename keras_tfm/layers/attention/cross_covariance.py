"""Attention among features in place of tokens, linear in the sequence's length."""

from keras import ops

from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.masks import in_float32


class CrossCovarianceAttention(MultiHeadAttention):
    """Self-attention whose weights are the cross-covariance of a head's features: (B, T, D) in and out.

    El-Nouby et al. 2021, "XCiT", eq. 2: the weights (B, H, K, K) are the softmax of queryᵀ key times a
    learned temperature of each head, where every feature of the queries and keys is divided by its length
    over the tokens. `num_heads`, `dropout`, `use_bias` and `kernel_initializer` are `MultiHeadAttention`'s.
    A padding mask (B, T) hides tokens. Causality and biases are of pairs of tokens: they raise ValueError.
    """

    def __init__(self, num_heads, dropout=0.0, use_bias=True, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(
            num_heads, dropout=dropout, use_bias=use_bias, kernel_initializer=kernel_initializer, **kwargs
        )

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape)
        self.temperature = self.add_weight((self.num_heads, 1, 1), "ones", name="temperature")

    def attend(self, query, key, value, mask=None, bias=None, causal=False, training=None):
        """The averages (B, H, T, K) for heads (B, H, T, K) each."""
        if causal or bias is not None or (mask is not None and (mask.shape[1], mask.shape[2]) != (1, 1)):
            raise ValueError(
                f"{self.name!r} attends among features: it takes a padding `mask` (B, T) of tokens, neither "
                "`bias` nor `causal`."
            )
        shown = None if mask is None else ops.transpose(mask, (0, 1, 3, 2))  # (B, 1, T, 1)
        query, key = (unit_over_tokens(x, shown) for x in (query, key))
        scores = ops.einsum("bhti,bhtj->bhij", query, key) * ops.cast(self.temperature, query.dtype)
        weights = ops.cast(self.weigh(scores, training=training), value.dtype)
        return ops.einsum("bhij,bhtj->bhti", weights, value)


def unit_over_tokens(x, shown=None):
    """Each feature of (B, H, T, K), over the length of its T values, in float32 at least.

    Tokens that `shown` (B, 1, T, 1) hides count, and become, zero.
    """
    x = in_float32(x)
    if shown is not None:
        x = x * ops.cast(shown, x.dtype)
    squares = ops.sum(ops.square(x), axis=2, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, 1e-24))
