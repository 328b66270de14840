"""SentencePiece trained here: lossless, whatever the text."""

import sys
import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import load_tokenizer, train_tokenizer
from tests.data.tokenizers.test_kinds import LINES, decoded, round_trip


@pytest.fixture(scope="module")
def lossless():
    return train_tokenizer(LINES, vocabulary_size=400)


def test_large_text_is_sampled(monkeypatch):
    monkeypatch.setattr("keras_tfm.data.tokenizers.unigram.MAX_TRAINING_LINES", 30)
    small, large = (train_tokenizer(LINES[:size], vocabulary_size=1000) for size in (6, 120))
    assert large.vocabulary_size <= 1000 and round_trip(large, LINES[:6]) == LINES[:6]
    assert small.vocabulary_size > 300


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=5))
def test_sentencepiece_is_lossless(lossless, strings):
    assert round_trip(lossless, strings) == strings


@given(st.text(st.sampled_from(" \t\n▁  aé<s>")))
def test_sentencepiece_keeps_white_space(lossless, string):
    assert round_trip(lossless, [string]) == [string]


def test_sentencepiece_keeps_every_assigned_character(lossless):
    characters = [
        chr(code)
        for code in range(1, sys.maxunicode + 1)
        if unicodedata.category(chr(code)) not in ("Cn", "Cs")
    ]
    for texts in (characters, [f" {character} {character}a " for character in characters[::7]]):
        assert round_trip(lossless, texts) == texts


def test_what_sentencepiece_cannot_keep(lossless):
    assert round_trip(lossless, ["a\0b"]) == ["a▁b"]
    malformed = lossless.detokenize(lossless.tokenize(tf.constant([b"a\xffb", b"\xe4\xb8"])))
    assert decoded(malformed)[0] == "a\ufffdb"


def test_a_word_has_one_spelling_at_the_start_and_within(lossless):
    first, within = lossless.tokenize(["ladder", "a ladder"])
    assert within.numpy().tolist()[-len(first) :] == first.numpy().tolist()


def test_long_text(lossless):
    text = "ladder " * 150_000
    assert round_trip(lossless, [text]) == [text]


def test_the_first_use_may_be_in_a_function(tmp_path):
    train_tokenizer(["a line", "another"], vocabulary_size=300).save(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    round_trip = tf.function(lambda x: tokenizer.detokenize(tokenizer.tokenize(x)))
    assert round_trip(tf.constant(["one"])).numpy().tolist() == [b"one"]
    # A second function captures the model again, after the first one's graph is left.
    lengths = tf.function(lambda x: tokenizer.tokenize(x).row_lengths())
    assert lengths(tf.constant(["a line", ""])).numpy()[1] == 0
