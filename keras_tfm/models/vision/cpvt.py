"""CPVT (Chu et al. 2021, "Conditional Positional Encodings for Vision Transformers").

A ViT without a table of positions. After the first block a depthwise 3 x 3 convolution over the grid of
patches is added (the "positional encoding generator"). The zeros around the grid show it where a patch lies.
The authors have published no code.
"""

import dataclasses
from typing import Literal

from keras_tfm.layers.blocks import Block, Residual
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.grid import OnGrid
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import flatten_map, height_and_width, patch_grid
from keras_tfm.models.vision.variant import Variant, VariantConfig, attention_of, feedforward_of, residual_of


@dataclasses.dataclass(frozen=True)
class CPVTConfig(VariantConfig):
    """The sizes of a `CPVT`.

    Args:
        pooling: "class" for a class token, or "mean" (the paper's "GAP") for the mean of the patches,
            without a class token.
    """

    pooling: Literal["class", "mean"] = "mean"


class CPVT(Variant):
    """A `ViT` whose positions are made by a convolution.

    `sequence_output` is (B, N, D), or (B, N + 1, D) with a class token, and `pooled_output` (B, D).

    >>> model = keras_tfm.models.CPVT.from_size("Ti", image_size=32, num_layers=1, dim=16, num_heads=2)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = CPVTConfig

    @classmethod
    def embed(cls, config, images):
        x = flatten_map(cls.patches(config, images))
        has_token = config.pooling == "class"
        return None, PrependedTokens(1, TRUNCATED, name="tokens")(x) if has_token else x

    @classmethod
    def block(cls, config, index):
        parts = {
            "attention": residual_of(config, attention_of(config), index),
            "feedforward": residual_of(config, feedforward_of(config), index),
        }
        if index == 0:
            grid = patch_grid(height_and_width(config.image_size), config.patch_size)
            generator = Residual(Convolution(config.dim, 3, groups=config.dim))
            parts["position"] = OnGrid(generator, grid, prefix=int(config.pooling == "class"))
        return Block(parts, name=f"block_{index}")


# DeiT's sizes (Touvron et al. 2021), as in Chu et al. 2021; sizes with GAP have no class token.
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
