"""Self-attention step by step, on four words, and why the scores are divided by the root of the width.

    python docs/book/attention.py

Some seconds. It prints each step's shape, whether the steps are what the layer computes, and how the spread
of scores grows with the width; attention.png shows the steps.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm import layers
from keras_tfm.visualize import plots

WORDS = ("the", "cat", "is", "hungry")
DIM = 8


def steps():
    """{step: its array} of one head, and the layer's output, (T, D) each but for the scores (T, T)."""
    keras.utils.set_random_seed(1)
    x = ops.convert_to_tensor(
        np.random.default_rng(0).normal(scale=3, size=(1, len(WORDS), DIM)).astype("float32")
    )
    attention = layers.MultiHeadAttention(num_heads=1, use_bias=False)
    expected = attention(x)

    w_query, w_key, w_value = kernels(attention)
    query, key, value = x @ w_query, x @ w_key, x @ w_value  # (1, T, K) each
    scores = query @ ops.transpose(key, (0, 2, 1)) / DIM**0.5  # (1, T, S)
    weights = ops.softmax(scores, axis=-1)
    mean = weights @ value  # (1, T, K)
    output = mean @ attention.output_projection.kernel  # (1, T, D)
    found = {"x": x, "queries": query, "keys": key, "values": value, "scores": scores, "weights": weights}
    found |= {"means of values": mean, "output": output}
    return {name: np.asarray(array)[0] for name, array in found.items()}, np.asarray(expected)[0]


def kernels(attention):
    """The matrices (D, K) of queries, keys and values."""
    return ops.split(attention.projections.query_key_value.kernel, 3, axis=1)


def spread(widths=(4, 64, 512), count=2_000):
    """{K: (variance of q . k, and of q . k / sqrt(K))} of vectors drawn with mean 0 and variance 1."""
    rng = np.random.default_rng(0)
    found = {}
    for width in widths:
        products = (rng.normal(size=(count, width)) * rng.normal(size=(count, width))).sum(axis=-1)
        found[width] = products.var(), (products / width**0.5).var()
    return found


def peaks(num_keys=(10, 200), width=64, count=400):
    """{number of keys: [(largest weight, sum of the absolute derivatives, root of the sum of their squares)
    without and with 1 / sqrt(K)]} of the softmax, means over draws of a query and its keys.
    """
    rng = np.random.default_rng(0)
    found = {}
    for number in num_keys:
        means = np.zeros((2, 3))
        for _ in range(count):
            scores = rng.normal(size=(number, width)) @ rng.normal(size=width)
            for place, scale in enumerate((1, width**-0.5)):
                weights = np.exp(scale * (scores - scores.max()))
                weights /= weights.sum()
                # The derivatives are weights * (1 - weights) on the diagonal and -w_i w_j elsewhere.
                squares = (weights**2).sum()
                norm = max(0, squares - 2 * (weights**3).sum() + squares**2) ** 0.5
                means[place] += weights.max(), 2 * (1 - squares), norm
        found[number] = (means / count).tolist()
    return found


def main(picture="attention.png"):
    found, expected = steps()
    for name, array in found.items():
        print(f"{name:<16}{array.shape}")
    difference = np.abs(found["output"] - expected).max()
    print(f"largest difference from the layer's output: {difference:.0e}")
    for width, (raw, scaled) in spread().items():
        print(f"K = {width:<4} variance of the products {raw:7.1f}, of the scaled ones {scaled:.2f}")
    for width in (64, 512):
        for number, means in peaks(width=width).items():
            peak, total, norm = (f"{raw:.2f} and {scaled:.2f}" for raw, scaled in zip(*means, strict=True))
            name = f"K = {width}, {number} keys"
            print(f"{name:<17} largest weight {peak}; derivatives, sum {total}, norm {norm}")
    draw(found, picture)


def draw(found, picture):
    """The steps as heat maps, in the order in which they are computed."""
    first = None
    for place, (name, array) in enumerate(found.items(), start=1):
        axes = (
            plots.new_axes(None, (10, 4.6), 2, 4, 1)
            if first is None
            else first.figure.add_subplot(2, 4, place)
        )
        first = first or axes
        is_weights = name == "weights"
        limit = 1 if is_weights else np.abs(array).max()
        axes.imshow(
            array, cmap="Blues" if is_weights else "RdBu_r", vmin=0 if is_weights else -limit, vmax=limit
        )
        axes.set_title(f"{name} {array.shape}", fontsize=9)
        axes.set_yticks(range(len(WORDS)), WORDS, fontsize=8)
        square = array.shape[1] == len(WORDS)
        axes.set_xticks(range(len(WORDS)) if square else [], WORDS if square else [], fontsize=8)
    plots.save(first, picture, dpi=110)


if __name__ == "__main__":
    main()
