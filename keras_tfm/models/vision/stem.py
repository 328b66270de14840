"""Convolutions before the patches or tubelets of a Transformer (Xiao et al. 2021, "Early Convolutions Help
Transformers See Better").
"""

import math

from keras_tfm.configs import Count, FieldError, Size
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution

Stem = tuple[tuple[Size, Count], ...]  # the (width, stride) of each convolution


def stride_of(stem):
    """The pixels along a side of a cell that the `stem` makes: 1 without one."""
    return math.prod(stride for _, stride in stem)


def check_stem(stem, field, sides):
    """Raise FieldError unless the `stem` divides the `sides`, two of the configuration's `field`."""
    if any(side % stride_of(stem) for side in sides):
        text = "The strides of {stem}, {} in all, must divide the sides of {FIELD}; they are {}."
        raise FieldError(text.replace("FIELD", field), stride_of(stem), sides)


def convolved(stem, images):
    """The cells (B, H', W', D) that 3 x 3 convolutions make of `images` (B, H, W, C)."""
    layers = [
        Convolution(width, 3, stride, norm=BatchNormalization(), activation="relu") for width, stride in stem
    ]
    return Chain(layers, name="stem")(images) if layers else images
