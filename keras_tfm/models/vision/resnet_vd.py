"""ResNet-vd of He et al. 2019, "Bag of Tricks for Image Classification with Convolutional Neural Networks",
section 4: a ResNet that loses less of its maps where it halves them.

    images --> 3 x 3, stride 2 --> 3 x 3 --> 3 x 3 --> pooling      in place of one 7 x 7 convolution
    x -------> mean of 2 x 2 cells --> 1 x 1 ----------> shortcut   in place of 1 x 1 with stride 2

In networks of basic blocks the first block of the first stage has a shortcut of 1 x 1 too, even though it
keeps the width, as in the backbones of RT-DETR.
"""

import dataclasses

import keras

from keras_tfm.layers.bottleneck import ShortcutBlock
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.models.vision.resnet import (
    ResidualNetwork,
    ResNet,
    ResNetConfig,
    branch_of,
    normalized,
    stem_pooled,
    widths_and_stride,
)


@dataclasses.dataclass(frozen=True)
class ResNetVDConfig(ResNetConfig):
    """`ResNetConfig`, with nothing of its own; `stem_dim` must be even."""

    def __post_init__(self):
        super().__post_init__()
        if self.stem_dim % 2:
            raise ValueError(f"`stem_dim` must be even; it is {self.stem_dim}.")


class ResNetVD(ResidualNetwork):
    """A `ResNet` with a deep stem and shortcuts that average.

    >>> model = keras_tfm.models.ResNetVD(keras_tfm.models.tiny_config(keras_tfm.models.ResNetVD))
    >>> model({"images": np.zeros((1, 32, 32, 3))})["pooled_output"].shape
    TensorShape([1, 256])
    """

    config_class = ResNetVDConfig

    @classmethod
    def stem(cls, config, images):
        """The input of the first block: a map with sides a quarter or half as long."""
        x, half = images, config.stem_dim // 2
        for i, (dim, stride) in enumerate([(half, 2), (half, 1), (config.stem_dim, 1)]):
            layer = Convolution(
                dim, 3, stride, norm=BatchNormalization(), activation="relu", name=f"stem_{i}"
            )
            x = layer(x)
        return stem_pooled(config, x)

    @classmethod
    def block(cls, config, stage, index):
        """The block number `index` of a stage, whose first one changes width and size."""
        width_before, dim, stride = widths_and_stride(config, stage, index)
        shortcut = None
        if stride > 1:
            shortcut = Chain([keras.layers.AveragePooling2D(2, padding="same"), normalized(dim, 1)])
        elif width_before != dim or (config.block == "basic" and not index):
            shortcut = normalized(dim, 1)
        branch = branch_of(config, dim, stride)
        return ShortcutBlock(branch, shortcut, activation="relu", name=f"stage_{stage}_block_{index}")


# The depths and widths of ResNet (He et al. 2016).
ResNetVD.sizes = {
    name: ResNetVDConfig.from_json(dataclasses.asdict(size))
    for name, size in ResNet.sizes.items()
    if name != "152"
}
