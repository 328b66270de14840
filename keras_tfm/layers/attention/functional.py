"""Attention as pure functions (Vaswani et al. 2017, "Attention Is All You Need", section 3.2)."""

import keras
from keras import ops

from keras_tfm.layers.masks import LOWEST, combine_masks, in_float32, masked_softmax


def attention_scores(query, key, scale=None):
    """scale * query keyᵀ: (..., T, S) of `query` (B, T, K) or (B, H, T, K) and `key` (B, S, K) or (B, H, S,
    K).

    `scale` defaults to 1/sqrt(K), which keeps the scores' variance at 1.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    # Scaled after the product, which trains faster; before it where the product could exceed float16.
    is_narrow = keras.backend.standardize_dtype(query.dtype) == "float16"
    scores = multiply_heads("...tk,...sk->...ts", query * scale if is_narrow else query, key)
    return scores if is_narrow else scores * scale


def add_bias(scores, bias=None):
    """scores + `bias` in float32 at least, held above its lowest; the scores as they are without one.

    -1e9 is -inf in half precision, and a row of those NaN.
    """
    if bias is None:
        return scores
    scores = in_float32(scores)
    return ops.maximum(scores + ops.cast(bias, scores.dtype), LOWEST)


def attention_weights(query, key, mask=None, bias=None, scale=None):
    """softmax(scale * query keyᵀ + bias) over the keys that `mask` allows: (..., T, S).

    `query`, `key` and `scale` are those of `attention_scores`; `mask` follows `keras_tfm.layers.masks`;
    `bias` is added to the scores. Rows sum to 1, in float32 at least; a row with nothing to attend to is
    zero.
    """
    scores = add_bias(attention_scores(query, key, scale), bias)
    return masked_softmax(scores, combine_masks(mask, rank=len(query.shape)))


def multiply_heads(equation, x, y):
    """`einsum` of x (B, H, T, K) and y (B, H, …), or y (B H, …) as a cache keeps it: (B, H, T, …)."""
    if len(y.shape) == len(x.shape):
        return ops.einsum(equation, x, y)
    *rows, length, width = ops.shape(x)
    product = ops.einsum(equation, ops.reshape(x, (-1, length, width)), y)  # (B H, T, …)
    return ops.reshape(product, (*rows, length, ops.shape(product)[-1]))  # (B, H, T, …)


def dot_product_attention(query, key, value, mask=None, bias=None, scale=None):
    """Scaled dot-product attention (eq. 1): the values, averaged by `attention_weights`.

    Shapes as in `attention_weights`, `value` (B, S, Kv) or (B, H, S, Kv). Returns (..., T, Kv) in
    the values' dtype.
    """
    weights = attention_weights(query, key, mask, bias, scale)
    return ops.matmul(ops.cast(weights, value.dtype), value)


def parameter_free_attention(x, mask=None):
    """Self-attention without weights: each x_i becomes a mean of all x_j by softmax(x_i . x_j)."""
    return dot_product_attention(x, x, x, mask=mask, scale=1.0)


def bilinear_attention(x, matrix, value=None, mask=None):
    """Self-attention with scores x_iᵀ P x_j for a (D, D) `matrix` P; `value` defaults to `x`.

    P = I is `parameter_free_attention`; P = W_Q W_Kᵀ of rank K is scaled dot-product attention's
    unscaled, single-head form.
    """
    return dot_product_attention(ops.matmul(x, matrix), x, x if value is None else value, mask, scale=1.0)


def add_if_given(x, y):
    """x + y, where None adds nothing."""
    if x is None or y is None:
        return y if x is None else x
    return x + y
