"""Batches of examples of different lengths, with little padding and few distinct shapes.

Examples of similar lengths share a batch, with as many rows as a budget of tokens allows, as in fairseq's
`batch_by_size`. In addition there are few distinct shapes, since XLA compiles a program for each; they are
chosen to minimise the padding.
"""

import abc
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches, shuffled
from keras_tfm.log import Bar

ROW_MULTIPLE = 8  # more rows than this are a multiple of it, which suits matrix units
# How many batches a shape must save to be worth its compilation. That takes as long as 8 batches of a
# translator of 7.6 million weights; small models, whose batches take less time, need more.
COMPILATION = 40
MAX_CANDIDATES = 512  # widths to choose shapes from; more do not reduce the padding further


class LengthBatches(Batches):
    """Batches of examples grouped by length. Abstract: a subclass makes the batches, in the graph.

    An epoch has every example once, in `num_batches` batches, whose shapes are the same in every epoch. A
    batch may end in rows of padding, to have one of the existing shapes. `padding_share` is the share of
    padding among all tokens.

    Args:
        examples: the numbers of the examples, neighbours of similar length.
        widths: their lengths, (sides, N): one side for single texts, two for pairs.
        batch_tokens: an upper bound for B times the sum of a batch's widths, which a batch of one row alone
            may exceed; less is used for a small set that would not have `min_batches` batches otherwise.
        num_shapes: how many distinct `shapes` (B, width, …) there are at most; fewer are used if compiling
            more is not worthwhile for `num_epochs`.
        seed: shuffles examples and batches in each epoch; None keeps their order.

    Raises:
        ValueError: if the longest example exceeds the budget.
    """

    def __init__(
        self,
        examples: np.ndarray,
        widths: np.ndarray,
        *,
        batch_tokens: int = 4096,
        num_shapes: int = 16,
        num_epochs: int = 100,
        min_batches: int = 10,
        seed: int | None = None,
    ):
        self._seed = seed
        self.num_examples = len(examples)
        self.num_tokens = int(widths.sum())
        longest = int(widths.sum(axis=0).max())
        if batch_tokens < longest:
            raise ValueError(
                f"batch_tokens: expected {longest} or more, the longest example, got {batch_tokens}"
            )
        budget = batch_tokens
        if min_batches > 1:
            budget = min(budget, max(longest, (self.num_tokens - 1) // (min_batches - 1)))
        steps = choose_steps(widths, num_shapes, shape_cost=COMPILATION * budget / num_epochs)
        batches = sorted(cut(widths, steps, budget))
        self.num_batches = len(batches)
        self.shapes = sorted({shape for *_, shape in batches})
        self.num_shapes = len(self.shapes)
        num_computed = sum(rows * sum(widths) for *_, (rows, *widths) in batches)
        self.padding_share = 1 - self.num_tokens / num_computed
        # (N,) equal for examples in batches of one shape, among which an epoch shuffles them
        shapes, sizes = zip(*((shape, stop - start) for start, stop, shape in batches), strict=True)
        is_new = [shape != last for shape, last in zip(shapes, (None, *shapes), strict=False)]
        self._groups = tf.constant(np.repeat(np.cumsum(is_new), sizes))
        self._batches = tf.constant([(start, stop, *shape) for start, stop, shape in batches])
        self._examples = tf.constant(examples)

    @abc.abstractmethod
    def _batch(self, chosen: tf.Tensor, num_rows: tf.Tensor, *widths: tf.Tensor) -> tuple:
        """`(inputs, labels, weights)` of `num_rows` rows, the first of them the examples `chosen`."""

    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        examples, batches = self._examples, self._batches
        if self._seed is not None:
            examples = tf.gather(examples, shuffled(self.num_examples, self._seed, number, self._groups))
            # ~: a seed unlike the examples' seed
            batches = tf.gather(batches, shuffled(self.num_batches, self._seed, ~number))

        def batch(bounds):
            start, stop, *shape = tf.unstack(bounds)
            return self._batch(examples[start:stop], *shape)

        return tf.data.Dataset.from_tensor_slices(batches).map(batch)


def rows_by_length(lengths: Iterable[int], batch_size: int, unit: str) -> Iterator[np.ndarray]:
    """The indices of `lengths` in batches of similar ones, the longest first, with a bar of `unit`s."""
    order = np.argsort(list(lengths), kind="stable")[::-1]
    with Bar(total=len(order), desc="answering", unit=unit) as bar:
        for first in range(0, len(order), batch_size):
            rows = order[first : first + batch_size]
            yield rows
            bar.update(len(rows))


def choose_steps(widths: np.ndarray, num_shapes: int, shape_cost: float = 0.0) -> list[int]:
    """Divide examples of `widths` (sides, N), in their order, into at most `num_shapes` runs.

    Each run is padded to its largest widths. The sum of all tokens, and of `shape_cost` for each run, is the
    least possible, by dynamic programming: the best division is the best division of fewer examples into one
    run less, plus a last run. Returns where the runs start, the last one first.
    """
    is_new = np.any(widths[:, 1:] != widths[:, :-1], axis=0)
    starts = np.concatenate([[0], 1 + np.flatnonzero(is_new)])
    starts = starts[:: -(-len(starts) // MAX_CANDIDATES)]  # C candidates
    stops = np.append(starts[1:], widths.shape[1])
    largest = np.maximum.reduceat(widths, starts, axis=1)  # (sides, C)
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


def cut(widths: np.ndarray, steps: list[int], budget: int) -> Iterator[tuple[int, int, tuple]]:
    """Cut the runs that begin at `steps` into batches (start, stop, (B, width, …)), the longest first.

    If the last batch of a run is not full, it takes examples from the next shorter run, so that all its
    batches have one shape. The shortest run spreads its examples evenly over its batches.
    """
    stop = widths.shape[1]
    for start in steps:
        while start < stop:
            largest = widths[:, start:stop].max(axis=1).tolist()
            rows = _round(max(1, budget // sum(largest)), down=True)
            num_batches = -(-(stop - start) // rows)
            lower = max(0, stop - num_batches * rows)
            if lower == start:
                even = -(-(stop - start) // num_batches)
                rows = even if num_batches == 1 else min(rows, _round(even))
                for last in range(stop, start, -rows):
                    yield max(start, last - rows), last, (rows, *largest)
                stop = start
            start = lower  # the examples from the shorter run may be wider on one side: compute again


def _round(rows: int, down: bool = False) -> int:
    """Round a number above `ROW_MULTIPLE` to a multiple of it."""
    if rows <= ROW_MULTIPLE:
        return rows
    return rows - rows % ROW_MULTIPLE if down else rows + -rows % ROW_MULTIPLE
