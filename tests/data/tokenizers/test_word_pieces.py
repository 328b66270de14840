"""WordPiece vocabularies trained here: BERT's rules, the same text the same pieces, whatever the process."""

import collections
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import BERTTokenizer, train_tokenizer
from keras_tfm.data.tokenizers import word_pieces
from keras_tfm.data.tokenizers.word_pieces import learn_word_pieces
from tests.data.tokenizers.test_kinds import LINES, decoded, round_trip

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def pieces_of(texts, size=400):
    return learn_word_pieces(texts, size, SPECIAL, 100, ".".__eq__)


def random_texts(num_texts=300, letters="abcdefghij"):
    """Few letters in random words: very many pairs are equally frequent."""
    random = np.random.default_rng(5)
    words = ["".join(random.choice(list(letters), random.integers(2, 8))) for _ in range(num_texts)]
    return [" ".join(random.choice(words, 8)) for _ in range(num_texts)]


def test_the_most_frequent_pairs_become_pieces():
    """Sennrich et al. 2016, figure 1's dictionary: e s, es t, then l o and lo w."""
    texts = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    learnt = pieces_of(texts, 29)
    letters = sorted({letter for text in texts for letter in text})
    assert learnt[:5] == SPECIAL
    assert learnt[5:25] == [form for letter in letters for form in (letter, f"##{letter}")]
    assert learnt[25:] == ["##es", "##est", "lo", "low"]


def test_ties_fall_the_same_every_time():
    texts = random_texts()
    assert len({tuple(pieces_of(texts)) for _ in range(5)}) == 1


def test_ties_fall_the_same_in_every_process():
    program = (
        "import importlib.util, hashlib, sys\n"
        "spec = importlib.util.spec_from_file_location('word_pieces', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "texts = sys.stdin.read().split('\\n')\n"
        "print(module.learn_word_pieces(texts, 400, ['[UNK]'], 100, '.'.__eq__))\n"
    )
    found = collections.Counter(
        subprocess.run(
            [sys.executable, "-c", program, word_pieces.__file__],
            input="\n".join(random_texts()),
            env={**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, threads in (("0", "1"), ("1", "2"), ("2", "4"))
    )
    assert list(found.values()) == [3] and "##" in next(iter(found))


@given(st.lists(st.text("ab.cé ", max_size=12), min_size=1, max_size=8).filter(lambda x: "".join(x).strip()))
def test_every_character_is_a_piece_and_each_piece_stands_in_the_text(texts):
    learnt = pieces_of(texts, 60)
    characters = {character for text in texts for character in text} - {" "}
    assert len(set(learnt)) == len(learnt) <= 60 and {*characters} <= set(learnt)
    words = [word for text in texts for word in text.split(" ")]
    for piece in learnt[5:]:
        if len(piece.removeprefix("##")) > 1:
            assert any(piece.removeprefix("##") in word for word in words)


def test_what_stands_alone_has_no_piece_within_a_word():
    learnt = pieces_of(["a . b"] * 3)
    assert "##." not in learnt and {".", "a", "##a", "b", "##b"} < set(learnt)


def test_special_tokens_in_the_text_are_not_learnt():
    tokenizer = BERTTokenizer.train(["fill [MASK] in, [CLS] and [SEP]"] * 50, 300)
    assert not [piece for piece in tokenizer.vocabulary if "\U0010fff0" in piece]
    assert "mask" not in tokenizer.vocabulary and "fill" in tokenizer.vocabulary
    (ids,) = tokenizer.tokenize(["fill [MASK] in"]).to_list()
    assert ids[1] == tokenizer.mask_id and len(ids) == 3


def test_words_that_are_always_unknown_give_characters_alone():
    tokenizer = BERTTokenizer.train(["x" * 101, "x" * 101, "yy", "yy"], 300)
    assert set(tokenizer.vocabulary[5:]) == {"x", "##x", "y", "##y", "yy"}


def test_by_name_they_keep_their_case():
    tokenizer = train_tokenizer(LINES, "wordpiece", 400)
    assert not tokenizer.lowercase
    assert round_trip(tokenizer, ["A man, Männer"]) == ["A man , Männer"]


def test_the_longest_piece_comes_first():
    tokenizer = BERTTokenizer([*SPECIAL, "un", "##aff", "##able", "a", ",", "##a", "北"], lowercase=False)
    token_ids = tokenizer.tokenize(["unaffable,a", "  un \t un\u3000", "ab a", "北北"])
    assert token_ids.to_list() == [[5, 6, 7, 9, 8], [5, 5], [1, 8], [11, 11]]
    assert decoded(tokenizer.detokenize(token_ids)) == ["unaffable , a", "un un", "[UNK] a", "北 北"]


@pytest.fixture(scope="module")
def words():
    return train_tokenizer(LINES, "wordpiece", 400)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_taken_and_what_comes_back_stays(words, string):
    (once,) = round_trip(words, [string])
    if "[UNK]" not in once:
        assert round_trip(words, [once]) == [once]
