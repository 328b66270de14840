"""Pictures with digits in them, their boxes and their masks: a made world, of which everything is known.

`find_digits.py`, `segment_digits.py`, `instance_digits.py` and `panoptic_digits.py` learn from it. Each
picture, 96 x 96, holds one to four of scikit-learn's handwritten digits, 20 to 48 pixels high, on a grey
ground; digits that are tested on are in no training picture.
"""

from typing import NamedTuple

import numpy as np
import PIL.Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SIDE = 96
NAMES = [str(digit) for digit in range(10)]


class Pictures(NamedTuple):
    """Pictures (N, 96, 96); of each the boxes in pixels, (left, top, right, bottom), and their names; masks
    (N, 96, 96): 0 is the ground, 1 + the digit where its ink is darker than one half; and these masks of each
    digit by itself, (M, 96, 96), boolean.
    """

    images: np.ndarray
    boxes: list
    labels: list
    masks: np.ndarray
    digits: list


def train_and_test(count, test_count=300):
    """`count` pictures to train on, and others, of other digits."""
    digits = load_digits()  # 1,797 images of 8 x 8, grey levels 0 to 16
    parts = train_test_split(digits.images / 16, digits.target, test_size=0.2, random_state=0)
    rng = np.random.default_rng(0)
    return pictures(parts[0], parts[2], count, rng), pictures(parts[1], parts[3], test_count, rng)


def pictures(digits, names, count, rng):
    """`count` pictures of digits (N, 8, 8), 0 to 1."""
    images, masks = np.zeros((count, SIDE, SIDE), "float32"), np.zeros((count, SIDE, SIDE), "uint8")
    boxes, labels, single = [], [], []
    for image, mask in zip(images, masks, strict=True):
        image += rng.uniform(0, 0.3) + rng.normal(0, 0.05, image.shape)
        places = []
        for row in rng.integers(0, len(digits), rng.integers(1, 5)):
            size = int(rng.integers(20, 49))
            left, top = (int(x) for x in rng.integers(0, SIDE - size + 1, 2))
            box = (left, top, left + size, top + size)
            if any(overlap(box, other) for other, _ in places):
                continue
            drawn = PIL.Image.fromarray((255 * digits[row]).astype("uint8")).resize((size, size), 2)
            ink = np.asarray(drawn, "float32") / 255
            part = image[top : top + size, left : left + size]
            part += (1 - part) * ink
            own = np.zeros((SIDE, SIDE), bool)
            own[top : top + size, left : left + size] = ink > 0.5
            mask[own] = 1 + names[row]
            ys, xs = np.nonzero(ink > 0.5)
            ends = (left + xs.min(), top + ys.min(), left + xs.max() + 1, top + ys.max() + 1)
            places.append((box, (tuple(map(float, ends)), str(names[row]), own)))
        for found, part in ((boxes, 0), (labels, 1), (single, 2)):
            found.append([one[part] for _, one in places])
    pixels = np.round(255 * images.clip(0, 1)).astype("uint8")
    return Pictures(pixels, boxes, labels, masks, [np.stack(own) for own in single])


def overlap(box, other):
    """Whether two boxes, (left, top, right, bottom), share pixels."""
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
