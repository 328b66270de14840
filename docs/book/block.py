"""What a block's skips and norms do: gradients through 50 layers, and who shares a layer's mean.

    python docs/book/block.py

Ten seconds of CPU time. It prints how large the gradient is at the first of 50 feed-forward layers with
and without skips and norms, and draws it for all of them, block.png; whether a batch's other texts change
what a norm makes of one; and what the four paths through a block add up to.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_tfm import layers
from keras_tfm.visualize import plots

DEPTH, DIM, LENGTH = 50, 32, 8


def parts():
    """{name: a function that makes one of the layers of a stack}."""

    def branch():
        return layers.FeedForward(4 * DIM, "relu")

    def norm():
        return layers.LayerNormalization()

    return {
        "plain": branch,
        "skip": lambda: layers.Residual(branch()),
        "skip and norm of the sum": lambda: layers.Residual(branch(), norm=norm(), normalize="sum"),
        "skip and norm of the input": lambda: layers.Residual(branch(), norm=norm(), normalize="input"),
    }


def gradients():
    """{name: the norm of the gradient at the input of each of `DEPTH` layers}, of a loss at the end."""
    x = np.random.default_rng(0).normal(size=(4, LENGTH, DIM)).astype("float32")
    direction = np.random.default_rng(1).normal(size=x.shape).astype("float32")
    found = {}
    for name, make in parts().items():
        keras.utils.set_random_seed(0)
        stack = [make() for _ in range(DEPTH)]
        with tf.GradientTape() as tape:
            states = [tf.convert_to_tensor(x)]
            tape.watch(states[0])
            for layer in stack:
                states.append(layer(states[-1]))
            loss = tf.reduce_sum(states[-1] * direction)
        found[name] = np.array([np.linalg.norm(g) for g in tape.gradient(loss, states[:-1])])
    return found


def neighbours():
    """{norm: how much the first text's output changes where the batch's other texts do}."""
    rng = np.random.default_rng(0)
    texts = rng.normal(size=(8, LENGTH, DIM)).astype("float32")
    others = np.concatenate([texts[:1], 3 + rng.normal(size=(7, LENGTH, DIM))]).astype("float32")
    norms = {"batch": keras.layers.BatchNormalization(), "layer": layers.LayerNormalization()}
    return {
        name: float(np.abs(norm(texts, training=True)[0] - norm(others, training=True)[0]).max())
        for name, norm in norms.items()
    }


def paths():
    """The largest difference between a block and the sum of its four paths, where its branches are linear."""
    keras.utils.set_random_seed(0)
    x = ops.convert_to_tensor(np.random.default_rng(0).normal(size=(2, LENGTH, DIM)).astype("float32"))
    first, second = keras.layers.Dense(DIM), keras.layers.Dense(DIM, use_bias=False)
    block = layers.Residual(second)(layers.Residual(first)(x))
    return float(ops.max(ops.abs(block - (x + first(x) + second(x) + second(first(x))))))


def main(picture="block.png"):
    found = gradients()
    for name, values in found.items():
        print(f"{name:<28}gradient at layer 1 {values[0]:8.1e}, at layer {DEPTH} {values[-1]:8.1e}")
    for name, difference in neighbours().items():
        print(f"{name} normalisation: other texts change the first one's output by {difference:.1e}")
    print(f"the four paths differ from the block by {paths():.0e}")
    axes = plots.plot_curves(found, log=True, xlabel="layer", ylabel="norm of the gradient at its input")
    plots.save(axes, picture, dpi=100)


if __name__ == "__main__":
    main()
