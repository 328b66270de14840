"""One small model of each vision family, trained for the same minutes on the same images: a table.

    python examples/zoo.py train-images-idx3-ubyte.gz --test t10k-images-idx3-ubyte.gz --minutes 3
    python examples/zoo.py train-images-idx3-ubyte.gz --test t10k-images-idx3-ubyte.gz --families swin cmt

Both are what `keras-tfm train classify-images` takes, here the idx files of Fashion-MNIST: 10,000 images of
the first train each model, which is tested on all of the second. Images become grey and 32 x 32. Each
family's row is written to saved_models/zoo.csv as soon as it is there, and a family that has one is not
trained again: an interrupted run goes on where it was.
"""

import argparse
import csv
import pathlib
import time

import keras
import numpy as np

from keras_tfm import models
from keras_tfm.data import read_labelled_images
from keras_tfm.tasks import ImageClassifier

SIDE = 32
IMAGES = {"image_size": SIDE, "num_channels": 1}
VIT = {"patch_size": 4, "num_layers": 6, "dim": 128, "num_heads": 4, "intermediate_dim": 384}
STAGES = {"dims": (48, 96, 192), "depths": (1, 2, 1), "num_heads": (1, 2, 4)}
WINDOWS = {"patch_size": 2, "depths": (2, 2, 2), "dim": 48, "num_heads": (2, 4, 8), "window": 4}
FOUR = {"dims": (32, 64, 128, 192), "depths": (1, 1, 2, 1), "num_heads": (1, 2, 4, 6)}
LAYERS = 6

# {name: (family, fields of its configuration)}: about a million weights, patches of 4 x 4 pixels or smaller.
ZOO = {
    "vit": (models.ViT, VIT | {"position_stddev": 0.2}),
    "vit, mean": (models.ViT, VIT | {"position_stddev": 0.2, "pooling": "mean"}),
    "deit": (models.DeiT, VIT),
    "dinov2": (models.DINOv2, VIT | {"num_registers": 4}),
    "kvt": (models.KVT, VIT | {"k": 32}),
    "deepvit": (models.DeepViT, VIT | {"num_mixing_layers": LAYERS}),
    "hvt": (models.HVT, VIT | {"pool_every": LAYERS}),
    "cait": (models.CaiT, VIT | {"layer_scale": 0.1, "num_layers": LAYERS - 2}),
    "cpvt": (models.CPVT, VIT),
    "ceit": (models.CeiT, VIT | {"patch_size": 1, "stem_dim": 32}),
    "localvit": (models.LocalViT, VIT),
    "pit": (models.PiT, STAGES | {"patch_size": 4, "stride": 2}),
    "xcit": (models.XCiT, VIT | {"patch_size": 8, "num_layers": LAYERS - 2}),
    "levit": (
        models.LeViT,
        {
            "image_size": 64,
            "dims": (64, 96, 128),
            "num_layers": (2, 2, 2),
            "num_heads": (4, 6, 8),
            "key_dim": 16,
        },
    ),
    "autoformer": (
        models.AutoFormer,
        {
            "patch_size": 4,
            "dim": 128,
            "num_heads": (4,) * LAYERS,
            "mlp_ratios": (3.0,) * LAYERS,
            "key_dim": 32,
        },
    ),
    "glit": (
        models.GLiT,
        {
            "patch_size": 4,
            "dim": 128,
            "num_heads": 4,
            "num_attention_heads": (4, 2, 2, 2, 2, 4),
            "expansions": (1.0,) * LAYERS,
            "kernel_sizes": (17,) * LAYERS,
            "mlp_ratios": (3.0,) * LAYERS,
        },
    ),
    "mlp mixer": (
        models.MLPMixer,
        {"patch_size": 4, "num_layers": LAYERS, "dim": 128, "tokens_dim": 64, "channels_dim": 512},
    ),
    "swin": (models.Swin, WINDOWS),
    "swin v2": (models.SwinV2, WINDOWS),
    "cat": (models.CAT, WINDOWS),
    "shuffle": (
        models.ShuffleTransformer,
        {"image_size": 28, "stem_dim": 16, "depths": (4,), "num_heads": (4,), "head_dim": 32, "window": 7},
    ),
    "regionvit": (
        models.RegionViT,
        {"dims": (48, 96), "depths": (2, 2), "num_heads": (2, 4), "window": 4},
    ),
    "twins pcpvt": (
        models.Twins,
        STAGES | {"patch_size": 2, "mlp_ratios": (4, 4, 4), "reductions": (4, 2, 1)},
    ),
    "twins svt": (
        models.Twins,
        STAGES
        | {
            "patch_size": 2,
            "depths": (2, 2, 2),
            "mlp_ratios": (4, 4, 4),
            "reductions": (4, 2, 1),
            "windows": (4, 4, 4),
        },
    ),
    "mit": (
        models.MiT,
        FOUR
        | {
            "patch_sizes": (3, 3, 3, 3),
            "strides": (2, 2, 2, 2),
            "reductions": (4, 2, 1, 1),
            "mlp_ratios": (4, 4, 4, 4),
        },
    ),
    "cmt": (
        models.CMT,
        FOUR | {"stem_dim": 16, "mlp_ratios": (3, 3, 3, 3), "reductions": (4, 2, 1, 1), "output_dim": 256},
    ),
    "resnet": (
        models.ResNet,
        {"stem_dim": 32, "dims": (32, 64, 128, 256), "depths": (1, 1, 1, 1), "block": "basic"},
    ),
}


def row_of(name, train, test, minutes):
    """What a model of the family learns in so many `minutes`: a row of the table."""
    keras.utils.set_random_seed(0)
    family, fields = ZOO[name]
    backbone = family(family.config_class(**IMAGES | fields))
    classifier = ImageClassifier(backbone, np.unique(train[1]).tolist())
    began = time.perf_counter()
    history = classifier.fit(train, test, epochs=1_000, minutes=minutes, learning_rate=1e-3)
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
    known = []
    if path.exists():
        with open(path, encoding="utf-8", newline="") as file:
            known = list(csv.DictReader(file))
    read, asked = (read_labelled_images(source, SIDE, SIDE, 1) for source in (images, test))
    rows = np.random.default_rng(0).permutation(len(read.images))[:count]
    train = np.asarray(read.images[rows]), read.labels[rows]
    test = np.asarray(asked.images), asked.labels
    for name in families or ZOO:
        if name in {row["family"] for row in known}:
            continue
        known.append(row_of(name, train, test, minutes))
        with open(path, "w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(known[0]))
            table.writeheader()
            table.writerows(known)
    for row in sorted(known, key=lambda row: -float(row["accuracy"])):
        print("  ".join(f"{value!s:>12}" for value in row.values()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("images", metavar="IMAGES", help="to train on")
    parser.add_argument("--test", required=True, metavar="IMAGES", help="to answer")
    parser.add_argument("--families", nargs="+", choices=ZOO, metavar="NAME", default=(), help=", ".join(ZOO))
    parser.add_argument("--minutes", type=float, default=3.0, help="of training, for each model")
    parser.add_argument("--count", type=int, default=10_000, help="images to train on")
    main(**vars(parser.parse_args()))
