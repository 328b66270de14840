"""Folders of transformers: the kind of tokenizer is told by their files."""

import json

import pytest

from keras_tfm.data import (
    BERTTokenizer,
    ByteLevelTokenizer,
    DataError,
    SentencePieceTokenizer,
    read_huggingface_tokenizer,
)
from keras_tfm.data.tokenizers.huggingface import read_huggingface_special_tokens
from keras_tfm.training.safetensors import CheckpointError

LINES = [f"some words {i} and others" for i in range(300)]


def test_wordpieces(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    assert isinstance(read_huggingface_tokenizer(tmp_path), BERTTokenizer)
    BERTTokenizer(pieces).save(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    tokenizer = read_huggingface_tokenizer(tmp_path)
    assert isinstance(tokenizer, BERTTokenizer) and tokenizer.tokenize(["ab"]).to_list() == [[5, 6]]


def test_byte_pairs(tmp_path):
    ours = ByteLevelTokenizer.train(LINES, 300)
    content = json.loads(ours._content)
    ids = {token: i for i, token in enumerate(content["tokens"])}
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    with pytest.raises(DataError, match=r"merges\.txt"):
        read_huggingface_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *content["merges"], ""]))
    assert read_huggingface_tokenizer(tmp_path)._content == ours._content
    ours.save_huggingface(tmp_path)
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).unlink()
    assert read_huggingface_tokenizer(tmp_path)._content == ours._content


def test_sentencepiece(tmp_path):
    ours = SentencePieceTokenizer.train(LINES, 400)
    (tmp_path / "spiece.model").write_bytes(ours._model)
    assert isinstance(read_huggingface_tokenizer(tmp_path), SentencePieceTokenizer)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, DataError, "expected tokenizer.json or one of spiece.model, .*, got none"),
        ('{"model": {"type": "WordLevel"}}', DataError, "expected one of WordPiece, .*, got 'WordLevel'"),
        ('{"model": 7}', DataError, "expected one of WordPiece, BPE, Unigram, got 7"),
        ("{", CheckpointError, "expected JSON"),
    ],
)
def test_other_folders_are_refused(content, error, message, tmp_path):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(error, match=message):
        read_huggingface_tokenizer(tmp_path)


TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
        {"SpecialToken": {"id": "en_XX", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"],
    "special_tokens": {name: {"ids": [i]} for i, name in enumerate(["<s>", "", "</s>", "en_XX"])},
}
ROBERTA = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}
BYTES = {"type": "ByteLevel", "trim_offsets": True}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (None, ([], [])),
        (BYTES, ([], [])),
        (ROBERTA, ([0], [2])),
        (TEMPLATE, ([0], [2, 3])),
        ({"type": "Sequence", "processors": [BYTES, ROBERTA]}, ([0], [2])),
    ],
)
def test_what_stands_around_a_text(rule, expected, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"post_processor": rule}))
    # This option counts, as in transformers 5, where there is no tokenizer.json.
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": True}))
    assert read_huggingface_special_tokens(tmp_path, None) == expected


@pytest.mark.parametrize(
    "rule", [{"type": "Other"}, [3], {"type": "RobertaProcessing"}, TEMPLATE | {"special_tokens": {}}]
)
def test_what_is_not_understood_is_refused(rule, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"post_processor": rule}))
    with pytest.raises(CheckpointError, match="post_processor: expected a template of tokens"):
        read_huggingface_special_tokens(tmp_path, None)
