"""Pairs of texts for one language model: source, delimiter, target, whole pairs packed into rows.

The delimiter is the tokenizer's start token, with which an encoder-decoder's target begins too (Liu et al.
2018, "Generating Wikipedia by Summarizing Long Sequences", section 4.2.3, and Radford et al. 2018, 3.3). Only
the tokens of the target have labels.

    pair  a b c -> x y   and   d -> z       rows of 9, S delimiter, E end

    token_ids     a b c S x y d S z .       (the last ones of a row may be padding)
    labels        . . . x y E . z E .
    weights       0 0 0 1 1 1 0 1 1 0
    segment_ids   0 0 0 0 0 0 1 1 1 0
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches, shuffled
from keras_tfm.data.batches.pairs import Sequences
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens, Tokenizer


class PackedPairs(Batches):
    """Training batches `(inputs, labels, weights)` of (source, target) pairs for a decoder-only model.

        inputs["token_ids"], ["padding_mask"], ["segment_ids"]   (B, T)
        labels                                                   (B, T)  pieces + end, after each delimiter
        weights                                                  (B, T)  1.0 for a label, else 0.0

    Pairs with a side of more than `max_length` tokens (with end or delimiter) are dropped; `num_pairs` remain
    and `num_dropped` are dropped. T is the length of the longest pair; shorter ones are packed into rows of
    this length. B follows from `batch_tokens`, or is smaller so that there are `min_batches`. An epoch has
    every pair once, in `num_batches` batches; a `seed` shuffles each epoch. Raises ValueError if no pair
    remains.

    >>> tokenizer = keras_tfm.data.CharacterTokenizer("abc")
    >>> batches = keras_tfm.data.PackedPairs(["ab", "c"], ["ba", "cc"], tokenizer, min_batches=1)
    >>> inputs, labels, weights = next(iter(batches.dataset()))
    >>> inputs["token_ids"].numpy().tolist(), labels.numpy().tolist()
    ([[4, 5, 1, 5, 4], [6, 1, 6, 6, 0]], [[0, 0, 5, 4, 2], [0, 6, 6, 2, 0]])
    """

    def __init__(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        tokenizer: Tokenizer,
        *,
        max_length: int = 128,
        batch_tokens: int = 4096,
        min_batches: int = 10,
        seed: int | None = None,
    ):
        if len(sources) != len(targets):
            raise ValueError(f"targets: expected {len(sources)}, one for each source, got {len(targets)}")
        left = Sequences.of(sources, tokenizer, "sources")  # its end token counts as the delimiter
        right = Sequences.of(
            targets, tokenizer, "targets", SpecialTokens([tokenizer.start_id], [tokenizer.end_id])
        )
        keep = np.flatnonzero((left.lengths <= max_length) & (right.lengths - 1 <= max_length))
        self.num_pairs, self.num_dropped = len(keep), len(sources) - len(keep)
        if not self.num_pairs:
            raise ValueError(
                f"max_length: of {len(sources)} pairs none has at most {max_length} tokens a side"
            )
        lengths = (left.lengths + right.lengths)[keep] - 2  # neither the source's end nor the target's
        self.length = int(lengths.max())
        rows = pack(lengths, self.length)
        arrays = np.zeros((4, len(rows) + 1, self.length), np.int32)  # the last row consists of padding
        sides = left.sequences.numpy(), right.sequences.numpy()
        for row, members in enumerate(rows):
            place = 0
            for segment, member in enumerate(members):
                source, target = (side[keep[member]] for side in sides)
                stop, middle = place + lengths[member], place + len(source) - 1
                arrays[0, row, place:stop] = [*source[:-1], *target[:-1]]
                arrays[1, row, middle:stop] = target[1:]
                arrays[2, row, place:stop] = segment
                arrays[3, row, place:middle], arrays[3, row, middle:stop] = 1, 2
                place = stop
        self.num_blocks = len(rows)
        self.num_rows = max(1, min(batch_tokens // self.length, self.num_blocks // min_batches))
        self.num_batches = -(-self.num_blocks // self.num_rows)
        self.padding_share = 1 - int(lengths.sum()) / (self.num_blocks * self.length)
        self._seed = seed
        with tf.device("cpu"):
            self._arrays = tf.constant(arrays.transpose(1, 0, 2))  # (rows, 4, T)

    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        order = tf.range(self.num_blocks)
        if self._seed is not None:
            order = shuffled(self.num_blocks, self._seed, number)
        missing = self.num_batches * self.num_rows - self.num_blocks
        rows = tf.concat([order, tf.fill([missing], self.num_blocks)], axis=0)
        return tf.data.Dataset.from_tensor_slices(
            tf.reshape(rows, (self.num_batches, self.num_rows))
        ).map(self._batch)  # fmt: skip

    def _batch(self, rows: tf.Tensor) -> tuple:
        token_ids, labels, segment_ids, kind = tf.unstack(
            tf.gather(self._arrays, rows), axis=1
        )  # (B, T) each
        inputs = {"token_ids": token_ids, "padding_mask": kind > 0, "segment_ids": segment_ids}
        return inputs, labels, tf.cast(kind == 2, tf.float32)


def pack(lengths: np.ndarray, capacity: int) -> list[list[int]]:
    """Distribute sequences of `lengths` over rows of at most `capacity` tokens: lists of their indices.

    The longest sequence comes first, and each goes into the row that it fills best (best-fit decreasing,
    Johnson 1973).
    """
    rows: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(capacity + 1)]  # rows by their free space
    for number in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[number])
        room = next((room for room in range(length, capacity + 1) if with_room[room]), None)
        if room is None:
            rows.append([])
            row, room = len(rows) - 1, capacity
        else:
            row = with_room[room].pop()
        rows[row].append(number)
        with_room[room - length].append(row)
    return rows
