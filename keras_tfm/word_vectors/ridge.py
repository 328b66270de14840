"""Many small ridge regressions at once, the half-steps of alternating least squares.

Numba compiles the loops, and threads share the rows; without it NumPy makes the systems of rows
of one length together, and LAPACK solves them.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.linalg import blas, lapack

from keras_tfm.word_vectors import compiled

FAST = {"fastmath": True, "error_model": "numpy"}  # sums in any order, no checks for divisions by 0
LANES = 32  # rows are padded to a multiple of this, since the rest of a vectorised loop is slow
BLOCK = 1 << 14  # entries that one thread takes at a time
MAX_NUMBERS = 1 << 22  # that NumPy gathers at once, 16 MiB of float32


def solve_rows(
    offsets: np.ndarray,
    columns: np.ndarray,
    targets: np.ndarray,
    features: np.ndarray,
    regularization: float,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    """Solves a ridge regression for each row of a sparse matrix in CSR's layout: (rows, K), zeros for a row
    without entries, and the sum of all minima.

    Row i minimises regularization w_i^T w_i + sum_j f_ij (t_ij - w_i^T u_j)^2 over its entries, the `columns`
    j, the `targets` t_ij and the `weights` f_ij, by default 1, from `offsets[i]` to `offsets[i + 1]`, where
    u_j are rows of `features` (D, K).
    """
    weights = np.ones_like(targets) if weights is None else weights
    size, ridge = features.shape[1], features.dtype.type(regularization)
    rows = np.zeros((len(offsets) - 1, size), features.dtype)
    if loop := compiled.compiled(_solve_loop, **FAST):
        factors = np.zeros((len(features), (size // LANES + 1) * LANES), features.dtype)
        factors[:, :size] = features
        return rows, _share(loop, offsets, columns, weights, targets, factors, ridge, rows)
    return rows, _solve_by_length(offsets, columns, weights, targets, features, ridge, rows)


def inner_products(
    offsets: np.ndarray, columns: np.ndarray, rows: np.ndarray, features: np.ndarray
) -> np.ndarray:
    """The products w_i^T u_j of `rows` and `features` at the entries of a sparse matrix: (entries,)."""
    products = np.empty(len(columns), features.dtype)
    if loop := compiled.compiled(_products_loop, **FAST):
        _share(loop, offsets, columns, rows, features, products)
        return products
    step = max(1, MAX_NUMBERS // features.shape[1])
    numbers = np.repeat(np.arange(len(rows)), np.diff(offsets))
    for first in range(0, len(columns), step):
        part = slice(first, first + step)
        np.einsum("nk,nk->n", rows[numbers[part]], features[columns[part]], out=products[part])
    return products


def _share(loop: Callable[..., float], offsets: np.ndarray, *arrays: object) -> float:
    """The sum of `loop(begin, end, offsets, *arrays)` over ranges of rows, of about as many entries each."""
    # A row costs as much as some entries: many rows without any are shared out, too.
    ranges = list(compiled.ranges(offsets + np.arange(len(offsets)), BLOCK))
    if len(ranges) == 1:  # a thread is not worth its start
        return loop(*ranges[0], offsets, *arrays)
    with ThreadPoolExecutor(compiled.num_threads()) as pool:
        return sum(pool.map(lambda pair: loop(*pair, offsets, *arrays), ranges))


def _solve_by_length(
    offsets: np.ndarray,
    columns: np.ndarray,
    weights: np.ndarray,
    targets: np.ndarray,
    features: np.ndarray,
    ridge: np.floating,
    rows: np.ndarray,
) -> float:
    """Solve rows with equally many entries together; return the sum of all minima."""
    is_single = features.dtype == np.float32
    square, solve = (blas.ssyrk, lapack.sposv) if is_single else (blas.dsyrk, lapack.dposv)
    dim, cost = features.shape[1], 0.0
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    for length, first, count in zip(
        *np.unique(lengths[order], return_index=True, return_counts=True), strict=True
    ):
        if not length:
            continue
        step = max(1, MAX_NUMBERS // int(max(length, dim) * dim))
        for begin in range(first, first + count, step):
            chosen = order[begin : min(begin + step, first + count)]
            entries = offsets[chosen, None] + np.arange(length)  # (B, n)
            roots = np.sqrt(weights[entries])[..., None]  # (B, n, 1)
            factors, target = features[columns[entries]] * roots, targets[entries][..., None] * roots
            sums = (factors.swapaxes(1, 2) @ target)[..., 0]  # (B, K)
            for row, factor, right in zip(chosen, factors, sums, strict=True):
                system = square(1, factor.T, lower=1)  # only the lower half is set
                system.flat[:: dim + 1] += ridge
                _, solution, problem = solve(system, right, lower=1, overwrite_a=1)
                rows[row] = solution if problem == 0 else np.nan  # of a singular system
            cost += np.sum(target**2, dtype="f8") - np.sum(sums * rows[chosen], dtype="f8")
    return float(cost)


def _solve_loop(
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
    """Solve the rows `begin` to `end` by Cholesky, four entries at a time; return the sum of their minima.

    `factors` are padded by zeros to a multiple of LANES, at least by one column. The innermost loops run over
    views that start at 0: Numba does not vectorise a loop whose index might be negative.
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


def _products_loop(
    begin: int,
    end: int,
    offsets: np.ndarray,
    columns: np.ndarray,
    rows: np.ndarray,
    features: np.ndarray,
    products: np.ndarray,
) -> float:
    """The `products` at the entries of the rows `begin` to `end`."""
    for row in range(begin, end):
        one = rows[row]
        for entry in range(offsets[row], offsets[row + 1]):
            other = features[columns[entry]]
            total = one[0] * other[0]
            for k in range(1, len(one)):
                total += one[k] * other[k]
            products[entry] = total
    return 0.0  # what `_share` adds up
