"""CPVT of Chu et al. 2021, "Conditional Positional Encodings for Vision Transformers".

A ViT without a table of positions: after the first block a depthwise convolution of 3 x 3 patches is added to
each (the "positional encoding generator"), to which the zeros around the image show where a patch lies. The
authors have published no code of it.
"""

import dataclasses
from typing import Literal

from keras_tfm.layers.blocks import Block, Residual
from keras_tfm.layers.chain import ChainBlock
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.grid import OnGrid
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import flatten_map, height_and_width, patch_grid
from keras_tfm.models.vision.variant import (
    INITIALIZER,
    Variant,
    VariantConfig,
    attention_of,
    feedforward_of,
    residual_of,
)


@dataclasses.dataclass(frozen=True)
class CPVTConfig(VariantConfig):
    """With the `pooling` "mean" (the paper's "GAP") there is no class token."""

    pooling: Literal["class", "mean"] = "mean"


class CPVT(Variant):
    """`ViT` whose positions a convolution makes: `sequence_output` (B, N, D), or (B, N + 1, D) with a class
    token, and `pooled_output` (B, D).
    """

    config_class = CPVTConfig

    @classmethod
    def embed(cls, config, images):
        x = flatten_map(cls.patches(config, images))
        has_token = config.pooling == "class"
        return None, PrependedTokens(1, INITIALIZER, name="tokens")(x) if has_token else x

    @classmethod
    def block(cls, config, index):
        attention = residual_of(config, attention_of(config), index, name="attention")
        feedforward = residual_of(config, feedforward_of(config), index, name="feedforward")
        if index:
            return Block(attention, feedforward, name=f"block_{index}")
        grid = patch_grid(height_and_width(config.image_size), config.patch_size)
        generator = Residual(Convolution(config.dim, 3, groups=config.dim))
        position = OnGrid(generator, grid, prefix=int(config.pooling == "class"), name="position")
        return ChainBlock([attention, feedforward, position], name="block_0")

    def with_image_size(self, image_size):
        """A copy for images of another size, with the same weights."""
        config = dataclasses.replace(self.config, image_size=image_size)
        model = type(self)(config, name=self.name, dtype=self.dtype_policy)
        model.set_weights(self.get_weights())
        return model


# DeiT's sizes (Touvron et al. 2021), as Chu et al. 2021 take them; those of GAP have no class token.
_TI = CPVTConfig(dim=192, num_heads=3, intermediate_dim=768)
_S = CPVTConfig(dim=384, num_heads=6, intermediate_dim=1536)
CPVT.sizes = {
    "Ti": dataclasses.replace(_TI, pooling="class"),
    "S": dataclasses.replace(_S, pooling="class"),
    "B": CPVTConfig(pooling="class"),
    "Ti-GAP": _TI,
    "S-GAP": _S,
    "B-GAP": CPVTConfig(),
}
