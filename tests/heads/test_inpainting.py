"""The losses of inpainting: means over holes and over the rest, of their own areas."""

import numpy as np

from keras_tfm.heads import InpaintingLoss


def test_errors_are_averaged_over_holes_and_over_the_rest():
    rng = np.random.default_rng(0)
    truth, predictions = rng.normal(size=(2, 2, 3, 4, 5, 3))
    holes = rng.random((2, 3, 4, 5, 1)) < 0.2
    targets = np.concatenate([truth, holes], axis=-1)
    errors = np.abs(truth - predictions)
    expected = 2 * errors[holes[..., 0]].mean() + 0.5 * errors[~holes[..., 0]].mean()
    loss = InpaintingLoss((2.0, 0.5))
    np.testing.assert_allclose(loss(targets, predictions), expected, rtol=1e-5)
    again = InpaintingLoss.from_config(loss.get_config())
    np.testing.assert_allclose(again(targets, predictions), expected, rtol=1e-5)
    no_hole = np.concatenate([truth, 0 * holes], axis=-1)
    np.testing.assert_allclose(InpaintingLoss()(no_hole, predictions), errors.mean(), rtol=1e-5)
