"""The mask of each digit of pictures that are made here, by its code: ISTR, from scratch; its precision.

    python examples/instance_digits.py             # 20 minutes
    python examples/instance_digits.py 3 1000      # 3 minutes, on 1,000 pictures

The pictures come from `digit_pictures.py`; a mask is where a digit's ink is darker than one half. Before the
training 4,096 masks, cut out and resized to 32 x 32, give the code: the 32 directions in which they differ
most. Three epochs of 4,000 pictures, 222 s of CPU time of one core of an AMD EPYC with AVX-512, end at ap50
74.7 and ap 42.0 on 300 pictures of other digits (November 2026); the loss still fell from 6.1 to 4.5.
"""

import sys

import keras
from digit_pictures import NAMES, train_and_test

from keras_tfm.models import ISTR
from keras_tfm.tasks import Segmenter


def main(minutes=20.0, count=6_000, folder="runs/digits-by-code", **options):
    train, test = train_and_test(count)
    keras.utils.set_random_seed(0)
    backbone = ISTR.from_size("tiny", num_channels=1, num_queries=8)
    segmenter = Segmenter(backbone, NAMES, segments="instances")
    usual = {"epochs": 200, "flip": False, "least_area": 1.0, "batch_size": 8, "learning_rate": 1e-3}
    examples = train.images, train.digits, train.labels
    segmenter.fit(examples, 0.03, **({"minutes": minutes} | usual | options))
    measures = segmenter.evaluate((test.images, test.digits, test.labels))
    print(measures)
    segmenter.predict(test.images[:20], draw=folder, threshold=0.3)  # scores of a focal loss are low at first
    print(f"{folder} holds twenty pictures with the masks over them")
    return measures


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]), *map(int, sys.argv[2:3]))
