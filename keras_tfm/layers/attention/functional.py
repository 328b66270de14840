"""Attention as pure functions (Vaswani et al. 2017, "Attention Is All You Need", section 3.2)."""

import keras
from keras import ops

from keras_tfm.layers.compiler.products import product
from keras_tfm.layers.masks import LOWEST, combine_masks, fitting, in_float32, masked_softmax
from keras_tfm.layers.signatures import Tensor


def attention_scores(
    query: Tensor, key: Tensor, scale: float | None = None, heads_per_key: int = 1
) -> Tensor:
    """The scores scale * query keyᵀ, of shape (..., T, S).

    `query` is (B, T, K) or (B, H, T, K), `key` (B, S, K) or (B, G, S, K), where `heads_per_key` = H / G
    neighbouring heads share their keys. `scale` defaults to 1/sqrt(K), which keeps the variance of the
    scores at 1.

    >>> keras_tfm.layers.attention_scores(np.ones((1, 2, 4)), np.ones((1, 3, 4))).shape
    TensorShape([1, 2, 3])
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    # Scaling after the product trains faster. In float16 the unscaled product could overflow.
    is_narrow = keras.backend.standardize_dtype(query.dtype) == "float16"
    scores = product(query * scale if is_narrow else query, key, True, heads_per_key)
    return scores if is_narrow else scores * scale


def add_bias(scores, bias=None):
    """scores + `bias`, in float32 or float64; without a bias the scores are returned as they are.

    Biases such as -1e9 overflow to -inf in half precision, and a row of -inf gives NaN in a softmax: the sum
    is computed in float32 and kept above `LOWEST`.
    """
    if bias is None:
        return scores
    scores = in_float32(scores)
    return ops.maximum(scores + ops.cast(bias, scores.dtype), LOWEST)


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """softmax(scale * query keyᵀ + bias) over the keys that `mask` allows, of shape (..., T, S).

    `query`, `key` and `scale` are as in `attention_scores`; the shapes of `mask` are described in
    `keras_tfm.layers.masks`; `bias` is added to the scores. Each row sums to 1, in float32 or float64. A
    query that may attend to no key gets zeros.

    >>> mask = np.array([[True, True, False]])
    >>> keras_tfm.layers.attention_weights(np.ones((1, 1, 4)), np.ones((1, 3, 4)), mask).numpy()
    array([[[0.5, 0.5, 0. ]]])
    """
    scores = add_bias(attention_scores(query, key, scale), bias)
    return masked_softmax(scores, fitting(combine_masks(mask, rank=len(query.shape)), query, key))


def dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Scaled dot-product attention (equation 1): the mean of the values, weighed by `attention_weights`.

    `query`, `key`, `mask`, `bias` and `scale` are as in `attention_weights`; `value` is (B, S, Kv) or (B, H,
    S, Kv). Returns (..., T, Kv) in the dtype of the values.

    >>> x = np.ones((2, 5, 4))
    >>> keras_tfm.layers.dot_product_attention(x, x, x).shape
    TensorShape([2, 5, 4])
    """
    weights = attention_weights(query, key, mask, bias, scale)
    return product(ops.cast(weights, value.dtype), value)


def parameter_free_attention(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Self-attention without weights: token i becomes the mean of all tokens x_j by softmax(x_i · x_j).

    >>> keras_tfm.layers.parameter_free_attention(np.ones((1, 5, 4))).shape
    TensorShape([1, 5, 4])
    """
    return dot_product_attention(x, x, x, mask=mask, scale=1.0)


def bilinear_attention(
    x: Tensor, matrix: Tensor, value: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """Self-attention with the scores x_iᵀ P x_j, where P is the (D, D) `matrix`; `value` defaults to `x`.

    P = I gives `parameter_free_attention`. P = W_Q W_Kᵀ of rank K is single-head dot-product attention
    without the scale.

    >>> keras_tfm.layers.bilinear_attention(np.ones((1, 5, 4)), np.eye(4)).shape
    TensorShape([1, 5, 4])
    """
    return dot_product_attention(ops.matmul(x, matrix), x, x if value is None else value, mask, scale=1.0)


def add_if_given(x, y):
    """x + y, where either may be None and is then left out."""
    if x is None or y is None:
        return y if x is None else x
    return x + y
