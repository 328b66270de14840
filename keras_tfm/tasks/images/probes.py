"""Tests of vectors, from whatever encoder: a vote of nearest neighbours, and a linear classifier."""

from typing import Any

import numpy as np
import scipy  # loads its packages at their first use: `optimize` takes a while

from keras_tfm.data.batches.epochs import HeldOut, hold_out

PROBED = 0.2  # the share of labelled examples that tests the vectors; the probes learn from the others


def probed(vectors: np.ndarray, pixels: np.ndarray, labels: np.ndarray, seed: int) -> dict[str, Any]:
    """How well `vectors` (N, D) of length 1 predict the `labels` of a fifth of the examples, drawn by `seed`,
    from the others: by a vote of the nearest, by a linear probe, and beside them by a vote of the examples
    whose normalised `pixels` (N, ...) are nearest.
    """
    known, asked = hold_out(len(vectors), seed, HeldOut(PROBED))
    kernel, bias, names = linear_probe(vectors[known], labels[known])
    answers = names[(vectors[asked] @ kernel + bias).argmax(-1)]
    pixels = pixels.reshape(len(pixels), -1).astype("float32")
    pixels -= pixels.mean(1, keepdims=True)
    pixels /= np.linalg.norm(pixels, axis=1, keepdims=True) + 1e-6
    found = {
        name: np.mean(nearest_neighbours(x[known], labels[known], x[asked]) == labels[asked])
        for name, x in (("neighbour_accuracy", vectors), ("pixel_accuracy", pixels))
    }
    return {**found, "probe_accuracy": np.mean(answers == labels[asked])}


def nearest_neighbours(
    vectors: np.ndarray, labels: np.ndarray, asked: np.ndarray, count: int = 20, temperature: float = 0.07
) -> np.ndarray:
    """Labels for the vectors `asked` (M, D) by a vote of the `count` nearest of `vectors` (N, D), labelled
    `labels`.

    All vectors have length 1; the vote of a neighbour weighs exp(cosine / `temperature`) (Wu et al. 2018,
    "Unsupervised Feature Learning via Non-Parametric Instance Discrimination", section 3.4).

    >>> vectors, labels = np.eye(2), np.array(["a", "b"])
    >>> keras_tfm.tasks.nearest_neighbours(vectors, labels, np.array([[0.6, 0.8]]), count=1).tolist()
    ['b']
    """
    names, numbers = np.unique(labels, return_inverse=True)
    count = min(count, len(vectors))
    answers = np.zeros(len(asked), int)
    for first in range(0, len(asked), 1_024):
        cosines = asked[first : first + 1_024] @ vectors.T  # (m, N)
        nearest = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        votes = np.exp((np.take_along_axis(cosines, nearest, axis=1) - 1) / temperature)
        sums = np.zeros((len(cosines), len(names)))
        np.add.at(sums, (np.arange(len(cosines))[:, None], numbers[nearest]), votes)
        answers[first : first + len(cosines)] = sums.argmax(1)
    return names[answers]


def linear_probe(
    vectors: np.ndarray, labels: np.ndarray, decay: float = 1e-3, steps: int = 200
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A softmax regression on vectors (N, D): its kernel (D, classes), bias (classes,) and class names.

    SciPy's L-BFGS minimises the cross-entropy plus `decay` / 2 times the squared norm of the kernel. The
    labels of further vectors are names[(vectors @ kernel + bias).argmax(-1)].

    >>> kernel, bias, names = keras_tfm.tasks.linear_probe(np.eye(2), np.array(["a", "b"]))
    >>> names[(np.eye(2) @ kernel + bias).argmax(-1)].tolist()
    ['a', 'b']
    """
    names, numbers = np.unique(labels, return_inverse=True)
    shape = vectors.shape[1] + 1, len(names)
    inputs = np.concatenate([vectors, np.ones((len(vectors), 1))], axis=1).astype("float64")
    right = np.arange(len(numbers)), numbers

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(shape)
        logits = inputs @ weights
        logits -= logits.max(1, keepdims=True)
        shares = np.exp(logits)
        sums = shares.sum(1, keepdims=True)
        kernel = weights * (np.arange(shape[0]) < shape[0] - 1)[:, None]
        value = np.mean(np.log(sums[:, 0]) - logits[right]) + decay / 2 * np.sum(kernel**2)
        error = shares / sums
        error[right] -= 1
        return value, (inputs.T @ error / len(inputs) + decay * kernel).ravel()

    found = scipy.optimize.minimize(
        loss, np.zeros(np.prod(shape)), jac=True, method="L-BFGS-B", options={"maxiter": steps}
    )
    weights = found.x.reshape(shape)
    return weights[:-1], weights[-1], names
