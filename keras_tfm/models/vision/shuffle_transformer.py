"""The Shuffle Transformer (Huang et al. 2021, "Shuffle Transformer: Rethinking Spatial Shuffle for ViT").

A pyramid whose blocks attend, by turns, within windows and between cells that are far apart. A depthwise
convolution in each block connects neighbouring windows. It has batch normalisation and ReLU6 where others
have layer normalisation and GELU, and no norm after the last map.
"""

import dataclasses

import keras

from keras_tfm.configs import Depth, Size
from keras_tfm.layers.attention.grid_position import GridPositionBias
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.patches import PatchEmbedding
from keras_tfm.layers.windows import WindowAttention
from keras_tfm.models.base import check_stages, rate_of
from keras_tfm.models.vision.images import ImageConfig, Rates, Ratio, Side
from keras_tfm.models.vision.pyramid import Pyramid


@dataclasses.dataclass(frozen=True)
class ShuffleTransformerConfig(Rates, ImageConfig):
    """The sizes of a `ShuffleTransformer`; tuples have one entry per stage.

    Args:
        stem_dim: the width of the first convolution.
        head_dim: the width of a head; a stage is as wide as all its heads.
        window: the side of a window in cells, odd.
        mlp_ratio: the feed-forward width as a multiple of a stage's width.
    """

    stem_dim: Size = 32
    depths: tuple[Depth, ...] = (2, 2, 6, 2)
    num_heads: tuple[Size, ...] = (3, 6, 12, 24)
    head_dim: Size = 32
    window: Side = 7
    mlp_ratio: Ratio = 4.0

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "depths", "num_heads")
        if self.window % 2 == 0:
            raise ValueError(
                f"`window` must be odd, because a convolution has its size too; it is {self.window}."
            )

    @property
    def widths(self):
        """The width of each stage."""
        return tuple(self.head_dim * heads for heads in self.num_heads)


class ShuffleTransformer(Pyramid):
    """A `Pyramid` of blocks that attend, by turns, within windows of neighbours and of cells that are far
    apart.

    >>> sizes = dict(image_size=32, depths=(1,), num_heads=(1,), head_dim=16)
    >>> model = keras_tfm.models.ShuffleTransformer.from_size("T", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 64, 16])
    """

    config_class = ShuffleTransformerConfig

    @classmethod
    def stage(cls, config, stage):
        widths, layers = config.widths, []
        if stage == 0:
            layers = [_stem(config)]
        elif widths[stage] != widths[stage - 1]:
            name = f"stage_{stage}_merging"
            merging = PatchEmbedding(widths[stage], 2, use_bias=False, name=name)
            layers = [BatchNormalization(name=f"{name}_norm"), merging]
        return [*layers, *(_block(config, stage, i) for i in range(config.depths[stage]))]


def _stem(config):
    """Two convolutions that halve the sides of the image each, and a linear layer."""
    width = config.widths[0]
    convolutions = [
        Convolution(filters, 3, 2, norm=BatchNormalization(), activation="relu6", use_bias=True)
        for filters in (config.stem_dim, width)
    ]
    return Chain([*convolutions, keras.layers.Dense(width)], name="stem")


def _block(config, stage, index):
    """Block number `index` of a stage; every second one attends between cells that are far apart."""
    width, window = config.widths[stage], config.window
    rate = rate_of(config, stage, index)
    part = residuals(config.dropout, 1e-5, BatchNormalization, normalize_first=True)
    attention = MultiHeadAttention(
        config.num_heads[stage],
        dropout=config.attention_dropout,
        use_bias=(),
        position=GridPositionBias(window, initializer=TRUNCATED),
        kernel_initializer=TRUNCATED,
    )
    hidden = int(config.mlp_ratio * width)
    feedforward = FeedForward(hidden, "relu6", kernel_initializer=TRUNCATED)
    parts = {
        "attention": part(WindowAttention(attention, window, spread=index % 2 == 1), stochastic_depth=rate),
        "neighbours": part(Convolution(width, window, groups=width)),
        "feedforward": part(feedforward, stochastic_depth=rate),
    }
    return Block(parts, name=f"stage_{stage}_block_{index}")


# The architectures of Huang et al. 2021.
_T = ShuffleTransformerConfig()
_S = dataclasses.replace(_T, depths=(2, 2, 18, 2))
ShuffleTransformer.sizes = {"T": _T, "S": _S, "B": dataclasses.replace(_S, num_heads=(4, 8, 16, 32))}
