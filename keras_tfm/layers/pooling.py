"""Pooling: all tokens of a sequence become one vector, or neighbouring cells of a map become one cell."""

from typing import Any, Literal

import keras
from keras import ops

from keras_tfm.jit import is_cpu_alone
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer, WithoutMask, copy_of
from keras_tfm.layers.blocks import Residual
from keras_tfm.layers.empty_batch import never_empty
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import for_axes, grid_of_windows, require_axes, same_grid
from keras_tfm.layers.signatures import Activation, Axes, Initializer


class AttentionPooling(WithoutMask):
    """One vector for a sequence: a learned query attends to all tokens, then a feed-forward layer in a
    residual.

    (B, N, D) -> (B, D). The attention has no residual connection. It is the "MAP head" of Zhai et al. 2022,
    "Scaling Vision Transformers", as in their code.

    Args:
        num_heads: the number of heads of the attention.
        intermediate_dim: the width of the feed-forward layer, by default 4 D.
        activation: of the feed-forward layer.
        epsilon: of the norm before the feed-forward layer.

    >>> keras_tfm.layers.AttentionPooling(num_heads=2)(np.ones((1, 5, 8))).shape
    TensorShape([1, 8])
    """

    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int | None = None,
        activation: Activation = "gelu",
        epsilon: float = 1e-6,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if intermediate_dim is not None and intermediate_dim < 1:
            raise ValueError(f"`intermediate_dim` must be at least 1, or None; it is {intermediate_dim}.")
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.epsilon = epsilon
        self.kernel_initializer = kernel_initializer
        self.attention = MultiHeadAttention(num_heads, kernel_initializer=kernel_initializer)

    def build(self, x_shape):
        dim = x_shape[-1]
        initializer = copy_of(self.kernel_initializer)
        self.query = self.add_weight((1, 1, dim), initializer, name="query")
        self.attention.build((x_shape[0], 1, dim), x_shape)
        hidden = self.intermediate_dim or 4 * dim
        branch = FeedForward(hidden, self.activation, kernel_initializer=copy_of(self.kernel_initializer))
        self.feedforward = Residual(branch, LayerNormalization(self.epsilon), "input", name="feedforward")
        self.feedforward.build((x_shape[0], 1, dim))

    def call(self, x, mask=None, training=None):
        """(B, N, D) -> (B, D); `mask` (B, N) is False for tokens that are left out."""
        query = ops.broadcast_to(ops.cast(self.query, x.dtype), (ops.shape(x)[0], 1, x.shape[-1]))
        y = self.attention(query, x, mask=mask, training=training)
        return self.feedforward(y, training=training)[:, 0]

    def compute_output_shape(self, x_shape):
        return (x_shape[0], x_shape[-1])


class MaxPooling(Layer):
    """The maximum of each feature in windows of a map: (B, height, width, D) -> (B, height', width', D).

    Each side becomes (side + 2 padding - size) // stride + 1 long. `pool_size`, `stride` (by default the
    size) and `padding` are a number or one for each axis; maps of videos have three, the frames first.
    Padding is never the maximum. With the padding "same", as Keras has it, sides become ceil(side / stride)
    long, and an odd cell is added after the map.

    >>> keras_tfm.layers.MaxPooling(pool_size=2)(np.ones((1, 8, 8, 3))).shape
    TensorShape([1, 4, 4, 3])
    """

    def __init__(
        self,
        pool_size: Axes = 3,
        stride: Axes | None = None,
        padding: Axes | Literal["same"] = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_axes(pool_size=pool_size, stride=pool_size if stride is None else stride)
        if padding != "same":
            given = [len(x) for x in (pool_size, padding) if isinstance(x, list | tuple)]
            sides = zip(*(for_axes(x, max(given, default=1)) for x in (padding, pool_size)), strict=True)
            if not all(0 <= 2 * margin <= side for margin, side in sides):
                raise ValueError(
                    f"`padding` must lie in 0 to half of `pool_size`, {pool_size}; it is {padding}."
                )
        self.pool_size = pool_size
        self.stride = stride
        self.padding = padding

    def build(self, x_shape):
        if len(x_shape) not in (4, 5):
            raise ValueError(
                "`x` must have the shape (B, height, width, D), of videos (B, frames, height, width, D); "
                f"it is {tuple(x_shape)}."
            )
        self.compute_output_shape(x_shape)  # refuses maps that are too small

    def call(self, x):
        """(B, height, width, D) -> (B, height', width', D), and videos likewise."""
        rank, padding = len(x.shape) - 2, "same" if self.padding == "same" else "valid"
        margins = for_axes(0 if padding == "same" else self.padding, rank)
        if any(margins):
            edges = ((0, 0), *((margin, margin) for margin in margins), (0, 0))
            x = ops.pad(x, edges, constant_values=float("-inf"))
        size, stride = (for_axes(number, rank) for number in (self.pool_size, self.stride or self.pool_size))
        y = x
        if rank == 3 and is_cpu_alone() and keras.backend.standardize_dtype(x.dtype) == "float16":
            y = ops.cast(x, "float32")  # TensorFlow 2.21 pools videos in float16 on GPUs alone
        return ops.cast(never_empty(lambda y: ops.max_pool(y, size, stride, padding), y), x.dtype)

    def compute_output_shape(self, x_shape):
        sides, stride = tuple(x_shape[1:-1]), self.stride or self.pool_size
        if self.padding == "same":
            grid = same_grid(sides, stride)
        else:
            grid = grid_of_windows(sides, self.pool_size, stride, self.padding)
        return (x_shape[0], *grid, x_shape[-1])
