"""Pairs in rows of one language model: what stands where, and that none is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tfm.data import CharacterTokenizer, PackedPairs
from keras_tfm.data.batches.packing import pack

LETTERS = CharacterTokenizer("abcdxyz")
A, B, C, D, X, Y, Z = range(4, 11)
START, END = 1, 2


def test_the_figure_of_the_header():
    pairs = PackedPairs(["d", "abc"], ["z", "xy"], LETTERS, min_batches=1)
    ((inputs, labels, weights),) = pairs.dataset().as_numpy_iterator()
    assert pairs.length == 6  # the longest pair: here a row each
    np.testing.assert_array_equal(inputs["token_ids"], [[A, B, C, START, X, Y], [D, START, Z, 0, 0, 0]])
    np.testing.assert_array_equal(labels, [[0, 0, 0, X, Y, END], [0, Z, END, 0, 0, 0]])
    np.testing.assert_array_equal(weights, labels > 0)
    np.testing.assert_array_equal(inputs["padding_mask"], inputs["token_ids"] > 0)


@settings(max_examples=settings.default.max_examples // 3)  # a dataset is made for each
@given(
    st.lists(st.tuples(st.text("abcd", max_size=6), st.text("xyz", max_size=6)), min_size=1, max_size=12),
    st.integers(0, 2),
)
def test_every_pair_stands_once_in_an_epoch(pairs, epoch):
    sources, targets = zip(*pairs, strict=True)
    packed = PackedPairs(sources, targets, LETTERS, batch_tokens=30, seed=4)
    found = []
    for inputs, labels, weights in packed.dataset(epoch).as_numpy_iterator():
        assert labels.shape == (packed.num_rows, packed.length)
        for row in range(packed.num_rows):
            is_real = inputs["padding_mask"][row]
            for segment in set(inputs["segment_ids"][row][is_real].tolist()):
                chosen = is_real & (inputs["segment_ids"][row] == segment)
                ids, label, weight = (x[row][chosen] for x in (inputs["token_ids"], labels, weights))
                middle = ids.tolist().index(START)
                np.testing.assert_array_equal(weight, np.arange(len(ids)) >= middle)
                assert label[-1] == END
                np.testing.assert_array_equal(label[middle:-1], ids[middle + 1 :])
                texts = LETTERS.detokenize([ids[:middle]]), LETTERS.detokenize([label[middle:]])
                found.append(tuple(text.numpy()[0].decode() for text in texts))
    assert sorted(found) == sorted(pairs)


def test_long_pairs_are_left_out():
    packed = PackedPairs(["abcd", "a"], ["x", "yyyy"], LETTERS, max_length=5)
    assert (packed.num_pairs, packed.num_dropped) == (2, 0)
    assert PackedPairs(["abcd", "a"], ["x", "y"], LETTERS, max_length=4).num_dropped == 1
    with pytest.raises(ValueError, match="of 1 pairs none has at most 4 tokens"):
        PackedPairs(["abcd"], ["x"], LETTERS, max_length=4)
    with pytest.raises(ValueError, match="expected 1, one for each source, got 2"):
        PackedPairs(["a"], ["x", "y"], LETTERS)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40))
def test_rows_hold_what_fits(lengths):
    rows = pack(np.array(lengths), 20)
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    sums = [sum(lengths[number] for number in row) for row in rows]
    assert max(sums) <= 20
    # No two rows would fit into one: else the second's longest had gone into the first.
    assert all(a + b > 20 for i, a in enumerate(sums) for b in sums[:i])
