"""Residues as tokens."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import (
    BERTTokenizer,
    DataError,
    ResidueTokenizer,
    load_tokenizer,
    read_huggingface_tokenizer,
)
from keras_tfm.serving.tokens import by_residues

TOKENIZER = ResidueTokenizer()
TEXTS = st.text("MKTXmé <mask>\t\xa0\x85-.", max_size=20)


def test_ids_are_those_of_the_published_vocabulary():
    assert TOKENIZER.tokenize(["LAGVSERTIDPKQNFYMHWCXBUZO.-"]).to_list() == [[*range(4, 31)]]
    assert TOKENIZER.tokenize(["<cls>MK<mask> T <eos>", "", "M lower K", "<mask>s>"]).to_list() == [
        [0, 20, 15, 32, 11, 2],
        [],
        [20, 3, 15],
        [32, 3],
    ]
    assert TOKENIZER.vocabulary_size == 33 and TOKENIZER.special_ids == (0, 1, 2, 3, 32)
    assert TOKENIZER.detokenize([[0, 20, 15, 40, 2, 5], [1, 1, 5, 32, 1, 1]]).numpy().tolist() == [
        b"MK<unk>",
        b"A<mask>",
    ]


@given(TEXTS)
def test_the_host_reads_as_the_graph_does(text):
    read = by_residues(None, TOKENIZER.tokens, TOKENIZER.unknown_id)
    assert TOKENIZER.tokenize([text]).to_list() == read([text])


def test_its_files(tmp_path):
    TOKENIZER.save(tmp_path)
    assert load_tokenizer(tmp_path).tokens == TOKENIZER.tokens
    TOKENIZER.save_huggingface(tmp_path)
    kept = read_huggingface_tokenizer(tmp_path)
    assert isinstance(kept, ResidueTokenizer) and kept.tokens == TOKENIZER.tokens
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": "[M]"}))
    with pytest.raises(DataError, match="mask_token: expected '<mask>'"):
        read_huggingface_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "vocab.txt").write_text("<mask>\nA\nA\n")
    with pytest.raises(DataError, match="expected tokens, each once, with <pad>"):
        read_huggingface_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    assert isinstance(read_huggingface_tokenizer(tmp_path), BERTTokenizer)
