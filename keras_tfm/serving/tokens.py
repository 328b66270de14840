"""Texts as token ids, and token ids as texts, as the tokenizers of this project make them."""

import itertools
import json
import re
from typing import Any

import numpy as np

from .entries import chosen
from .packages import imported


def tokenizer_of(folder, ordinary=False):
    """The tokenizer of tokenizer.json, which cuts and pads nothing; ValueError if the file is damaged.

    `ordinary` are added tokens that it reads like any other text; True stands for all that are special.
    """
    path, library = folder / "tokenizer.json", imported("tokenizers", "tokenizers")
    try:
        content = path.read_text("utf-8")
        if ordinary and ordinary is not True:
            entries = json.loads(content)
            kept = [token for token in entries["added_tokens"] if token["content"] not in ordinary]
            content = json.dumps(entries | {"added_tokens": kept})
        tokenizer = library.Tokenizer.from_str(content)
    except Exception as error:  # the library has no other
        raise ValueError(f"{path}: expected a tokenizer of Hugging Face: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = ordinary is True
    return tokenizer


def symbols_of(folder):
    """The bytes of each id, from symbols.json, where they stand as characters up to 255; ValueError if the
    file is missing or damaged.
    """
    path = folder / "symbols.json"
    try:
        return [symbol.encode("latin-1") for symbol in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path}: expected the texts of all ids: {reason}") from None


def by_tokenizers(folder, ordinary: bool | list[str] = False):
    """A function of texts that gives the ids of each; `ordinary` is as in `tokenizer_of`."""
    tokenizer = tokenizer_of(folder, ordinary)
    encode = _encoded_by(tokenizer)

    def ids(texts):
        try:
            return [found.ids for found in encode(texts)]
        except TypeError:  # of a lone surrogate, which the library does not name
            for text in texts:
                text.encode()
            raise

    return by_words(ids) if reads_words_alone(tokenizer) else ids


def reads_words_alone(tokenizer):
    """Whether a tokenizer reads what stands between spaces without its neighbours: BERT's do, unless an added
    token holds or takes white space.
    """
    parts = tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.model
    added = tokenizer.get_added_tokens_decoder().values()
    kinds = [type(part).__name__ for part in parts]
    return kinds == ["BertNormalizer", "BertPreTokenizer", "WordPiece"] and not any(
        token.lstrip or token.rstrip or " " in token.content for token in added
    )


def by_words(ids):
    """`ids` where a text's are its words', one after the other: each distinct word is read once."""

    def of_texts(texts):
        split = [text.split(" ") for text in texts]
        words = list(dict.fromkeys(itertools.chain.from_iterable(split)))
        known = dict(zip(words, ids(words), strict=True))
        return [list(itertools.chain.from_iterable(map(known.__getitem__, words))) for words in split]

    return of_texts


def spans_by_tokenizers(folder, ordinary: bool | list[str] = True):
    """A function of texts that gives for each its ids, and the (first, last + 1) characters of each of
    these.
    """
    encode = _encoded_by(tokenizer_of(folder, ordinary))
    return lambda texts: [(found.ids, found.offsets) for found in encode(texts)]


def _encoded_by(tokenizer):
    """A function of texts that gives what the library says of each; several are shared among the cores."""

    def encode(texts):
        if len(texts) == 1:  # without waking threads
            return [tokenizer.encode(texts[0], add_special_tokens=False)]
        return tokenizer.encode_batch(texts, add_special_tokens=False)

    return encode


def by_sentencepiece(folder):
    """As `by_tokenizers`, by tokenizer.model, which was trained by this project and keeps white space as it
    is.
    """
    model = sentencepiece_of(folder)
    return lambda texts: model.encode([text and " " + text.replace("▁", "\0") for text in texts])


def spans_by_sentencepiece(folder):
    """As `spans_by_tokenizers`, by tokenizer.model."""
    model = sentencepiece_of(folder)

    def spans(text):
        if not text:
            return [], []
        text = " " + text.replace("\0", " ").replace(
            "▁", "\ufffd"
        )  # as many characters as before, and a space
        pieces = model.encode(text, return_type="proto").pieces
        begins = np.cumsum([0, *(len(character.encode()) for character in text)])  # in bytes, of characters
        edges = np.searchsorted(begins, [(piece.begin, piece.end) for piece in pieces]) - 1
        return [piece.id for piece in pieces], [
            (max(0, first), max(0, last)) for first, last in edges.tolist()
        ]

    return lambda texts: list(map(spans, texts))


def sentencepiece_of(folder):
    """The model of tokenizer.model; ValueError if the file is damaged."""
    library = imported("sentencepiece", "sentencepiece")
    path = folder / "tokenizer.model"
    try:
        return library.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path}: expected a model of SentencePiece: {reason}") from None


def by_characters(folder, characters: str, first: int, unknown: int | None):
    """The same with an id for each of the `characters`, from `first` on."""
    known = {character: first + place for place, character in enumerate(characters)}

    def ids(text):
        text.encode()  # UnicodeEncodeError for half of a character, as other tokenizers raise
        return [known.get(character, unknown) for character in text]

    return lambda texts: list(map(ids, texts))


def by_residues(folder, vocabulary: list[str], unknown: int):
    """The same by the ids of a `vocabulary` of residues; what lies between tokens is unknown, each piece that
    white space parts.
    """
    ids_of = {token: number for number, token in enumerate(vocabulary)}
    token = re.compile("(" + "|".join(map(re.escape, sorted(vocabulary, key=len, reverse=True))) + ")")

    def ids(text):
        text.encode()  # UnicodeEncodeError for half of a character, as other tokenizers raise
        return [ids_of.get(piece, unknown) for piece in token.sub(r" \1 ", text).split()]

    return lambda texts: list(map(ids, texts))


TOKENIZERS: dict[str, Any] = {
    "tokenizers": by_tokenizers,
    "sentencepiece": by_sentencepiece,
    "characters": by_characters,
    "residues": by_residues,
}
SPANS: dict[str, Any] = {
    "tokenizers": spans_by_tokenizers,
    "sentencepiece": spans_by_sentencepiece,
}


def made(folder, kinds, entries, where):
    """The function of texts that the `entries`, a "kind" and its arguments, say, by one of `kinds`,
    `TOKENIZERS` or `SPANS`.
    """
    make, options = chosen(folder, kinds, entries, where)
    return make(folder, **options)
