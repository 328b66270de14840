"""Texts of images or videos: what is refused of them, their tokens, and which pairs stay together."""

import logging
from collections.abc import Sequence
from typing import Any

from keras_tfm.data.batches.encoding import in_chunks, surround
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.sources.image_texts import identities
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.serving.examples import listed, refuse_empty
from keras_tfm.tasks.grouped import hold_out_groups

LOG = logging.getLogger(__name__)


def checked_texts(texts: Any, count: int, seen: str) -> list[str]:
    """The texts as a list, one for each of `count` images or videos, as `seen` says; ValueError for another
    number, and for what is no text or blank.
    """
    texts = listed(texts, "`texts`")
    refuse_empty(range(count), seen)
    if len(texts) != count:
        raise ValueError(f"`texts` must be one for each of {count} {seen}; there are {len(texts)}.")
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"row {row}: expected a text, got {text!r:.60}")
    return texts


def hold_out_pairs(examples: Any, held: HeldOut, seed: int) -> tuple[Any, Any]:
    """Hold out images, the first column of the examples, together with all of their texts."""
    return hold_out_groups(examples, identities(examples[0]), held, seed)


def tokens_of(texts: Any, tokenizer: Tokenizer, around: SpecialTokens, max_length: int) -> dict[str, Any]:
    """Ragged "token_ids" (B, None) of strings (B,) with the special tokens `around` them, cut to
    `max_length`, and their "lengths" (B,) before the cut. Runs in a graph.
    """
    prefix, suffix = around
    pieces = tokenizer.tokenize(texts)
    room = max(0, max_length - len(prefix) - len(suffix))
    lengths = pieces.row_lengths() + len(prefix) + len(suffix)
    return {"token_ids": surround(pieces[:, :room], prefix, suffix), "lengths": lengths}


def tokens_of_all(
    texts: Sequence[str], tokenizer: Tokenizer, around: SpecialTokens, max_length: int
) -> dict[str, Any]:
    """Ragged "token_ids" (N, None) of many texts; the log says how many were cut."""
    packed = in_chunks(lambda part: tokens_of(part, tokenizer, around, max_length), texts)
    lengths = packed.pop("lengths").numpy()
    if num_cut := int((lengths > max_length).sum()):
        LOG.warning(
            "%s of %s texts exceed %s tokens and are cut there.",
            f"{num_cut:,}",
            f"{len(lengths):,}",
            max_length,
        )
    return packed
