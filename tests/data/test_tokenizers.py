"""Text to ids and back, in a graph, in a file, in a SavedModel."""

import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import (
    DataError,
    SentencePieceTokenizer,
    WordPieceTokenizer,
    load_tokenizer,
    train_tokenizer,
)

LINES = [
    "Two young men, outside, near many bushes.",
    "A man in a blue shirt is standing on a ladder",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Καλημέρα κόσμε! Τι ώρα είναι;",
    "  two  spaces, 1999-12-31  ",
    "我们 在 北京。",
] * 20
KINDS = {"sentencepiece": SentencePieceTokenizer, "wordpiece": WordPieceTokenizer}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return train_tokenizer(LINES, request.param, 400)


@pytest.fixture(scope="module")
def lossless():
    return train_tokenizer(LINES, vocabulary_size=400)


@pytest.fixture(scope="module")
def words():
    return train_tokenizer(LINES, "wordpiece", 400)


def decoded(strings: tf.Tensor) -> list[str]:
    return [string.decode() for string in strings.numpy()]


def round_trip(tokenizer, strings: list[str]) -> list[str]:
    return decoded(tokenizer.detokenize(tokenizer.tokenize(strings)))


def test_interface(tokenizer):
    assert (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id) == (0, 1, 2, 3)
    assert 4 < tokenizer.vocabulary_size <= 400
    token_ids = tokenizer.tokenize(["a man", "", "on a ladder"])
    assert isinstance(token_ids, tf.RaggedTensor) and token_ids.dtype == tf.int32
    assert token_ids.row_lengths().numpy()[1] == 0
    assert tf.reduce_min(token_ids.flat_values) > 3 and tf.reduce_max(token_ids) < tokenizer.vocabulary_size
    assert round_trip(tokenizer, ["a man", "", "on a ladder"]) == ["a man", "", "on a ladder"]
    assert tokenizer.tokenize([]).shape[0] == 0
    assert tokenizer.detokenize(tf.zeros((0, 3), tf.int32)).shape == (0,)
    assert decoded(tokenizer.detokenize(tf.zeros((2, 0), tf.int32))) == ["", ""]


def test_text_ends_at_the_first_end(tokenizer):
    text = tokenizer.tokenize(["a man"])[0].numpy().tolist()
    rows = [[1, *text, 2, 0, 0], [*text, 2, *text], [0, 0, 1, *text], [2, *text], [1, 0]]
    expected = ["a man", "a man", "a man", "", ""]
    ragged = tf.ragged.constant(rows, dtype=tf.int64)
    assert decoded(tokenizer.detokenize(ragged)) == expected
    assert decoded(tokenizer.detokenize(ragged.to_tensor())) == expected


def test_ids_outside_the_vocabulary_read_as_unknown(tokenizer):
    unknown = decoded(tokenizer.detokenize([[tokenizer.unknown_id]]))
    for token_id in (tokenizer.vocabulary_size, 2**31 - 1, -1):
        assert decoded(tokenizer.detokenize([[token_id]])) == unknown != [""]


