"""XCiT (El-Nouby et al. 2021, "XCiT: Cross-Covariance Image Transformers").

Blocks of attention between features, a local interaction of neighbouring patches, and a feed-forward layer;
their cost is linear in the number of patches. Then blocks in which only a class token attends (see
`ClassBlock`).
"""

import dataclasses
from typing import Any, Literal

from keras import ops

from keras_tfm.configs import Depth, Heads, Rate, Size
from keras_tfm.layers.attention.class_attention import ClassAttention
from keras_tfm.layers.attention.cross_covariance import CrossCovarianceAttention
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.blocks import Residual, block_of, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution, ConvolutionalStem
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.grid import FourierPositions, OnGrid
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import flatten_map, patch_grid
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import ImageConfig, image_input


@dataclasses.dataclass(frozen=True)
class XCiTConfig(ImageConfig):
    """The sizes of an `XCiT`.

    Args:
        num_layers: the number of blocks of patches.
        num_class_layers: the number of blocks in which the class token attends.
        layer_scale: the first value of the learned factors.
        normalize_patches: whether the blocks of the class token normalise the patches too.
        stochastic_depth: the rate in each block of patches.
    """

    patch_size: Literal[8, 16] = 16
    num_layers: Depth = 12
    num_class_layers: Depth = 2
    dim: Size = 384
    num_heads: Heads = 8
    intermediate_dim: Size = 1536
    layer_scale: float = 1.0
    normalize_patches: bool = True
    stochastic_depth: Rate = 0.0
    epsilon: Rate = 1e-6


class XCiT(ConfiguredModel):
    """XCiT: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class token
    first, and `pooled_output` (B, D), the class token's final state.

    >>> sizes = dict(image_size=32, num_layers=1, dim=16, num_heads=2, intermediate_dim=32)
    >>> model = keras_tfm.models.XCiT.from_size("N12/16", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = XCiTConfig

    def __init__(self, config: XCiTConfig, name: str = "xcit", **kwargs: Any) -> None:
        images = image_input(config)
        size = tuple(images.shape[1:3])
        grid = patch_grid(size, config.patch_size)
        depth = config.patch_size.bit_length() - 1  # each convolution halves the sides
        x = ConvolutionalStem(config.dim, depth, "gelu", name="stem")(images)
        blocks = [_block(config, grid, f"block_{i}") for i in range(config.num_layers)]
        class_blocks = [_class_block(config, f"class_block_{i}") for i in range(config.num_class_layers)]
        trace = Trace()
        x = trace.run("encoder", blocks, flatten_map(x + FourierPositions(name="position")(x)))
        x = trace.run("class", class_blocks, PrependedTokens(name="class_token")(x))
        x = LayerNormalization(config.epsilon, name="norm")(x)
        outputs = {"sequence_output": x, "pooled_output": ops.take(x, 0, axis=1)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)


class ClassBlock(SameShape):
    """The residual `attention` of a `ClassAttention`; `norm`; and the residual `feedforward` of the class
    token.

    The patches, also normalised with `normalize_patches`, are doubled, as in the authors' code: no part of a
    `Block` treats the token alone.
    """

    is_block = True

    def __init__(self, attention, norm, feedforward, normalize_patches=True, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention
        self.norm = norm
        self.feedforward = feedforward
        self.normalize_patches = normalize_patches

    def build(self, x_shape):
        self.attention.build(x_shape)
        self.norm.build(x_shape)
        self.feedforward.build((x_shape[0], 1, x_shape[-1]))

    def call(self, x, training=None):
        """(B, N + 1, D) -> (B, N + 1, D)."""
        x = self.attention(x, training=training)
        token, patches = self.norm(x[:, :1]), x[:, 1:]
        patches = self.norm(patches) if self.normalize_patches else patches
        return ops.concatenate([self.feedforward(token, training=training), 2 * patches], axis=1)


def _block(config, grid, name):
    """Residuals of attention between features, of the interaction of neighbours, and of a feed-forward
    layer.
    """
    size = {"filters": config.dim, "groups": config.dim}
    neighbours = [Convolution(**size, activation="gelu"), BatchNormalization(), Convolution(**size)]
    branches = {
        "attention": CrossCovarianceAttention(config.num_heads),
        "neighbours": OnGrid(Chain(neighbours), grid),
        "feedforward": FeedForward(config.intermediate_dim, "gelu"),
    }
    return block_of(_residuals(config), name, **branches)


def _class_block(config, name):
    attention = _residuals(config)(ClassAttention(MultiHeadAttention(config.num_heads)))
    feedforward = Residual(FeedForward(config.intermediate_dim, "gelu"), layer_scale=config.layer_scale)
    norm = LayerNormalization(config.epsilon)
    return ClassBlock(attention, norm, feedforward, config.normalize_patches, name=name)


def _residuals(config):
    rates = {"stochastic_depth": config.stochastic_depth, "layer_scale": config.layer_scale}
    return residuals(epsilon=config.epsilon, normalize_first=True, **rates)


def _size(dim, num_layers, num_heads, layer_scale=1.0, **options):
    options |= {"num_layers": num_layers, "num_heads": num_heads, "layer_scale": layer_scale}
    return XCiTConfig(dim=dim, intermediate_dim=4 * dim, **options)


# The models of El-Nouby et al. 2021 with patches of 16 x 16. The nano has the authors' first class blocks.
XCiT.sizes = {
    "N12/16": _size(128, 12, 4, normalize_patches=False),
    "T12/16": _size(192, 12, 4),
    "T24/16": _size(192, 24, 4, 1e-5),
    "S12/16": _size(384, 12, 8),
    "S24/16": _size(384, 24, 8, 1e-5),
    "M24/16": _size(512, 24, 8, 1e-5),
    "L24/16": _size(768, 24, 16, 1e-5),
}
