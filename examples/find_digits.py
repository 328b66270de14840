"""Finding digits in pictures that are made here, by a small Deformable DETR from scratch; its precision.

    python examples/find_digits.py             # 20 minutes
    python examples/find_digits.py 3 1000      # 3 minutes, on 1,000 pictures

The pictures come from `digit_pictures.py`. Seven minutes on two cores end at ap50 99.3 and ap 89.6 on 300
pictures of other digits, and 900 steps, 196 seconds of one core, at ap50 95.7. DETR in its place stood at
ap50 0.3 after 61 steps of 32.
"""

import sys

import keras
from digit_pictures import NAMES, train_and_test

from keras_tfm.models import DeformableDETR
from keras_tfm.tasks import Detector


def main(minutes=20.0, count=6_000, folder="runs/digits-found"):
    train, test = train_and_test(count)
    keras.utils.set_random_seed(0)
    detector = Detector(DeformableDETR.from_size("tiny", num_channels=1), NAMES)
    options = {"epochs": 200, "flip": False, "batch_size": 16, "learning_rate": 1e-3}
    detector.fit(train[:3], 0.03, minutes=minutes, **options)
    print(detector.evaluate(test[:3]))
    detector.predict(test.images[:20], draw=folder)
    print(f"{folder} holds twenty pictures with boxes")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]), *map(int, sys.argv[2:3]))
