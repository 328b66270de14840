"""What the ViTs that change one part of the model have in common.

Their authors started from the code of DeiT (Touvron et al. 2021): initial weights are normal with a standard
deviation of 0.02, truncated at two of these, and stochastic depth grows with the depth.
"""

import dataclasses

from keras_tfm.configs import Rate
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import PatchEmbedding, flatten_map
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.models.base import growing_rates
from keras_tfm.models.vision.vit import PatchesConfig, ViT


@dataclasses.dataclass(frozen=True)
class VariantConfig(PatchesConfig):
    """The fields of `PatchesConfig`; `stochastic_depth` is the rate of the last block."""

    pooling = "class"  # class attributes, not fields: fixed in a family
    pooler = False
    stochastic_depth: Rate = 0.1


class Variant(ViT):
    """A ViT with another `block` and perhaps other `patches`. Abstract: a family overrides them."""

    reads_any_size = False

    @classmethod
    def patches(cls, config, images):
        """The map (B, rows, columns, D) whose cells become tokens."""
        return PatchEmbedding(config.dim, config.patch_size, name="patch_embedding")(images)

    @classmethod
    def embed(cls, config, images):
        return tokens_of(config, cls.patches(config, images))


def tokens_of(config, patches):
    """The `PositionEmbedding` of the tokens, and the tokens (B, N + 1, D) made of a map of `patches`."""
    x = flatten_map(patches)
    if config.pooling == "class":
        x = PrependedTokens(1, TRUNCATED, name="tokens")(x)  # (B, N + 1, D)
    position = PositionEmbedding(x.shape[1], TRUNCATED, name="position")
    return position, position(x)


def attention_of(config, **parts):
    """Self-attention; `parts` are further arguments, such as a layer on the scores."""
    options = {"dropout": config.dropout, "kernel_initializer": TRUNCATED, **parts}
    return MultiHeadAttention(config.num_heads, **options)


def feedforward_of(config, intermediate_dim=None):
    """The feed-forward layer of a block; the width inside is `config`'s unless given."""
    width = intermediate_dim or config.intermediate_dim
    return FeedForward(width, config.activation, kernel_initializer=TRUNCATED)


def residual_of(config, branch, index, **options):
    """`branch` as a residual of block number `index`, with a norm at its input."""
    rate = growing_rates(config.stochastic_depth, config.num_layers)[index]
    part = residuals(config.dropout, config.epsilon, normalize_first=True, stochastic_depth=rate)
    return part(branch, **options)
