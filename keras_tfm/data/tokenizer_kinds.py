"""Tokenizers by the name of their kind: trained anew, or loaded from a folder."""

import pathlib
from collections.abc import Iterable
from typing import Any

from keras_tfm.data.bert_tokenizer import BERTTokenizer
from keras_tfm.data.byte_pairs import ByteLevelTokenizer
from keras_tfm.data.characters import CharacterTokenizer
from keras_tfm.data.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.sources import DataError
from keras_tfm.data.tokenizers import Tokenizer, WordPieceTokenizer
from keras_tfm.training.safetensors import read_json

KINDS: dict[str, Any] = {
    "sentencepiece": SentencePieceTokenizer,
    "wordpiece": WordPieceTokenizer,
    "bytes": ByteLevelTokenizer,
    "characters": CharacterTokenizer,
}


def train_tokenizer(
    lines: Iterable[str], kind: str = "sentencepiece", vocabulary_size: int = 8000
) -> Tokenizer:
    """Trains a tokenizer of `kind`, "sentencepiece", "wordpiece", "bytes" (byte-level pairs) or "characters",
    on `lines`; see the classes' `train`.
    """
    if kind not in KINDS:
        raise ValueError(f"kind: expected {', '.join(KINDS)}, got {kind!r}")
    return KINDS[kind].train(lines, vocabulary_size)


def load_tokenizer(folder, name: str = "tokenizer") -> Tokenizer:
    """Loads what `save` wrote, telling the kind by the file that is there. Raises DataError when there is
    none, and it or CheckpointError when it is damaged.
    """
    if pathlib.Path(folder, f"{name}.json").is_file():
        return BERTTokenizer.load(pathlib.Path(folder, f"{name}.json"))
    for suffix, kind in (("bytes", ByteLevelTokenizer), ("characters", CharacterTokenizer)):
        path = pathlib.Path(folder, f"{name}.{suffix}.json")
        if path.is_file():
            try:
                return kind(**read_json(path))
            except (ValueError, TypeError, AttributeError) as error:
                raise DataError(path, None, str(error)) from error
    model, vocabulary = pathlib.Path(folder, f"{name}.model"), pathlib.Path(folder, f"{name}.vocab.txt")
    path = model if model.is_file() else vocabulary
    if not path.is_file():
        raise DataError(
            folder, None, f"expected a tokenizer, {name}.model, {name}.vocab.txt or {name}*.json, got none"
        )
    content = path.read_bytes()
    try:
        if path == model:
            return SentencePieceTokenizer(content)
        if not content.endswith(b"\n"):
            raise ValueError("expected a newline at the end, the file is cut short")
        return WordPieceTokenizer(content.decode()[:-1].split("\n"))
    except ValueError as error:
        raise DataError(path, None, str(error)) from error
