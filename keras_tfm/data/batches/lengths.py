"""Examples of many lengths to batches with little padding, of few shapes.

Examples of like lengths share a batch, with as many rows as a budget of tokens holds (fairseq's
`batch_by_size`); here the batches also have few distinct shapes, each of which XLA compiles anew, and those
few are chosen so that the least padding is computed.
"""

import abc
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches, shuffled
from keras_tfm.log import Bar

ROW_MULTIPLE = 8  # batches of more rows have a multiple of it, as matrix units like
COMPILATION = 100  # batches that take about as long as XLA takes to compile a training step for a shape
MAX_CANDIDATES = 512  # widths to choose shapes from; finer steps save nothing more


class LengthBatches(Batches):
    """Batches of the `examples` (their numbers, neighbours alike), whose widths are `widths` (sides, N).

    B times the sum of a batch's widths is at most `batch_tokens`, and smaller where a small set would make
    fewer than `min_batches` batches. There are at most `num_shapes` distinct `shapes` (B, width, …), fewer
    where `num_epochs` would not repay compiling them; one batch may end in rows of padding alone, to have a
    shape that is there already. An epoch holds every example once, in `num_batches` batches, with the same
    shapes as every epoch; with a `seed` it is drawn anew in each which examples meet and in which order the
    batches come. `padding_share` is the part of all computed tokens that is padding. A subclass makes the
    batches, in the graph. Raises ValueError where the longest example exceeds the budget.
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
            # ~: another draw than that of the examples
            batches = tf.gather(batches, shuffled(self.num_batches, self._seed, ~number))

        def batch(bounds):
            start, stop, *shape = tf.unstack(bounds)
            return self._batch(examples[start:stop], *shape)

        return tf.data.Dataset.from_tensor_slices(batches).map(batch)


def rows_by_length(lengths: Iterable[int], batch_size: int, unit: str) -> Iterator[np.ndarray]:
    """The numbers of `lengths` in batches of like ones, the longest first, with a progress bar of `unit`s."""
    order = np.argsort(list(lengths), kind="stable")[::-1]
    with Bar(total=len(order), desc="answering", unit=unit) as bar:
        for first in range(0, len(order), batch_size):
            rows = order[first : first + batch_size]
            yield rows
            bar.update(len(rows))


def choose_steps(widths: np.ndarray, num_shapes: int, shape_cost: float = 0.0) -> list[int]:
    """Where to part examples of `widths` (sides, N), in their order, into at most `num_shapes` runs, each
    padded to its largest widths, so that the tokens computed, and `shape_cost` more for each run, are fewest.
    Returns where the runs start, the last one first. The best parting of all is the best one of fewer
    examples and one run more (Bellman's dynamic programming).
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
    """Cuts the runs that begin at `steps` into batches (start, stop, (B, width, …)), the longest examples
    first. A run takes what its last batch lacks from the run below it, so that its batches have one shape;
    the lowest run spreads its examples over its batches, and its last one may have fewer than B.
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
            start = lower  # with the examples from below the widths may have grown: once more


def _round(rows: int, down: bool = False) -> int:
    """Rounds numbers over ROW_MULTIPLE to a multiple of it."""
    if rows <= ROW_MULTIPLE:
        return rows
    return rows - rows % ROW_MULTIPLE if down else rows + -rows % ROW_MULTIPLE
