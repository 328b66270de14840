"""Pooling: all tokens of a sequence become one vector, or neighbouring cells of a map become one cell."""

from typing import Any, Literal

from keras import ops

from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer, copy_of
from keras_tfm.layers.blocks import Residual
from keras_tfm.layers.empty_batch import never_empty
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import grid_of_windows, height_and_width, pair_of
from keras_tfm.layers.signatures import Activation, Initializer, Sides


class AttentionPooling(Layer):
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

    def compute_mask(self, x, previous_mask=None):
        return None


class MaxPooling(Layer):
    """The maximum of each feature in windows of a map: (B, height, width, D) -> (B, height', width', D).

    Each side becomes (side + 2 padding - size) // stride + 1 long. `pool_size`, `stride` (by default the
    size) and `padding` are a number or a (height, width) pair. Padding is never the maximum. With the padding
    "same", as Keras has it, sides become ceil(side / stride) long, and an odd cell is added after the map.

    >>> keras_tfm.layers.MaxPooling(pool_size=2)(np.ones((1, 8, 8, 3))).shape
    TensorShape([1, 4, 4, 3])
    """

    def __init__(
        self,
        pool_size: Sides = 3,
        stride: Sides | None = None,
        padding: int | tuple[int, int] | Literal["same"] = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        sides = height_and_width(pool_size, "pool_size")
        if stride is not None:
            height_and_width(stride, "stride")
        if padding != "same" and not all(
            0 <= 2 * margin <= side for margin, side in zip(pair_of(padding), sides, strict=True)
        ):
            raise ValueError(f"`padding` must lie in 0 to half of `pool_size`, {pool_size}; it is {padding}.")
        self.pool_size = pool_size
        self.stride = stride
        self.padding = padding

    def build(self, x_shape):
        if len(x_shape) != 4:
            raise ValueError(f"`x` must have the shape (B, height, width, D); it is {tuple(x_shape)}.")
        self.compute_output_shape(x_shape)  # refuses maps that are too small

    def call(self, x):
        """(B, height, width, D) -> (B, height', width', D)."""
        padding = "same" if self.padding == "same" else "valid"
        rows, columns = (0, 0) if padding == "same" else pair_of(self.padding)
        if rows or columns:
            edges = ((0, 0), (rows, rows), (columns, columns), (0, 0))
            x = ops.pad(x, edges, constant_values=float("-inf"))
        size, stride = height_and_width(self.pool_size), height_and_width(self.stride or self.pool_size)
        return never_empty(lambda x: ops.max_pool(x, size, stride, padding), x)

    def compute_output_shape(self, x_shape):
        stride = self.stride or self.pool_size
        if self.padding == "same":
            steps = zip(x_shape[1:3], height_and_width(stride), strict=True)
            grid = [None if side is None else -(-side // step) for side, step in steps]
        else:
            grid = grid_of_windows(x_shape[1:3], self.pool_size, stride, self.padding)
        return (x_shape[0], *grid, x_shape[-1])
