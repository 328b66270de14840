"""What all tokenizers are: they run inside a TensorFlow graph, and so inside a SavedModel.

They share one interface, and each is saved as one file beside the model.
"""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class SpecialTokens(NamedTuple):
    """The ids that stand before a text's pieces, and behind them."""

    prefix: Sequence[int]
    suffix: Sequence[int]


class Tokenizer(tf.Module):
    """What all tokenizers are: `tokenize` and `detokenize`, traceable in a `tf.function`, over
    `vocabulary_size` ids, where not said otherwise 0 = padding, 1 = start, 2 = end, 3 = unknown, then pieces.
    """

    pad_id, start_id, end_id, unknown_id = range(4)
    vocabulary_size: int
    blank: str | None = None  # how a text spells the mask, of which there is one then

    @property
    def tokens(self) -> list[str]:
        """What each id is called, as a vocabulary's file writes it: "##ing", "▁the" or "Ġthe", "[SEP]"."""
        raise NotImplementedError

    @property
    def silent_ids(self) -> tuple[int, ...]:
        """What `detokenize` leaves out before the end."""
        return self.pad_id, self.start_id

    @property
    def between_ids(self) -> tuple[int, ...]:
        """What stands between two texts that are read as a pair."""
        return (self.end_id,)

    def num_added(self, num_texts: int = 1) -> int:
        """How many special tokens stand around and between so many texts that are read together."""
        return 2 + (num_texts - 1) * len(self.between_ids)

    def tokenize(self, strings) -> tf.RaggedTensor:
        """Splits UTF-8 strings (B,) into ids (B, None), int32, without start and end."""
        raise NotImplementedError

    def tokenize_with_offsets(self, strings) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """As `tokenize`, and where each piece begins and ends in its string (valid UTF-8): bytes (B, None),
        int64, of whole characters. What spells a special token is text here like any other.
        """
        raise NotImplementedError

    def tokenize_words(self, words) -> tf.RaggedTensor:
        """Splits words (N,) of a text that is split already, each as it would be behind a space."""
        return self.tokenize(words)

    def detokenize(self, token_ids) -> tf.Tensor:
        """Joins ids, ragged (B, None) or dense (B, T), into strings (B,). Padding, starts and everything from
        the first `end_id` on are left out; an id outside the vocabulary reads as `unknown_id`.
        """
        if isinstance(token_ids, tf.RaggedTensor):
            token_ids = token_ids.to_tensor(self.end_id)
        token_ids = tf.cast(token_ids, tf.int32)  # (B, T)
        before_end = tf.cumsum(tf.cast(token_ids == self.end_id, tf.int32), axis=1) == 0
        is_text = before_end & tf.reduce_all(token_ids[..., None] != tf.constant(self.silent_ids), axis=-1)
        is_known = (token_ids >= 0) & (token_ids < self.vocabulary_size)
        token_ids = tf.where(is_known, token_ids, self.unknown_id)
        return self._join(tf.ragged.boolean_mask(token_ids, is_text))

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        raise NotImplementedError

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        """Writes the tokenizer's one file into `folder`, for `load_tokenizer`, and returns its path."""
        raise NotImplementedError

    def save_huggingface(self, folder):
        """Writes into `folder` what `transformers` reads; TypeError for what it does not know."""
        raise TypeError(f"transformers knows no {type(self).__name__}.")
