"""BoTNet (Srinivas et al. 2021, "Bottleneck Transformers for Visual Recognition").

A ResNet whose last bottleneck blocks have attention between all cells of the map in place of the 3 x 3
convolution, with vectors for the vertical and the horizontal offset of two cells. In a block with a stride
the cells are averaged after the attention. As in the authors' code and in timm, batch normalisation and the
activation follow the attention, and there is no output projection. The weights that timm publishes are of a
ResNet-26 with a stem of three convolutions.
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
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.grid import MapAttention
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.pooling import MaxPooling
from keras_tfm.models.base import check_stages
from keras_tfm.models.vision.resnet import ResidualConfig, ResidualNetwork


@dataclasses.dataclass(frozen=True)
class BoTNetConfig(ResidualConfig):
    """The sizes of a `BoTNet`; tuples have one entry per stage.

    Args:
        inner_dims: the widths inside the blocks.
        strides: the strides of the stages' first blocks.
        attending: how many blocks at the end of each stage have attention.
        inner_stem_dims: the widths of 3 x 3 convolutions before the last one of the stem; without any the
            stem is one 7 x 7 convolution.
        scale_positions: whether the scores are scaled after the part of the offsets is added, as in the
            authors' code, or before.
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
        """Whether block number `index` of a stage has attention."""
        return index >= self.depths[stage] - self.attending[stage]

    def grid(self, stage, index):
        """The (rows, columns) of the input of block number `index` of a stage."""
        grid = height_and_width(self.image_size)
        for stride in (2, 2, *self.strides[: stage + (index > 0)]):
            grid = tuple(-(-side // stride) for side in grid)
        return grid


class BoTNet(ResidualNetwork):
    """A `ResidualNetwork` with batch normalisation, whose last blocks have attention.

    >>> sizes = {"image_size": 32, "dims": (16,), "depths": (1,), "inner_dims": (8,), "strides": (1,)}
    >>> model = keras_tfm.models.BoTNet.from_size("50", **sizes, attending=(1,), num_heads=2, stem_dim=8)
    >>> model(np.ones((1, 32, 32, 3)))["pooled_output"].shape
    TensorShape([1, 16])
    """

    config_class = BoTNetConfig

    @classmethod
    def stem(cls, config, images):
        """The input of the first block, a map whose sides are a quarter of the image's."""
        widths = (*config.inner_stem_dims, config.stem_dim)
        size = 7 if len(widths) == 1 else 3
        layers = [_normalized(config, width, size, 1 if i else 2) for i, width in enumerate(widths)]
        return MaxPooling(3, 2, 1, name="stem_pooling")(Chain(layers, name="stem")(images))

    @classmethod
    def block(cls, config, stage, index):
        """Block number `index` of a stage."""
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
    """A learned vector for each vertical and each horizontal offset of two cells; its product with the query
    is added.

    The tokens are the cells of a `grid`, a side or (height, width), row by row. All heads share the vectors,
    (2 height - 1, K) and (2 width - 1, K), for key - query. `scaled` says whether this part of the scores is
    scaled like the rest. Section 3 of the paper.
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

    def scores(self, query, key, positions, key_positions, scale):
        """The scores (B, H, T, T) to add. Raises ValueError unless each cell has a token."""
        height, width = height_and_width(self.grid)
        if any(x.shape[2] not in (None, height * width) for x in (query, key)):
            raise ValueError(
                f"{self.name!r} has a `grid` for {height * width} tokens; it is called with {query.shape[2]}."
            )
        num_heads, dim = query.shape[1], query.shape[3]
        cells = ops.reshape(query * scale if self.scaled else query, (-1, num_heads, height, width, dim))
        vertical = ops.einsum("bnyxk,yrk->bnyxr", cells, _vectors(self.vertical, height, query.dtype))
        horizontal = ops.einsum("bnyxk,xck->bnyxc", cells, _vectors(self.horizontal, width, query.dtype))
        scores = vertical[..., :, None] + horizontal[..., None, :]  # (B, H, height, width, height, width)
        return ops.reshape(scores, (-1, num_heads, height * width, height * width))


def _vectors(table, side, dtype):
    """The vectors for the offsets from each of `side` places to each: (side, side, K)."""
    places = ops.arange(side, dtype="int32")
    return ops.cast(ops.take(table, places[None] - places[:, None] + side - 1, axis=0), dtype)


def map_attention(projections, grid, scaled, **options):
    """Attention between the cells of a map of this `grid`, without an output layer."""
    attention = Attention(projections, OffsetEmbedding(grid, scaled), output_layer=keras.layers.Identity())
    return MapAttention(attention, **options)


def _attention(config, grid, stride):
    """The layers in place of the 3 x 3 convolution."""
    projections = HeadProjections(config.num_heads, use_bias=False)
    attention = [map_attention(projections, grid, config.scale_positions)]
    if stride > 1:
        attention.append(keras.layers.AveragePooling2D(stride))
    return [Chain(attention), BatchNormalization(), keras.layers.Activation(activation_of(config.activation))]


def _normalized(config, dim, size, stride=1):
    return Convolution(dim, size, stride, norm=BatchNormalization(), activation=config.activation)


# Srinivas et al. 2021: BoTNet-50, and S1-50, without a stride in the last stage. 26T is timm's own.
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
