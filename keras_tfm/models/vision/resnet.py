"""Two convolutional networks: ResNet (He et al. 2016, "Deep Residual Learning for Image Recognition") and BiT
(Kolesnikov et al. 2020, "Big Transfer").

ResNet is the usual version 1.5, whose bottlenecks have their stride in the 3 x 3 convolution. BiT normalises
groups of features, before each convolution (He et al. 2016, "Identity Mappings in Deep Residual Networks"),
and standardises kernels; its batches may be small.
"""

import abc
import dataclasses
from typing import Literal

import keras

from keras_tfm.configs import Depth, Rate, Size
from keras_tfm.layers.bottleneck import ShortcutBlock
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution, StandardizedConvolution
from keras_tfm.layers.normalization import GroupNormalization
from keras_tfm.layers.pooling import MaxPooling
from keras_tfm.models.base import check_stages, rate_of
from keras_tfm.models.vision.images import ImageConfig, Stages
from keras_tfm.models.vision.pyramid import Pyramid


@dataclasses.dataclass(frozen=True)
class ResidualConfig(ImageConfig, Stages):
    """`dims` and `depths` are the width and the number of blocks of each stage, `stem_dim` the width of
    the stem before them.
    """

    stem_dim: Size = 64
    dims: tuple[Size, ...] = (256, 512, 1024, 2048)
    depths: tuple[Depth, ...] = (3, 4, 6, 3)

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "dims", "depths")


@dataclasses.dataclass(frozen=True)
class ResNetConfig(ResidualConfig):
    """A `basic` block is two 3 x 3 convolutions, a `bottleneck` one between two of 1 x 1, at a quarter of the
    width. `last_stride` 1 leaves the last stage's map as large as the one before it; `stem_stride` 2 leaves
    out the pooling after the stem, so that all maps are twice as large, for small images.
    """

    block: Literal["basic", "bottleneck"] = "bottleneck"
    last_stride: Literal[1, 2] = 2
    stem_stride: Literal[2, 4] = 4

    def __post_init__(self):
        super().__post_init__()
        if self.block == "bottleneck" and any(dim % 4 for dim in self.dims):
            raise ValueError(f"`dims` of bottlenecks must be multiples of 4; they are {self.dims}.")


@dataclasses.dataclass(frozen=True)
class BiTConfig(ResidualConfig):
    """`num_groups` is the number of groups of features that are normalised together, `stochastic_depth` the
    rate of the last block.
    """

    num_groups: Size = 32
    stochastic_depth: Rate = 0.0

    def __post_init__(self):
        super().__post_init__()
        if any(dim % (4 * self.num_groups) for dim in self.dims) or self.stem_dim % self.num_groups:
            raise ValueError(
                f"`num_groups` must divide `stem_dim` and a quarter of each of `dims`, {self.stem_dim} and "
                f"{self.dims}; it is {self.num_groups}."
            )


class ResidualNetwork(Pyramid):
    """A `Pyramid` whose stages are of blocks alone. Abstract: a family has a `stem`, and a `block`."""

    config_class: type[ResidualConfig]

    @classmethod
    def stage(cls, config, stage):
        return [cls.block(config, stage, i) for i in range(config.depths[stage])]

    @classmethod
    @abc.abstractmethod
    def block(cls, config, stage, index):
        """The block number `index` of a stage."""


class ResNet(ResidualNetwork):
    """`ResidualNetwork` with batch normalisation, whose blocks end with a ReLU.

    >>> model = keras_tfm.models.ResNet(keras_tfm.models.tiny_config(keras_tfm.models.ResNet))
    >>> model({"images": np.zeros((1, 32, 32, 3))})["pooled_output"].shape
    TensorShape([1, 256])
    """

    config_class = ResNetConfig

    @classmethod
    def stem(cls, config, images):
        """The input of the first block: a map with sides a quarter or half as long."""
        x = Convolution(config.stem_dim, 7, 2, norm=BatchNormalization(), activation="relu", name="stem")(
            images
        )
        return stem_pooled(config, x)

    @classmethod
    def block(cls, config, stage, index):
        """The block number `index` of a stage, whose first one changes width and size."""
        width_before, dim, stride = widths_and_stride(config, stage, index)
        shortcut = None if (width_before, stride) == (dim, 1) else normalized(dim, 1, stride)
        branch = branch_of(config, dim, stride)
        return ShortcutBlock(branch, shortcut, activation="relu", name=f"stage_{stage}_block_{index}")


