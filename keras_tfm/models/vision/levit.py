"""LeViT (Graham et al. 2021, "LeViT: a Vision Transformer in ConvNet's Clothing for Faster Inference").

A convolutional stem, then stages of attention over fewer and fewer cells. Every linear layer is followed by
batch normalisation and has no bias; positions are a bias for each absolute offset. Between two stages
attention shrinks the grid: only every second row and column has a query.
"""

import dataclasses
import math
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Depth, Rate, Size
from keras_tfm.layers.attention.grid_position import GridPositionBias
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.normalized_projections import NormalizedProjections
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import Block, Residual
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, ConvolutionalStem, NormalizedDense
from keras_tfm.layers.grid import every_nth, every_nth_grid
from keras_tfm.layers.patches import flatten_map
from keras_tfm.models.base import ConfiguredModel, Trace, check_stages
from keras_tfm.models.vision.images import ImageConfig, image_input


@dataclasses.dataclass(frozen=True)
class LeViTConfig(ImageConfig):
    """The sizes of a `LeViT`; tuples have one entry per stage.

    Args:
        key_dim: the width of a head's queries and keys; its values are twice as wide.
        distilled: whether there is a second output for a head that learns from a teacher.
    """

    dims: tuple[Size, ...] = (128, 256, 384)
    num_layers: tuple[Depth, ...] = (4, 4, 4)
    num_heads: tuple[Size, ...] = (4, 8, 12)
    key_dim: Size = 16
    stochastic_depth: Rate = 0.0
    distilled: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "dims", "num_layers", "num_heads")
        if self.dims[0] % 8 or any(dim % self.key_dim for dim in self.dims[:-1]):
            raise ValueError(f"`dims` must be multiples of 8 and of `key_dim`; they are {self.dims}.")


class LeViT(ConfiguredModel):
    """LeViT: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N, D), the last stage's
    cells row by row; `pooled_output` (B, D), their mean, normalised; and with `distilled` the
    `distilled_output` (B, D), the mean normalised for the second head.

    >>> sizes = dict(image_size=32, dims=(16,), num_layers=(1,), num_heads=(2,))
    >>> model = keras_tfm.models.LeViT.from_size("128S", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 4, 16])
    """

    config_class = LeViTConfig

    def __init__(self, config: LeViTConfig, name: str = "levit", **kwargs: Any) -> None:
        images = image_input(config)
        stem = ConvolutionalStem(config.dims[0], 4, "hard_swish", name="stem")
        grid = stem.compute_output_shape(images.shape)[1:3]
        blocks: list[Layer] = []
        stages = zip(config.dims, config.num_layers, config.num_heads, strict=True)
        for i, (width, depth, heads) in enumerate(stages):
            if i:
                heads_between = config.dims[i - 1] // config.key_dim
                blocks.append(_shrinking_block(config, width, heads_between, grid, f"stage_{i}_shrinking"))
                grid = every_nth_grid(grid, 2)
            blocks += [_block(config, width, heads, grid, f"stage_{i}_block_{j}") for j in range(depth)]
        trace = Trace()
        x = trace.run("encoder", blocks, flatten_map(stem(images)))
        mean = ops.mean(x, axis=1)
        outputs = {"sequence_output": x, "pooled_output": BatchNormalization(name="norm")(mean)}
        if config.distilled:
            outputs["distilled_output"] = BatchNormalization(name="distilled_norm")(mean)
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)


class ShrinkingBlock(Layer):
    """Attention whose queries are every second row and column of a `grid`, then a residual feed-forward
    layer.

    (B, N, D) -> (B, N', D'). It is no `Block`: the attention has no residual connection, since its input has
    another shape.
    """

    is_block = True

    def __init__(self, attention, feedforward, grid, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention
        self.feedforward = feedforward
        self.grid = tuple(grid)

    def build(self, x_shape):
        self.attention.build(self._query_shape(x_shape), x_shape)
        self.feedforward.build(self.compute_output_shape(x_shape))

    def call(self, x, training=None):
        """(B, N, D) -> (B, N', D')."""
        x = self.attention(every_nth(x, self.grid, 2), x, training=training)
        return self.feedforward(x, training=training)

    def compute_output_shape(self, x_shape):
        return self.attention.compute_output_shape(self._query_shape(x_shape))

    def _query_shape(self, x_shape):
        return (x_shape[0], math.prod(every_nth_grid(self.grid, 2)), x_shape[-1])


def _block(config, width, num_heads, grid, name):
    """A block whose parts start as the identity."""
    position, key_dim = GridPositionBias(grid, signed=False), config.key_dim
    attention = _attention(width, num_heads, key_dim, 2 * key_dim, position, gamma="zeros")
    attention = Residual(attention, stochastic_depth=config.stochastic_depth)
    return Block({"attention": attention, "feedforward": _feedforward(config, width)}, name=name)


def _shrinking_block(config, width, num_heads, grid, name):
    """A shrinking block; its values are twice as wide as in the other blocks."""
    position, key_dim = GridPositionBias(grid, signed=False, query_stride=2), config.key_dim
    attention = _attention(width, num_heads, key_dim, 4 * key_dim, position)
    return ShrinkingBlock(attention, _feedforward(config, width), grid, name=name)


def _attention(width, num_heads, key_dim, value_dim, position, gamma="ones"):
    output = NormalizedDense(width, BatchNormalization(gamma_initializer=gamma))
    output = Chain([keras.layers.Activation("hard_swish"), output])
    projections = NormalizedProjections(num_heads, key_dim, value_dim)
    return Attention(projections, position, output_layer=output)


def _feedforward(config, width):
    output = NormalizedDense(width, BatchNormalization(gamma_initializer="zeros"))
    branch = Chain([NormalizedDense(2 * width, activation="hard_swish"), output])
    return Residual(branch, stochastic_depth=config.stochastic_depth)


# The models of Graham et al. 2021, with the authors' `stochastic_depth`. All were trained with a teacher.
_128 = LeViTConfig(distilled=True)
_256 = dataclasses.replace(_128, dims=(256, 384, 512), num_heads=(4, 6, 8), key_dim=32)
LeViT.sizes = {
    "128S": dataclasses.replace(_128, num_layers=(2, 3, 4), num_heads=(4, 6, 8)),
    "128": _128,
    "192": dataclasses.replace(_256, dims=(192, 288, 384), num_heads=(3, 5, 6)),
    "256": _256,
    "384": dataclasses.replace(_256, dims=(384, 512, 768), num_heads=(6, 9, 12), stochastic_depth=0.1),
}
