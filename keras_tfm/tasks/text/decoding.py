"""What tasks that write texts have in common: prompts, what ends a text, languages."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from keras_tfm.data.tokenizers.bert import BERTTokenizer
from keras_tfm.data.tokenizers.sentence_pieces import SentencePieceTokenizer
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.generation import DecodingDefaults, DecodingOptions, EndTokens, StopSequences


def check_token_ids(token_ids: np.ndarray, size: int) -> None:
    """Raise ValueError unless the caller's `token_ids` are integers (B, P) within a vocabulary of `size`
    tokens, P at least 1.
    """
    if token_ids.ndim != 2 or not token_ids.shape[1]:
        raise ValueError(f"`token_ids` must be (B, P), P at least 1; its shape is {token_ids.shape}.")
    if token_ids.dtype.kind not in "iu":
        raise ValueError(f"`token_ids` must be integers; they are {token_ids.dtype}.")
    if token_ids.size and (token_ids.min() < 0 or token_ids.max() >= size):
        raise ValueError(
            f"`token_ids` must lie in [0, {size}); they span {token_ids.min()} to {token_ids.max()}."
        )


def rows_alike(
    chosen: Sequence[DecodingOptions], batch_size: int
) -> Iterator[tuple[list[int], DecodingOptions]]:
    """The rows that are decoded in one batch, and their options: rows of equal lengths of answers, so that
    what a prompt's own length leaves does not depend on other prompts.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for row, options in enumerate(chosen):
        groups.setdefault((options.max_new_tokens, options.min_new_tokens), []).append(row)
    for rows in groups.values():
        for first in range(0, len(rows), batch_size):
            yield rows[first : first + batch_size], chosen[rows[0]]


def as_stops(stop: str | Iterable[str]) -> tuple[str, ...]:
    """The strings that end a text, as a tuple; a single one may be given alone."""
    return (stop,) if isinstance(stop, str) else tuple(stop)


def ending(strings: Iterable[str], tokenizer: Tokenizer, end_ids: Iterable[int]) -> EndTokens | StopSequences:
    """What ends a text: one of the `strings`, however it is split into tokens, or one of the `end_ids`."""
    sequences = [string.encode() for string in strings]
    return StopSequences(sequences, spelled(tokenizer)[0], end_ids) if sequences else EndTokens(*end_ids)


def spelled(tokenizer: Tokenizer) -> tuple[list[bytes], bytes, str]:
    """The bytes of each id, of any other id, and the rule of `keras_tfm.serving.answers.Written`."""
    if isinstance(tokenizer, BERTTokenizer):
        begins = tokenizer.begins_word.numpy()
        words = [token.removeprefix("##").encode() for token in tokenizer.tokens]
        symbols = [b" " * bool(begin) + word for begin, word in zip(begins, words, strict=True)]
        return symbols, symbols[tokenizer.unknown_id], "words"
    symbols = tokenizer.symbols
    if isinstance(tokenizer, SentencePieceTokenizer):
        rule = "lossless" if tokenizer.is_lossless else "pieces"
        return symbols, symbols[tokenizer.unknown_id], rule
    return symbols, "\ufffd".encode(), "plain"


def with_languages(
    around: SpecialTokens,
    decoding: DecodingDefaults,
    languages: Mapping[str, int],
    source: str | None,
    target: str | None,
) -> tuple[SpecialTokens, DecodingDefaults]:
    """Special tokens around a source, and `DecodingDefaults`, for the given languages.

    The target language is the token to begin with (mBART), or else the first forced token (mBART-50).
    """
    for language in filter(None, (source, target)):
        if language not in languages:
            known = ", ".join(languages) or "none"
            raise ValueError(f"The tokenizer has no language {language!r}; it has {known}.")
    codes = set(languages.values())
    if source:
        around = SpecialTokens(*([languages[source] if i in codes else i for i in ids] for ids in around))
    if target and decoding.start_id in codes:
        decoding = dataclasses.replace(decoding, start_id=languages[target])
    elif target:
        options = {**decoding.options, "forced_first_id": languages[target]}
        decoding = dataclasses.replace(decoding, options=options)
    return around, decoding
