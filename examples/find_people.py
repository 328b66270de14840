"""A TransReID finds people again before other cameras, and beside it a plain ViT of the same sizes.

    python examples/find_people.py                # 5 minutes of one core
    python examples/find_people.py --model plain  # 3 minutes

The people are drawn by `data.worlds.drawn_people`: build, clothes and hair make the identity, each
camera has its own light, scale and side. Each picture of 100 people that were not trained on is looked for
among all others, but for images of the same person by the same camera. Pixels themselves, compared by their
cosine, find the right person first for 0.6 % of them. The TransReID did for 99.6 %, with a mean average
precision of 97.5 %, after 206 s of CPU time, the plain ViT for 93.9 % and 88.8 %, after 102 s.
"""

import argparse
import pathlib
import time

import keras
import numpy as np

from keras_tfm.data.worlds import drawn_people
from keras_tfm.tasks import IdentityMatcher

PEOPLE, TESTED = 400, 100
PLAIN = {"num_parts": 0, "stride": 8}  # a ViT: patches beside each other, no jigsaw
OPTIONS = {"learning_rate": 5e-4, "max_shift": 2, "identities_in_batch": 16, "images_of_each": 4}


def main(folder: pathlib.Path, model: str, epochs: int, people: int = PEOPLE) -> None:
    """Train, and print how well people of another seed are found."""
    train, tested = drawn_people(people, seed=1), drawn_people(TESTED, seed=2)
    began = time.process_time()
    keras.utils.set_random_seed(0)
    changes = PLAIN if model == "plain" else {}
    task = IdentityMatcher.from_size("tiny", np.unique(train.identities), **changes)
    task.fit(train[:3], 0.05, run=folder / model, overwrite=True, epochs=epochs, **OPTIONS)
    seconds = time.process_time() - began
    print(f"{model}: {task.evaluate(tested[:3])}, {seconds:.0f} s of CPU time")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/find_people"))
    parser.add_argument("--model", default="transreid", choices=["transreid", "plain"])
    parser.add_argument("--epochs", type=int, default=30)
    arguments = parser.parse_args()
    main(arguments.out, arguments.model, arguments.epochs)
