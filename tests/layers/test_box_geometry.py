"""Weights for where boxes lie: the contract, the formula in NumPy, what moves with both boxes."""

import numpy as np
import pytest

from keras_tfm.layers import BoxGeometry
from tests import contract
from tests.contract import Case, floats

test_contract = contract.check(
    Case(
        "geometry",
        lambda: BoxGeometry(2, 16, scale=2.0),
        {"boxes": floats("T", 4), "others": floats("S", 4)},
        left_loss=0.2,  # a weight of 1e-6 passes no gradient
    )
)


def draw(count, seed=0):
    return np.random.default_rng(seed).uniform(0.2, 0.8, (1, count, 4)).astype("float32")


@pytest.fixture(scope="module")
def layer():
    layer = BoxGeometry(3, 16, scale=2.0)
    layer.build((None, None, 4))
    contract.randomise(layer, seed=1)
    return layer


def geometry(layer, boxes, others):
    """Equations 4 and 5 of Hu et al. 2018, box by box."""
    found = np.zeros((layer.num_heads, len(boxes), len(others)))
    for t, s in np.ndindex(len(boxes), len(others)):
        (x, y, w, h), (x2, y2, w2, h2) = boxes[t].astype(float), others[s].astype(float)
        shifts = (max(abs(a), 1e-3) for a in ((x - x2) / w2, (y - y2) / h2))
        place = layer.scale * np.log([*shifts, w / w2, h / h2])
        angles = place[:, None] / 1000 ** (np.arange(0, 4, 2) / 4)  # 16 numbers, four of each
        encoding = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(16)
        weights = encoding @ np.asarray(layer.weight.kernel) + np.asarray(layer.weight.bias)
        found[:, t, s] = np.log(np.maximum(weights, 1e-6))
    return found


def test_weights_by_their_formula(layer):
    boxes, others = draw(3), draw(4, seed=1)
    boxes[0, 0] = others[0, 2]  # the same centre: 1e-3 of a side apart
    found = layer(boxes, others)
    expected = np.exp(geometry(layer, boxes[0], others[0]))
    np.testing.assert_allclose(np.exp(found[0]), expected, atol=1e-5)
    assert (np.asarray(found) < -13).any() and (
        np.asarray(found) > -2
    ).any()  # some heads mind, others do not


def test_moving_or_stretching_both_changes_nothing(layer):
    boxes, others = draw(3), draw(4, seed=1)
    before, size, shift = layer(boxes, others), [2.0, 0.5, 2.0, 0.5], [0.25, -0.5, 0.0, 0.0]
    after = layer(boxes * size + shift, others * size + shift)
    np.testing.assert_allclose(np.exp(after), np.exp(before), atol=1e-5)


def test_boxes_that_are_zeros_have_finite_weights(layer):
    boxes = np.concatenate([draw(2), np.zeros((1, 2, 4))], axis=1)
    assert np.isfinite(layer(boxes, boxes)).all()


def test_a_width_that_has_no_four_pairs_is_refused():
    with pytest.raises(
        ValueError, match="`dim` must be a multiple of 8, for sines and cosines of four; it is 12"
    ):
        BoxGeometry(2, 12)
