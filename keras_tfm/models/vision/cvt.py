"""CvT (Wu et al. 2021, "CvT: Introducing Convolutions to Vision Transformers").

Three stages of fewer and wider cells. Each stage starts with a convolution over overlapping patches and a
norm. Queries, keys and values pass a depthwise convolution before they are projected, with a stride of 2 for
keys and values. There are no positions, and a class token is added in the last stage alone. As in the
authors' code the scores are scaled by D^-1/2 of the whole width D, not of a head's, and stochastic depth
grows with the blocks of each stage. Deviates from transformers in stochastic depth.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.configs import Depth, Rate, Size
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.projections import PARTS, HeadProjection
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.grid import to_map
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import flatten_map
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, Trace, growing_rates
from keras_tfm.models.vision.images import ImageConfig, Stages, image_input

EPSILON = 1e-5  # of all layer normalisations
PATCHES = ((7, 4, 2), (3, 2, 1), (3, 2, 1))  # kernel, stride and padding at the start of each stage
Rates = tuple[Rate, Rate, Rate]


@dataclasses.dataclass(frozen=True)
class CvTConfig(ImageConfig, Stages):
    """The sizes of a `CvT`; tuples have one entry per stage.

    Args:
        mlp_ratio: the feed-forward width as a multiple of a stage's width.
        stochastic_depth: the rate of each stage's last block.
    """

    dims: tuple[Size, Size, Size] = (64, 192, 384)
    depths: tuple[Depth, Depth, Depth] = (1, 2, 10)
    num_heads: tuple[Size, Size, Size] = (1, 3, 6)
    mlp_ratio: tuple[float, float, float] = (4.0, 4.0, 4.0)
    dropout: Rates = (0.0, 0.0, 0.0)
    attention_dropout: Rates = (0.0, 0.0, 0.0)
    stochastic_depth: Rates = (0.0, 0.0, 0.1)

    def __post_init__(self):
        super().__post_init__()
        if any(dim % heads for dim, heads in zip(self.dims, self.num_heads, strict=True)):
            raise ValueError(f"`num_heads` must divide `dims`, {self.dims}; they are {self.num_heads}.")
        if any(int(dim * ratio) < 1 for dim, ratio in zip(self.dims, self.mlp_ratio, strict=True)):
            raise ValueError(f"`mlp_ratio` times `dims` must be at least 1; `mlp_ratio` is {self.mlp_ratio}.")


class CvT(ConfiguredModel):
    """CvT: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class token
    and the last stage's cells row by row, normalised, and `pooled_output` (B, D), the class token's final
    state. `hidden_states` are sequences: the input of the first block and the output of each. `maps` (B,
    rows, columns, D) are the last map of each stage, before any norm.

    >>> model = keras_tfm.models.CvT.from_size("13", image_size=32, dims=(8, 12, 16), depths=(1, 1, 1),
    ...                                        num_heads=(1, 1, 2))
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = CvTConfig

    def __init__(self, config: CvTConfig, name: str = "cvt", **kwargs: Any) -> None:
        images = image_input(config)
        trace, ends = Trace(), [images]
        for stage, (size, stride, padding) in enumerate(PATCHES):
            norm = LayerNormalization(EPSILON)
            options: dict[str, Any] = {"norm": norm, "use_bias": True, "name": f"stage_{stage}_embedding"}
            x = Convolution(config.dims[stage], size, stride, padding, **options)(ends[-1])
            x = Dropout(config.dropout[stage], name=f"stage_{stage}_dropout")(x)
            grid, prefix, x = tuple(x.shape[1:3]), int(stage == 2), flatten_map(x)
            x = PrependedTokens(1, TRUNCATED, name="class_token")(x) if prefix else x
            blocks = [_block(config, stage, i, grid, prefix) for i in range(config.depths[stage])]
            x = trace.run("encoder", blocks, x)
            ends.append(to_map(x[:, prefix:], grid))
        x = LayerNormalization(EPSILON, name="norm")(x)
        outputs = {"sequence_output": x, "pooled_output": ops.take(x, 0, axis=1)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)
        self.maps = ends[1:]


class ConvolutionalProjections(Layer):
    """Queries, keys and values of `num_heads` heads, each by a depthwise convolution and a linear
    projection.

    Section 3.2. The tokens are the cells of a `grid`, row by row, after `prefix` tokens that skip the
    convolution. Keys and values are convolved with a `stride`, so there are fewer of them than queries.
    """

    def __init__(self, num_heads, grid, prefix=0, stride=2, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.grid = tuple(grid)
        self.prefix = prefix
        self.stride = stride

    def build(self, query_shape, value_shape=None, key_shape=None):
        dim = query_shape[-1]
        if value_shape is not None or key_shape is not None:
            raise ValueError(
                f"{self.name!r} is for self-attention, with a `query` alone; it is given a `value` or `key`."
            )
        if dim % self.num_heads:
            raise ValueError(f"`num_heads` must divide the width {dim}; it is {self.num_heads}.")
        self.key_width = self.value_width = dim // self.num_heads
        self.convolutions, self.dense = {}, {}
        for part in PARTS:
            stride = 1 if part == "query" else self.stride
            convolution = Convolution(
                dim, 3, stride, groups=dim, norm=BatchNormalization(), name=f"{part}_convolution"
            )
            convolution.build((query_shape[0], *self.grid, dim))
            widths = (self.key_width,)
            dense = HeadProjection(self.num_heads, widths, kernel_initializer=TRUNCATED.clone(), name=part)
            dense.build(query_shape)
            self.convolutions[part], self.dense[part] = convolution, dense

    def project(self, query, value=None, key=None):
        """Heads (B, H, T, K), (B, H, S, K) and (B, H, S, K) of `query` (B, M + rows columns, D)."""
        tokens, cells = query[:, : self.prefix], to_map(query[:, self.prefix :], self.grid)
        heads = []
        for part in PARTS:
            x = flatten_map(self.convolutions[part](cells))
            x = ops.concatenate([tokens, x], axis=1) if self.prefix else x
            heads += self.dense[part](x)
        return heads


def _block(config, stage, index, grid, prefix):
    """Block number `index` of a stage."""
    dim = config.dims[stage]
    rate = growing_rates(config.stochastic_depth[stage], config.depths[stage])[index]
    part = residuals(config.dropout[stage], EPSILON, normalize_first=True, stochastic_depth=rate)
    attention = Attention(
        ConvolutionalProjections(config.num_heads[stage], grid, prefix),
        scale=dim**-0.5,
        dropout=config.attention_dropout[stage],
        output_layer=Dense(dim, kernel_initializer=TRUNCATED.clone(), name="output"),
    )
    hidden = int(config.mlp_ratio[stage] * dim)
    feedforward = FeedForward(hidden, "gelu", kernel_initializer=TRUNCATED)
    name = f"stage_{stage}_block_{index}"
    return block_of(part, name, attention=attention, feedforward=feedforward)


# The architectures of Wu et al. 2021; W24 was trained with larger images.
_13 = CvTConfig()
CvT.sizes = {
    "13": _13,
    "21": dataclasses.replace(_13, depths=(1, 4, 16)),
    "W24": CvTConfig(
        384, dims=(192, 768, 1024), depths=(2, 2, 20), num_heads=(3, 12, 16), stochastic_depth=(0.0, 0.0, 0.3)
    ),
}
