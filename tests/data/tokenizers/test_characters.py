"""Characters as tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import CharacterTokenizer, DataError, load_tokenizer

TOKENIZER = CharacterTokenizer.train(["To be, or\nnot", "日本 é\0"])


def test_ids_follow_the_code_points():
    tokenizer = CharacterTokenizer("cab")
    assert tokenizer.tokenize(["abc", "", "xa"]).to_list() == [[4, 5, 6], [], [3, 4]]
    assert tokenizer.vocabulary_size == 7 and tokenizer.symbols[4:] == [b"a", b"b", b"c"]
    assert tokenizer.detokenize([[1, 4, 3, 5, 2, 6], [6, 0, 0, 0, 9, 0]]).numpy().tolist() == [
        "a\ufffdb".encode(),
        "c\ufffd".encode(),
    ]


@given(st.text("To be, r\nnt日本é\0"))
def test_texts_come_back(text):
    ids = TOKENIZER.tokenize([text])
    assert ids.row_lengths().numpy().tolist() == [len(text)]
    assert TOKENIZER.detokenize(ids).numpy()[0].decode() == text


def test_rare_characters_are_left_out():
    tokenizer = CharacterTokenizer.train(["aaabbc"], vocabulary_size=6)
    assert tokenizer.tokenize(["abc"]).to_list() == [[4, 5, 3]]


def test_its_file(tmp_path):
    TOKENIZER.save(tmp_path)
    kept = load_tokenizer(tmp_path)
    assert kept.tokenize(["be 日"]).to_list() == TOKENIZER.tokenize(["be 日"]).to_list()
    (tmp_path / "tokenizer.characters.json").write_text('{"characters": "aa"}')
    with pytest.raises(DataError, match="expected different ones"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="at least one"):
        CharacterTokenizer.train([])
