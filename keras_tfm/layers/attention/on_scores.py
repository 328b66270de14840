"""Layers applied to the scores or the weights of attention, from (B, H, T, S) to (B, H, T, S)."""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.base import Layer, SameShape, require_sizes
from keras_tfm.layers.masks import LOWEST, in_float32


class TopK(Layer):
    """Keeps the `k` largest scores of each query and hides the other keys.

    The others get a score so low that their weight is 0 after the softmax. Among equal scores the first ones
    are kept, so that exactly `k` remain. Keys that a `mask` hides count as the lowest. Wang et al. 2022,
    "KVT: k-NN Attention for Boosting Vision Transformers", section 3.2.

    >>> scores = np.array([[[[3.0, 1.0, 2.0]]]])
    >>> (keras_tfm.layers.TopK(2)(scores).numpy() > -1e9).tolist()
    [[[[True, False, True]]]]
    """

    def __init__(self, k: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(k=k)
        self.k = k

    def call(self, scores, mask=None):
        """(..., T, S) -> (..., T, S), in float32 or float64; `mask` broadcasts over the scores."""
        scores, length = in_float32(scores), scores.shape[-1]
        if length is not None and length <= self.k:
            return scores
        lowest = ops.cast(LOWEST, scores.dtype)
        if mask is not None:
            scores = ops.where(mask, scores, lowest)
        k = self.k if length is not None else ops.minimum(self.k, ops.shape(scores)[-1])
        values, _ = ops.top_k(ops.stop_gradient(scores), k)
        least = values[..., -1:]  # (..., T, 1)
        is_greater, is_equal = scores > least, ops.equal(scores, least)
        room = k - ops.sum(
            ops.cast(is_greater, "int32"), axis=-1, keepdims=True
        )  # for those equal to `least`
        is_early = ops.cumsum(ops.cast(is_equal, "int32"), axis=-1) <= room
        is_kept = ops.logical_or(is_greater, ops.logical_and(is_equal, is_early))
        return ops.where(is_kept, scores, lowest)

    def compute_output_spec(self, scores, mask=None):
        dtype = "float64" if scores.dtype == "float64" else "float32"
        return keras.KerasTensor(scores.shape, dtype)


class SoftCap(SameShape):
    """cap * tanh(x / cap): values stay between -`cap` and `cap`, in any shape.

    Gemma Team 2024, "Gemma 2", section 2; on the scores of attention, and on logits.

    >>> keras_tfm.layers.SoftCap(50.0)(np.array([1e9])).numpy().tolist()
    [50.0]
    """

    def __init__(self, cap: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not cap > 0:
            raise ValueError(f"`cap` must be above 0; it is {cap}.")
        self.cap = cap

    def call(self, x):
        """The shape of `x`, which is any."""
        return ops.tanh(x / self.cap) * self.cap


class _Mixing(keras.layers.EinsumDense):
    """An `EinsumDense` whose bias stays on its axis: Keras's `add` takes (H, 1, 1) for a bias of the last
    axis where that has H places too.
    """

    def call(self, x, training=None):
        return ops.einsum(self.equation, x, self.kernel) + ops.convert_to_tensor(self.bias)


class HeadMixing(SameShape):
    """Replaces each head by a learned linear combination of all heads, plus a bias: (B, H, T, S) in and out.

    Applied to both scores and weights it is "talking heads" (Shazeer et al. 2020, "Talking-Heads
    Attention"). Applied to the weights and followed by a `norm` over the heads, such as
    `BatchNormalization(axis=1)`, it is re-attention (Zhou et al. 2021, "DeepViT: Towards Deeper Vision
    Transformer", eq. 3).

    >>> keras_tfm.layers.HeadMixing()(np.ones((1, 2, 5, 5))).shape
    TensorShape([1, 2, 5, 5])
    """

    def __init__(self, norm: keras.layers.Layer | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.norm = norm

    def build(self, x_shape):
        num_heads = x_shape[1]
        self.mixing = _Mixing("bhts,hg->bgts", (num_heads, None, None), bias_axes="g", name="mixing")
        self.mixing.build(x_shape)
        if self.norm is not None:
            self.norm.build(x_shape)

    def call(self, x, training=None):
        """(B, H, T, S) -> (B, H, T, S)."""
        x = self.mixing(x)
        return x if self.norm is None else self.norm(x, training=training)
