"""BoTNet of Srinivas et al. 2021, "Bottleneck Transformers for Visual Recognition".

A ResNet whose last bottlenecks attend among all cells of their map in place of the 3 x 3 convolution, with
vectors for the vertical and the horizontal offset of two cells. Where such a block has a stride, cells are
averaged after the attention. As in the authors' code and in timm batch normalisation and
the activation follow the attention, and there is no projection after it. The weights that timm publishes are
of a ResNet-26 whose stem is three convolutions.
"""

import dataclasses

import keras
from keras import ops

from keras_tfm.configs import Size, Whole
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.positions import AttentionPosition
from keras_tfm.layers.attention.projections import HeadProjections
from keras_tfm.layers.bottleneck import ShortcutBlock
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.grid import MapAttention
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.pooling import MaxPooling
from keras_tfm.models.base import check_stages
from keras_tfm.models.vision.resnet import ResidualConfig, ResidualNetwork


@dataclasses.dataclass(frozen=True)
class BoTNetConfig(ResidualConfig):
    """`inner_dims` are the widths within the blocks of each stage, `strides` those of their first blocks,
    `attending` how many of a stage's blocks, its last ones, attend. The stem is a convolution of 7 x 7 or,
    with `inner_stem_dims`, of 3 x 3 after others of these widths. `scale_positions` says whether scores are
    scaled after the offsets' part is added, as in the authors' code, or before.
    """

    inner_dims: tuple[Size, ...] = (64, 128, 256, 512)
    strides: tuple[Size, ...] = (1, 2, 2, 2)
    attending: tuple[Whole, ...] = (0, 0, 0, 3)
    num_heads: Size = 4
    inner_stem_dims: tuple[Size, ...] = ()
    scale_positions: bool = True
    activation: str = "relu"

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "dims", "depths", "inner_dims", "strides", "attending")
        if any(count > depth for count, depth in zip(self.attending, self.depths, strict=True)):
            raise ValueError(f"`attending` must not exceed `depths`, {self.depths}; it is {self.attending}.")

    def attends(self, stage, index):
        """Whether the block number `index` of a stage does."""
        return index >= self.depths[stage] - self.attending[stage]

    def grid(self, stage, index):
        """The (rows, columns) that go into the block number `index` of a stage."""
        grid = height_and_width(self.image_size)
        for stride in (2, 2, *self.strides[: stage + (index > 0)]):
            grid = tuple(-(-side // stride) for side in grid)
        return grid


class BoTNet(ResidualNetwork):
    """`ResidualNetwork` with batch normalisation, whose last blocks attend."""

    config_class = BoTNetConfig

    @classmethod
    def stem(cls, config, images):
        """What goes into the first block: sides a quarter as long."""
        widths = (*config.inner_stem_dims, config.stem_dim)
        size = 7 if len(widths) == 1 else 3
        layers = [_normalized(config, width, size, 1 if i else 2) for i, width in enumerate(widths)]
        return MaxPooling(3, 2, 1, name="stem_pooling")(Chain(layers, name="stem")(images))

    @classmethod
    def block(cls, config, stage, index):
        """The block number `index` of a stage."""
        dim, inner, stride = (
            config.dims[stage],
            config.inner_dims[stage],
            1 if index else config.strides[stage],
        )
        if config.attends(stage, index):
            middle = _attention(config, config.grid(stage, index), stride)
        else:
            middle = [_normalized(config, inner, 3, stride)]
        branch = [_normalized(config, inner, 1), *middle, Convolution(dim, 1, norm=BatchNormalization())]
        width_before = dim if index else (config.stem_dim, *config.dims)[stage]
        shortcut = None
        if (width_before, stride) != (dim, 1):
            shortcut = Convolution(dim, 1, stride, norm=BatchNormalization())
        name = f"stage_{stage}_block_{index}"
        return ShortcutBlock(Chain(branch), shortcut, activation=config.activation, name=name)


class OffsetEmbedding(AttentionPosition):
    """Scores of the queries with a learned vector for each vertical and each horizontal offset of two cells.

    Queries and keys are the cells of a `grid`, a side or (height, width), row by row. Section 3 of the paper;
    all heads share the vectors, (2 height - 1, K) and (2 width - 1, K), by key - query. With `scaled` this
    part of the scores is scaled as the others are.
    """

    def __init__(self, grid, scaled=True, **kwargs):
        super().__init__(**kwargs)
        height_and_width(grid, "grid")
        self.grid = grid
        self.scaled = scaled

    def build(self, heads):
        initializer = keras.initializers.TruncatedNormal(stddev=heads[1] ** -0.5)
        self.vertical, self.horizontal = (
            self.add_weight((2 * side - 1, heads[1]), initializer.clone(), name=name)
            for side, name in zip(height_and_width(self.grid), ("vertical", "horizontal"), strict=True)
        )
        self.built = True

    def scores(self, query, key, positions, key_positions, scale):
        """(B, H, T, T); ValueError where there are not as many tokens as cells."""
        height, width = height_and_width(self.grid)
        if any(x.shape[2] not in (None, height * width) for x in (query, key)):
            raise ValueError(f"{self.name!r} is for {height * width} tokens; there are {query.shape[2]}.")
        num_heads, dim = query.shape[1], query.shape[3]
        cells = ops.reshape(query * scale if self.scaled else query, (-1, num_heads, height, width, dim))
        vertical = ops.einsum("bnyxk,yrk->bnyxr", cells, _vectors(self.vertical, height, query.dtype))
        horizontal = ops.einsum("bnyxk,xck->bnyxc", cells, _vectors(self.horizontal, width, query.dtype))
        scores = vertical[..., :, None] + horizontal[..., None, :]  # (B, H, height, width, height, width)
        return ops.reshape(scores, (-1, num_heads, height * width, height * width))


def _vectors(table, side, dtype):
    """The vectors of the offsets from each of `side` places to each: (side, side, K)."""
    places = ops.arange(side, dtype="int32")
    return ops.cast(ops.take(table, places[None] - places[:, None] + side - 1, axis=0), dtype)


def map_attention(num_heads, grid, scaled, **options):
    """The attention among the cells of a map of this `grid`, without biases and without an output layer."""
    projections, position = HeadProjections(num_heads, use_bias=False), OffsetEmbedding(grid, scaled)
    attention = Attention(projections, position, output_layer=keras.layers.Identity())
    return MapAttention(attention, **options)


def _attention(config, grid, stride):
    """What stands in place of the 3 x 3 convolution."""
    attention = [map_attention(config.num_heads, grid, config.scale_positions)]
    if stride > 1:
        attention.append(keras.layers.AveragePooling2D(stride))
    return [Chain(attention), BatchNormalization(), keras.layers.Activation(config.activation)]


def _normalized(config, dim, size, stride=1):
    return Convolution(dim, size, stride, norm=BatchNormalization(), activation=config.activation)


# Srinivas et al. 2021: BoTNet-50, and S1-50 without a stride in the last stage. 26T is timm's.
BoTNet.sizes = {
    "26T": BoTNetConfig(
        image_size=256,
        depths=(2, 2, 2, 2),
        attending=(0, 0, 1, 2),
        inner_stem_dims=(24, 32),
        scale_positions=False,
    ),
    "50": BoTNetConfig(),
    "S1-50": BoTNetConfig(strides=(1, 2, 2, 1)),
}
