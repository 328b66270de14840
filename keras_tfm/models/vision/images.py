"""What the configurations of models of images have in common, and their input."""

from typing import Annotated

import keras

from keras_tfm.configs import Between
from keras_tfm.layers.patches import height_and_width

Side = Annotated[int, Between(1, 2**14)]  # in pixels, or in cells of a map
Ratio = Annotated[float, Between(0.01, 64)]  # a feed-forward layer's width divided by its block's


def image_input(config):
    """The input `images` (B, H, W, C) of a model, from `image_size` and `num_channels` of its
    configuration.
    """
    size = height_and_width(config.image_size, "image_size")
    return keras.Input((*size, config.num_channels), name="images")
