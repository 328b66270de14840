"""Structures of relatives, "templates", as pairs: each for itself, then what a pair reads of all of them.

Jumper et al. 2021, supplement, section 1.7.1, algorithms 16 and 17.
"""

from typing import Any

from keras import ops

from keras_tfm.layers.attention.gated import GatedAttention
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.two_tracks import masks_for


class TemplatePairs(SameShape):
    """`blocks` for pairs, and a norm, for each of T templates: (B, T, N, N, D) in and out.

    >>> transition = keras_tfm.layers.Residual(keras_tfm.layers.Transition(8))
    >>> block = keras_tfm.layers.Block({"transition": transition})
    >>> keras_tfm.models.TemplatePairs([block])(np.ones((1, 2, 5, 5, 6))).shape
    TensorShape([1, 2, 5, 5, 6])
    """

    def __init__(self, blocks: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.blocks = list(blocks)
        self.norm = LayerNormalization(1e-5)

    def build(self, x_shape):
        for block in self.blocks:
            block.build((None, *x_shape[2:]))
        self.norm.build(x_shape)

    def call(self, x, mask=None, training=None):
        """(B, T, N, N, D) -> (B, T, N, N, D); `mask` (B, N, N) hides pairs of all templates."""
        size, count, *shape = ops.shape(x)
        y = ops.reshape(x, (size * count, *shape))
        mask = None if mask is None else ops.repeat(mask, count, axis=0)
        for block in self.blocks:
            y = block(y, **masks_for(block, mask), training=training)
        return ops.reshape(self.norm(y), (size, count, *shape))


class TemplateAttention(SameShape):
    """What each pair reads of the same pair in all templates: (B, N, N, P) in and out; 0 without a template.

    >>> layer = keras_tfm.models.TemplateAttention(num_heads=2, key_dim=4)
    >>> layer(np.ones((1, 5, 5, 6)), np.ones((1, 2, 5, 5, 8)), np.ones((1, 2), "bool")).shape
    TensorShape([1, 5, 5, 6])
    """

    def __init__(self, num_heads: int, key_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.attention = GatedAttention(num_heads, key_dim, gated=False)

    def build(self, pair_shape, templates_shape, mask_shape=None):
        size, length, _, dim = pair_shape
        queries = size, length, length, 1, dim
        self.attention.build(queries, (size, length, length, templates_shape[1], templates_shape[-1]))

    def call(self, pair, templates, mask):
        """(B, N, N, P) for `templates` (B, T, N, N, D) and `mask` (B, T), False where there is none."""
        templates = ops.transpose(templates, (0, 2, 3, 1, 4))  # (B, N, N, T, D)
        mask = ops.cast(mask, "bool")
        y = self.attention(pair[..., None, :], templates, mask=mask[:, None, None])[..., 0, :]
        return y * ops.cast(ops.any(mask, axis=1), y.dtype)[:, None, None, None]
