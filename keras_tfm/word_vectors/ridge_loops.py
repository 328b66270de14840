"""The loops of `ridge`, for Numba: each takes rows from `first` to `last`, so that threads share them."""

import numpy as np

Array = np.ndarray


def solve_rows(
    first: int,
    last: int,
    offsets: Array,
    columns: Array,
    targets: Array,
    features: Array,
    regularization: float,
    rows: Array,
) -> None:
    """`rows[first:last]` of `ridge.solve_rows`, each by its normal equations and Cholesky's factorisation."""
    dim = features.shape[1]
    matrix = np.empty((dim, dim), features.dtype)  # its lower triangle
    none = 0 * regularization  # a zero of the dtype
    for row in range(first, last):
        begin, end = offsets[row], offsets[row + 1]
        if begin == end:
            continue
        solution = rows[row]
        solution[:] = 0
        matrix[:] = 0
        for a in range(dim):
            matrix[a, a] = regularization
        # Four entries at a time, so that the matrix is read and written a quarter as often.
        tail = end - (end - begin) % 4
        for entry in range(begin, tail, 4):
            u0, t0 = features[columns[entry]], targets[entry]
            u1, t1 = features[columns[entry + 1]], targets[entry + 1]
            u2, t2 = features[columns[entry + 2]], targets[entry + 2]
            u3, t3 = features[columns[entry + 3]], targets[entry + 3]
            for a in range(dim):
                x0, x1, x2, x3 = u0[a], u1[a], u2[a], u3[a]
                solution[a] += t0 * x0 + t1 * x1 + t2 * x2 + t3 * x3
                for b in range(a + 1):
                    matrix[a, b] += x0 * u0[b] + x1 * u1[b] + x2 * u2[b] + x3 * u3[b]
        for entry in range(tail, end):
            u0, t0 = features[columns[entry]], targets[entry]
            for a in range(dim):
                x0 = u0[a]
                solution[a] += t0 * x0
                for b in range(a + 1):
                    matrix[a, b] += x0 * u0[b]
        # The lower triangle becomes its Cholesky factor L; then L x = right, and L^T x.
        for a in range(dim):
            for b in range(a):
                product = none
                for k in range(b):
                    product += matrix[a, k] * matrix[b, k]
                matrix[a, b] = (matrix[a, b] - product) / matrix[b, b]
            square, product = none, none
            for k in range(a):
                square += matrix[a, k] * matrix[a, k]
                product += matrix[a, k] * solution[k]
            matrix[a, a] = np.sqrt(matrix[a, a] - square)
            solution[a] = (solution[a] - product) / matrix[a, a]
        for a in range(dim - 1, -1, -1):
            solution[a] /= matrix[a, a]
            for k in range(a):
                solution[k] -= matrix[a, k] * solution[a]


def inner_products(
    first: int, last: int, offsets: Array, columns: Array, rows: Array, features: Array, products: Array
) -> None:
    """`products` of `ridge.inner_products` at the entries of the rows from `first` to `last`."""
    for row in range(first, last):
        one = rows[row]
        for entry in range(offsets[row], offsets[row + 1]):
            other = features[columns[entry]]
            total = one[0] * other[0]
            for k in range(1, len(one)):
                total += one[k] * other[k]
            products[entry] = total
