"""Pieces and the bytes they stand for: of every tokenizer, on whatever text."""

import io
import json

import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import BERTTokenizer, ByteLevelTokenizer, CLIPTokenizer, SentencePieceTokenizer

LINES = ["the cat sat on a mat, and dogs ran", "Ada's café in İstanbul (est. 1990)", "漢字 don't “stop”…"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "##s", "sat", ",", "caf", "##e", "漢", "cafe"]


def byte_level():
    """RoBERTa's kind."""
    content = json.loads(ByteLevelTokenizer.train(LINES, 300)._content)
    tokens = [token for token in content["tokens"] if token != "<|endoftext|>"]
    return ByteLevelTokenizer(["<s>", "<pad>", "</s>", "<unk>", *tokens, "<mask>"], content["merges"])


def normalising():
    """SentencePiece as published models are: NFKC, no white space at the ends, none twice."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 50), model_writer=model, vocab_size=200, minloglevel=2, num_threads=1,
        hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
    )  # fmt: skip
    return SentencePieceTokenizer(model.getvalue())


MAKE = {
    "bert": lambda: BERTTokenizer(PIECES),
    "bert-cased": lambda: BERTTokenizer.train(LINES, 300, lowercase=False),
    "byte-level": byte_level,
    "clip": lambda: CLIPTokenizer.train(LINES, 560),
    "lossless": lambda: SentencePieceTokenizer.train(LINES, 400),
    "normalising": normalising,
}


@pytest.fixture(scope="module", params=MAKE)
def tokenizer(request):
    return MAKE[request.param]()


def pieces_of(tokenizer, texts):
    """The ids of each text, and the characters that each piece stands for."""
    token_ids, starts, ends = (x.to_list() for x in tokenizer.tokenize_with_offsets(texts))
    offsets = [list(zip(*row, strict=True)) for row in zip(starts, ends, strict=True)]
    spelled = [
        [text.encode()[a:b].decode() for a, b in row] for text, row in zip(texts, offsets, strict=True)
    ]
    return token_ids, offsets, spelled


def test_a_word_of_bert_is_what_became_it():
    tokenizer = MAKE["bert"]()
    texts = ["Cats, sat\u200e", " cafe\u0301\tCAFÉS", "\u200e漢sat", "a [SEP] " + "y" * 101, ""]
    token_ids, _, spelled = pieces_of(tokenizer, texts)
    assert token_ids == [[5, 6, 8, 7], [12, 12, 6], [11, 7], [1, 1, 1, 1, 1], []]
    assert spelled == [
        ["Cat", "s", ",", "sat\u200e"],
        ["cafe\u0301", "CAFÉ", "S"],
        ["漢", "sat"],
        ["a", "[", "SEP", "]", "y" * 101],
        [],
    ]


def test_part_of_a_character_is_the_whole():
    tokenizer = byte_level()
    token_ids, _, spelled = pieces_of(tokenizer, ["Ada's 😀\x00 <s>"])
    assert spelled[0][:3] == ["Ad", "a", "'s"] and spelled[0][4:8] == ["😀"] * 4
    assert spelled[0][8:] == ["\x00", " ", "<", "s", ">"] and len(token_ids[0]) == 13


def test_clips_words_are_what_became_them():
    texts = ["Cats, cafe\u0301", "  İs\u3000it’s 12", "", "CAFÉ"]
    _, offsets, spelled = pieces_of(CLIPTokenizer.train(["café cats is it’s 12 , i̇s"] * 9, 700), texts)
    assert spelled[0] == ["Cats", ",", "cafe\u0301"] and spelled[3] == ["CAFÉ"] and offsets[2] == []
    assert spelled[1][-5:] == ["it", "’", "s", "1", "2"] and "".join(spelled[1]).startswith("İ")


ANY = st.characters(exclude_categories=("Cs",))
PICKED = [" ", "  ", "cat", "é", "e\u0301", "😀", "[SEP]", "▁", "\x00", "\u200e"]
PART = st.one_of(ANY, st.sampled_from(PICKED))
TEXTS = st.lists(st.lists(PART, max_size=12).map("".join), min_size=1, max_size=4)


@given(TEXTS)
def test_offsets_are_of_whole_characters_in_order(tokenizer, texts):
    token_ids, offsets, _ = pieces_of(tokenizer, texts)
    for text, ids, row in zip(texts, token_ids, offsets, strict=True):
        flat = [x for piece in row for x in piece]
        assert len(ids) == len(row) and all(0 <= a <= b <= len(text.encode()) for a, b in row)
        assert [a for a, _ in row] == sorted(a for a, _ in row) and flat[1::2] == sorted(flat[1::2])


PLAIN = st.text(st.characters(exclude_categories=("Cs", "Cn", "Co", "Cc")).filter(lambda x: x != "▁"))


@given(st.lists(PLAIN, min_size=1, max_size=4))
def test_the_pieces_are_those_of_tokenize(tokenizer, texts):
    assert pieces_of(tokenizer, texts)[0] == tokenizer.tokenize(texts).to_list()


def test_no_texts(tokenizer):
    assert all(x.nrows() == 0 for x in tokenizer.tokenize_with_offsets(tf.zeros([0], tf.string)))
