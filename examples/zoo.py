"""One small model of each vision family, trained for the same minutes on the same images: a table.

    python examples/zoo.py train-images-idx3-ubyte.gz --test t10k-images-idx3-ubyte.gz --minutes 3
    python examples/zoo.py train-images-idx3-ubyte.gz --test t10k-images-idx3-ubyte.gz --families swin cmt

Both are what `keras-tfm train classify-images` takes, here the idx files of Fashion-MNIST: 10,000 images of
the first train each model, which is tested on all of the second. Images become grey and 32 x 32. Each
family's row is written to saved_models/zoo.csv as soon as it is there, and a family that has one of the same
images, minutes and count is not trained again: an interrupted run goes on where it was. Each family has a
process of its own, since what XLA compiles, hundreds of megabytes a family, is kept until the process ends.
"""

import argparse
import concurrent.futures
import csv
import dataclasses
import multiprocessing
import pathlib
import time

import keras
import numpy as np

from keras_tfm import models
from keras_tfm.data import read_labelled_images
from keras_tfm.tasks import IMAGE_FAMILIES, ImageClassifier

SIDE = 32
STAGES = {"depths": (2, 2, 2), "windows": (4, 4, 4)}

# {name: (family, fields of its tiny configuration to change)}
ZOO = {name: (family, {}) for name, family in IMAGE_FAMILIES.items()}
ZOO["vit, mean"] = (models.ViT, {"pooling": "mean"})
ZOO["twins, windows"] = (models.Twins, STAGES)


def row_of(name, train, test, minutes):
    """What a model of the family learns in so many `minutes`: a row of the table."""
    keras.utils.set_random_seed(0)
    family, changes = ZOO[name]
    backbone = family(dataclasses.replace(models.tiny_config(family), num_channels=1, **changes))
    classifier = ImageClassifier(backbone, np.unique(train[1]).tolist())
    began = time.perf_counter()
    history = classifier.fit(train, 0.1, epochs=1_000, minutes=minutes, learning_rate=1e-3)
    measures = classifier.evaluate(test)
    return {
        "family": name,
        "weights": classifier.model.count_params(),
        "epochs": len(history["loss"]),
        "seconds": round(time.perf_counter() - began),
        "accuracy": round(measures["accuracy"], 4),
    }


def main(images, test, families=(), minutes=3.0, count=10_000, folder="saved_models"):
    path = pathlib.Path(folder, "zoo.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    asked_for = {"images": str(images), "test": str(test), "minutes": str(minutes), "count": str(count)}
    others, known = [], []
    if path.exists():
        with open(path, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                (known if asked_for.items() <= row.items() else others).append(row)
    read, asked = (read_labelled_images(source, SIDE, SIDE, 1) for source in (images, test))
    rows = np.random.default_rng(0).permutation(len(read.images))[:count]
    train = np.asarray(read.images[rows]), read.labels[rows]
    test = np.asarray(asked.images), asked.labels
    for name in families or ZOO:
        if name in {row["family"] for row in known}:
            continue
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            known.append(process.submit(row_of, name, train, test, minutes).result() | asked_for)
        with open(path, "w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(known[0]))
            table.writeheader()
            table.writerows([*others, *known])
    for row in sorted(known, key=lambda row: -float(row["accuracy"])):
        print("  ".join(f"{value!s:>12}" for name, value in row.items() if name not in asked_for))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("images", metavar="IMAGES", help="to train on")
    parser.add_argument("--test", required=True, metavar="IMAGES", help="to answer")
    parser.add_argument("--families", nargs="+", choices=ZOO, metavar="NAME", default=(), help=", ".join(ZOO))
    parser.add_argument("--minutes", type=float, default=3.0, help="of training, for each model")
    parser.add_argument("--count", type=int, default=10_000, help="images to train on")
    main(**vars(parser.parse_args()))
