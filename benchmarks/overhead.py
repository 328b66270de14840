"""What a training step costs through `keras_tfm.Model`: beside `keras.Model`, and on two devices beside one.

    python -m benchmarks.overhead

The same compute-bound network and the same global batch everywhere. The second table parts one CPU in two,
which can gain nothing: what it shows is the price of several devices.
"""

import argparse
import os
import sys

import numpy as np

from benchmarks.rounds import compare, parse, prepare_keras, serve

BATCH, WIDTH, LAYERS = 512, 1024, 4
CLASSES = ("keras_tfm.Model", "keras.Model")
LAYOUTS = ("mirrored:2", "none", "none jit")
EXPLANATION = """
Where it goes, by TensorFlow's profiler on two busy cores, mirrored:2 beside "none", ms of all threads a step:
    matrix products                  117  100   the same work, in halves of the batch
    sums of gradients                 32    0   CollectiveReduceV2, with waiting for the other device
    optimizer, and the loss's square  55   42   two sets of weights and averages, op by op
What the threads wait for one another comes on top. "none jit" has XLA fuse the optimizer, as it does not on
several replicas. Where each device has a memory of its own, as GPUs have, both sets are updated at once."""


def make_step(model_class, layout):
    """A function that takes a training step of a plain network, compute-bound, and returns its examples."""
    import keras
    import tensorflow as tf

    from keras_tfm.training import strategy

    name, _, jit = layout.partition(" ")
    devices = strategy(name)
    with devices.scope():
        inputs = x = keras.Input((WIDTH,))
        for _ in range(LAYERS):
            x = keras.layers.Dense(WIDTH, activation="relu")(x)
        model = model_class(inputs, x)
        model.compile(keras.optimizers.Adam(), "mse", jit_compile=bool(jit))
    data = tuple(np.random.default_rng(0).normal(size=(2, BATCH, WIDTH)).astype("float32"))
    dataset = tf.data.Dataset.from_tensors(data).repeat()
    batches = iter(devices.experimental_distribute_dataset(dataset))
    model.fit(dataset, steps_per_epoch=1, shuffle=False, verbose=0)  # all variables are made, all is traced

    def step():
        float(model.train_function(batches)["loss"])
        return BATCH

    return step


def run_worker(name):
    """Serve training steps of the class `name` on one device, or of `keras_tfm.Model` under that layout."""
    import keras

    import keras_tfm

    prepare_keras()
    if name in CLASSES:
        serve(make_step(keras_tfm.Model if name == "keras_tfm.Model" else keras.Model, "none jit"))
    else:
        serve(make_step(keras_tfm.Model, name))


def main():
    parser = argparse.ArgumentParser("benchmarks.overhead", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=5, help="training steps a round")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.worker:
        return run_worker(options.worker)
    tables = [("one device", CLASSES), ("two devices on one CPU", LAYOUTS)]
    for title, peers in tables if options.device == "cpu" else tables[:1]:
        compare(title, "benchmarks.overhead", peers, options.rounds, options.steps, warmup=5, unit="examples")
    if options.device == "cpu":
        print(EXPLANATION)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
