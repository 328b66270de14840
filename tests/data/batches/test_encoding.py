"""Texts packed for an encoder: how many special tokens stand around them, and what is cut."""

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from keras_tfm.data import BERTTokenizer
from keras_tfm.data.batches.encoding import pack_texts, surround, take_front
from keras_tfm.data.tokenizers.tokenizer import beside
from keras_tfm.tasks.asking import answerer_of
from keras_tfm.tasks.text.text_signature import text_signature
from tests.data.tokenizers.test_offsets import byte_level

LETTERS = BERTTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij?"])


@pytest.mark.parametrize("make", [lambda: LETTERS, byte_level], ids=["BERT", "RoBERTa"])
@pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
def test_what_is_packed_is_cut(make, pairs):
    """Whatever stands around and between: two special tokens, BERT's three of a pair, RoBERTa's four."""
    tokenizer = make()
    columns = [[letter * count for count in range(9) for letter in ("a ", "b c ")]] * (1 + pairs)
    whole = pack_texts(tokenizer, 1_000, *map(tf.constant, columns))["token_ids"].row_lengths().numpy()
    for max_length in range(8, 20):
        packed = pack_texts(tokenizer, max_length, *map(tf.constant, columns))["token_ids"]
        np.testing.assert_array_equal(packed.row_lengths(), np.minimum(whole, max_length))
    assert whole.min() == tokenizer.num_added(1 + pairs)


def test_pairs_are_cut_as_the_library_cuts_them(tmp_path):
    library = tokenizers.Tokenizer.from_file(str(LETTERS.save(tmp_path)))
    pairs = [("a " * first, "b " * second) for first in range(15) for second in range(15)]
    for max_length in (10, 11):
        library.enable_truncation(max_length)
        expected = [row.ids for row in library.encode_batch(pairs)]
        assert pack_texts(LETTERS, max_length, *zip(*pairs, strict=True))["token_ids"].to_list() == expected
        signature = text_signature(LETTERS, max_length, ["token_ids"], dict, {"kind": "arrays"}, pairs=True)
        assert [row.ids for (row,), _ in answerer_of(signature).read_all(pairs)] == expected


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
