"""Finding digits in pictures that are made here, by a small detector from scratch; its precision.

    python examples/find_digits.py                                          # 20 minutes
    python examples/find_digits.py --family tsp-rcnn --minutes 10
    python examples/find_digits.py --minutes 3 --pictures 1000

The pictures come from `digit_pictures.py`. A Deformable DETR ends after seven minutes on two cores at ap50
99.3 and ap 89.6 on 300 pictures of other digits, and after 900 steps, 196 seconds of one core, at ap50 95.7;
a TSP-RCNN after 1,200 steps, ten minutes of a busy core, at ap50 99.4 and ap 90.5. DETR stood at ap50 0.3
after 61 steps of 32.
"""

import argparse
import pathlib

import keras
from digit_pictures import NAMES, train_and_test

from keras_tfm.tasks import Detector
from keras_tfm.tasks.images.detector import FAMILIES


def main(family: str, minutes: float, pictures: int, out: pathlib.Path) -> None:
    """Train on made pictures, print the measures on others, and draw what is found in twenty of them."""
    train, test = train_and_test(pictures)
    keras.utils.set_random_seed(0)
    detector = Detector(FAMILIES[family].from_size("tiny", num_channels=1), NAMES)
    options = {"epochs": 200, "flip": False, "batch_size": 16, "learning_rate": 1e-3}
    detector.fit(train[:3], 0.03, minutes=minutes, **options)
    print(detector.evaluate(test[:3]))
    detector.predict(test.images[:20], draw=out)
    print(f"{out} holds twenty pictures with boxes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--family", choices=list(FAMILIES), default="deformable-detr")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--pictures", type=int, default=6_000, help="to train on")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/find_digits"))
    main(**vars(parser.parse_args()))
