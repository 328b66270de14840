"""Pairs of texts to batches of ids with little padding, and raw strings to a model's inputs.

Texts are tokenized once. Pairs of like lengths share a batch, with as many rows as a budget of tokens holds
(fairseq's `batch_by_size`); here the batches also have few distinct shapes, each of which XLA compiles anew,
and those few are chosen so that the least padding is computed.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from keras_tfm.data.epochs import finished, one_after_another, shuffled
from keras_tfm.data.tokenizers import Tokenizer

ROW_MULTIPLE = 8  # batches of more rows have a multiple of it, as matrix units like
COMPILATION = 100  # batches that take about as long as XLA takes to compile a training step for a shape
MAX_CANDIDATES = 512  # widths to choose shapes from; finer steps save nothing more


class PairBatches:
    """Training batches of (source, target) pairs: `(inputs, labels, weights)` with

        inputs["token_ids"], ["padding_mask"]                   (B, S)  pieces + end
        inputs["decoder_token_ids"], ["decoder_padding_mask"]   (B, T)  start + pieces
        labels                                                  (B, T)  pieces + end
        weights                                                 (B, T)  1.0 where there is a label, else 0.0

    Pairs with a side over `max_length` (end included) are dropped: `num_pairs` stay, `num_dropped` do not.
    B * (S + T) is at most `batch_tokens`, and smaller where a small set would make fewer than `min_batches`
    batches. There are at most `num_shapes` distinct `shapes` (B, S, T), fewer where `num_epochs` would not
    repay compiling them; one batch may end in rows of padding alone, to have a shape that is there already.
    An epoch holds every pair once, in `num_batches` batches, with the same shapes as every epoch; with a
    `seed` it is drawn anew in each which pairs meet and in which order the batches come. `padding_share` is
    the part of all B * (S + T) that is padding. Raises ValueError when no pair is left or the longest exceeds
    the budget.
    """

    def __init__(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        *,
        max_length: int = 128,
        batch_tokens: int = 4096,
        num_shapes: int = 16,
        num_epochs: int = 100,
        min_batches: int = 10,
        seed: int | None = None,
    ):
        if len(sources) != len(targets):
            raise ValueError(f"targets: expected {len(sources)}, one for each source, got {len(targets)}")
        self._source = Sequences.of(sources, source_tokenizer, "sources")
        self._target = Sequences.of(targets, target_tokenizer, "targets", with_start=True)
        self._seed = seed
        widths = np.stack([self._source.lengths, self._target.lengths - 1])  # (2, N), S and T of each pair
        longer = widths.max(axis=0)
        order = np.lexsort((widths[1], widths[0], longer))  # neighbours are alike on both sides
        pairs = order[longer[order] <= max_length]
        widths = widths[:, pairs]
        self.num_pairs = len(pairs)
        self.num_dropped = len(sources) - self.num_pairs
        if self.num_pairs == 0:
            raise ValueError(
                f"max_length: of {len(sources)} pairs none has at most {max_length} tokens a side"
            )
        self.num_tokens = int(widths.sum())
        longest = int(widths.sum(axis=0).max())
        if batch_tokens < longest:
            raise ValueError(
                f"batch_tokens: expected {longest} or more, the longest pair, got {batch_tokens}"
            )
        budget = batch_tokens
        if min_batches > 1:
            budget = min(budget, max(longest, (self.num_tokens - 1) // (min_batches - 1)))
        steps = _choose_steps(widths, num_shapes, shape_cost=COMPILATION * budget / num_epochs)
        batches = sorted(_cut(widths, steps, budget))
        self.num_batches = len(batches)
        self.shapes = sorted({shape for *_, shape in batches})
        num_computed = sum(rows * (source + target) for *_, (rows, source, target) in batches)
        self.padding_share = 1 - self.num_tokens / num_computed
        # (N,) equal for pairs in batches of one shape, among which an epoch shuffles them
        shapes, sizes = zip(*((shape, stop - start) for start, stop, shape in batches), strict=True)
        is_new = [shape != last for shape, last in zip(shapes, (None, *shapes), strict=False)]
        self._groups = tf.constant(np.repeat(np.cumsum(is_new), sizes))
        self._batches = tf.constant([(start, stop, *shape) for start, stop, shape in batches])
        self._pairs = tf.constant(pairs)

    def dataset(self, epoch: int = 0) -> tf.data.Dataset:
        """The batches of one epoch, which its number and the seed alone decide."""
        return finished(self._epoch(tf.constant(epoch, tf.int64)), self.num_batches)

    def epochs(self) -> tf.data.Dataset:
        """The batches of epoch 0, 1, … without end, for `fit(..., steps_per_epoch=num_batches)`."""
        return one_after_another(self._epoch, self.num_batches)

    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        pairs, batches = self._pairs, self._batches
        if self._seed is not None:
            pairs = tf.gather(pairs, shuffled(self.num_pairs, self._seed, number, self._groups))
            # ~: another draw than that of the pairs
            batches = tf.gather(batches, shuffled(self.num_batches, self._seed, ~number))
        return tf.data.Dataset.from_tensor_slices(batches).map(lambda batch: self._batch(pairs, batch))

    def _batch(self, pairs: tf.Tensor, batch: tf.Tensor) -> tuple:
        start, stop, num_rows, source_width, target_width = tf.unstack(batch)
        chosen = pairs[start:stop]
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


def encode_sources(strings, tokenizer: Tokenizer, max_length: int) -> dict[str, tf.Tensor]:
    """Strings (B,) to `{"token_ids", "padding_mask"}`, each (B, S), as an encoder was trained on them: pieces
    and the end. A text of `max_length` pieces or more loses its last ones; an empty one is the end alone.
    Runs in a graph.
    """
    token_ids = _append(tokenizer.tokenize(strings)[:, : max_length - 1], tokenizer.end_id)
    lengths = token_ids.row_lengths()
    # At least one wide, without a single text too: recurrence needs a step.
    width = tf.maximum(1, tf.reduce_max(tf.cast(lengths, tf.int32)))
    token_ids = token_ids.to_tensor(tokenizer.pad_id, shape=tf.stack([tf.shape(lengths)[0], width]))  # (B, S)
    return {"token_ids": token_ids, "padding_mask": tf.sequence_mask(lengths, width)}


def encode_prompts(
    strings, tokenizer: Tokenizer, add_start: bool = False, delimit: int | None = None
) -> dict[str, tf.Tensor]:
    """Strings (B,) to `{"token_ids", "padding_mask"}`, each (B, P), padded on the left, as decoding takes
    them. `add_start` puts a start token before each text; `delimit` puts it behind, after at most so many
    tokens together with it, as `PackedPairs` does. Runs in a graph.
    """
    token_ids = tokenizer.tokenize(strings)
    start = tf.fill([token_ids.nrows(), 1], tokenizer.start_id)
    if add_start:
        token_ids = tf.concat([start, token_ids], axis=1)
    if delimit is not None:
        token_ids = tf.concat([token_ids[:, : delimit - 1], start], axis=1)
    lengths, padding = token_ids.row_lengths(), tokenizer.pad_id
    token_ids = tf.reverse_sequence(token_ids.to_tensor(padding), lengths, seq_axis=1)  # (B, P)
    padding_mask = tf.sequence_mask(lengths, tf.shape(token_ids)[1])
    return {"token_ids": token_ids[:, ::-1], "padding_mask": padding_mask[:, ::-1]}


def _append(token_ids: tf.RaggedTensor, token_id: int) -> tf.RaggedTensor:
    return tf.concat([token_ids, tf.fill([token_ids.nrows(), 1], token_id)], axis=1)


class Sequences:
    """N sequences of ids end to end in one array."""

    def __init__(self, flat: np.ndarray, lengths: np.ndarray):
        self.lengths = lengths
        with tf.device("cpu"):  # they may be larger than an accelerator's memory
            self.sequences = tf.RaggedTensor.from_row_lengths(flat, lengths)

    @classmethod
    def of(cls, strings, tokenizer: Tokenizer, what: str, with_start: bool = False) -> "Sequences":
        """Tokenizes in chunks, with a progress bar where it takes a while, and adds end (and start)."""
        flat, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        chunks = range(0, len(strings), 16_384)
        for start in tqdm(chunks, f"tokenizing {what}", unit="chunk", leave=False, disable=len(chunks) < 8):
            token_ids = _append(tokenizer.tokenize(strings[start : start + 16_384]), tokenizer.end_id)
            if with_start:
                token_ids = tf.concat(
                    [tf.fill([token_ids.nrows(), 1], tokenizer.start_id), token_ids], axis=1
                )
            flat.append(token_ids.flat_values.numpy())
            lengths.append(token_ids.row_lengths().numpy())
        return cls(np.concatenate(flat), np.concatenate(lengths))

    def padded(self, chosen: tf.Tensor, num_rows: tf.Tensor, width: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The chosen sequences as the first rows of ids (num_rows, width), int32 with 0 for padding, and the
        mask of those, bool.
        """
        shape = tf.stack([num_rows, width])
        rows = tf.gather(self.sequences, chosen)
        token_ids = rows.to_tensor(0, shape=shape)  # (num_rows, width)
        return token_ids, tf.ones_like(rows, tf.bool).to_tensor(False, shape=shape)


