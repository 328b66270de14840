"""CaiT (Touvron et al. 2021, "Going Deeper with Image Transformers").

Many blocks on the patches alone, whose heads are mixed before and after the softmax ("talking heads"), and
whose parts have learned factors that start small. Then blocks that update a class token alone. As in the
authors' code the rate of stochastic depth is the same in all blocks of patches, and 0 in blocks of the class
token.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.configs import Depth, Heads, Rate, Size
from keras_tfm.layers.attention.class_attention import ClassAttentionBlock
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.attention.on_scores import HeadMixing
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import PatchEmbedding, flatten_map
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import image_input
from keras_tfm.models.vision.variant import attention_of, feedforward_of
from keras_tfm.models.vision.vit import PatchesConfig


@dataclasses.dataclass(frozen=True)
class CaiTConfig(PatchesConfig):
    """The sizes of a `CaiT`.

    Args:
        num_layers: the number of blocks of patches.
        num_class_layers: the number of blocks of the class token.
        class_intermediate_dim: the width inside the feed-forward layers of the class token, by default
            `intermediate_dim`.
        layer_scale: the first value of the learned factors.
        dropout: the rate for attention weights and outputs of parts, in the blocks of patches.
        stochastic_depth: the rate in each block of patches.
    """

    num_layers: Depth = 24
    num_class_layers: Depth = 2
    dim: Size = 384
    num_heads: Heads = 8
    intermediate_dim: Size = 1536
    class_intermediate_dim: Size | None = None
    layer_scale: float = 1e-5
    stochastic_depth: Rate = 0.1


class CaiT(ConfiguredModel):
    """CaiT: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class token
    first, and `pooled_output` (B, D), the class token's final state.

    >>> model = keras_tfm.models.CaiT.from_size("XXS24/224", image_size=32, num_layers=1, dim=16, num_heads=2)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = CaiTConfig

    def __init__(self, config: CaiTConfig, name: str = "cait", **kwargs: Any) -> None:
        images = image_input(config)
        x = flatten_map(PatchEmbedding(config.dim, config.patch_size, name="patch_embedding")(images))
        x = PositionEmbedding(x.shape[1], TRUNCATED, name="position")(x)
        blocks = [_block(config, f"block_{i}") for i in range(config.num_layers)]
        class_blocks = [_class_block(config, f"class_block_{i}") for i in range(config.num_class_layers)]
        trace = Trace()
        x = trace.run("encoder", blocks, x)
        x = PrependedTokens(1, TRUNCATED, name="class_token")(x)
        x = trace.run("class", class_blocks, x)
        x = LayerNormalization(config.epsilon, name="norm")(x)
        outputs = {"sequence_output": x, "pooled_output": ops.take(x, 0, axis=1)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)


def _block(config, name):
    rates = {"stochastic_depth": config.stochastic_depth, "layer_scale": config.layer_scale}
    part = residuals(config.dropout, config.epsilon, normalize_first=True, **rates)
    attention = attention_of(config, on_scores=HeadMixing(), on_weights=HeadMixing())
    return block_of(part, name, attention=attention, feedforward=feedforward_of(config))


def _class_block(config, name):
    attention = MultiHeadAttention(config.num_heads, kernel_initializer=TRUNCATED)
    part = residuals(epsilon=config.epsilon, normalize_first=True, layer_scale=config.layer_scale)
    feedforward = feedforward_of(config, config.class_intermediate_dim)
    return ClassAttentionBlock(part(attention), part(feedforward), name=name)


def _size(dim, num_layers, layer_scale=1e-5, image_size=384):
    shape = {"dim": dim, "num_heads": dim // 48, "intermediate_dim": 4 * dim}
    return CaiTConfig(image_size, num_layers=num_layers, layer_scale=layer_scale, **shape)


# The models of Touvron et al. 2021. The number after the slash is the side of the images in training.
CaiT.sizes = {
    "XXS24/224": _size(192, 24, image_size=224),
    "XXS24/384": _size(192, 24),
    "XXS36/224": _size(192, 36, image_size=224),
    "XXS36/384": _size(192, 36),
    "XS24/384": _size(288, 24),
    "S24/224": _size(384, 24, image_size=224),
    "S24/384": _size(384, 24),
    "S36/384": _size(384, 36, 1e-6),
    "M36/384": _size(768, 36, 1e-6),
    "M48/448": _size(768, 48, 1e-6, 448),
}
