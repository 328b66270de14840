"""GloVe's stochastic gradient descent with AdaGrad, as its program does it: Pennington et al. (2014), 4.2.

The words are divided into blocks, and so the matrix into tiles. Tiles that share neither rows nor columns are
processed at the same time (Gemulla et al., Large-Scale Matrix Factorization with Distributed Stochastic
Gradient Descent, KDD 2011): no two threads write to the same vector, the result does not depend on the number
of threads, and the vectors of a tile stay in a processor's cache.

        columns  0   1   2
    rows 0     [ a | b | c ]     one third of an epoch is a a a, then b b b, then c c c,
         1     [ c | a | b ]     in an order drawn anew for each epoch
         2     [ b | c | a ]
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from keras_tfm.word_vectors import compiled
from keras_tfm.word_vectors.compiled import num_threads
from keras_tfm.word_vectors.objective import Parameters, Problem

BLOCK = 1024  # words of a block: with 100 numbers each, a tile's vectors fit 2 MiB
FEWEST = 8  # blocks of a small vocabulary, for as many threads


class Tiles(NamedTuple):
    """The matrix's entries by tile; the tile of row block i, column block j begins at `starts[i * num + j]`.

    The parameters consist of `num` blocks of `size` words; `slots` has the row of each word in them.
    """

    num: int
    size: int
    slots: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    weights: np.ndarray
    targets: np.ndarray


class AdaGrad:
    """Stochastic gradient descent with steps g / √(1/η² + Σ g²), one for each entry of the matrix.

    g is the gradient of half of the entry's term of J, and Σ g² the sum over the steps before. This is the
    AdaGrad of GloVe's program. Without Numba, the gradients of a tile are summed up before one step.

    Args:
        learning_rate: η of the vectors. The paper has 0.05, with which the same quality takes nearly twice as
            many epochs.
        bias_rate: η of the biases. If they learnt as slowly as the vectors, the vectors would take up what
            all words have in common.

    >>> keras_tfm.word_vectors.GloVe(dim=50, method=keras_tfm.word_vectors.AdaGrad(0.05)).method.learning_rate
    0.05
    """

    epochs = 15

    def __init__(self, learning_rate: float = 0.1, bias_rate: float = 1.0):
        for name, rate in (("learning_rate", learning_rate), ("bias_rate", bias_rate)):
            if not (rate > 0 and np.isfinite(rate)):
                raise ValueError(f"`{name}` must be a number above 0; it is {rate}.")
        self.learning_rate, self.bias_rate = learning_rate, bias_rate

    def steps(
        self, problem: Problem, parameters: Parameters, learn_mean: bool, random: np.random.Generator
    ) -> Iterator[float]:
        """Yield J, summed up during the epoch, after each epoch. μ stays fixed: biases make up for it."""
        tiles = _tiles(problem, parameters.mean, random)
        shape = (tiles.num * tiles.size, parameters.words.shape[1])
        first = parameters.words.dtype.type(self.learning_rate**-2)
        words, contexts = np.zeros((2, *shape), first.dtype)
        word_sums, context_sums = np.full((2, *shape), first)
        word_sums[:, -1] = context_sums[:, -1] = self.bias_rate**-2
        words[tiles.slots], contexts[tiles.slots] = parameters.words, parameters.contexts
        descend: Any = compiled.compiled(_descend, fastmath=True, error_model="numpy") or _descend_at_once

        def learn(tile: tuple[int, int]) -> float:
            number = tile[0] * tiles.num + tile[1]
            entries = slice(tiles.starts[number], tiles.starts[number + 1])
            row, column = (slice(block * tiles.size, (block + 1) * tiles.size) for block in tile)
            parts = (part[entries] for part in (tiles.rows, tiles.columns, tiles.weights, tiles.targets))
            return descend(*parts, words[row], contexts[column], word_sums[row], context_sums[column])

        with ThreadPoolExecutor(num_threads()) as pool:
            while True:
                costs: list[float] = []
                for shift in random.permutation(tiles.num).tolist():
                    diagonal = [(block, (block + shift) % tiles.num) for block in range(tiles.num)]
                    costs += pool.map(learn, diagonal)
                parameters.words[:] = words[tiles.slots]
                parameters.contexts[:] = contexts[tiles.slots]
                yield float(sum(costs))


def _tiles(problem: Problem, mean: float, random: np.random.Generator) -> Tiles:
    """Assign the words, sorted by frequency, to the blocks in turn, so that blocks have similar sizes."""
    number = problem.num_words
    num = max(-(-number // BLOCK), min(FEWEST, number))
    size = -(-number // num)
    words = np.arange(number)
    rows = problem.rows()
    # Shuffle, then sort by tile with SciPy's transposition, which is stable and takes linear time.
    order = random.permutation(len(rows))
    rows, columns = rows[order], problem.columns[order]
    tile_of = (rows % num) * num + columns % num
    ones = np.ones(len(rows), np.int8)
    by_entry = sparse.csr_array((ones, tile_of, np.arange(len(rows) + 1)), shape=(len(rows), num * num))
    by_tile = by_entry.tocsc()
    order = order[by_tile.indices]
    rows, columns = rows[by_tile.indices] // num, columns[by_tile.indices] // num
    targets = problem.targets[order] - problem.targets.dtype.type(mean)
    slots = words % num * size + words // num
    return Tiles(num, size, slots, by_tile.indptr, rows, columns, problem.weights[order], targets)


def _descend(
    rows: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
    targets: np.ndarray,
    words: np.ndarray,
    contexts: np.ndarray,
    word_sums: np.ndarray,
    context_sums: np.ndarray,
) -> float:
    """Take a step for each entry of a tile; return the sum of f r², each term from before its step."""
    dim = words.shape[1] - 1
    cost = 0.0
    for k in range(len(rows)):
        w, u = words[rows[k]], contexts[columns[k]]
        w_sum, u_sum = word_sums[rows[k]], context_sums[columns[k]]
        residual = w[dim] + u[dim] - targets[k]
        for d in range(dim):
            residual += w[d] * u[d]
        slope = weights[k] * residual
        cost += slope * residual
        for d in range(dim):
            w_slope, u_slope = slope * u[d], slope * w[d]
            w[d] -= w_slope / np.sqrt(w_sum[d])
            u[d] -= u_slope / np.sqrt(u_sum[d])
            w_sum[d] += w_slope * w_slope
            u_sum[d] += u_slope * u_slope
        w[dim] -= slope / np.sqrt(w_sum[dim])
        u[dim] -= slope / np.sqrt(u_sum[dim])
        w_sum[dim] += slope * slope
        u_sum[dim] += slope * slope
    return cost


def _descend_at_once(
    rows: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
    targets: np.ndarray,
    words: np.ndarray,
    contexts: np.ndarray,
    word_sums: np.ndarray,
    context_sums: np.ndarray,
) -> float:
    """Take one step for all entries of a tile, whose squares are added before it; return the sum of f r²."""
    left, right = words[rows], contexts[columns]
    residuals = np.einsum("nd,nd->n", left[:, :-1], right[:, :-1]) + left[:, -1] + right[:, -1] - targets
    slopes = weights * residuals
    shape = (len(words), len(contexts))
    slope = sparse.coo_array((slopes, (rows, columns)), shape=shape).tocsr()
    square = sparse.coo_array((slopes * slopes, (rows, columns)), shape=shape).tocsr()
    factors = []
    for values in (words, contexts):
        factor = values.copy()
        factor[:, -1] = 1  # the factor of the bias
        factors.append(factor)
    word_sums += square @ (factors[1] ** 2)
    context_sums += square.T @ (factors[0] ** 2)
    words -= (slope @ factors[1]) / np.sqrt(word_sums)
    contexts -= (slope.T @ factors[0]) / np.sqrt(context_sums)
    return float(slopes @ residuals)
