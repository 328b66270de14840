"""Texts packed for an encoder: how many special tokens stand around them, and what is cut."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import BERTTokenizer
from keras_tfm.data.batches.encoding import are_cut, pack_texts, surround, take_front
from keras_tfm.data.tokenizers.tokenizer import beside
from tests.data.tokenizers.test_offsets import byte_level

LETTERS = BERTTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij?"])


@pytest.mark.parametrize("make", [lambda: LETTERS, byte_level], ids=["BERT", "RoBERTa"])
@pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
def test_what_is_packed_is_cut_where_it_is_said_to_be(make, pairs):
    """Whatever stands around and between: two special tokens, BERT's three of a pair, RoBERTa's four."""
    tokenizer = make()
    columns = [[letter * count for count in range(9) for letter in ("a ", "b c ")]] * (1 + pairs)
    whole = pack_texts(tokenizer, 1_000, *map(tf.constant, columns))["token_ids"].row_lengths().numpy()
    for max_length in range(8, 20):
        np.testing.assert_array_equal(are_cut(tokenizer, max_length, *columns), whole > max_length)
        packed = pack_texts(tokenizer, max_length, *map(tf.constant, columns))["token_ids"]
        np.testing.assert_array_equal(packed.row_lengths(), np.minimum(whole, max_length))
    assert whole.min() == tokenizer.num_added(1 + pairs)


@pytest.mark.parametrize("lengths", [[2, 0, 3], [0, 0], [], [4]], ids=str)
def test_rows_are_joined_and_cut_as_tensorflow_does(lengths):
    rows = tf.RaggedTensor.from_row_lengths(tf.range(sum(lengths)), tf.constant(lengths, tf.int64))
    more = tf.RaggedTensor.from_row_lengths(tf.range(2 * len(lengths)) + 50, [2] * len(lengths))
    for before, after in (([7, 8], [9]), ([], [9]), ([7], []), ([], [])):
        ends = [tf.tile(tf.constant([x], tf.int32), [len(lengths), 1]) for x in (before, after)]
        joined = surround(rows, before, after)
        assert joined.to_list() == tf.concat([ends[0], rows, ends[1]], axis=1).to_list()
        assert joined.dtype == rows.dtype and joined.row_splits.dtype == tf.int64
    for first, second in ((rows, more), (more, rows), (rows, rows)):
        assert beside(first, second).to_list() == tf.concat([first, second], axis=1).to_list()
    taken = take_front(rows, rows.row_lengths() // 2)
    assert taken.to_list() == [row[: len(row) // 2] for row in rows.to_list()]
