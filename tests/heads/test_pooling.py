"""The poolings of sentence-transformers by hand: of a text of two tokens, of one of three, and of none."""

import numpy as np
import pytest

from keras_tfm.heads import pooled_tokens

HIDDEN = np.array([[[1, -1], [4, -3], [9, 9]], [[1, 0], [2, 0], [6, 3]], [[5, 5]] * 3], "float32")
MASK = np.array([[True, True, False], [True, True, True], [False] * 3])


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("cls", [[1, -1], [1, 0], [5, 5]]),
        ("max", [[4, -1], [6, 3]]),
        ("mean", [[2.5, -2], [3, 1], [0, 0]]),
        ("mean_sqrt_len_tokens", [[5 / np.sqrt(2), -4 / np.sqrt(2)], [9 / np.sqrt(3), np.sqrt(3)], [0, 0]]),
        ("weightedmean", [[9 / 3, -7 / 3], [23 / 6, 9 / 6], [0, 0]]),  # weights 1, 2, 3
        ("lasttoken", [[4, -3], [6, 3], [0, 0]]),
    ],
)
def test_each_pooling_by_hand(pooling, expected):
    np.testing.assert_allclose(pooled_tokens(HIDDEN, MASK, [pooling])[: len(expected)], expected, rtol=1e-6)


def test_several_stand_side_by_side_in_their_own_order():
    both = pooled_tokens(HIDDEN, MASK, ["lasttoken", "cls"])
    np.testing.assert_array_equal(both[:2], [[1, -1, 4, -3], [1, 0, 6, 3]])
    for poolings in ([], ["cls", "median"]):
        with pytest.raises(ValueError, match=r"`poolings` must be some of cls, max, mean, .*; they are"):
            pooled_tokens(HIDDEN, MASK, poolings)
