"""Many small ridge regressions at once, the half-steps of alternating least squares.

Numba compiles the loops, and threads share the rows; without it LAPACK solves rows of one length together.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from keras_tfm.word_vectors import compiled, ridge_loops

FAST = {"fastmath": True, "error_model": "numpy"}  # sums in any order, no checks for divisions by 0
CHUNKS = 16  # of rows for each thread, so that all end at about the same time
MIN_WORK = 1 << 12  # entries of a chunk; for fewer a thread is not worth its start
MAX_NUMBERS = 1 << 22  # that NumPy gathers at once, 16 MiB of float32


def solve_rows(
    offsets: np.ndarray, columns: np.ndarray, targets: np.ndarray, features: np.ndarray, regularization: float
) -> np.ndarray:
    """Solves a ridge regression for each row of a sparse matrix in CSR's layout: (rows, K), zeros for a row
    without entries.

    Row i is (regularization I + sum_j u_j u_j^T)^-1 sum_j t_ij u_j over its entries, the `columns` j and the
    `targets` t_ij from `offsets[i]` to `offsets[i + 1]`, where u_j are rows of `features` (D, K).
    """
    rows = np.zeros((len(offsets) - 1, features.shape[1]), features.dtype)
    if loop := compiled.compiled(ridge_loops.solve_rows, **FAST):
        share(loop, offsets, columns, targets, features, features.dtype.type(regularization), rows)
    else:
        _solve_by_length(offsets, columns, targets, features, regularization, rows)
    return rows


def inner_products(
    offsets: np.ndarray, columns: np.ndarray, rows: np.ndarray, features: np.ndarray
) -> np.ndarray:
    """The products w_i^T u_j of `rows` and `features` at the entries of a sparse matrix: (entries,)."""
    products = np.empty(len(columns), features.dtype)
    if loop := compiled.compiled(ridge_loops.inner_products, **FAST):
        share(loop, offsets, columns, rows, features, products)
        return products
    step = max(1, MAX_NUMBERS // features.shape[1])
    numbers = np.repeat(np.arange(len(rows)), np.diff(offsets))
    for first in range(0, len(columns), step):
        part = slice(first, first + step)
        np.einsum("nk,nk->n", rows[numbers[part]], features[columns[part]], out=products[part])
    return products


def share(loop: Callable[..., None], offsets: np.ndarray, *arrays: object) -> None:
    """Call `loop(first, last, offsets, *arrays)` on parts of the rows, of about as many entries each."""
    num_threads = compiled.num_threads()
    # A row costs as much as some entries: many rows without any are shared out, too.
    work = offsets + np.arange(len(offsets))
    num_parts = min(num_threads * CHUNKS, 1 + int(work[-1]) // MIN_WORK)
    if num_parts == 1:
        return loop(0, len(offsets) - 1, offsets, *arrays)
    bounds = np.searchsorted(work, np.linspace(0, work[-1], num_parts + 1))
    bounds[0], bounds[-1] = 0, len(offsets) - 1
    bounds = np.unique(bounds)
    with ThreadPoolExecutor(num_threads) as pool:
        parts = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        for done in [pool.submit(loop, first, last, offsets, *arrays) for first, last in parts]:
            done.result()


def _solve_by_length(
    offsets: np.ndarray,
    columns: np.ndarray,
    targets: np.ndarray,
    features: np.ndarray,
    regularization: float,
    rows: np.ndarray,
) -> None:
    """As `solve_rows`: rows with equally many entries make arrays, whose systems LAPACK solves together."""
    dim = features.shape[1]
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    ridge = np.asarray(regularization * np.eye(dim), features.dtype)
    for length, first, count in zip(
        *np.unique(lengths[order], return_index=True, return_counts=True), strict=True
    ):
        if not length:
            continue
        step = max(1, MAX_NUMBERS // int(max(length, dim) * dim))
        for begin in range(first, first + count, step):
            chosen = order[begin : min(begin + step, first + count)]
            entries = offsets[chosen, None] + np.arange(length)  # (B, n)
            found = features[columns[entries]]  # (B, n, K)
            transposed = found.swapaxes(1, 2)  # (B, K, n)
            sums = transposed @ targets[entries][..., None]  # (B, K, 1)
            try:
                rows[chosen] = np.linalg.solve(transposed @ found + ridge, sums)[..., 0]
            except np.linalg.LinAlgError:  # one of the systems is singular
                rows[chosen] = np.nan
