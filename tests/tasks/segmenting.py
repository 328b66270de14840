"""Small models that segment, and pictures with masks of their classes, for the tests of `Segmenter`."""

import dataclasses

import numpy as np
import PIL.Image

from keras_tfm.models import DETRConfig, Mask2FormerConfig, MaskFormerConfig

SIZE = (16, 24)
NAMES = ["background", "bright", "dark"]
VALUES = [0, 7, 200]
RESNET = {"stem_dim": 8, "dims": (8, 8), "depths": (1, 1), "block": "basic"}
SIZES = {
    "image_size": SIZE,
    "num_channels": 1,
    "backbone_config": RESNET,
    "frozen_norms": False,
    "num_queries": 6,
    "dim": 16,
    "intermediate_dim": 16,
}
PIXELS = {"num_layers": 2, "num_heads": 2, "pyramid_dim": 32, "mask_dim": 16}
MASK_FORMER = MaskFormerConfig(**SIZES, **PIXELS, dropout=0.0)
MASK2FORMER = Mask2FormerConfig(
    **SIZES, **PIXELS, num_levels=1, num_encoder_layers=1, encoder_intermediate_dim=16
)
# As transformers has it: four maps, of which three are encoded.
MASK2FORMER_OF_FOUR = dataclasses.replace(
    MASK2FORMER,
    image_size=64,
    num_levels=3,
    num_layers=3,
    backbone_config={**RESNET, "dims": (8,) * 4, "depths": (1,) * 4},
)
PANOPTIC_DETR = DETRConfig(**SIZES, num_layers=1, num_heads=8, dropout=0.0)


def examples(count, size=SIZE, seed=0):
    """Pictures (count, *size) with a bright and a dark rectangle, and the values of their masks."""
    rng = np.random.default_rng(seed)
    images, masks = np.full((count, *size), 128, "uint8"), np.zeros((count, *size), "uint8")
    for image, mask in zip(images, masks, strict=True):
        for value, grey in ((7, 255), (200, 0)):
            top, left = (int(rng.integers(0, side // 2)) for side in size)
            place = np.s_[top : top + size[0] // 2, left : left + size[1] // 2]
            image[place], mask[place] = grey, value
    return images, masks


def write_examples(folder, count):
    """Write `examples` to images/ and masks/ of a `folder`; returns them."""
    images, masks = examples(count)
    for name, arrays in (("images", images), ("masks", masks)):
        (folder / name).mkdir(parents=True)
        for row, array in enumerate(arrays):
            PIL.Image.fromarray(array).save(folder / name / f"{row}.png")
    return images, masks
