"""What the configurations of models of images have in common, and their input."""

import dataclasses
from typing import Annotated

import keras

from keras_tfm.configs import Between, Config, Rate, Size
from keras_tfm.layers.patches import height_and_width

Side = Annotated[int, Between(1, 2**14)]  # in pixels, or in cells of a map
Ratio = Annotated[float, Between(0.01, 64)]  # a feed-forward layer's width divided by its block's


@dataclasses.dataclass(frozen=True)
class ImageConfig(Config):
    """`image_size` is the side of the images or their (height, width)."""

    image_size: Side | tuple[Side, Side] = 224
    num_channels: Size = 3


@dataclasses.dataclass(frozen=True)
class PatchedImageConfig(Config):
    """`patch_size` is the side of a patch or its (height, width), `stochastic_depth` the rate of the last
    block; the rates of the others grow up to it.
    """

    image_size: Side | tuple[Side, Side] = 224
    patch_size: Side | tuple[Side, Side] = 16
    num_channels: Size = 3
    dropout: Rate = 0.0
    stochastic_depth: Rate = 0.0


@dataclasses.dataclass(frozen=True)
class Rates(Config):
    """`stochastic_depth` is the rate of the last block; the rates of the others grow up to it."""

    dropout: Rate = 0.0
    attention_dropout: Rate = 0.0
    stochastic_depth: Rate = 0.1


class Stages:
    """What configurations of models in stages have; `depths` are the numbers of blocks."""

    depths: tuple[int, ...]

    @property
    def num_layers(self):
        """The number of blocks in all stages."""
        return sum(self.depths)


def image_input(config):
    """The input `images` (B, H, W, C) of a model, from `image_size` and `num_channels` of its
    configuration.
    """
    size = height_and_width(config.image_size, "image_size")
    return keras.Input((*size, config.num_channels), name="images")


def video_input(config):
    """The input `videos` (B, F, H, W, C) of a model, from `num_frames`, `image_size` and `num_channels` of
    its configuration.
    """
    size = height_and_width(config.image_size, "image_size")
    return keras.Input((config.num_frames, *size, config.num_channels), name="videos")
