"""GloVe by alternating least squares: with one side fixed, the other side's rows are independent problems.

It minimises J + λ (‖W‖² + ‖U‖² + ‖b‖² + ‖c‖²). Without λ, a word with fewer entries than dimensions has no
unique vector. A word's vector and its bias are solved for together, which takes fewer sweeps than one after
the other. Each half of a sweep ends at its minimum, so J never rises.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from keras_tfm.word_vectors import compiled
from keras_tfm.word_vectors.compiled import num_threads, ranges
from keras_tfm.word_vectors.objective import Parameters, Problem

BLOCK = 50_000  # entries that one thread takes at a time
LANES = 32  # rows are padded to a multiple of this, since the rest of a vectorised loop is slow


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
        size = fixed.shape[1]
        factors = np.zeros((len(fixed), (size // LANES + 1) * LANES), fixed.dtype)
        factors[:, : size - 1] = fixed[:, :-1]
        factors[:, size - 1] = 1
        targets = problem.targets - (fixed[:, -1] + fixed.dtype.type(mean))[problem.columns]
        solve: Any = compiled.compiled(_solve_rows, fastmath=True, error_model="numpy") or _solve_by_lapack
        ridge = fixed.dtype.type(self.regularization)

        def solve_block(block: tuple[int, int]) -> float:
            arrays = (problem.starts, problem.columns, problem.weights, targets, factors)
            return solve(*block, *arrays, ridge, solved)

        # LAPACK has threads of its own.
        with ThreadPoolExecutor(1 if solve is _solve_by_lapack else num_threads()) as pool:
            cost = sum(pool.map(solve_block, ranges(problem.starts, BLOCK)))
        return cost + self.regularization * float(np.sum(fixed.astype(np.float64) ** 2))


def _solve_by_lapack(
    begin: int,
    end: int,
    starts: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
    targets: np.ndarray,
    factors: np.ndarray,
    ridge: np.floating,
    solved: np.ndarray,
) -> float:
    """Solve the rows `begin` to `end` by normal equations and Cholesky; return the sum of their minima."""
    multiply, solve = (
        (blas.ssyrk, lapack.sposv) if factors.dtype == np.float32 else (blas.dsyrk, lapack.dposv)
    )
    cost, size = 0.0, solved.shape[1]
    factors = factors[:, :size]
    for row in range(begin, end):
        entries = slice(starts[row], starts[row + 1])
        roots = np.sqrt(weights[entries])
        factor, target = factors[columns[entries]] * roots[:, None], targets[entries] * roots
        right = target @ factor
        if len(factor):
            left = multiply(1, factor.T, lower=1)  # only the lower half is set
        else:
            left = np.zeros((size, size), factors.dtype, order="F")
        left[np.arange(size), np.arange(size)] += ridge
        solved[row] = solve(left, right, lower=1, overwrite_a=1)[1]
        cost += float(target @ target) - float(right @ solved[row])
    return cost


def _solve_rows(
    begin: int,
    end: int,
    starts: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
    targets: np.ndarray,
    factors: np.ndarray,
    ridge: np.floating,
    solved: np.ndarray,
) -> float:
    """The same in loops for Numba, four entries at a time, without copies of rows.

    The innermost loops run over views that start at 0: Numba does not vectorise a loop whose index might be
    negative.
    """
    size, width = solved.shape[1], factors.shape[1]
    left = np.empty((size, width), factors.dtype)
    right = np.empty(size, factors.dtype)
    none, one = factors.dtype.type(0), factors.dtype.type(1)
    cost = 0.0
    for row in range(begin, end):
        left[:] = 0
        right[:] = 0
        for first in range(starts[row], starts[row + 1], 4):
            # The last group is filled up with its last entry, of weight 0.
            last = starts[row + 1] - 1
            k0, k1, k2, k3 = first, min(first + 1, last), min(first + 2, last), min(first + 3, last)
            u0, u1, u2, u3 = (
                factors[columns[k0]],
                factors[columns[k1]],
                factors[columns[k2]],
                factors[columns[k3]],
            )
            f0 = weights[k0]
            f1 = weights[k1] if k1 == first + 1 else none
            f2 = weights[k2] if k2 == first + 2 else none
            f3 = weights[k3] if k3 == first + 3 else none
            t0, t1, t2, t3 = f0 * targets[k0], f1 * targets[k1], f2 * targets[k2], f3 * targets[k3]
            cost += t0 * targets[k0] + t1 * targets[k1] + t2 * targets[k2] + t3 * targets[k3]
            for i in range(size):
                right[i] += t0 * u0[i] + t1 * u1[i] + t2 * u2[i] + t3 * u3[i]
            for lane in range(0, size, LANES):  # whole lanes to the right of the diagonal, left of it or not
                r0, r1, r2, r3 = u0[lane:], u1[lane:], u2[lane:], u3[lane:]
                for i in range(lane, min(lane + LANES, size)):
                    v0, v1, v2, v3 = f0 * u0[i], f1 * u1[i], f2 * u2[i], f3 * u3[i]
                    sums = left[i, lane:]
                    for j in range(len(sums)):
                        sums[j] += v0 * r0[j] + v1 * r1[j] + v2 * r2[j] + v3 * r3[j]
        # left = R^T R, in place; the column behind it, which begins as right, becomes R^-T right.
        left[:, size] = right
        for k in range(size):
            inverse = one / np.sqrt(left[k, k] + ridge)
            left[k, k] += ridge
            pivot = left[k, k // LANES * LANES :]
            for j in range(len(pivot)):
                pivot[j] *= inverse
            for lane in range(k // LANES * LANES, size, LANES):
                pivot = left[k, lane:]
                for i in range(max(lane, k + 1), min(lane + LANES, size)):
                    rest, scale = left[i, lane:], left[k, i]
                    for j in range(len(rest)):
                        rest[j] -= scale * pivot[j]
            cost -= left[k, size] * left[k, size]  # so much is the minimum below Σ f t²
        x = solved[row]
        for i in range(size - 1, -1, -1):  # R x = R^-T right
            product = none
            for j in range(i + 1, size):
                product += left[i, j] * x[j]
            x[i] = (left[i, size] - product) / left[i, i]
    return cost
