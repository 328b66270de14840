"""Masking of patches, by hand and back again."""

import numpy as np
import pytest

from keras_tfm.layers import PatchMasking, PatchRestoring, is_hidden
from tests import contract
from tests.contract import Case, floats

test_contract = contract.check(
    Case("masking", lambda: PatchMasking(0.5, prefix=1), {"x": floats(7, 4), "noise": floats(6)}),
    Case("restoring", lambda: PatchRestoring(prefix=1), {"x": floats(4, 5), "noise": floats(6)}),
)

NOISE = np.array([[0.7, 0.1, 0.9, 0.4], [0.1, 0.2, 0.3, 0.4]], "float32")
X = np.arange(10, dtype="float32").reshape(2, 5, 1)  # a token before four patches


def test_the_least_numbers_stay_in_their_order():
    visible = PatchMasking(0.5, prefix=1)(X, NOISE)
    np.testing.assert_array_equal(visible[..., 0], [[0, 2, 4], [5, 6, 7]])
    np.testing.assert_array_equal(is_hidden(NOISE, 0.5), [[1, 0, 1, 0], [0, 0, 1, 1]])
    assert PatchMasking(0.75, prefix=1)(X, NOISE).shape == (2, 2, 1)


def test_restoring_is_the_inverse_and_fills_with_the_mask_token():
    layer = PatchRestoring(prefix=1, initializer="ones")
    np.testing.assert_array_equal(
        layer(PatchMasking(0.5, prefix=1)(X, NOISE), NOISE)[..., 0], [[0, 1, 2, 1, 4], [5, 6, 7, 1, 1]]
    )
    np.testing.assert_array_equal(layer(PatchMasking(0.0, prefix=1)(X, NOISE), NOISE), X)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_what_is_hidden_does_not_depend_on_the_precision(dtype):
    """Numbers that differ in float32 alone: losses count what `is_hidden` says of them."""
    noise = (1 + 1e-5 * np.array([[3, 1, 2, 0]])).astype("float32")
    visible = PatchMasking(0.5, prefix=1, dtype=dtype)(X[:1], noise)
    assert visible.dtype == dtype.removeprefix("mixed_")
    np.testing.assert_array_equal(np.asarray(visible[..., 0], "float32"), [[0, 4, 2]])
    np.testing.assert_array_equal(is_hidden(noise, 0.5), [[True, False, True, False]])
    restored = PatchRestoring(prefix=1, initializer="ones", dtype=dtype)(visible, noise)
    assert restored.dtype == visible.dtype
    np.testing.assert_array_equal(np.asarray(restored[..., 0], "float32"), [[0, 1, 2, 1, 4]])


def test_refusals():
    with pytest.raises(ValueError, match=r"`mask_ratio` must lie in \[0, 1\); it is 1"):
        PatchMasking(1)
    with pytest.raises(ValueError, match=r"`mask_ratio` must leave one of 4 patches visible; it is 0\.9"):
        PatchMasking(0.9)(X[:, 1:], NOISE)
    with pytest.raises(ValueError, match="a number for each of 5 patches; it has 4"):
        PatchMasking(0.5)(X, NOISE)
