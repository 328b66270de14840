"""Products that are fast for the few rows of decoding too.

XLA's CPU compiler runs one row times a matrix on one core, and reads a transposed table badly. Neither is a
matter of mathematics: both functions are a plain product by another way.
"""

import math

from keras import ops

# XLA's CPU compiler takes 3 to 10 times as long for so few rows times a transposed table as the other way.
FEW_ROWS_OF_TABLE = 128
FEW_ROWS = 8
LARGE = 1 << 18  # weights; smaller kernels stay in the cache


def multiply(x, kernel):
    """x (..., D) times kernel (D, F): (..., F).

    Of few rows and a large kernel it is the sum of the products of parts of both: XLA's CPU compiler keeps
    every core reading weights in those, up to 1.5 times as fast, where one row times a matrix, and a bias
    added, would run on one core. Several rows gain nothing where it is square.
    """
    *rows, depth = x.shape
    width = kernel.shape[1]
    count = FEW_ROWS + 1 if None in rows else math.prod(rows)
    parts = 4 if count == 1 else 8 if width > depth else 16 if width < depth else 1
    if count > FEW_ROWS or parts == 1 or depth % parts or depth * width < LARGE:
        return ops.matmul(x, kernel)
    x = ops.transpose(ops.reshape(x, (count, parts, depth // parts)), (1, 0, 2))  # (P, rows, D/P)
    y = ops.matmul(x, ops.reshape(kernel, (parts, depth // parts, width)))  # (P, rows, F)
    return ops.reshape(ops.sum(y, axis=0), (*rows, width))  # (..., F)


def multiply_transposed(x, table):
    """x (..., D) times the transpose of table (V, D): (..., V)."""
    *rows, depth = x.shape
    if None in rows or math.prod(rows) > FEW_ROWS_OF_TABLE:
        return ops.matmul(x, ops.transpose(table))
    y = ops.matmul(table, ops.transpose(ops.reshape(x, (-1, depth))))  # (V, rows)
    return ops.reshape(ops.transpose(y), (*rows, table.shape[0]))  # (..., V)
