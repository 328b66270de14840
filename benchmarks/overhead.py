"""What a training step costs through `keras_tfm.Model` on one device, beside `keras.Model`.

python -m benchmarks.overhead
"""

import argparse
import os
import sys

import numpy as np

from benchmarks.rounds import compare, serve

PEERS = ("keras_tfm.Model", "keras.Model")
BATCH, WIDTH = 512, 1024


def run_worker(name):
    """Serve training steps of a plain network, compute-bound, of the class `name`."""
    import keras

    import keras_tfm

    inputs = x = keras.Input((WIDTH,))
    for _ in range(4):
        x = keras.layers.Dense(WIDTH, activation="relu")(x)
    model_class = {"keras_tfm.Model": keras_tfm.Model, "keras.Model": keras.Model}[name]
    model = model_class(inputs, x)
    model.compile(keras.optimizers.Adam(), "mse", jit_compile=True)
    batch = np.random.default_rng(0).normal(size=(2, BATCH, WIDTH)).astype("float32")

    def step():
        model.train_on_batch(*batch)
        return BATCH

    serve(step)


def main():
    parser = argparse.ArgumentParser("benchmarks.overhead", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=5, help="training steps a round")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return run_worker(options.worker)
    compare("examples for tokens", "benchmarks.overhead", PEERS, options.rounds, options.steps, warmup=5)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
