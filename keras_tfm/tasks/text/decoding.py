"""How a task decodes unless a call says otherwise: the defaults that published checkpoints bring along."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.configs import Config, Length, checked, kinds_of
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.generation import DecodingOptions, EndTokens, StopSequences
from keras_tfm.serving.examples import not_text, reasons
from keras_tfm.tasks.text.served_writing import spelled

SAMPLING = {"temperature", "top_k", "top_p", "seed", "contrastive_alpha"}
FIELDS = {field.name for field in dataclasses.fields(DecodingOptions)} - SAMPLING - {"processors"}


@dataclasses.dataclass(frozen=True)
class DecodingDefaults(Config):
    """Defaults of decoding.

    Args:
        start_id, end_ids, pad_id: token ids where they differ from the tokenizer's.
        options: fields of `DecodingOptions` except those of sampling, and `max_length` and `min_length`,
            which include the prompt.
        stop: strings that end a text, for tasks that take them.
    """

    start_id: int | None = None
    end_ids: tuple[int, ...] | None = None
    pad_id: int | None = None
    options: dict = dataclasses.field(default_factory=dict)
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := self.options.keys() - FIELDS - {"max_length", "min_length"}:
            raise ValueError(f"`options` of decoding: there is no {', '.join(sorted(unknown))}.")
        kinds = kinds_of(DecodingOptions) | {"max_length": Length, "min_length": int}
        options = {name: checked(x, kinds[name], f"`{name}`") for name, x in self.options.items()}
        object.__setattr__(self, "options", options)
        lengths = {"max_length", "min_length"}
        DecodingOptions(**{"max_new_tokens": 1, **{k: x for k, x in options.items() if k not in lengths}})

    def choose(self, length: int, **given: Any) -> dict[str, Any]:
        """The fields of `DecodingOptions` for prompts of `length` tokens; those `given` by the caller come
        first.

        There is no "max_new_tokens" if nothing limits the length. A caller who asks for sampling, or for
        contrastive search, does not get the published beams.
        """
        options = dict(self.options)
        most, least = options.pop("max_length", None), options.pop("min_length", 0)
        if most is not None:
            options.setdefault("max_new_tokens", max(1, most - length))
        if least > length:
            options.setdefault("min_new_tokens", least - length)
        given = {name: value for name, value in given.items() if value is not None}
        if SAMPLING & given.keys():
            for name in ("beam_size", "length_penalty", "early_stopping"):
                options.pop(name, None)
        return {**options, **given}

    def refuse_whole_lengths(self, **given: Any) -> None:
        """Raise ValueError where an export with the options `given` would decode otherwise than the task: it
        writes as many tokens after every prompt, while published lengths may include the prompt.
        """
        for whole, new in (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")):
            if self.options.get(whole) and new not in self.options and given.get(new) is None:
                raise ValueError(
                    f"The published `{whole}`, {self.options[whole]}, includes the prompt; an export takes "
                    f"prompts of any length: give `{new}`."
                )

    def ids(self) -> Iterator[tuple[str, int]]:
        """All (name, token id) pairs that these defaults contain."""
        named = {"start_id": self.start_id, "pad_id": self.pad_id, "end_ids": self.end_ids}
        named |= {name: x for name, x in self.options.items() if name.endswith(("_id", "_ids"))}
        sequences = [*self.options.get("forbidden_sequences", ())]
        sequences += [ids for ids, _ in self.options.get("sequence_bias", ())]
        named["sequences"] = tuple(token_id for ids in sequences for token_id in ids)
        for name, value in named.items():
            for token_id in value if isinstance(value, tuple) else (value,):
                if token_id is not None:
                    yield name, token_id


def check_ids(defaults: DecodingDefaults, size: int) -> None:
    """Raise ValueError if a token id in `defaults` lies outside a vocabulary of `size` tokens."""
    for name, token_id in defaults.ids():
        if not 0 <= token_id < size:
            raise ValueError(f"`{name}` of decoding must lie in [0, {size}); it is {token_id}.")


def within(options: DecodingOptions, size: int) -> DecodingOptions:
    """The `options`; ValueError if they name ids outside a vocabulary of `size` tokens, or more beams."""
    if options.beam_size > size:
        raise ValueError(f"`beam_size` must be at most {size}, the vocabulary; it is {options.beam_size}.")
    for name in ("forced_first_id", "forced_last_ids", "suppressed_ids"):
        value = getattr(options, name)
        for token_id in (value,) if isinstance(value, int) else value or ():
            if token_id >= size:
                raise ValueError(f"`{name}` must lie in [0, {size}); it has {token_id}.")
    return options


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


def reseeded(options: DecodingOptions, first: int) -> DecodingOptions:
    """`options` for the batch that begins with row `first`, with a seed of its own: draws depend on the seed
    and on the row within the batch alone.
    """
    if options.seed is None or not first:
        return options
    return dataclasses.replace(options, seed=(options.seed + first) % 2**31)


def rows_alike(
    chosen: Sequence[DecodingOptions], batch_size: int
) -> Iterator[tuple[list[int], DecodingOptions]]:
    """The rows that are decoded in one batch, and their options: those of equal lengths of answers, so that
    what a prompt's own length leaves does not depend on other prompts.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for row, options in enumerate(chosen):
        groups.setdefault((options.max_new_tokens, options.min_new_tokens), []).append(row)
    for rows in groups.values():
        for first in range(0, len(rows), batch_size):
            yield rows[first : first + batch_size], chosen[rows[0]]


def refused_prompts(
    prompts: Iterable[str],
    tokenizer: Tokenizer,
    add_start: bool,
    max_length: int,
    num_new: int | None = None,
) -> dict[int, str]:
    """{row: reason} of the prompts that cannot be continued: empty ones, and those that leave no room for
    `num_new` (by default one) of `max_length` tokens.
    """
    prompts, rows = list(prompts), []
    refused = reasons(prompts, not_text)
    for row, prompt in enumerate(prompts):
        if row in refused:
            continue
        try:
            if prompt.encode():
                rows.append(row)
            else:
                refused[row] = "expected a prompt, got an empty text: there is nothing to continue"
        except UnicodeEncodeError as error:
            refused[row] = f"expected Unicode text, got {error.reason}"
    pieces = tokenizer.tokenize(tf.constant([prompts[row] for row in rows], tf.string))
    more = "a new one" if num_new is None else f"{num_new} new ones"
    for row, length in zip(rows, pieces.row_lengths().numpy() + add_start, strict=True):
        if length + (num_new or 1) > max_length:
            refused[row] = (
                f"expected a prompt that leaves room for {more} among the model's {max_length} tokens, "
                f"got one of {length}"
            )
    return dict(sorted(refused.items()))


def as_stops(stop: str | Iterable[str]) -> tuple[str, ...]:
    """The strings that end a text, as a tuple; a single one may be given alone."""
    return (stop,) if isinstance(stop, str) else tuple(stop)


def ending(strings: Iterable[str], tokenizer: Tokenizer, end_ids: Iterable[int]) -> EndTokens | StopSequences:
    """What ends a text: one of the `strings`, however it is split into tokens, or one of the `end_ids`."""
    sequences = [string.encode() for string in strings]
    return StopSequences(sequences, spelled(tokenizer)[0], end_ids) if sequences else EndTokens(*end_ids)


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
