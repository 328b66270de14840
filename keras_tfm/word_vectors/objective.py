"""What GloVe minimises: a weighted sum of squares over the entries of a sparse matrix, and what is learnt."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

CHUNK = 1 << 18  # entries whose vectors are gathered at once


@dataclass
class Parameters:
    """What is learnt: `words` [W b] and `contexts` [U c], (V, D + 1), a vector and its bias in each row, and
    `mean`, μ.
    """

    words: np.ndarray
    contexts: np.ndarray
    mean: float = 0.0


class Problem(NamedTuple):
    """The entries of a CSR array (V, V): their `weights` f(x) and `targets`, log x or log(1 + x)."""

    starts: np.ndarray
    columns: np.ndarray
    weights: np.ndarray
    targets: np.ndarray

    @property
    def num_words(self) -> int:
        return len(self.starts) - 1

    def rows(self) -> np.ndarray:
        """The row of each entry."""
        return np.repeat(np.arange(self.num_words), np.diff(self.starts))

    def transposed(self) -> "Problem":
        """The same with rows for columns."""
        numbers = np.arange(len(self.columns))
        square = (self.num_words, self.num_words)
        matrix = sparse.csr_array((numbers, self.columns, self.starts), shape=square).tocsc()
        return Problem(matrix.indptr, matrix.indices, self.weights[matrix.data], self.targets[matrix.data])

    def objective(self, parameters: Parameters) -> float:
        """J = Σ f (log x - w·u - b - c - μ)²."""
        words, contexts, rows = parameters.words, parameters.contexts, self.rows()
        total = 0.0
        for begin in range(0, len(rows), CHUNK):
            some = slice(begin, begin + CHUNK)
            left, right = words[rows[some]], contexts[self.columns[some]]
            guesses = np.einsum("nd,nd->n", left[:, :-1], right[:, :-1]) + left[:, -1] + right[:, -1]
            residuals = self.targets[some] - guesses - parameters.mean
            total += float(np.sum(self.weights[some] * residuals**2, dtype=np.float64))
        return total
