"""Windows over long texts: by hand, and that nothing is lost between them."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import BERTTokenizer
from keras_tfm.data.batches.windows import question_windows
from tests.data.tokenizers.test_offsets import byte_level

TOKENIZER = BERTTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij?"])


def windows(questions, contexts, max_length=10, stride=3, tokenizer=TOKENIZER):
    return question_windows(tokenizer, max_length, stride, tf.constant(questions), tf.constant(contexts))


def spelled(found, tokenizer=TOKENIZER):
    names = {i: piece.strip("[]")[0] for i, piece in enumerate(tokenizer.vocabulary)}
    return ["".join(names[i] for i in row) for row in found["token_ids"].to_list()]


def test_windows_overlap_until_the_end():
    """Five pieces fit beside a question of two, three begin a window each."""
    found = windows(["a?", "b?", "c?"], ["a b c  d e f g h i", "a b c d e", ""])
    assert spelled(found) == ["Ca?SabcdeS", "Ca?SdefghS", "Ca?SghiS", "Cb?SabcdeS", "Cc?SS"]
    assert found["num_windows"].numpy().tolist() == [3, 1, 1]
    assert found["segment_ids"].to_list()[2] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found["starts"].to_list()[1] == [0, 0, 0, 0, 7, 9, 11, 13, 15, 0]
    assert found["ends"].to_list()[1] == [0, 0, 0, 0, 8, 10, 12, 14, 16, 0]
    six = windows(["b?"], ["a b c d e f"])
    assert spelled(six) == ["Cb?SabcdeS", "Cb?SdefS"]


def test_two_ends_stand_between_robertas():
    tokenizer = byte_level()
    found = windows(["the"], ["the cat"], tokenizer=tokenizer)
    assert found["token_ids"].to_list()[0][2:4] == [tokenizer.end_id] * 2
    assert found["starts"].to_list()[0][4] == 0 and found["ends"].to_list()[0][4] == 3


def test_a_question_that_leaves_no_room_is_refused():
    assert spelled(windows(["a a a ?"], ["b c d e"])) == ["Caaa?SbcdS", "Caaa?SeS"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="A question has more than 4 tokens"):
        windows(["a a a a ?"], ["b c d e"])


LETTERS = st.lists(
    st.sampled_from([f"{letter}{space}" for letter in "abcj" for space in (" ", "  ")]), max_size=40
)


@given(st.lists(st.tuples(st.integers(0, 6), LETTERS), max_size=4), st.integers(10, 14), st.integers(1, 5))
def test_every_piece_is_in_a_window_in_order(drawn, max_length, stride):
    questions = [" ".join("a" * min(count, max_length - stride - 3)) for count, _ in drawn]
    contexts = ["".join(letters) for _, letters in drawn]
    found = windows(tf.constant(questions, tf.string), tf.constant(contexts, tf.string), max_length, stride)
    rows = iter(zip(found["starts"].to_list(), found["ends"].to_list(), strict=True))
    for context, count in zip(contexts, found["num_windows"].numpy(), strict=True):
        letters = [place for place, letter in enumerate(context) if letter != " "]
        stop = 0
        for number in range(count):
            starts, ends = (np.array(x) for x in next(rows))
            part = starts[ends > starts].tolist()
            assert len(starts) <= max_length and (ends <= starts + 1).all()
            assert part == letters[stride * number :][: len(part)]
            assert len(starts) == max_length or number == count - 1
            stop = stride * number + len(part)
        assert stop == len(letters)
    assert next(rows, None) is None
