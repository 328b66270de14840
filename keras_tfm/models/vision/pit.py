"""PiT (Heo et al. 2021, "Rethinking Spatial Dimensions of Vision Transformers").

A ViT in stages. Between two stages a depthwise convolution of stride 2 halves the sides of the grid of
patches and gives each patch more features; a dense layer gives the class token as many. At the start patches
overlap, and only there positions are added. Deviates from the authors' code, which normalises only the class
token at the end: here all tokens are normalised, which does not change the class token.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.configs import Depth, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.grid import every_nth_grid, to_map
from keras_tfm.layers.image_positions import GridPositionEmbedding
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import PatchEmbedding, flatten_map
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, Trace, check_stages, rate_of
from keras_tfm.models.vision.images import PatchedImageConfig, Ratio, Side, Stages, image_input


@dataclasses.dataclass(frozen=True)
class PiTConfig(PatchedImageConfig, Stages):
    """The sizes of a `PiT`; tuples have one entry per stage.

    Args:
        stride: the distance between the starts of neighbouring patches.
        mlp_ratio: the feed-forward width as a multiple of a stage's width.
        distilled: whether there is a second token, for a head that learns from a teacher.
    """

    patch_size: Side = 16
    stride: Side = 8
    dims: tuple[Size, ...] = (144, 288, 576)
    depths: tuple[Depth, ...] = (2, 6, 4)
    num_heads: tuple[Size, ...] = (3, 6, 12)
    mlp_ratio: Ratio = 4.0
    distilled: bool = False
    stochastic_depth: Rate = 0.1
    activation: str = "gelu"
    epsilon: Rate = 1e-6

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "dims", "depths", "num_heads")
        if any(dim % before for before, dim in zip(self.dims, self.dims[1:], strict=False)):
            raise ValueError(f"Each of `dims` must be a multiple of the one before; they are {self.dims}.")

    @property
    def num_tokens(self):
        """The number of tokens before the patches."""
        return 1 + self.distilled


class PiT(ConfiguredModel):
    """PiT: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs of the last stage: `sequence_output` (B, N + 1, D),
    the class token first; `pooled_output` (B, D), its final state; and with `distilled` the
    `distilled_output` (B, D), the second token's. `maps` are the last map of each stage, without the tokens.

    >>> model = keras_tfm.models.PiT.from_size("Ti", image_size=32, dims=(16,), depths=(1,), num_heads=(2,))
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 10, 16])
    """

    config_class = PiTConfig

    def __init__(self, config: PiTConfig, name: str = "pit", **kwargs: Any) -> None:
        images = image_input(config)
        patches = PatchEmbedding(config.dims[0], config.patch_size, config.stride, name="patch_embedding")
        x = GridPositionEmbedding(initializer=TRUNCATED, name="position")(patches(images))
        x, grid = Dropout(config.dropout, name="embedding_dropout")(x), x.shape[1:3]
        x = PrependedTokens(config.num_tokens, TRUNCATED, name="tokens")(flatten_map(x))
        trace, maps = Trace(), []
        for stage, depth in enumerate(config.depths):
            if stage:
                pooling = GridPooling(
                    config.dims[stage], grid, config.num_tokens, name=f"stage_{stage}_pooling"
                )
                x, grid = pooling(x), every_nth_grid(grid, 2)
            x = trace.run("encoder", [_block(config, stage, i) for i in range(depth)], x)
            maps.append(to_map(x[:, config.num_tokens :], grid))
        x = LayerNormalization(config.epsilon, name="norm")(x)
        outputs = {"sequence_output": x, "pooled_output": ops.take(x, 0, axis=1)}
        if config.distilled:
            outputs["distilled_output"] = ops.take(x, 1, axis=1)
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)
        self.maps = maps


class GridPooling(Layer):
    """Halves the sides of a `grid` by a depthwise 3 x 3 convolution with `dim` output features.

    The first `prefix` tokens pass through a dense layer instead: (B, M + N, D) -> (B, M + N', dim).
    """

    def __init__(self, dim, grid, prefix=1, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.grid = tuple(grid)
        self.prefix = prefix

    def build(self, x_shape):
        batch_size, _, width = x_shape
        self.convolution = Convolution(self.dim, 3, 2, groups=width, name="convolution")
        self.convolution.build((batch_size, *self.grid, width))
        self.dense = Dense(self.dim, name="dense")
        self.dense.build((batch_size, self.prefix, width))

    def call(self, x):
        """(B, M + N, D) -> (B, M + N', dim)."""
        patches = self.convolution(to_map(x[:, self.prefix :], self.grid))
        return ops.concatenate([self.dense(x[:, : self.prefix]), flatten_map(patches)], axis=1)

    def compute_output_shape(self, x_shape):
        rows, columns = every_nth_grid(self.grid, 2)
        return (x_shape[0], self.prefix + rows * columns, self.dim)


def _block(config, stage, index):
    rate = rate_of(config, stage, index)
    part = residuals(config.dropout, config.epsilon, normalize_first=True, stochastic_depth=rate)
    attention = MultiHeadAttention(config.num_heads[stage], dropout=config.dropout)
    feedforward = FeedForward(int(config.mlp_ratio * config.dims[stage]), config.activation)
    name = f"stage_{stage}_block_{index}"
    return block_of(part, name, attention=attention, feedforward=feedforward)


# The architectures of Heo et al. 2021. Those trained with a teacher have two tokens.
_S = PiTConfig()
_SIZES = {
    "Ti": dataclasses.replace(_S, dims=(64, 128, 256), num_heads=(2, 4, 8)),
    "XS": dataclasses.replace(_S, dims=(96, 192, 384), num_heads=(2, 4, 8)),
    "S": _S,
    "B": PiTConfig(patch_size=14, stride=7, dims=(256, 512, 1024), depths=(3, 6, 4), num_heads=(4, 8, 16)),
}
PiT.sizes = _SIZES | {
    f"{name}-distilled": dataclasses.replace(config, distilled=True) for name, config in _SIZES.items()
}
