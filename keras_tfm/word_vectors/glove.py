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
    """How the parameters are found."""

    epochs: int  # how many there are by default

    def steps(
        self, problem: Problem, parameters: Parameters, learn_mean: bool, random: np.random.Generator
    ) -> Iterator[float]:
        """Changes `parameters`, epoch after epoch, and yields J after, or in the course of, each."""
        ...


METHODS: dict[str, type[AdaGrad] | type[LeastSquares]] = {"adagrad": AdaGrad, "als": LeastSquares}


class GloVe:
    """Minimises J = Σ f(x_ij) (log x_ij - w_i·u_j - b_i - c_j - μ)² over the entries x_ij > 0 of a matrix of
    co-occurrences, f(x) = min(1, (x / x_max)^alpha), so that what never occurs together counts nothing. For
    corpora of billions of words the paper's `x_max` is 100, for those of millions less is better.

    `transform` "log1p" has log(1 + x) for log x. `method` is "adagrad" or "als", or an `AdaGrad` or
    `LeastSquares` of other rates. `mean` learns μ, which the paper does not have: without it, the default, J
    is the paper's (its program prints half the mean over the entries). Numbers have the dtype of the matrix.
    The same `seed` gives the same numbers with any number of threads, though not with and without Numba.
    After `fit`, `parameters` holds all that was learnt, and `vectors(words)` the word vectors, W + U.

        matrix, words = cooccurrence(open("text.txt"), window=10, min_count=5)
        glove = GloVe(dim=100)
        glove.fit(matrix)
        glove.vectors(words).neighbours("king")
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
        """J of each epoch: of AdaGrad summed up while it learns, of least squares, with their λ-terms, after.

        It ends after `epochs`, by default the method's own number, or with the first epoch after `minutes`.
        ValueError for what is no square matrix of finite numbers, none below 0 and some above;
        FloatingPointError where J is no longer finite.
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
        """What is to be solved for a matrix; ValueError as of `fit`."""
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
        """J of what `fit` has learnt, without λ-terms."""
        return self.problem(matrix).objective(self._learnt())

    def vectors(self, words: Sequence[str]) -> WordVectors:
        """W + U, of the words that `cooccurrence` has returned with the matrix."""
        learnt = self._learnt()
        return WordVectors(words, (learnt.words + learnt.contexts)[:, :-1])

    def _learnt(self) -> Parameters:
        if self.parameters is None:
            raise ValueError("GloVe has no vectors yet; call `fit` first.")
        return self.parameters
