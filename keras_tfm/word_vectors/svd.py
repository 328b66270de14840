"""The truncated singular value decomposition, the best approximation of a matrix by one of a given rank."""

import dataclasses
import math
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg


@dataclasses.dataclass(frozen=True)
class TruncatedSVD:
    """The decomposition W S V^T of rank K.

    `left`, W (N, K), and `right`, V (D, K), have orthonormal columns; `singular_values`, the diagonal of S,
    are in falling order. `error` is the Frobenius norm of the difference from the matrix: the square root of
    the sum of the squares of the omitted singular values.

    >>> svd = keras_tfm.word_vectors.truncated_svd(np.array([[3.0, 0.0], [0.0, 2.0]]), dim=1)
    >>> left, right = svd.factors()
    >>> (left @ right.T).round(6)
    array([[3., 0.],
           [0., 0.]])
    """

    left: np.ndarray
    singular_values: np.ndarray
    right: np.ndarray
    error: float

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        """W (N, K) and U = V S (D, K), whose product W U^T approximates the matrix."""
        return self.left, self.right * self.singular_values


def truncated_svd(matrix: Any, dim: int, seed: int = 0) -> TruncatedSVD:
    """The `dim` largest singular values of `matrix` and their vectors.

    No matrix of this rank is closer in the Frobenius norm (Eckart and Young 1936). The signs make the entry
    of each column of `left` with the largest absolute value positive.

    Args:
        matrix: (N, D), an array or a sparse matrix. A sparse one stays sparse (ARPACK) if `dim` is less than
            a quarter of its shorter side; otherwise LAPACK decomposes it as a dense one.
        dim: K, from 1 to min(N, D).
        seed: draws the vector from which ARPACK starts.

    Raises:
        ValueError: for a `dim` out of range, or numbers that are not finite.

    >>> svd = keras_tfm.word_vectors.truncated_svd(np.array([[3.0, 0.0], [0.0, 2.0]]), dim=1)
    >>> float(svd.singular_values[0]), svd.error
    (3.0, 2.0)
    """
    is_sparse = scipy.sparse.issparse(matrix)
    matrix = scipy.sparse.csr_array(matrix, dtype="f8") if is_sparse else np.asarray(matrix, "f8")
    if matrix.ndim != 2 or not 1 <= dim <= min(matrix.shape):
        raise ValueError(f"`dim` must lie between 1 and the sides of a matrix, {matrix.shape}; it is {dim}.")
    numbers = matrix.data if is_sparse else matrix
    if not np.isfinite(numbers).all():
        raise ValueError("`matrix` must be finite.")
    if is_sparse and 4 * dim < min(matrix.shape):
        start = np.random.default_rng(seed).normal(size=min(matrix.shape))
        left, values, right = scipy.sparse.linalg.svds(matrix, dim, v0=start)
        order = np.argsort(-values)
        left, values, right = left[:, order], values[order], right[order]
        total = float(np.square(numbers).sum())
        error = math.sqrt(max(0.0, total - float(np.square(values).sum())))
    else:
        dense = matrix.toarray() if is_sparse else matrix
        left, values, right = scipy.linalg.svd(dense, full_matrices=False)
        error = float(np.linalg.norm(values[dim:]))
        left, values, right = left[:, :dim], values[:dim], right[:dim]
    largest = np.take_along_axis(left, np.abs(left).argmax(0)[None], 0)[0]
    signs = np.where(largest < 0, -1.0, 1.0)
    return TruncatedSVD(left * signs, values, right.T * signs, error)


def size_reduction(num_rows: int, num_columns: int, dim: int) -> float:
    """How many times fewer numbers two factors have than the matrix: N D / ((N + D) K).

    >>> round(keras_tfm.word_vectors.size_reduction(5_000_000, 500_000, dim=10), 1)  # users, books, factors
    45454.5
    """
    if min(num_rows, num_columns, dim) < 1:
        raise ValueError(f"Sizes must be at least 1; they are {num_rows}, {num_columns} and {dim}.")
    return num_rows * num_columns / ((num_rows + num_columns) * dim)
