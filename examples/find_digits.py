"""Finding digits in pictures that are made here: a small DETR from scratch, its average precision, pictures.

    python examples/find_digits.py             # 20 minutes
    python examples/find_digits.py 3 1000      # 3 minutes, on 1,000 pictures

Each picture, 96 x 96, holds one to four of scikit-learn's handwritten digits, 20 to 48 pixels high, on a grey
ground; digits that are tested on are in no training picture. Three minutes of a busy machine, 61 steps, end
at ap50 0.3: a set of boxes is learnt slowly. What twenty minutes of an idle one give is not measured yet.
"""

import sys

import keras
import numpy as np
import PIL.Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from keras_tfm.models import DETR
from keras_tfm.tasks import Detector

SIDE = 96


def pictures(digits, names, count, rng):
    """(Pictures (count, SIDE, SIDE), boxes of each in pixels, names of each) of digits (N, 8, 8), 0 to 1."""
    images = np.zeros((count, SIDE, SIDE), "float32")
    boxes, labels = [], []
    for image in images:
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
            ys, xs = np.nonzero(ink > 0.5)
            ends = (left + xs.min(), top + ys.min(), left + xs.max() + 1, top + ys.max() + 1)
            places.append((box, (tuple(map(float, ends)), str(names[row]))))
        boxes.append([corners for _, (corners, _) in places])
        labels.append([name for _, (_, name) in places])
    return np.round(255 * images.clip(0, 1)).astype("uint8"), boxes, labels


def overlap(box, other):
    """Whether two boxes, (left, top, right, bottom), share pixels."""
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def main(minutes=20.0, count=6_000, folder="runs/digits-found"):
    digits = load_digits()  # 1,797 images of 8 x 8, grey levels 0 to 16
    parts = train_test_split(digits.images / 16, digits.target, test_size=0.2, random_state=0)
    rng = np.random.default_rng(0)
    train = pictures(parts[0], parts[2], count, rng)
    test = pictures(parts[1], parts[3], 300, rng)

    keras.utils.set_random_seed(0)
    detector = Detector(DETR.from_size("tiny", num_channels=1), [str(digit) for digit in range(10)])
    options = {"epochs": 200, "flip": False, "batch_size": 32, "learning_rate": 5e-4}
    detector.fit(train, 0.03, minutes=minutes, **options)
    print(detector.evaluate(test))
    detector.predict(test[0][:20], draw=folder)
    print(f"{folder} holds twenty pictures with boxes")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]), *map(int, sys.argv[2:3]))