class BiT(ResidualNetwork):
    """`ResidualNetwork` with group normalisation and a ReLU before each convolution of a block.

    >>> model = keras_tfm.models.BiT(keras_tfm.models.tiny_config(keras_tfm.models.BiT))
    >>> model({"images": np.zeros((1, 32, 32, 3))})["pooled_output"].shape
    TensorShape([1, 512])
    """

    config_class = BiTConfig

    @classmethod
    def stem(cls, config, images):
        """What goes into the first block: sides a quarter as long, pooled amid zeros."""
        x = StandardizedConvolution(config.stem_dim, 7, 2, name="stem")(images)
        x = keras.layers.ZeroPadding2D(1, name="stem_padding")(x)
        return MaxPooling(3, 2, name="stem_pooling")(x)

    @classmethod
    def block(cls, config, stage, index):
        """The block number `index` of a stage, whose first one changes width and size."""
        dim, stride = config.dims[stage], 2 if stage and not index else 1
        branch = [
            StandardizedConvolution(dim // 4, 1, 1, norm=_norm(config)),
            StandardizedConvolution(dim // 4, 3, stride, norm=_norm(config)),
            StandardizedConvolution(dim, 1),
        ]
        shortcut = None if index else StandardizedConvolution(dim, 1, stride)
        rate, name = rate_of(config, stage, index), f"stage_{stage}_block_{index}"
        return ShortcutBlock(Chain(branch), shortcut, _norm(config), stochastic_depth=rate, name=name)

    @classmethod
    def last(cls, config, x):
        return _norm(config, name="norm")(x)


def stem_pooled(config, x):
    """What the convolutions of a stem give, pooled if `config` says so."""
    return x if config.stem_stride == 2 else MaxPooling(3, 2, 1, name="stem_pooling")(x)


def widths_and_stride(config, stage, index):
    """(Width before, width, stride) of the block number `index` of a stage."""
    before = (config.stem_dim, *config.dims)[stage] if not index else config.dims[stage]
    stride = config.last_stride if stage == len(config.dims) - 1 else 2
    return before, config.dims[stage], stride if stage and not index else 1


def branch_of(config, dim, stride):
    """The convolutions of a block of the kind that `config` names; the 3 x 3 one has the `stride`."""
    if config.block == "basic":
        return Chain([normalized(dim, 3, stride, "relu"), normalized(dim, 3)])
    inner = dim // 4
    first, last = normalized(inner, 1, activation="relu"), normalized(dim, 1)
    return Chain([first, normalized(inner, 3, stride, "relu"), last])


def normalized(dim, size, stride=1, activation=None):
    """A convolution with batch normalisation after it."""
    return Convolution(dim, size, stride, norm=BatchNormalization(), activation=activation)


def _norm(config, **options):
    """Group normalisation, then a ReLU."""
    norm = GroupNormalization(config.num_groups, epsilon=1e-5)
    return Chain([norm, keras.layers.Activation("relu")], **options)


# The architectures for ImageNet of He et al. 2016.
_18 = ResNetConfig(dims=(64, 128, 256, 512), depths=(2, 2, 2, 2), block="basic")
_50 = ResNetConfig()
ResNet.sizes = {
    "18": _18,
    "34": dataclasses.replace(_18, depths=(3, 4, 6, 3)),
    "50": _50,
    "101": dataclasses.replace(_50, depths=(3, 4, 23, 3)),
    "152": dataclasses.replace(_50, depths=(3, 8, 36, 3)),
}
# The models of Kolesnikov et al. 2020: depth x width.
BiT.sizes = {
    "50x1": BiTConfig(),
    "101x1": BiTConfig(depths=(3, 4, 23, 3)),
    "50x3": BiTConfig(stem_dim=192, dims=(768, 1536, 3072, 6144)),
    "152x4": BiTConfig(stem_dim=256, dims=(1024, 2048, 4096, 8192), depths=(3, 8, 36, 3)),
}
