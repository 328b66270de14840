"""RoIAlign: bins by hand, borders, both conventions of pixels; equal to torchvision in tests/parity."""

import numpy as np
import pytest

from keras_tfm.layers import RoIAlign, roi_align
from tests import contract
from tests.contract import Case, floats

INPUTS = {"maps": floats(5, 6, 3), "boxes": floats("T", 4)}

test_contract = contract.check(
    Case("RoIAlign", lambda: RoIAlign((2, 3), 2.0), INPUTS),
    Case("not aligned", lambda: RoIAlign(2, 0.5, 3, aligned=False), INPUTS),
)


def plane():
    """A map whose value at column x and row y is 10 y + x, in a batch with another."""
    y, x = np.mgrid[:8, :9]
    return np.stack([10 * y + x, y * 0], axis=0)[..., None].astype("float32")


def test_bins_of_a_plane_are_its_values_at_their_centres():
    """A box of 4 x 6 pixels from (2, 1): its bins of 2 x 2 are centred at x = 3, 5 and y = 2, 4, 6. The
    centre of cell n lies at n + 0.5 pixels.
    """
    boxes = np.array([[[2, 1, 6, 7]], [[2, 1, 6, 7]]], "float32")
    y = np.asarray(RoIAlign((3, 2))(plane(), boxes))
    x_centres, y_centres = np.array([3, 5]) - 0.5, np.array([2, 4, 6]) - 0.5
    np.testing.assert_allclose(y[0, 0, ..., 0], 10 * y_centres[:, None] + x_centres, rtol=1e-6)
    assert (y[1] == 0).all()
    shifted = np.asarray(RoIAlign((3, 2), aligned=False)(plane(), boxes))
    np.testing.assert_allclose(shifted[0, 0, ..., 0], y[0, 0, ..., 0] + 5.5, rtol=1e-6)
    scaled = np.asarray(RoIAlign((3, 2), spatial_scale=1 / 16, sampling_ratio=3)(plane(), 16 * boxes))
    np.testing.assert_allclose(scaled, y, rtol=1e-6)


def test_what_lies_outside_of_the_map():
    """Beyond the outermost centres values stay as they are for one cell, and are 0 after that."""
    boxes = np.array([[[-1.5, 3, -0.5, 5], [-2.5, 3, -1.5, 5], [8, 3, 12, 5]]] * 2, "float32")
    y = np.asarray(RoIAlign(1, sampling_ratio=2, aligned=False)(plane(), boxes))[0, :, 0, 0, 0]
    row = 10 * 4.0
    # Points at -1.25 and -0.75; at -2.25 and -1.75; at 9 and 11.
    np.testing.assert_allclose(y, [row / 2, 0, (row + 8) / 2], rtol=1e-6)


def test_small_boxes():
    """Without alignment a box is at least one cell large."""
    box = np.array([[[3, 2, 3.5, 2.5]]] * 2, "float32")
    mean = {
        aligned: float(roi_align(plane(), box, 1, aligned=aligned)[0, 0, 0, 0, 0])
        for aligned in (True, False)
    }
    np.testing.assert_allclose(mean[True], 10 * 1.75 + 2.75, rtol=1e-6)
    np.testing.assert_allclose(mean[False], 10 * 2.5 + 3.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RoIAlign(0), "`size` must be a positive integer, or a"),
        (lambda: RoIAlign(2, sampling_ratio=-1), "`sampling_ratio` must be at least 1, since shapes may not"),
        (lambda: RoIAlign(2, spatial_scale=0.0), "`spatial_scale` must be above 0; it is 0.0"),
        (
            lambda: RoIAlign(2)(np.zeros((1, 4, 4, 2)), np.zeros((1, 4))),
            r"`boxes` must have the shape \(B, N, 4\); it is \(1, 4\)",
        ),
        (
            lambda: RoIAlign(2)(np.zeros((1, 4, 4)), np.zeros((1, 1, 4))),
            r"`maps` must have the shape \(B, rows, columns, D\); it is \(1, 4, 4\)",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
