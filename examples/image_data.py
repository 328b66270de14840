"""How much data a Vision Transformer needs beside a residual network: accuracies on growing subsets.

    python examples/image_data.py FOLDER
    python examples/image_data.py FOLDER --sizes 200 2000 20000 42000 --steps 5000

FOLDER holds images of one size: MNIST's or Fashion-MNIST's four idx files, packed by gzip or not, or an .npz
file with x_train, y_train, x_test and y_test. Dosovitskiy et al. 2021, figures 3 and 4, at 10^-4 of their
size: there the residual networks lead on less data, and the Transformers on the most. Both learn all classes
but three; `probe` is the accuracy on these three of a linear layer on the features, fitted to five images of
each, as in figure 4.

Fashion-MNIST took 15 minutes on a busy machine of 2 cores, 300 steps of 64 images for each model, one seed:

     images  model                 weights  seconds  accuracy   probe
        200  vision transformer    204,871      137      68.8    81.6
        200  residual network      121,751      101      66.7    70.1
      2,000  vision transformer    204,871      156      77.1    88.7
      2,000  residual network      121,751      107      81.1    78.0
     20,000  vision transformer    204,871      117      76.2    88.2
     20,000  residual network      121,751       53      83.7    85.4

So few steps, the same for all sizes, show the network of convolutions ahead from 2,000 images on, and that
its features gain by data; where the Transformer would pass it lies beyond them.
"""

import argparse
import gzip
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.heads import Classifier
from keras_tfm.layers import BatchNormalization, Chain, Convolution, Residual
from keras_tfm.models import ViT
from keras_tfm.training import AdamW, WarmupCosineSchedule

UNSEEN = 3  # the last classes, which only the probe sees
SHOTS = 5


def read_folder(folder):
    """((images, labels) to train on, the same to test on): 8-bit (N, H, W, C) and integers (N,)."""
    folder = pathlib.Path(folder)
    packed = sorted(folder.glob("*.npz"))
    if packed:
        with np.load(packed[0], allow_pickle=False) as file:
            pairs = [(file[f"x_{part}"], file[f"y_{part}"]) for part in ("train", "test")]
    else:
        pairs = [
            [read_idx(folder, part, kind) for kind in ("images", "labels")] for part in ("train", "t10k")
        ]
    return [
        (images.reshape(*images.shape[:3], -1), labels.ravel().astype("int32")) for images, labels in pairs
    ]


def read_idx(folder, part, kind):
    """An array of LeCun's idx format: two zeros, 8 for bytes, the rank; big-endian sizes; the numbers."""
    paths = sorted(folder.glob(f"{part}*{kind}*"))
    if not paths:
        raise SystemExit(f"{folder}: expected an .npz file, or idx files such as {part}-{kind}-idx.gz")
    data = paths[0].read_bytes()
    data = gzip.decompress(data) if paths[0].suffix == ".gz" else data
    rank = data[3]
    sizes = np.frombuffer(data, ">i4", rank, offset=4)
    return np.frombuffer(data, "uint8", offset=4 + 4 * rank).reshape(sizes)


def vision_transformer(shape, num_classes):
    """(The classifier, its features' output): 4 layers of width 64 over patches of about 4 x 4."""
    height, width, channels = shape
    patch = next(side for side in (4, 5, 3, 2, 1) if height % side == 0 and width % side == 0)
    sizes = {"num_layers": 4, "dim": 64, "num_heads": 4, "intermediate_dim": 256, "dropout": 0.1}
    vit = ViT.from_size("tiny", image_size=(height, width), patch_size=patch, num_channels=channels, **sizes)
    return Classifier(vit, num_classes), vit.output["pooled_output"]


def residual_network(shape, num_classes):
    """(The classifier, its features' output): three stages of 16, 32 and 64 features, each half as large."""

    def convolution(filters, stride=1, activation="relu"):
        return Convolution(filters, 3, stride, norm=BatchNormalization(), activation=activation)

    x = images = keras.Input(shape, name="images")
    for stage, filters in enumerate((16, 32, 64)):
        x = convolution(filters, stride=1 + bool(stage))(x)
        x = Residual(Chain([convolution(filters), convolution(filters, activation=None)]))(x)
        x = keras.layers.ReLU()(x)
    features = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model({"images": images}, keras.layers.Dense(num_classes)(features)), features


def train(model, images, labels, steps, batch_size=64):
    """Seconds that so many steps on the images take, shuffled anew as often as they come round."""
    data = (
        tf.data.Dataset.from_tensor_slices(({"images": images}, labels)).shuffle(len(images), seed=0).repeat()
    )
    optimizer = AdamW(WarmupCosineSchedule(2e-3, steps // 10, steps), weight_decay=0.05)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    start = time.perf_counter()
    model.fit(data.batch(batch_size), steps_per_epoch=steps, shuffle=False, verbose=0)
    return time.perf_counter() - start


def accuracy(answers, labels):
    return 100 * np.mean(answers.argmax(axis=-1) == labels)


def probe(model, images, labels, draws=20):
    """The mean accuracy of ridge regressions on the features, each fitted to a few images."""
    features = model.predict({"images": images}, batch_size=500, verbose=0)
    features = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6)
    classes, rng, found = np.unique(labels), np.random.default_rng(0), []
    for _ in range(draws):
        chosen = np.concatenate(
            [rng.choice(np.flatnonzero(labels == c), SHOTS, replace=False) for c in classes]
        )
        x, y = features[chosen], labels[chosen, None] == classes
        weights = x.T @ np.linalg.solve(x @ x.T + len(chosen) * np.eye(len(chosen)), y - y.mean(axis=0))
        rest = np.delete(np.arange(len(labels)), chosen)
        found.append(accuracy(features[rest] @ weights, np.searchsorted(classes, labels[rest])))
    return np.mean(found)


def main(folder, sizes, steps):
    (images, labels), (test_images, test_labels) = read_folder(folder)
    num_classes = int(labels.max()) + 1 - UNSEEN
    is_seen, is_test_seen = labels < num_classes, test_labels < num_classes
    images, labels = images[is_seen], labels[is_seen]
    order = np.random.default_rng(0).permutation(len(images))
    scaled = np.float32(test_images) / 255
    shape = images.shape[1:]
    print(f"{len(images):,} images of {shape[0]} x {shape[1]} in {num_classes} classes; {UNSEEN} are unseen")
    print(f"{'images':>7}  {'model':<20}{'weights':>9}{'seconds':>9}{'accuracy':>10}{'probe':>8}")
    for size in sizes:
        chosen = order[:size]
        for make in (vision_transformer, residual_network):
            keras.utils.set_random_seed(0)
            model, features = make(shape, num_classes)
            seconds = train(model, np.float32(images[chosen]) / 255, labels[chosen], steps)
            logits = model.predict({"images": scaled[is_test_seen]}, batch_size=500, verbose=0)
            few = probe(keras.Model(model.input, features), scaled[~is_test_seen], test_labels[~is_test_seen])
            right = accuracy(logits, test_labels[is_test_seen])
            name = make.__name__.replace("_", " ")
            print(
                f"{min(size, len(images)):>7,}  {name:<20}{model.count_params():>9,}{seconds:>9.0f}"
                f"{right:>10.1f}{few:>8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 2_000, 20_000])
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.sizes, arguments.steps)
