"""GloVe: vectors whose inner products are the logarithms of co-occurrence counts.

Pennington et al., GloVe: Global Vectors for Word Representation (2014). Two ways to find them: their AdaGrad
(adagrad.py) and alternating least squares (least_squares.py).
"""

import time
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import numpy as np
from scipy import sparse

from keras_tfm.log import Bar
from keras_tfm.word_vectors.adagrad import AdaGrad
from keras_tfm.word_vectors.least_squares import LeastSquares
from keras_tfm.word_vectors.objective import Parameters, Problem
from keras_tfm.word_vectors.vectors import WordVectors


class Method(Protocol):
    """A method that minimises J."""

    epochs: int  # how many there are by default

    def steps(
        self, problem: Problem, parameters: Parameters, learn_mean: bool, random: np.random.Generator
    ) -> Iterator[float]:
        """Update `parameters` epoch by epoch; yield J after each epoch, or as summed up during it."""
        ...


METHODS: dict[str, type[AdaGrad] | type[LeastSquares]] = {"adagrad": AdaGrad, "als": LeastSquares}


class GloVe:
    """Word vectors whose inner products approximate the logarithms of co-occurrence counts.

    `fit` minimises J = Σ f(x_ij) (log x_ij - w_i·u_j - b_i - c_j - μ)² over all counts x_ij > 0, with
    f(x) = min(1, (x / x_max)^alpha) (Pennington et al. 2014, equations 8 and 9). It computes in the dtype of
    the matrix. One seed gives the same numbers for any number of threads, but not with and without Numba.

    Args:
        dim: the length of the vectors.
        x_max: counts from here on have the weight 1. The paper has 100, for billions of words; lower values
            suit smaller corpora.
        alpha: the exponent of the weights.
        transform: "log1p" approximates log(1 + x) instead of log x.
        method: "adagrad", "als", or an `AdaGrad` or `LeastSquares` object with other settings.
        mean: whether to learn μ too, which the paper's J does not have.
        seed: draws the initial vectors and the order of the steps.

    Raises:
        ValueError: for an argument out of its range.

    >>> matrix, words = keras_tfm.word_vectors.cooccurrence(["a b c", "a b d", "c d"], window=2)
    >>> glove = keras_tfm.word_vectors.GloVe(dim=2)
    >>> history = glove.fit(matrix, epochs=3)  # J of each epoch
    >>> glove.vectors(words).matrix.shape
    (4, 2)
    """

    def __init__(
        self,
        dim: int = 100,
        x_max: float = 10.0,
        alpha: float = 0.75,
        transform: Literal["log", "log1p"] = "log",
        method: str | Method = "adagrad",
        mean: bool = False,
        seed: int = 0,
    ):
        if dim < 1:
            raise ValueError(f"`dim` must be at least 1; it is {dim}.")
        if not (x_max > 0 and np.isfinite(x_max)):
            raise ValueError(f"`x_max` must be a number above 0; it is {x_max}.")
        if not (alpha >= 0 and np.isfinite(alpha)):
            raise ValueError(f"`alpha` must be a number from 0 on; it is {alpha}.")
        if transform not in ("log", "log1p"):
            raise ValueError(f"`transform` must be log or log1p; it is {transform!r}.")
        if isinstance(method, str) and method not in METHODS:
            raise ValueError(f"`method` must be {' or '.join(METHODS)}; it is {method!r}.")
        self.dim, self.x_max, self.alpha, self.transform = dim, x_max, alpha, transform
        self.method: Method = METHODS[method]() if isinstance(method, str) else method
        self.mean, self.seed = mean, seed
        self.parameters: Parameters | None = None

    def weights(self, x: np.ndarray) -> np.ndarray:
        """f(x), equation 9 of the paper: (x / x_max)^alpha, but 1 from x_max on."""
        return np.minimum(x / self.x_max, 1) ** self.alpha

    def fit(
        self, matrix: sparse.sparray, epochs: int | None = None, minutes: float | None = None
    ) -> list[float]:
        """Learn from a square matrix of counts; return J of each epoch.

        AdaGrad sums J up during the epoch; least squares reports it afterwards, with the λ terms. Training
        ends after `epochs`, by default the method's own number, or with the epoch in which `minutes` have
        passed. Raises ValueError unless the matrix is square, finite, not negative and not empty, and
        FloatingPointError if J becomes infinite.
        """
        if epochs is not None and epochs < 1:
            raise ValueError(f"`epochs` must be at least 1; it is {epochs}.")
        problem = self.problem(matrix)
        random = np.random.default_rng(self.seed)
        shape = (problem.num_words, self.dim + 1)
        words, contexts = ((random.random((2, *shape)) - 0.5) / self.dim).astype(problem.targets.dtype)
        parameters = Parameters(words, contexts)
        if self.mean:
            parameters.mean = float(np.average(problem.targets, weights=problem.weights))
        history: list[float] = []
        number, begin = epochs or self.method.epochs, time.monotonic()
        steps = self.method.steps(problem, parameters, self.mean, random)
        with Bar(total=number, desc="training", unit=" epochs") as bar:
            for _, cost in zip(range(number), steps, strict=False):
                if not np.isfinite(cost):
                    raise FloatingPointError(f"epoch {len(history) + 1}: J is {cost}; try a lower rate")
                history.append(cost)
                bar.set_postfix(J=f"{cost:,.6g}")
                bar.update()
                if minutes is not None and time.monotonic() - begin > 60 * minutes:
                    break
        self.parameters = parameters
        return history

    def problem(self, matrix: sparse.sparray) -> Problem:
        """The weights and targets for a matrix; raises ValueError as `fit` does."""
        if not sparse.issparse(matrix) or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            got = getattr(matrix, "shape", type(matrix).__name__)
            raise ValueError(f"`matrix` must be a square SciPy sparse array; it is {got}.")
        matrix = sparse.csr_array(matrix)
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float32)
        if not (np.isfinite(matrix.data).all() and (matrix.data >= 0).all()):
            raise ValueError("`matrix` must hold finite numbers, none below 0.")
        if not matrix.data.all():
            matrix = matrix.copy()
            matrix.eliminate_zeros()
        if not matrix.nnz:
            raise ValueError("`matrix` must hold co-occurrences; no word stands near another one.")
        targets = np.log(matrix.data) if self.transform == "log" else np.log1p(matrix.data)
        weights = self.weights(matrix.data).astype(matrix.dtype)
        return Problem(matrix.indptr, matrix.indices, weights, targets)

    def objective(self, matrix: sparse.sparray) -> float:
        """J of the learnt parameters, without λ terms."""
        return self.problem(matrix).objective(self._learnt())

    def vectors(self, words: Sequence[str]) -> WordVectors:
        """The sums W + U as vectors of `words`, which `cooccurrence` returned with the matrix."""
        learnt = self._learnt()
        return WordVectors(words, (learnt.words + learnt.contexts)[:, :-1])

    def _learnt(self) -> Parameters:
        if self.parameters is None:
            raise ValueError("GloVe has no vectors yet; call `fit` first.")
        return self.parameters
