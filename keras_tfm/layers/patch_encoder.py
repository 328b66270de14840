"""Patches of images as the tokens of a Transformer: with learned tokens before them, and positions.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", section 3.1.
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.base import Layer, copy_of, require_sizes
from keras_tfm.layers.image_positions import interpolate_positions
from keras_tfm.layers.initializers import NORMAL
from keras_tfm.layers.masks import key_mask_of
from keras_tfm.layers.patches import PatchEmbedding, flatten_map, patch_grid
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.layers.signatures import Initializer, Sides


class PrependedTokens(Layer):
    """`count` learned vectors before a sequence: class, distillation or register tokens.

    Attention collects in a class token what the model needs to know of the whole sequence.

    >>> keras_tfm.layers.PrependedTokens(count=2)(np.ones((1, 5, 8))).shape
    TensorShape([1, 7, 8])
    """

    def __init__(self, count: int = 1, initializer: Initializer = "zeros", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(count=count)
        self.count = count
        self.initializer = initializer

    def build(self, x_shape):
        initializer = copy_of(keras.initializers.get(self.initializer))
        self.embedding = self.add_weight((1, self.count, x_shape[-1]), initializer, name="embedding")

    def call(self, x):
        """(B, N, D) -> (B, count + N, D)."""
        shape = (ops.shape(x)[0], self.count, x.shape[-1])
        tokens = ops.broadcast_to(ops.cast(self.embedding, x.dtype), shape)
        return ops.concatenate([tokens, x], axis=1)

    def compute_mask(self, x, previous_mask=None):
        mask = key_mask_of(x)
        return None if mask is None else ops.pad(mask, ((0, 0), (self.count, 0)), constant_values=True)

    def compute_output_shape(self, x_shape):
        batch_size, length, dim = x_shape
        return (batch_size, None if length is None else length + self.count, dim)


class PatchEncoder(Layer):
    """[class; x_1 E; ...; x_N E] + E_pos: projected patches after a class token, with learned positions (eq.
    1).

    It combines `PatchEmbedding`, `PrependedTokens` and `PositionEmbedding`. Positions are numbered row by
    row: two-dimensional ones were no better (appendix D.4). The table is for images of the size that the
    layer is built for; for images of another size it is interpolated at each call (section 3.2).

    Args:
        dim: D, the width of the tokens.
        patch_size: the side of a patch or its (height, width).
        class_token: whether there is one.
        position_initializer: the initial values of the positions.
        use_bias: whether the projection has a bias.
        smooths: whether positions for fewer patches are averages of those near, rather than samples.

    >>> keras_tfm.layers.PatchEncoder(dim=8, patch_size=4)(np.ones((1, 16, 16, 3))).shape
    TensorShape([1, 17, 8])
    """

    def __init__(
        self,
        dim: int,
        patch_size: Sides,
        class_token: bool = True,
        position_initializer: Initializer = NORMAL,
        use_bias: bool = True,
        smooths: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.patch_size = patch_size
        self.class_token = class_token
        self.position_initializer = position_initializer
        self.use_bias = use_bias
        self.smooths = smooths
        self.patches = PatchEmbedding(dim, patch_size, use_bias=use_bias)
        self.tokens = PrependedTokens(name="class_token") if class_token else None

    def build(self, images_shape):
        self.patches.build(images_shape)
        self.grid = patch_grid(images_shape[1:3], self.patch_size)
        _, num_tokens, _ = self.compute_output_shape(images_shape)
        if self.tokens is not None:
            self.tokens.build((None, num_tokens - 1, self.dim))
        self.position = PositionEmbedding(num_tokens, self.position_initializer, name="position")
        self.position.build((None, num_tokens, self.dim))

    def call(self, images):
        """Floating-point images (B, H, W, C) -> (B, N + 1, D), or (B, N, D) without a class token."""
        x = flatten_map(self.patches(images))  # (B, N, D)
        x = x if self.tokens is None else self.tokens(x)
        grid = patch_grid(images.shape[1:3], self.patch_size)
        if grid == self.grid:
            return self.position(x)
        table = self.position.embedding(ops.arange(self.position.max_length))  # also of weights in 8 bits
        table = ops.cast(table, "float32")
        return x + ops.cast(interpolate_positions(table, self.grid, grid, self.smooths), x.dtype)

    def compute_output_shape(self, images_shape):
        rows, columns = patch_grid(images_shape[1:3], self.patch_size)
        return (images_shape[0], rows * columns + bool(self.class_token), self.dim)