def _choose_steps(widths: np.ndarray, num_shapes: int, shape_cost: float = 0.0) -> list[int]:
    """Where to part pairs of `widths` (2, N), in their order, into at most `num_shapes` runs, each padded to
    its largest widths, so that the tokens computed, and `shape_cost` more for each run, are fewest. Returns
    where the runs start, the last one first. The best parting of all pairs is the best one of fewer pairs and
    one run more (Bellman's dynamic programming).
    """
    is_new = np.any(widths[:, 1:] != widths[:, :-1], axis=0)
    starts = np.concatenate([[0], 1 + np.flatnonzero(is_new)])
    starts = starts[:: -(-len(starts) // MAX_CANDIDATES)]  # C candidates
    stops = np.append(starts[1:], widths.shape[1])
    largest = np.maximum.reduceat(widths, starts, axis=1)  # (2, C)
    cost = np.full((len(starts), len(starts)), np.inf)  # [i, j] tokens computed in one run from i to j
    for i in range(len(starts)):
        cost[i, i:] = np.maximum.accumulate(largest[:, i:], axis=1).sum(axis=0) * (stops[i:] - starts[i])
    least = np.full(len(starts), np.inf)  # [j] tokens computed up to j in the runs so far
    last_runs, costs = [], []  # [k][j] where the last of k + 1 runs up to j starts; [k] their whole cost
    for num_runs in range(1, num_shapes + 1):
        total = np.append(0, least[:-1])[:, None] + cost
        last_runs.append(total.argmin(axis=0))
        least = total.min(axis=0)
        costs.append(least[-1] + num_runs * shape_cost)
    steps, j = [], len(starts) - 1
    for last_run in reversed(last_runs[: int(np.argmin(costs)) + 1]):
        i = last_run[j]
        steps.append(int(starts[i]))
        j = i - 1
        if j < 0:
            break
    return steps


def _cut(widths: np.ndarray, steps: list[int], budget: int) -> Iterator[tuple[int, int, tuple]]:
    """Cuts the runs that begin at `steps` into batches (start, stop, (B, S, T)), the longest pairs first. A
    run takes what its last batch lacks from the run below it, so that all its batches have one shape; the
    lowest run spreads its pairs over its batches, and its last one may have fewer than B.
    """
    stop = widths.shape[1]
    for start in steps:
        while start < stop:
            source_width, target_width = widths[:, start:stop].max(axis=1).tolist()
            rows = _round(max(1, budget // (source_width + target_width)), down=True)
            num_batches = -(-(stop - start) // rows)
            lower = max(0, stop - num_batches * rows)
            if lower == start:
                even = -(-(stop - start) // num_batches)
                rows = even if num_batches == 1 else min(rows, _round(even))
                for last in range(stop, start, -rows):
                    yield max(start, last - rows), last, (rows, source_width, target_width)
                stop = start
            start = lower  # with the pairs from below the widths may have grown: once more


def _round(rows: int, down: bool = False) -> int:
    """Rounds numbers over ROW_MULTIPLE to a multiple of it."""
    if rows <= ROW_MULTIPLE:
        return rows
    return rows - rows % ROW_MULTIPLE if down else rows + -rows % ROW_MULTIPLE
