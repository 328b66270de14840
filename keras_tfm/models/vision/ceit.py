"""CeiT (Yuan et al. 2021, "Incorporating Convolution Designs into Visual Transformers").

A convolutional stem before the patches, a depthwise convolution in the feed-forward layers, and, at the end,
attention from the last block's class token to the class tokens of all blocks. As in the authors' code the
stem has no activation, and the class token skips the feed-forward layers: its normalised input is added to
it instead.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.configs import Refusal, Size
from keras_tfm.layers.attention.class_attention import ClassAttentionBlock
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.grid import OnGrid
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import PatchEmbedding, height_and_width, patch_grid
from keras_tfm.layers.pooling import MaxPooling
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import Side, image_input
from keras_tfm.models.vision.variant import (
    VariantConfig,
    attention_of,
    feedforward_of,
    residual_of,
    tokens_of,
)


@dataclasses.dataclass(frozen=True)
class CeiTConfig(VariantConfig):
    """The sizes of a `CeiT`.

    Args:
        patch_size: in cells of the stem's map, whose sides are a quarter of the image's.
        stem_dim: the width of the stem.
        stem_kernel: the side of the stem's kernel.
        kernel_size: the side of the depthwise kernels in feed-forward layers.

    Raises:
        ValueError: if a kernel's side is even.
    """

    patch_size: Side | tuple[Side, Side] = 4
    stem_dim: Size = 64
    stem_kernel: Side = 7
    kernel_size: Side = 3

    def __post_init__(self):
        super().__post_init__()
        for name in ("stem_kernel", "kernel_size"):
            if getattr(self, name) % 2 == 0:
                raise Refusal(name, "odd, to keep the map's size", getattr(self, name))

    @property
    def grid(self):
        """The (rows, columns) of patches."""
        sides = (-(-side // 4) for side in height_and_width(self.image_size))
        return patch_grid(tuple(sides), self.patch_size)


class CeiT(ConfiguredModel):
    """CeiT: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class token
    after the last attention and then the last block's patches, and `pooled_output` (B, D), that class token.
    The hidden states of the stack "class" are the class tokens of all blocks, the last block's first.

    >>> model = keras_tfm.models.CeiT.from_size("T", image_size=32, num_layers=1, dim=16, num_heads=2)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = CeiTConfig

    def __init__(self, config: CeiTConfig, name: str = "ceit", **kwargs: Any) -> None:
        images = image_input(config)
        stem = [
            Convolution(config.stem_dim, config.stem_kernel, 2, norm=BatchNormalization()),
            MaxPooling(3, 2, 1),
        ]
        x = Chain(stem, name="stem")(images)
        patches = PatchEmbedding(config.dim, config.patch_size, name="patch_embedding")(x)
        _, x = tokens_of(config, patches)
        x = Dropout(config.dropout, name="embedding_dropout")(x)
        blocks = [_block(config, patches.shape[1:3], i) for i in range(config.num_layers)]
        trace = Trace()
        x = trace.run("encoder", blocks, x)
        states = trace.hidden_states["encoder"][1:]
        tokens = ops.stack([state[:, 0] for state in states], axis=1)  # (B, L, D)
        tokens = PositionEmbedding(config.num_layers, "zeros", name="layer_position")(tokens)
        tokens = trace.run("class", [_class_block(config)], ops.flip(tokens, axis=1))
        x = ops.concatenate([tokens[:, :1], x[:, 1:]], axis=1)
        x = LayerNormalization(config.epsilon, name="norm")(x)
        outputs = {"sequence_output": x, "pooled_output": ops.take(x, 0, axis=1)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)


def _block(config, grid, index):
    attention = residual_of(config, attention_of(config), index)
    feedforward = OnGrid(_local_feedforward(config), grid, prefix=1)
    return Block(
        {"attention": attention, "feedforward": residual_of(config, feedforward, index)},
        name=f"block_{index}",
    )


def _local_feedforward(config):
    """Two dense layers with a depthwise convolution between them, each followed by batch normalisation."""
    hidden, activation = config.intermediate_dim, config.activation
    sizes = [
        (hidden, 1, 1, activation),
        (hidden, config.kernel_size, hidden, activation),
        (config.dim, 1, 1, None),
    ]
    return Chain(
        [
            Convolution(
                filters, size, groups=groups, norm=BatchNormalization(), activation=function, use_bias=True
            )
            for filters, size, groups, function in sizes
        ]
    )


def _class_block(config):
    part = residuals(config.dropout, config.epsilon, normalize_first=True)
    attention = MultiHeadAttention(config.num_heads, dropout=config.dropout, kernel_initializer=TRUNCATED)
    return ClassAttentionBlock(part(attention), part(feedforward_of(config)), name="class_block_0")


# The variants of Yuan et al. 2021; B is from the authors' code.
CeiT.sizes = {
    "T": CeiTConfig(dim=192, num_heads=3, intermediate_dim=768),
    "S": CeiTConfig(dim=384, num_heads=6, intermediate_dim=1536),
    "B": CeiTConfig(),
}
