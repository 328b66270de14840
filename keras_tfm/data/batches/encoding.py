"""Texts as inputs of an encoder, and batches of encoded examples with few distinct shapes."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.lengths import LengthBatches
from keras_tfm.data.tokenizers.tokenizer import Tokenizer, beside, of_ranges
from keras_tfm.log import Bar

Ragged = dict[str, tf.RaggedTensor]


class EncodedBatches(LengthBatches):
    """Batches `(inputs, labels, weights)` of encoded examples.

    Args:
        inputs: ragged int32 (N, None) by name, "token_ids" among them, from which "padding_mask" follows.
        labels: an array (N, ...) with a label for each example, or a dict of such arrays; `weights` are then
            (B,), 0.0 for rows that only fill up the batch. Or ragged (N, None), a label for each token,
            negative for tokens without one; `weights` are then (B, S).
        pad_id: pads "token_ids".
        rows: how many consecutive rows of the inputs belong to one example; if several, the inputs become
            (B, rows, S).
        options: arguments of `LengthBatches`.
    """

    def __init__(self, inputs: Ragged, labels, pad_id: int = 0, rows: int = 1, **options):
        lengths = inputs["token_ids"].row_lengths().numpy().reshape(-1, rows).max(axis=1)  # (N,)
        if not len(lengths):
            raise ValueError("examples: expected one or more, got none")
        with tf.device("cpu"):  # they may be larger than an accelerator's memory
            self._inputs = {name: tf.identity(x) for name, x in inputs.items()}
            self._labels = tf.nest.map_structure(tf.identity, labels, expand_composites=False)
        self._pad_id, self._rows = pad_id, rows
        order = np.argsort(lengths, kind="stable")
        super().__init__(order, np.tile(lengths[order], (rows, 1)), **options)

    def _batch(self, chosen, num_rows, *widths) -> tuple:
        width, total = widths[0], num_rows * self._rows
        rows = tf.reshape(chosen[:, None] * self._rows + tf.range(self._rows, dtype=chosen.dtype), [-1])
        lengths = fill_up(tf.gather(self._inputs["token_ids"].row_lengths(), rows), total - tf.shape(rows)[0])
        mask = tf.sequence_mask(lengths, width)
        inputs = {name: pad(tf.gather(x, rows), total, width) for name, x in self._inputs.items()}
        inputs["token_ids"] = tf.where(mask, inputs["token_ids"], self._pad_id)
        inputs["padding_mask"] = mask
        if self._rows > 1:
            shape = tf.stack([num_rows, self._rows, width])
            inputs = {name: tf.reshape(x, shape) for name, x in inputs.items()}  # (B, rows, S)
        missing = num_rows - tf.shape(chosen)[0]
        if isinstance(self._labels, tf.RaggedTensor):
            labels = pad(tf.gather(self._labels, chosen), num_rows, width, -1)  # (B, S)
            return inputs, tf.maximum(labels, 0), tf.cast(labels >= 0, tf.float32)
        labels = tf.nest.map_structure(lambda x: fill_up(tf.gather(x, chosen), missing), self._labels)
        weights = tf.nest.map_structure(lambda _: fill_up(tf.ones_like(chosen, tf.float32), missing), labels)
        return inputs, labels, weights


def pad(rows: tf.RaggedTensor, num_rows, width, value: float = 0) -> tf.Tensor:
    """A tensor (num_rows, width) whose first rows are the ragged ones."""
    return rows.to_tensor(value, shape=tf.stack([num_rows, tf.cast(width, tf.int32)]))


def fill_up(x: tf.Tensor, missing) -> tf.Tensor:
    """`x` (B, ...) followed by `missing` rows of zeros."""
    return tf.concat([x, tf.zeros(tf.concat([[missing], tf.shape(x)[1:]], 0), x.dtype)], axis=0)


def pack_texts(
    tokenizer: Tokenizer, max_length: int, firsts: tf.Tensor, seconds: tf.Tensor | None = None
) -> Ragged:
    """Strings (B,), or pairs of strings, as ragged "token_ids" and "segment_ids".

    A row is [CLS] first [SEP] second [SEP], with the tokenizer's own special tokens. A row is cut to
    `max_length` tokens, of two texts the longer one (Devlin et al. 2019).
    """
    first = tokenizer.tokenize(firsts)
    if seconds is None:
        room = max_length - tokenizer.num_added()
        token_ids = surround(first[:, :room], [tokenizer.start_id], [tokenizer.end_id])
        return {"token_ids": token_ids, "segment_ids": tf.zeros_like(token_ids)}
    second, room = tokenizer.tokenize(seconds), max_length - tokenizer.num_added(2)
    is_longer = first.row_lengths() > second.row_lengths()
    half = tf.where(is_longer, tf.cast(room - room // 2, tf.int64), room // 2)  # as `tokenizers` cuts pairs
    kept = tf.minimum(first.row_lengths(), tf.maximum(room - second.row_lengths(), half))
    second = take_front(second, tf.minimum(second.row_lengths(), room - kept))
    return join_pairs(tokenizer, take_front(first, kept), second)


def ragged_rows(rows: Sequence) -> Ragged:
    """Rows of token ids, as `serving.text_readers` makes them of one text or of two, as ragged "token_ids"
    and "segment_ids".
    """
    lengths = np.array([len(row.ids) for row in rows], "int64")
    starts = np.cumsum(lengths) - lengths
    values = np.fromiter(itertools.chain.from_iterable(row.ids for row in rows), "int32", lengths.sum())
    seconds = np.repeat(starts + [row.first for row in rows], lengths)  # where the second text begins
    segments = (np.arange(len(values)) >= seconds).astype("int32")
    return {
        "token_ids": tf.RaggedTensor.from_row_lengths(values, lengths),
        "segment_ids": tf.RaggedTensor.from_row_lengths(segments, lengths),
    }


def join_pairs(tokenizer: Tokenizer, first: tf.RaggedTensor, second: tf.RaggedTensor) -> Ragged:
    """Join the ids of two texts, (B, None) each, as `pack_texts` does."""
    front = surround(first, [tokenizer.start_id], tokenizer.between_ids)
    back = surround(second, [], [tokenizer.end_id])
    return {
        "token_ids": beside(front, back),
        "segment_ids": beside(tf.zeros_like(front), tf.ones_like(back)),
    }


def surround(rows: tf.RaggedTensor, before: Sequence[int], after: Sequence[int]) -> tf.RaggedTensor:
    """Put a list of values before each row, and another one after it."""
    more, splits = [*before, *after], rows.row_splits
    values = tf.concat([tf.constant(more, rows.dtype), rows.flat_values], 0)
    front, zeros = len(before), tf.zeros_like(splits[1:])
    starts = [zeros, splits[:-1] + len(more), zeros + front]
    limits = [zeros + front, splits[1:] + len(more), zeros + len(more)]
    pieces = of_ranges(values, *(tf.reshape(tf.stack(x, axis=1), [-1]) for x in (starts, limits)))
    splits += len(more) * tf.range(tf.size(splits, tf.int64))
    return tf.RaggedTensor.from_row_splits(pieces.flat_values, splits, validate=False)


def take_front(rows: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first `lengths` (B,) values of each row."""
    starts = rows.row_starts()
    return of_ranges(rows.flat_values, starts, starts + lengths)


def model_inputs(packed: Ragged, pad_id: int = 0) -> dict[str, tf.Tensor]:
    """A model's inputs, (B, S) each, for ragged ids. Runs in a graph."""
    lengths = packed["token_ids"].row_lengths()
    # At least one column, even without texts: a recurrent layer needs a step.
    width = tf.maximum(1, tf.reduce_max(tf.cast(lengths, tf.int32)))
    inputs = {name: pad(x, tf.shape(lengths)[0], width) for name, x in packed.items()}
    mask = tf.sequence_mask(lengths, width)  # (B, S)
    return {**inputs, "token_ids": tf.where(mask, inputs["token_ids"], pad_id), "padding_mask": mask}


def in_chunks(encode: Callable[..., Ragged], *columns: Sequence, size: int = 8_192) -> Ragged:
    """`encode(*columns)` for long columns, chunk by chunk, with a progress bar if it takes a while."""
    starts = range(0, max(1, len(columns[0])), size)
    bar = Bar(starts, "tokenizing", unit="chunk")
    chunks = [encode(*(column[start : start + size] for column in columns)) for start in bar]
    return {name: tf.concat([chunk[name] for chunk in chunks], axis=0) for name in chunks[0]}
