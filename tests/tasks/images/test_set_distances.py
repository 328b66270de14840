"""Distances between sets of pictures, by hand and beside plain definitions."""

import numpy as np
import pytest
import scipy.linalg

from keras_tfm.tasks.images.set_distances import frechet_distance, kernel_distance, precision_and_recall


def draw(count, dim, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=(count, dim)) @ rng.normal(size=(dim, dim))


def test_the_frechet_distance_by_hand():
    x = np.array([[-1.0], [1.0]])  # variance 2
    assert frechet_distance(x, 3 * x + 5) == pytest.approx(25 + 2 + 18 - 2 * 6)
    assert frechet_distance(x, x) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("count", [50, 4])  # of fewer pictures than features covariances are singular
def test_the_frechet_distance_is_that_of_its_formula(count):
    first, second = draw(count, 6), draw(count, 6, 1, 2.0) + 1
    covariances = [np.cov(x, rowvar=False) for x in (first, second)]
    root = scipy.linalg.sqrtm(covariances[0] @ covariances[1] + 1e-13 * np.eye(6)).real
    expected = np.square(first.mean(0) - second.mean(0)).sum() + np.trace(sum(covariances) - 2 * root)
    assert frechet_distance(first, second) == pytest.approx(expected, rel=1e-4)
    assert frechet_distance(second, first) == pytest.approx(frechet_distance(first, second))
    assert frechet_distance(first, first) == pytest.approx(0, abs=1e-5)


def test_the_kernel_distance_is_the_mean_over_pairs():
    first, second = draw(7, 3), draw(5, 3, 1)

    def kernel(x, y):
        return (x @ y / 3 + 1) ** 3

    def mean(x, y, same=False):
        return np.mean([kernel(a, b) for i, a in enumerate(x) for j, b in enumerate(y) if not same or i != j])

    expected = mean(first, first, True) + mean(second, second, True) - 2 * mean(first, second)
    assert kernel_distance(first, second) == pytest.approx(expected)
    alike = [kernel_distance(draw(20, 2, seed), draw(20, 2, seed)[::-1] * [1, 1]) for seed in range(4)]
    assert max(alike) < 0  # each picture of one set stands in the other


def test_sets_that_are_alike_are_near():
    first = np.random.default_rng(0).normal(size=(400, 4))
    same, other = (np.random.default_rng(1).normal(size=(400, 4)) + shift for shift in (0, 1))
    assert frechet_distance(first, same) < 0.1 < 3 < frechet_distance(first, other)
    assert abs(kernel_distance(first, same)) < 0.05 < kernel_distance(first, other)
    assert min(precision_and_recall(first, same)) > 0.8


def test_precision_and_recall_by_hand():
    real = np.array([[0.0, 0], [1, 0], [0, 1], [10, 0], [11, 0], [10, 1]])
    assert precision_and_recall(real, real[:3] + 0.01, 1) == (1.0, 0.5)  # one of two heaps alone
    assert precision_and_recall(real, real + 50, 1) == (0.0, 0.0)
    assert precision_and_recall(real[:3], real, 1) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: frechet_distance(draw(1, 2), draw(3, 2)), r"at least 2 pictures each, got \(1, 2\) and"),
        (lambda: frechet_distance(draw(3, 2), draw(3, 4)), r"expected two sets \(N, D\)"),
        (lambda: kernel_distance(np.full((2, 2), np.nan), draw(3, 2)), "expected finite numbers, got NaN"),
        (lambda: precision_and_recall(draw(3, 2), draw(9, 2)), "`num_neighbours` must be from 1 to 2, as a"),
    ],
)
def test_what_is_wrong_is_refused_in_a_line(call, message):
    with pytest.raises(ValueError, match=message):
        call()
