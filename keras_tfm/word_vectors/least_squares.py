"""GloVe by alternating least squares: with one side fixed, the other side's rows are independent problems.

It minimises J + λ (‖W‖² + ‖U‖² + ‖b‖² + ‖c‖²). Without λ, a word with fewer entries than dimensions has no
unique vector. A word's vector and its bias are solved for together, which takes fewer sweeps than one after
the other. Each half of a sweep ends at its minimum, so J never rises.
"""

from collections.abc import Iterator

import numpy as np

from keras_tfm.word_vectors.objective import Parameters, Problem
from keras_tfm.word_vectors.ridge import solve_rows


class LeastSquares:
    """Alternating least squares: (λI + Σ_j f u u^T) w_i = Σ_j f (log x_ij - c_j - μ) u for all words i.

    Here u = [u_j 1] and w_i = [w_i b_i]. The same is then solved for all u_j, and so on. If μ is learnt, it
    is set to its optimum after each sweep.

    Args:
        regularization: λ. With a small one the vectors of rare words fit their few counts exactly.

    >>> method = keras_tfm.word_vectors.LeastSquares(regularization=0.5)
    >>> keras_tfm.word_vectors.GloVe(dim=50, method=method).method.regularization
    0.5
    """

    epochs = 4

    def __init__(self, regularization: float = 1.0):
        if not (regularization > 0 and np.isfinite(regularization)):
            raise ValueError(f"`regularization` must be a number above 0; it is {regularization}.")
        self.regularization = regularization

    def steps(
        self, problem: Problem, parameters: Parameters, learn_mean: bool, random: np.random.Generator
    ) -> Iterator[float]:
        """Yield J with its λ terms after each sweep."""
        for number, cost in enumerate(self.half_steps(problem, parameters, learn_mean)):
            if number % 2:
                yield cost

    def half_steps(self, problem: Problem, parameters: Parameters, learn_mean: bool) -> Iterator[float]:
        """Yield J with its λ terms after W and b are solved, then after U and c (and μ), and so on."""
        transposed = problem.transposed()
        total = float(problem.weights.sum(dtype=np.float64))
        while True:
            yield self._solve(problem, parameters.mean, parameters.words, parameters.contexts)
            cost = self._solve(transposed, parameters.mean, parameters.contexts, parameters.words)
            if learn_mean:
                # At the optimum of c, Σ_i f r = λ c_j: the sum of f r follows without the entries.
                slope = self.regularization * float(parameters.contexts[:, -1].sum(dtype=np.float64))
                parameters.mean += slope / total
                cost -= slope**2 / total
            yield cost

    def _solve(self, problem: Problem, mean: float, solved: np.ndarray, fixed: np.ndarray) -> float:
        """Set the rows `solved` to their optima; return J with its λ terms."""
        features = np.column_stack([fixed[:, :-1], np.ones(len(fixed), fixed.dtype)])
        targets = problem.targets - (fixed[:, -1] + fixed.dtype.type(mean))[problem.columns]
        solved[:], cost = solve_rows(
            problem.starts, problem.columns, targets, features, self.regularization, problem.weights
        )
        return cost + self.regularization * float(np.sum(fixed.astype(np.float64) ** 2))
