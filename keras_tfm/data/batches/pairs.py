"""Batches of pairs of texts with little padding, and raw strings as a model's inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.encoding import model_inputs, surround
from keras_tfm.data.batches.lengths import LengthBatches
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer
from keras_tfm.log import Bar


class PairBatches(LengthBatches):
    """Training batches `(inputs, labels, weights)` of (source, target) pairs.

        inputs["token_ids"], ["padding_mask"]                   (B, S)  pieces + end
        inputs["decoder_token_ids"], ["decoder_padding_mask"]   (B, T)  start + pieces
        labels                                                  (B, T)  pieces + end
        weights                                                 (B, T)  1.0 for a label, 0.0 for padding

    Texts are tokenized once. Pairs with a side of more than `max_length` tokens (with the end) are dropped;
    `num_examples` remain and `num_dropped` are dropped. `source_special` and `target_special` are the ids
    before and after the pieces, if they are not the tokenizer's: a decoder reads all ids of a target but the
    last, and its labels are all but the first. `options` go to `LengthBatches`, which chooses the shapes (B,
    S, T). Raises ValueError if no pair remains or the longest exceeds the budget.

    >>> tokenizer = keras_tfm.data.CharacterTokenizer("abc")
    >>> batches = keras_tfm.data.PairBatches(["ab", "c"], ["ba", "cc"], tokenizer, tokenizer, min_batches=1)
    >>> inputs, labels, weights = next(iter(batches.dataset()))
    >>> inputs["token_ids"].shape, labels.shape
    (TensorShape([2, 3]), TensorShape([2, 3]))
    """

    def __init__(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        *,
        max_length: int = 128,
        source_special: SpecialTokens | None = None,
        target_special: SpecialTokens | None = None,
        **options,
    ):
        if len(sources) != len(targets):
            raise ValueError(f"targets: expected {len(sources)}, one for each source, got {len(targets)}")
        target_special = target_special or SpecialTokens(
            [target_tokenizer.start_id], [target_tokenizer.end_id]
        )
        self._source = Sequences.of(sources, source_tokenizer, "sources", source_special)
        self._target = Sequences.of(targets, target_tokenizer, "targets", target_special)
        widths = np.stack([self._source.lengths, self._target.lengths - 1])  # (2, N), S and T of each pair
        longer = widths.max(axis=0)
        order = np.lexsort((widths[1], widths[0], longer))  # neighbours have similar lengths on both sides
        pairs = order[longer[order] <= max_length]
        self.num_dropped = len(sources) - len(pairs)
        if not len(pairs):
            raise ValueError(
                f"max_length: of {len(sources)} pairs none has at most {max_length} tokens a side"
            )
        super().__init__(pairs, widths[:, pairs], **options)

    def _batch(self, chosen, num_rows, source_width, target_width) -> tuple:
        token_ids, padding_mask = self._source.padded(chosen, num_rows, source_width)  # (B, S)
        target_ids, target_mask = self._target.padded(chosen, num_rows, target_width + 1)  # (B, T + 1)
        mask = target_mask[:, 1:]  # (B, T)
        inputs = {
            "token_ids": token_ids,
            "padding_mask": padding_mask,
            "decoder_token_ids": target_ids[:, :-1] * tf.cast(mask, tf.int32),  # the end is a label alone
            "decoder_padding_mask": mask,
        }
        return inputs, target_ids[:, 1:], tf.cast(mask, tf.float32)


def encode_sources(
    strings: Any, tokenizer: Tokenizer, max_length: int, special: SpecialTokens | None = None
) -> dict[str, tf.Tensor]:
    """An encoder's inputs {"token_ids", "padding_mask"}, (B, S) each, for strings (B,).

    A row is the text's pieces and the end token, or the pieces between the `special` tokens. A text of more
    than `max_length` tokens loses its last pieces. Runs in a graph.

    >>> tokenizer = keras_tfm.data.CharacterTokenizer("abc")
    >>> keras_tfm.data.encode_sources(["ab", "cab"], tokenizer, max_length=8)["token_ids"].numpy().tolist()
    [[4, 5, 2, 0], [6, 4, 5, 2]]
    """
    prefix, suffix = special or SpecialTokens([], [tokenizer.end_id])
    pieces = tokenizer.tokenize(strings)[:, : max(0, max_length - len(prefix) - len(suffix))]
    return model_inputs({"token_ids": surround(pieces, prefix, suffix)}, tokenizer.pad_id)


def left_padded(token_ids: tf.Tensor, padding_mask: tf.Tensor) -> dict[str, tf.Tensor]:
    """Ids and their mask, (B, P) each, with the padding, which stands behind the rows, in front of them."""
    padding_mask = tf.cast(padding_mask, tf.bool)
    lengths = tf.math.count_nonzero(padding_mask, axis=1)
    token_ids = tf.reverse_sequence(token_ids, lengths, seq_axis=1)
    return {"token_ids": token_ids[:, ::-1], "padding_mask": padding_mask[:, ::-1]}


class Sequences:
    """N sequences of ids, concatenated in one array."""

    def __init__(self, flat: np.ndarray, lengths: np.ndarray):
        self.lengths = lengths
        with tf.device("cpu"):  # they may be larger than an accelerator's memory
            self.sequences = tf.RaggedTensor.from_row_lengths(flat, lengths)

    @classmethod
    def of(
        cls, strings, tokenizer: Tokenizer, what: str, special: SpecialTokens | None = None
    ) -> "Sequences":
        """Tokenize in chunks, with a progress bar if it takes a while; add the end or `special` tokens."""
        prefix, suffix = special or SpecialTokens([], [tokenizer.end_id])
        flat, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for start in Bar(range(0, len(strings), 16_384), f"tokenizing {what}", unit="chunk"):
            token_ids = surround(tokenizer.tokenize(strings[start : start + 16_384]), prefix, suffix)
            flat.append(token_ids.flat_values.numpy())
            lengths.append(token_ids.row_lengths().numpy())
        return cls(np.concatenate(flat), np.concatenate(lengths))

    def padded(self, chosen: tf.Tensor, num_rows: tf.Tensor, width: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Ids (num_rows, width), int32, whose first rows are the chosen sequences, and their mask.

        Padding is 0.
        """
        shape = tf.stack([num_rows, width])
        rows = tf.gather(self.sequences, chosen)
        token_ids = rows.to_tensor(0, shape=shape)  # (num_rows, width)
        return token_ids, tf.ones_like(rows, tf.bool).to_tensor(False, shape=shape)
