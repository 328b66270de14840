"""The Mix Transformer, MiT: the encoder of SegFormer (Xie et al. 2021, "SegFormer").

A pyramid without positions: patches overlap, and a 3 x 3 convolution inside the feed-forward layers shows
cells where they are. The cells attend to a smaller map, and each stage's map is normalised at its end.
Deviates from the authors' code in the epsilon of the blocks' norms, 1e-5 as in transformers.
"""

import dataclasses
from typing import Any

import keras

from keras_tfm.configs import Depth, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import copy_of
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.grid import MapAttention
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.models.base import check_stages, rate_of
from keras_tfm.models.vision.images import ImageConfig, Rates, Ratio, Side, Stages
from keras_tfm.models.vision.pyramid import Pyramid

EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class MiTConfig(Rates, ImageConfig, Stages):
    """The sizes of a `MiT`; tuples have one entry per stage.

    Args:
        patch_sizes: the sides of the patches.
        strides: the distance between the starts of neighbouring patches.
        reductions: how many times smaller, on each side, the maps of keys are.
        mlp_ratios: the feed-forward width as a multiple of a stage's width.
    """

    dims: tuple[Size, ...] = (32, 64, 160, 256)
    depths: tuple[Depth, ...] = (2, 2, 2, 2)
    num_heads: tuple[Size, ...] = (1, 2, 5, 8)
    patch_sizes: tuple[Side, ...] = (7, 3, 3, 3)
    strides: tuple[Side, ...] = (4, 2, 2, 2)
    reductions: tuple[Side, ...] = (8, 4, 2, 1)
    mlp_ratios: tuple[Ratio, ...] = (4, 4, 4, 4)
    activation: str = "gelu"

    def __post_init__(self):
        super().__post_init__()
        names = ["dims", "depths", "num_heads", "patch_sizes", "strides", "reductions", "mlp_ratios"]
        check_stages(self, *names)


class MiT(Pyramid):
    """A `Pyramid` whose `maps` are normalised, as SegFormer's decoder expects them.

    >>> sizes = dict(dims=(16,), depths=(1,), num_heads=(2,), patch_sizes=(7,), strides=(4,), reductions=(2,))
    >>> model = keras_tfm.models.MiT.from_size("B0", image_size=32, mlp_ratios=(2.0,), **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 64, 16])
    """

    config_class = MiTConfig

    @classmethod
    def stage(cls, config, stage):
        size = config.patch_sizes[stage]
        options = {"padding": size // 2, "norm": LayerNormalization(EPSILON), "use_bias": True}
        name = f"stage_{stage}_embedding"
        return [
            Convolution(config.dims[stage], size, config.strides[stage], **options, name=name),
            *(_block(config, stage, i) for i in range(config.depths[stage])),
            LayerNormalization(EPSILON, name=f"stage_{stage}_norm"),
        ]


def _block(config, stage, index):
    dim, ratio = config.dims[stage], config.reductions[stage]
    rate = rate_of(config, stage, index)
    part = residuals(config.dropout, EPSILON, normalize_first=True, stochastic_depth=rate)
    attention = MultiHeadAttention(
        config.num_heads[stage], dropout=config.attention_dropout, kernel_initializer=TRUNCATED
    )
    reduction = None
    if ratio > 1:
        options: dict[str, Any] = {"padding": 0, "norm": LayerNormalization(EPSILON), "use_bias": True}
        reduction = Convolution(dim, ratio, ratio, **options)
    feedforward = _feedforward(dim, int(config.mlp_ratios[stage] * dim), config.activation)
    name = f"stage_{stage}_block_{index}"
    return block_of(part, name, attention=MapAttention(attention, reduction), feedforward=feedforward)


def _feedforward(dim, hidden, activation):
    """The mix feed-forward layer, equation 3: a depthwise convolution between two dense layers."""
    widths = (keras.layers.Dense(width, kernel_initializer=copy_of(TRUNCATED)) for width in (hidden, dim))
    first, last = widths
    return Chain([first, Convolution(hidden, groups=hidden, activation=activation), last])


# The series of Xie et al. 2021, with the ratios and stochastic depth of the authors' code.
_B0 = MiTConfig()
_B1 = dataclasses.replace(_B0, dims=(64, 128, 320, 512))
MiT.sizes = {
    "B0": _B0,
    "B1": _B1,
    "B2": dataclasses.replace(_B1, depths=(3, 4, 6, 3)),
    "B3": dataclasses.replace(_B1, depths=(3, 4, 18, 3)),
    "B4": dataclasses.replace(_B1, depths=(3, 8, 27, 3)),
    "B5": dataclasses.replace(_B1, depths=(3, 6, 40, 3)),
}
