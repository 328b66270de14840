"""How many examples are held out, and that every class has its share of them."""

import numpy as np
import pytest

from keras_tfm.data.batches.epochs import HeldOut, hold_out


@pytest.mark.parametrize(
    ("held", "number", "expected"),
    [
        (HeldOut(0.1), 40, 4),
        (HeldOut(0.1), 2, 1),
        (HeldOut(0.9, 1_000), 2, 1),
        (HeldOut(0.1, 1_000, least=100), 40, 8),  # of few examples a fifth at most
        (HeldOut(0.1, 1_000, least=100), 600, 100),
        (HeldOut(0.1, 1_000, least=100), 3_000, 300),
        (HeldOut(0.1, 1_000, least=100), 30_000, 1_000),
        (HeldOut(0.02, 500), 10, 1),
    ],
)
@pytest.mark.parametrize("num_classes", [None, 1, 3, 7])
def test_examples_are_held_out_by_number_and_by_class(held, number, expected, num_classes):
    classes = None if num_classes is None else np.random.default_rng(0).integers(0, num_classes, number)
    rest, kept = hold_out(number, 5, held, classes)
    assert len(kept) == expected and sorted([*rest, *kept]) == list(range(number))
    assert list(rest) == sorted(rest) and list(kept) == sorted(kept)
    assert number < 40 or list(kept) != list(hold_out(number, 6, held, classes)[1])
    for one in range(num_classes or 0):
        share = np.sum(classes == one) * expected / number
        assert abs(np.sum(classes[kept] == one) - share) <= 1


def test_a_rule_is_said_as_it_counts():
    held = HeldOut(0.1, 1_000, least=100)
    assert str(held) == "10% of --data, from 100 to 1,000; a fifth of fewer than 500"
    assert (held.count(499), held.count(500), held.count(50_000)) == (99, 100, 1_000)
    assert str(HeldOut(0.1, least=100)) == "10% of --data, at least 100; a fifth of fewer than 500"
    assert str(HeldOut(0.05, 1_000)) == "5% of --data, at most 1,000"
    assert str(HeldOut(0.05)) == "5% of --data"


@pytest.mark.parametrize(("share", "number"), [(0.5, 1), (0.0, 9), (1.0, 9)])
def test_two_parts_that_cannot_be_made_are_refused(share, number):
    with pytest.raises(ValueError, match="At least 2 examples are needed"):
        hold_out(number, 0, HeldOut(share))
