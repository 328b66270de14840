"""The position-wise feed-forward layer."""

import numpy as np
import pytest

from keras_tfm import layers
from tests import contract
from tests.contract import Case, floats
from tests.layers import reference

test_contract = contract.check(
    Case("relu", lambda: layers.FeedForward(9), {"x": floats("T", 6)}, reference=reference.feedforward),
    Case("gelu", lambda: layers.FeedForward(9, "gelu", use_bias=False), {"x": floats("T", 6)},
         reference=reference.feedforward),
    Case("gated", lambda: layers.FeedForward(9, "gelu", gated=True, dropout=0.1), {"x": floats("T", 6)},
         reference=reference.feedforward),
)  # fmt: skip


def test_each_position_sees_itself_alone():
    layer = layers.FeedForward(9)
    x = np.random.normal(size=(1, 5, 6)).astype("float32")
    changed = x.copy()
    changed[:, 2] += 1
    y, z = layer(x), layer(changed)
    np.testing.assert_array_equal(np.abs(y - z).max(-1)[0] > 0, [False, False, True, False, False])


@pytest.mark.parametrize("dim", [8, 512])
def test_number_of_weights(dim):
    """Four times as wide inside: 2 x 4 D² + 5 D."""
    layer = layers.FeedForward(4 * dim)
    layer.build((None, None, dim))
    assert layer.count_params() == 8 * dim**2 + 5 * dim


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="`intermediate_dim` must be at least 1; it is 0"):
        layers.FeedForward(0)
