"""A discriminator of patches (Isola et al. 2017, "Image-to-Image Translation with Conditional Adversarial
Networks", section 3.2.2), with which VQGAN learns. Deviates in its norms, of groups and not of batches.
"""

import keras

from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.normalization import GroupNormalization
from keras_tfm.training.model import Model

NUM_GROUPS = 8
SLOPE = 0.2  # of leaky ReLU below 0


def patch_discriminator(shape: tuple[int, int, int], dim: int = 32, num_levels: int = 2) -> keras.Model:
    """A model of `images` (B, H, W, C) to `scores` (B, h, w), each of a patch of the image.

    Each of `num_levels` levels halves the map and doubles the width, which begins at `dim`. ValueError for a
    `dim` that is no multiple of 8.

    >>> from keras_tfm.models.pictures.patch_discriminator import patch_discriminator
    >>> patch_discriminator((32, 32, 3))({"images": np.zeros((1, 32, 32, 3))})["scores"].shape
    TensorShape([1, 8, 8])
    """
    if dim % NUM_GROUPS:
        raise ValueError(f"`dim` must be a multiple of {NUM_GROUPS}; it is {dim}.")
    images = keras.Input(shape, name="images")
    x = images
    for level in range(num_levels + 1):
        stride = 2 if level < num_levels else 1
        x = Convolution(dim * 2**level, 4, stride=stride, padding="same", name=f"level_{level}")(x)
        if level:
            x = GroupNormalization(NUM_GROUPS, 1e-3, name=f"norm_{level}")(x)
        x = keras.layers.LeakyReLU(SLOPE, name=f"activation_{level}")(x)
    scores = Convolution(1, 4, padding="same", name="scores")(x)[..., 0]
    return Model({"images": images}, {"scores": scores}, name="patch_discriminator")