def test_graph_equals_eager(tokenizer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def in_graph(strings):
        token_ids = tokenizer.tokenize(strings)
        return token_ids.to_tensor(), tokenizer.detokenize(token_ids)

    token_ids, strings = in_graph(LINES[:6])
    assert np.array_equal(token_ids, tokenizer.tokenize(LINES[:6]).to_tensor())
    assert decoded(strings) == round_trip(tokenizer, LINES[:6])
    in_graph(tf.constant([], tf.string))


def test_a_saved_model_carries_its_tokenizer(tokenizer, tmp_path):
    module = tf.Module()
    module.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(strings):
        return tokenizer.detokenize(tokenizer.tokenize(strings))

    module.serve = serve
    tf.saved_model.save(module, str(tmp_path), signatures=serve)
    loaded = tf.saved_model.load(str(tmp_path)).serve(tf.constant(LINES[:6]))
    assert decoded(loaded) == round_trip(tokenizer, LINES[:6])


def test_save_and_load(tokenizer, tmp_path):
    path = tokenizer.save(tmp_path, "source")
    suffix = ".model" if isinstance(tokenizer, SentencePieceTokenizer) else ".vocab.txt"
    assert path == tmp_path / f"source{suffix}"
    loaded = load_tokenizer(tmp_path, "source")
    assert type(loaded) is type(tokenizer) and loaded.vocabulary_size == tokenizer.vocabulary_size
    assert np.array_equal(loaded.tokenize(LINES).flat_values, tokenizer.tokenize(LINES).flat_values)
    assert loaded.save(tmp_path, "again").read_bytes() == path.read_bytes()


def test_a_file_cut_anywhere_is_refused_or_whole(tokenizer, tmp_path):
    path = tokenizer.save(tmp_path)
    content = path.read_bytes()
    for size in {*range(0, len(content), 97), *range(len(content) - 60, len(content))}:
        path.write_bytes(content[:size])
        try:
            loaded = load_tokenizer(tmp_path)
        except DataError as error:
            assert str(error).startswith(f"{path}: expected ") and "\n" not in str(error)
        else:  # a vocabulary of whole lines is a smaller one; a SentencePiece model has nothing to spare
            if isinstance(tokenizer, SentencePieceTokenizer):
                assert decoded(loaded.detokenize(loaded.tokenize(LINES[:6]))) == LINES[:6]
                assert loaded.vocabulary_size == tokenizer.vocabulary_size
    path.write_bytes(b"\xff\xfe not a tokenizer")
    with pytest.raises(DataError, match="expected"):
        load_tokenizer(tmp_path)


def test_seeding_tensorflow_leaves_it_whole(tokenizer):
    """It clears TensorFlow's eager kernels, and tensorflow_text's SentencePiece models with them."""
    in_graph = tf.function(lambda strings: tokenizer.detokenize(tokenizer.tokenize(strings)))
    before = decoded(in_graph(tf.constant(LINES[:6])))
    tf.random.set_seed(1)
    assert before == decoded(in_graph(tf.constant(LINES[:6]))) == round_trip(tokenizer, LINES[:6])


def test_no_tokenizer(tmp_path):
    with pytest.raises(DataError) as caught:
        load_tokenizer(tmp_path)
    expected = "expected a tokenizer, tokenizer.model, tokenizer.vocab.txt or tokenizer*.json, got none"
    assert str(caught.value) == f"{tmp_path}: {expected}"


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic_and_silent(kind, capfd, tmp_path):
    first, second = (train_tokenizer(iter(LINES), kind, 350).save(tmp_path, name) for name in "ab")
    load_tokenizer(tmp_path, "a").tokenize(["a"])
    assert first.read_bytes() == second.read_bytes()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "lines",
    [
        ["a"], ["1"], ["a b"] * 10, ["", "x", ""], ["▁ \0 \n."], ["x" * 100_000], ["[UNK] <s> </s>"],
        [chr(0x4E00 + i) for i in range(5000)], ["".join(chr(0x4E00 + i) for i in range(5000))],
        ["\U0010ffff\ufdd0\ue000"], ["é", "e\u0301", "\u200d"], [str(i) for i in range(10)],
    ],
)  # fmt: skip
def test_any_little_text_trains_some_tokenizer(kind, lines):
    tokenizer = train_tokenizer(lines, kind, 300)
    assert 4 <= tokenizer.vocabulary_size <= 300
    assert len(round_trip(tokenizer, lines)) == len(lines)


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_trained(kind):
    with pytest.raises(ValueError, match="lines: expected text to train a tokenizer on, got none"):
        train_tokenizer(["", ""], kind)
    with pytest.raises(ValueError, match="lines: expected words to train a tokenizer on, got none"):
        train_tokenizer([" ", "\n\0▁"], "wordpiece")
    with pytest.raises(ValueError, match="vocabulary_size: expected at least 300, got 299"):
        train_tokenizer(LINES, kind, 299)
    with pytest.raises(
        ValueError, match="kind: expected sentencepiece, wordpiece, bytes, characters, got 'bpe'"
    ):
        train_tokenizer(LINES, "bpe")


def test_foreign_files_are_refused():
    for vocabulary in ([], ["[PAD]", "a"], [*WordPieceTokenizer.SPECIAL, "a", "a"]):
        with pytest.raises(ValueError, match="expected pieces, each once, after"):
            WordPieceTokenizer(vocabulary)
    with pytest.raises(ValueError, match="expected a SentencePiece model"):
        SentencePieceTokenizer(b"no model")


def test_large_text_is_sampled(monkeypatch):
    monkeypatch.setattr("keras_tfm.data.unigram.MAX_TRAINING_LINES", 30)
    small, large = (train_tokenizer(LINES[:size], vocabulary_size=1000) for size in (6, 120))
    assert large.vocabulary_size <= 1000 and round_trip(large, LINES[:6]) == LINES[:6]
    assert small.vocabulary_size > 300


# SentencePiece


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


# WordPiece


def test_wordpiece_splits_longest_first():
    tokenizer = WordPieceTokenizer(
        [*WordPieceTokenizer.SPECIAL, "un", "##aff", "##able", "a", ",", "##a", "北"]
    )
    token_ids = tokenizer.tokenize(["unaffable,a", "  un \t un\u3000", "ab a", "北北"])
    assert token_ids.to_list() == [[4, 5, 6, 8, 7], [4, 4], [3, 7], [10, 10]]
    assert decoded(tokenizer.detokenize(token_ids)) == ["unaffable , a", "un un", "[UNK] a", "北 北"]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_wordpiece_takes_any_text_and_settles(words, string):
    (once,) = round_trip(words, [string])
    if "[UNK]" not in once:
        assert round_trip(words, [once]) == [once]


def test_the_first_use_may_be_in_a_function(tmp_path):
    train_tokenizer(["a line", "another"], vocabulary_size=300).save(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    round_trip = tf.function(lambda x: tokenizer.detokenize(tokenizer.tokenize(x)))
    assert round_trip(tf.constant(["one"])).numpy().tolist() == [b"one"]
    # A second function captures the model again, after the first one's graph is left.
    lengths = tf.function(lambda x: tokenizer.tokenize(x).row_lengths())
    assert lengths(tf.constant(["a line", ""])).numpy()[1] == 0
