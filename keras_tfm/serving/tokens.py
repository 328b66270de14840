"""Texts as token ids, and token ids as texts, as the tokenizers of this project make them."""

import json
from typing import Any, Literal

from .entries import chosen
from .examples import check_row, not_text
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
    """A function of a text that gives its ids; `ordinary` is that of `tokenizer_of`."""
    tokenizer = tokenizer_of(folder, ordinary)
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def spans_by_tokenizers(folder, ordinary=True):
    """A function of a text that gives its ids and the (first, last + 1) characters of each."""
    tokenizer = tokenizer_of(folder, ordinary)

    def spans(text):
        found = tokenizer.encode(text, add_special_tokens=False)
        return found.ids, found.offsets

    return spans


def by_sentencepiece(folder):
    """The same by tokenizer.model, which was trained by this project and keeps white space as it is."""
    library = imported("sentencepiece", "sentencepiece")
    path = folder / "tokenizer.model"
    try:
        model = library.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path}: expected a model of SentencePiece: {reason}") from None
    return lambda text: model.encode(" " + text.replace("▁", "\0")) if text else []


def by_characters(folder, characters: str, first: int, unknown: int | None):
    """The same with an id for each of the `characters`, from `first` on."""
    ids = {character: first + place for place, character in enumerate(characters)}
    return lambda text: [ids.get(character, unknown) for character in text]


TOKENIZERS: dict[str, Any] = {
    "tokenizers": by_tokenizers,
    "sentencepiece": by_sentencepiece,
    "characters": by_characters,
}


class Prompts:
    """Strings as lists of ids: `before`, then those of the text, then `after`.

    A text of more than `max_length` ids is cut, or refused where `cuts` is False; so is an empty one then.
    """

    def __init__(
        self, folder, tokenizer: dict, before: list[int], after: list[int], max_length: int, cuts: bool
    ):
        make, options = chosen(folder, TOKENIZERS, tokenizer, "reads.tokenizer")
        self._encode = make(folder, **options)
        self._before, self._after, self._max_length, self._cuts = before, after, max_length, cuts

    def row(self, text, place):
        check_row(text, place, not_text)
        try:
            ids = self._encode(text)
        except UnicodeEncodeError as error:
            raise ValueError(f"row {place}: expected Unicode text, got {error.reason}") from None
        room = self._max_length - len(self._before) - len(self._after)
        if not self._cuts and not text:
            raise ValueError(f"row {place}: expected a prompt, got an empty text: nothing to continue")
        if not self._cuts and len(ids) > room:
            raise ValueError(
                f"row {place}: expected a prompt of at most {room} tokens, got one of {len(ids)}"
            )
        return [*self._before, *ids[: max(0, room)], *self._after]


class Spelling:
    """Ids as text: the symbols of symbols.json side by side, without the `silent` ones, up to the id `end`.

    An id without a symbol is spelled `unknown`. `rule` says what happens to the whole: "plain" leaves it,
    "words" removes white space at both ends, "pieces" one space in front; "lossless" is "pieces" where a NUL
    stands for the sign ▁.
    """

    def __init__(
        self,
        folder,
        end: int | None,
        silent: list[int],
        unknown: str,
        rule: Literal["plain", "words", "pieces", "lossless"],
    ):
        self._symbols = symbols_of(folder)
        self._end, self._silent, self._unknown, self._rule = end, set(silent), unknown.encode(), rule

    def __call__(self, ids):
        kept = ids[: ids.index(self._end)] if self._end in ids else ids
        known = range(len(self._symbols))
        spelled = b"".join(
            self._symbols[token_id] if token_id in known else self._unknown
            for token_id in kept
            if token_id not in self._silent
        )
        if self._rule == "words":
            spelled = spelled.strip()
        text = spelled.decode("utf-8", "replace")
        if self._rule in ("pieces", "lossless"):
            text = text.removeprefix(" ")
        return text.replace("\0", "▁") if self._rule == "lossless" else text
