"""Texts packed for an encoder: how many special tokens stand around them, and what is cut."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import BERTTokenizer
from keras_tfm.data.batches.encoding import are_cut, pack_texts
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
