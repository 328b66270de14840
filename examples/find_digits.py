"""Finding digits in pictures that are made here: a small DETR from scratch, its average precision, pictures.

    python examples/find_digits.py             # 20 minutes
    python examples/find_digits.py 3 1000      # 3 minutes, on 1,000 pictures

The pictures are those of `digit_pictures.py`. Three minutes of a busy machine, 61 steps, end
at ap50 0.3: a set of boxes is learnt slowly. What twenty minutes of an idle one give is not measured yet.
"""

import sys

import keras
from digit_pictures import NAMES, train_and_test

from keras_tfm.models import DETR
from keras_tfm.tasks import Detector


def main(minutes=20.0, count=6_000, folder="runs/digits-found"):
    train, test = train_and_test(count)
    keras.utils.set_random_seed(0)
    detector = Detector(DETR.from_size("tiny", num_channels=1), NAMES)
    options = {"epochs": 200, "flip": False, "batch_size": 32, "learning_rate": 5e-4}
    detector.fit(train[:3], 0.03, minutes=minutes, **options)
    print(detector.evaluate(test[:3]))
    detector.predict(test.images[:20], draw=folder)
    print(f"{folder} holds twenty pictures with boxes")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]), *map(int, sys.argv[2:3]))
