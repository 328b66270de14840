"""Attention between features instead of tokens, whose cost is linear in the length of the sequence."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.normalization import unit
from keras_tfm.layers.signatures import Initializer


class CrossCovarianceAttention(MultiHeadAttention):
    """Self-attention between the features of a head: (B, T, D) in and out.

    The weights (B, H, K, K) are softmax(queryᵀ key * temperature), where each feature of the queries and
    keys is divided by its Euclidean norm over the tokens, and each head has a learned temperature (El-Nouby
    et al. 2021, "XCiT", eq. 2). A padding mask (B, T) hides tokens. The arguments are as in
    `MultiHeadAttention`.

    Raises:
        ValueError: for a `scale`, a `window` or a `position` that acts on scores; if it is called with
            `causal`, a `bias` or a mask of pairs, or is to decode: these are for pairs of tokens, which it
            does not compare.

    >>> keras_tfm.layers.CrossCovarianceAttention(num_heads=2)(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self,
        num_heads: int,
        dropout: float = 0.0,
        use_bias: bool | Sequence[str] = True,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_heads, dropout=dropout, use_bias=use_bias, kernel_initializer=kernel_initializer, **kwargs
        )
        for name in ("scale", "window"):
            if (value := getattr(self, name)) is not None:
                raise ValueError(f"`{name}` must be None, as scores are of features; it is {value}.")
        if self.needs_positions:
            name = type(self.position).__name__
            raise ValueError(f"`position` must not act on scores, as these are of features; it is a {name}.")

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape)
        self.temperature = self.add_weight((self.num_heads, 1, 1), "ones", name="temperature")

    def attend(self, query, keys, bias=None, training=None):
        """The averages (B, H, T, K) for queries, keys and values of (B, H, T, K) each."""
        key, value, mask = keys.key, keys.value, keys.mask
        if keys.causal or bias is not None or (mask is not None and (mask.shape[1], mask.shape[2]) != (1, 1)):
            raise ValueError(
                f"{self.name!r} compares features, not tokens: it takes a padding `mask` (B, T), and no "
                "`bias`, `causal` or mask of pairs of tokens."
            )
        shown = None if mask is None else ops.transpose(mask, (0, 1, 3, 2))  # (B, 1, T, 1)
        query, key = (unit_over_tokens(x, shown) for x in (query, key))
        scores = ops.einsum("bhti,bhtj->bhij", query, key) * ops.cast(self.temperature, query.dtype)
        weights = ops.cast(self.weigh(scores, training=training), value.dtype)
        return ops.einsum("bhij,bhtj->bhti", weights, value)

    def start(self, batch_size, max_length):
        """Raises ValueError: each output depends on all tokens."""
        raise ValueError(f"{self.name!r} compares features, not tokens: it cannot decode step by step.")


def unit_over_tokens(x, shown=None):
    """Each feature of (B, H, T, K) divided by its Euclidean norm over the T tokens, in float32 or float64.

    Tokens that are False in `shown` (B, 1, T, 1) are set to zero first.
    """
    x = in_float32(x)
    return unit(x if shown is None else x * ops.cast(shown, x.dtype), axis=2)
