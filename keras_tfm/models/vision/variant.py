"""What the ViTs that change one part of it have in common.

Their authors began with the code of DeiT (Touvron et al. 2021): initial weights are normal with a deviation
of 0.02, cut off at two of those, and stochastic depth grows with the depth.
"""

import dataclasses

import keras

from keras_tfm.configs import Rate
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.projections import HeadProjections
from keras_tfm.layers.base import own
from keras_tfm.layers.blocks import Residual
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import PatchEmbedding, flatten_map
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.models.base import growing_rates
from keras_tfm.models.vision.vit import PatchesConfig, ViT

INITIALIZER = keras.initializers.TruncatedNormal(stddev=0.02)


@dataclasses.dataclass(frozen=True)
class VariantConfig(PatchesConfig):
    """`stochastic_depth` is the rate of the last block."""

    pooling = "class"  # neither is a field: a family has them or not
    pooler = False
    stochastic_depth: Rate = 0.1


class Variant(ViT):
    """A ViT of which a family overrides `block`, and `patches` where it cuts the image in another way."""

    reads_any_size = False

    @classmethod
    def patches(cls, config, images):
        """The map (B, rows, columns, D) whose cells become tokens."""
        return PatchEmbedding(config.dim, config.patch_size, name="patch_embedding")(images)

    @classmethod
    def embed(cls, config, images):
        return tokens_of(config, cls.patches(config, images))


def tokens_of(config, patches):
    """The `PositionEmbedding` of the tokens, and the tokens (B, N + 1, D) of a map of `patches`."""
    x = flatten_map(patches)
    if config.pooling == "class":
        x = PrependedTokens(1, INITIALIZER, name="tokens")(x)  # (B, N + 1, D)
    position = PositionEmbedding(x.shape[1], INITIALIZER, name="position")
    return position, position(x)


def attention_of(config, **parts):
    """Self-attention with these `parts` of `Attention`'s stages."""
    projections = HeadProjections(config.num_heads, kernel_initializer=INITIALIZER)
    output = Dense(config.dim, kernel_initializer=own(INITIALIZER), name="output")
    return Attention(projections, dropout=config.dropout, output_layer=output, **parts)


def feedforward_of(config):
    """Two dense layers."""
    return FeedForward(config.intermediate_dim, config.activation, kernel_initializer=INITIALIZER)


def residual_of(config, branch, index, **options):
    """A part of the block number `index`: its input is normalised."""
    rate = growing_rates(config.stochastic_depth, config.num_layers)[index]
    norm = LayerNormalization(config.epsilon)
    return Residual(branch, norm, "input", config.dropout, stochastic_depth=rate, **options)
