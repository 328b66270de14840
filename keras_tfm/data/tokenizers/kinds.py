"""Tokenizers by the name of their kind: newly trained, or loaded from a folder."""

import functools
import pathlib
from collections.abc import Callable, Iterable

from keras_tfm.data.sources.lines import DataError, Path
from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.byte_pairs import ByteLevelTokenizer
from keras_tfm.data.tokenizers.characters import CharacterTokenizer
from keras_tfm.data.tokenizers.clip import CLIPTokenizer
from keras_tfm.data.tokenizers.residues import ResidueTokenizer
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.training.safetensors import read_json

KINDS: dict[str, Callable[[Iterable[str], int], Tokenizer]] = {
    "sentencepiece": SentencePieceTokenizer.train,
    "wordpiece": functools.partial(BERTTokenizer.train, lowercase=False),  # it writes answers too
    "bytes": ByteLevelTokenizer.train,
    "characters": CharacterTokenizer.train,
}

# What stands before ".json" in a file's name, for the kinds whose constructor takes the file's entries.
SUFFIXES: dict[str, Callable[..., Tokenizer]] = {
    "bytes": ByteLevelTokenizer,
    "characters": CharacterTokenizer,
    "clip": CLIPTokenizer,
    "residues": ResidueTokenizer,
}


def train_tokenizer(
    lines: Iterable[str], kind: str = "sentencepiece", vocabulary_size: int = 8000
) -> Tokenizer:
    """Train a tokenizer on `lines`.

    `kind` is "sentencepiece", "wordpiece" (BERT's, cased), "bytes" (byte-level pairs) or "characters"; the
    `train` methods of the classes describe them.

    >>> tokenizer = keras_tfm.data.train_tokenizer(["a cat sat", "a mat"], "characters", 20)
    >>> tokenizer.vocabulary_size  # four special tokens and the characters " acmst"
    10
    """
    if kind not in KINDS:
        raise ValueError(f"kind: expected {', '.join(KINDS)}, got {kind!r}")
    return KINDS[kind](lines, vocabulary_size)


def load_tokenizer(folder: Path, name: str = "tokenizer") -> Tokenizer:
    """Load the tokenizer that `save` wrote into a folder; the file's name says its kind.

    Raises DataError if there is no such file, and DataError or CheckpointError if it is damaged.

    >>> tokenizer = keras_tfm.data.CharacterTokenizer("abc")
    >>> path = tokenizer.save(".")
    >>> keras_tfm.data.load_tokenizer(".").tokens == tokenizer.tokens
    True
    """
    if pathlib.Path(folder, f"{name}.json").is_file():
        return BERTTokenizer.load(pathlib.Path(folder, f"{name}.json"))
    for suffix, kind in SUFFIXES.items():
        path = pathlib.Path(folder, f"{name}.{suffix}.json")
        if path.is_file():
            try:
                return kind(**read_json(path))
            except (ValueError, TypeError, AttributeError) as error:
                raise DataError(path, None, str(error)) from error
    path = pathlib.Path(folder, f"{name}.model")
    if path.is_file():
        try:
            added = pathlib.Path(folder, f"{name}.added.json")
            return SentencePieceTokenizer(path.read_bytes(), **(read_json(added) if added.is_file() else {}))
        except (ValueError, TypeError) as error:
            raise DataError(path, None, str(error)) from error
    old = pathlib.Path(folder, f"{name}.vocab.txt")
    if old.is_file():
        problem = f"expected {name}.json, got word pieces of an earlier version: train the tokenizer anew"
        raise DataError(old, None, problem)
    raise DataError(folder, None, f"expected a tokenizer, {name}.model or {name}*.json, got none")
