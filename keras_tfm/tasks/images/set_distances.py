"""How far one set of pictures is from another, by their features: functions of arrays (N, D) alone.

The numbers depend on the network that gives the features, and on how many pictures there are: only distances
by one network, between sets of one size, can be compared.
"""

import numpy as np

from keras_tfm.configs import Refusal


def frechet_distance(first: np.ndarray, second: np.ndarray) -> float:
    """The Fréchet distance of two normal distributions with the means and covariances of the sets, as FID has
    it (Heusel et al. 2017, "GANs Trained by a Two Time-Scale Update Rule", eq. 6).

    >>> from keras_tfm.tasks.images.set_distances import frechet_distance
    >>> x = np.random.default_rng(0).normal(size=(9, 2))
    >>> round(frechet_distance(x, x + [3, 4]), 6)
    25.0
    """
    first, second = _checked(first, second)
    variances, covariance = (np.atleast_2d(np.cov(x, rowvar=False)) for x in (first, second))
    root = _root(variances)
    # The eigenvalues of root C root equal the eigenvalues of the product of both covariances.
    shared = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ covariance @ root), 0)).sum()
    distance = np.square(first.mean(0) - second.mean(0)).sum()
    return float(distance + np.square(root).sum() + np.trace(covariance) - 2 * shared)


def _root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric root of a symmetric matrix without negative eigenvalues, but for rounding."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


def kernel_distance(first: np.ndarray, second: np.ndarray) -> float:
    """The squared maximum mean discrepancy with the kernel (x·y / D + 1)³, without bias, as KID has it: below
    0 by chance where the sets are alike (Bińkowski et al. 2018, "Demystifying MMD GANs", section 4).

    >>> from keras_tfm.tasks.images.set_distances import kernel_distance
    >>> kernel_distance(np.array([[0.0], [0.0]]), np.array([[1.0], [1.0]]))
    7.0
    """
    first, second = _checked(first, second)

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x @ y.T / x.shape[1] + 1) ** 3

    def without_itself(x: np.ndarray) -> float:
        values = kernel(x, x)
        return (values.sum() - np.trace(values)) / (len(x) * (len(x) - 1))

    return float(without_itself(first) + without_itself(second) - 2 * kernel(first, second).mean())


def precision_and_recall(real: np.ndarray, made: np.ndarray, num_neighbours: int = 3) -> tuple[float, float]:
    """(The share of made pictures that lie among the real ones, the share of real pictures that lie among the
    made ones): within the distance of some picture there to its third neighbour (Kynkäänniemi et al. 2019,
    "Improved Precision and Recall Metric for Assessing Generative Models", eq. 2).

    >>> from keras_tfm.tasks.images.set_distances import precision_and_recall
    >>> real, made = np.array([[0.0], [1], [8], [9]]), np.array([[0.1], [0.5], [0.9], [3]])
    >>> precision_and_recall(real, made, num_neighbours=1)
    (0.75, 0.5)
    """
    real, made = _checked(real, made)
    least = min(len(real), len(made))
    if not 1 <= num_neighbours < least:
        wanted = f"from 1 to {least - 1}, as a set has {least} pictures"
        raise Refusal("num_neighbours", wanted, num_neighbours)
    return _covered(made, real, num_neighbours), _covered(real, made, num_neighbours)


def _covered(points: np.ndarray, others: np.ndarray, num_neighbours: int) -> float:
    """The share of `points` within the ball, to its k-th neighbour, of some of the `others`."""
    radii = np.partition(_distances(others, others), num_neighbours, axis=1)[:, num_neighbours]
    return float((_distances(points, others) <= radii).any(axis=1).mean())


def _distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The squared distances (N, M)."""
    squares = np.square(x).sum(1)[:, None] + np.square(y).sum(1) - 2 * x @ y.T
    return np.maximum(squares, 0)


def _checked(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sets in float64; ValueError for other shapes, and for less than two pictures."""
    sets = [np.asarray(x, "float64") for x in (first, second)]
    shapes = " and ".join(str(x.shape) for x in sets)
    if any(x.ndim != 2 or len(x) < 2 for x in sets) or sets[0].shape[1] != sets[1].shape[1]:
        raise ValueError(f"features: expected two sets (N, D) of at least 2 pictures each, got {shapes}")
    if not all(np.isfinite(x).all() for x in sets):
        raise ValueError("features: expected finite numbers, got NaN or infinity")
    return sets[0], sets[1]
