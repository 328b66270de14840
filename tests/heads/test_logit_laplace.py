"""The logit-Laplace loss: the negative logarithm of a density of total probability 1."""

import numpy as np

from keras_tfm.heads import LogitLaplace, logit_laplace_loss


def test_the_density_by_its_integral():
    """Over y in (0, 1) the density integrates to 1, and half of it lies below the logit's mean."""
    y = np.linspace(1e-6, 1 - 1e-6, 200_001)
    images = ((y - 0.1) / 0.8).reshape(1, 1, -1, 1)
    for mean, scale in ((0.3, -0.5), (-1.0, 0.2)):
        distributions = np.broadcast_to(np.array([mean, scale]), (1, 1, y.size, 2))
        density = np.exp(-np.asarray(logit_laplace_loss(images, distributions))).ravel()
        np.testing.assert_allclose(np.trapezoid(density, y), 1, atol=2e-3)
        below = y < 1 / (1 + np.exp(-mean))
        np.testing.assert_allclose(np.trapezoid(density[below], y[below]), 0.5, atol=2e-3)


def test_the_loss_is_the_mean():
    rng = np.random.default_rng(0)
    images = rng.uniform(size=(2, 3, 4, 3)).astype("float32")
    distributions = rng.normal(size=(2, 3, 4, 6)).astype("float32")
    losses = logit_laplace_loss(images, distributions)
    assert losses.shape == images.shape
    np.testing.assert_allclose(LogitLaplace()(images, distributions), np.mean(losses), rtol=1e-5)
    y = 0.8 * images[0, 0, 0, 1] + 0.1
    mean, scale = distributions[0, 0, 0, [1, 4]]
    expected = abs(np.log(y / (1 - y)) - mean) / np.exp(scale) + np.log(2 * np.exp(scale) * y * (1 - y))
    np.testing.assert_allclose(losses[0, 0, 0, 1], expected, rtol=1e-5)
