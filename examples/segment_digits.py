"""The digit of every pixel of pictures that are made here: a small SegFormer from scratch.

    python examples/segment_digits.py              # 10 minutes
    python examples/segment_digits.py 2 2000       # 2 minutes, on 2,000 pictures

The pictures are those of `digit_pictures.py`; a mask is where the ink is darker than one half.
"""

import dataclasses
import sys

import keras
from digit_pictures import NAMES, SIDE, train_and_test

from keras_tfm.heads import SemanticSegmenter
from keras_tfm.models import MiT, tiny_config
from keras_tfm.tasks import Segmenter


def main(minutes=10.0, count=8_000, folder="runs/digits-segmented"):
    train, test = train_and_test(count)

    keras.utils.set_random_seed(0)
    backbone = MiT(dataclasses.replace(tiny_config(MiT), image_size=SIDE, num_channels=1))
    classes = ["background", *NAMES]
    segmenter = Segmenter(SemanticSegmenter(backbone, len(classes), dim=64, dropout=0.0), classes)
    options = {"epochs": 100, "flip": False, "least_area": 1.0, "batch_size": 32, "learning_rate": 2e-3}
    segmenter.fit((train.images, train.masks), 0.03, minutes=minutes, **options)
    print(segmenter.evaluate((test.images, test.masks)))
    segmenter.predict(test.images[:20], draw=folder)
    print(f"{folder} holds twenty pictures with the masks over them")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]), *map(int, sys.argv[2:3]))
