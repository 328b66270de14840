"""Twins (Chu et al. 2021, "Twins: Revisiting the Design of Spatial Attention in Vision Transformers").

A pyramid whose positions are made by a convolution after the first block of each stage (Chu et al. 2021,
"Conditional Positional Encodings"). In PCPVT all blocks attend to a smaller map. In SVT every second block
does; the others attend within windows. Deviates from the authors' code where a map is smaller than a window:
here the window becomes the map, there the map is padded.
"""

import dataclasses

import keras

from keras_tfm.configs import Depth, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Residual, block_of, residuals
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.grid import MapAttention
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import PatchEmbedding, height_and_width
from keras_tfm.layers.windows import WindowAttention
from keras_tfm.models.base import check_stages, rate_of
from keras_tfm.models.vision.images import PatchedImageConfig, Rates, Ratio, Side
from keras_tfm.models.vision.pyramid import Pyramid

EPSILON = 1e-5  # of the norms after convolutions; `epsilon` of the configuration is for the blocks


@dataclasses.dataclass(frozen=True)
class TwinsConfig(Rates, PatchedImageConfig):
    """The sizes of a `Twins`; tuples have one entry per stage.

    Args:
        mlp_ratios: the feed-forward width as a multiple of a stage's width.
        reductions: how many times smaller, on each side, the maps of keys are.
        windows: the sides of the windows in cells, in which every second block attends, starting with the
            first; None for PCPVT.
    """

    patch_size: Side = 4
    dims: tuple[Size, ...] = (64, 128, 320, 512)
    depths: tuple[Depth, ...] = (3, 4, 6, 3)
    num_heads: tuple[Size, ...] = (1, 2, 5, 8)
    mlp_ratios: tuple[Ratio, ...] = (8, 8, 4, 4)
    reductions: tuple[Side, ...] = (8, 4, 2, 1)
    windows: tuple[Side, ...] | None = None
    stochastic_depth: Rate = 0.0
    epsilon: Rate = 1e-6

    def __post_init__(self):
        super().__post_init__()
        names = ["dims", "depths", "num_heads", "mlp_ratios", "reductions"]
        check_stages(self, *names, *(["windows"] if self.windows is not None else []))

    @property
    def grids(self):
        """The (rows, columns) of each stage's maps."""
        sides = height_and_width(self.image_size)
        return tuple(
            tuple(side // self.patch_size // 2**stage for side in sides) for stage in range(len(self.depths))
        )


class Twins(Pyramid):
    """A `Pyramid` of blocks that attend within windows, or to a smaller map.

    >>> sizes = dict(dims=(16,), depths=(1,), num_heads=(2,), mlp_ratios=(2.0,), reductions=(2,))
    >>> model = keras_tfm.models.Twins.from_size("PCPVT-S", image_size=32, **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 64, 16])
    """

    config_class = TwinsConfig

    @classmethod
    def stage(cls, config, stage):
        dim, patch_size = config.dims[stage], 2 if stage else config.patch_size
        first, *others = (_block(config, stage, i) for i in range(config.depths[stage]))
        return [
            PatchEmbedding(dim, patch_size, name=f"stage_{stage}_embedding"),
            LayerNormalization(EPSILON, name=f"stage_{stage}_embedding_norm"),
            first,
            Residual(Convolution(dim, groups=dim), name=f"stage_{stage}_position"),
            *others,
        ]

    @classmethod
    def last(cls, config, x):
        return LayerNormalization(config.epsilon, name="norm")(x)


def _block(config, stage, index):
    rate = rate_of(config, stage, index)
    part = residuals(config.dropout, config.epsilon, normalize_first=True, stochastic_depth=rate)
    hidden = int(config.mlp_ratios[stage] * config.dims[stage])
    feedforward = FeedForward(hidden, "gelu", kernel_initializer=TRUNCATED)
    name = f"stage_{stage}_block_{index}"
    return block_of(part, name, attention=_attention(config, stage, index), feedforward=feedforward)


def _attention(config, stage, index):
    """Attention to a smaller map, or within windows."""
    attention = MultiHeadAttention(
        config.num_heads[stage], dropout=config.attention_dropout, kernel_initializer=TRUNCATED
    )
    if config.windows is not None and index % 2 == 0:
        return WindowAttention(attention, config.windows[stage])
    ratio = config.reductions[stage]
    if ratio == 1:  # in checkpoints the queries' weights are separate here too
        return MapAttention(attention, keras.layers.Identity())
    size = {"kernel_size": ratio, "stride": ratio, "padding": 0}
    norm = LayerNormalization(EPSILON)
    return MapAttention(attention, Convolution(config.dims[stage], **size, norm=norm, use_bias=True))


# The configurations of Chu et al. 2021 for PCPVT and SVT, with stochastic depth as in the authors' commands.
_PCPVT = TwinsConfig(stochastic_depth=0.2)
_SVT = TwinsConfig(
    dims=(64, 128, 256, 512),
    depths=(2, 2, 10, 4),
    num_heads=(2, 4, 8, 16),
    mlp_ratios=(4, 4, 4, 4),
    windows=(7, 7, 7, 7),
    stochastic_depth=0.2,
)
_SVT_B = dataclasses.replace(
    _SVT, dims=(96, 192, 384, 768), depths=(2, 2, 18, 2), num_heads=(3, 6, 12, 24), stochastic_depth=0.3
)
Twins.sizes = {
    "PCPVT-S": _PCPVT,
    "PCPVT-B": dataclasses.replace(_PCPVT, depths=(3, 4, 18, 3), stochastic_depth=0.3),
    "PCPVT-L": dataclasses.replace(_PCPVT, depths=(3, 8, 27, 3), stochastic_depth=0.5),
    "SVT-S": _SVT,
    "SVT-B": _SVT_B,
    "SVT-L": dataclasses.replace(
        _SVT_B, dims=(128, 256, 512, 1024), num_heads=(4, 8, 16, 32), stochastic_depth=0.5
    ),
}
