"""Matrix products that are fast for a few rows, as decoding one token at a time needs them; their bias.

For one row XLA on CPUs runs a product on a single core, and it reads a transposed table slowly. Both
functions compute a plain product in another order.
"""

import math

import keras
import tensorflow as tf
from keras import ops

# For up to so many rows XLA on CPUs takes 3 to 10 times as long for x tableᵀ as for (table xᵀ)ᵀ.
FEW_ROWS_OF_TABLE = 128
FEW_ROWS = 8
LARGE = 1 << 18  # weights of a kernel; smaller kernels stay in the processor's cache


def multiply(x, kernel):
    """x (..., D) times kernel (D, F): (..., F).

    For a few rows and a large kernel it is a sum of products of parts of both. XLA on CPUs then has every
    core read weights, which is up to 1.5 times as fast as one product on one core. For several rows and a
    square kernel there is no gain, and the plain product is used.
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
    if isinstance(x, keras.KerasTensor):
        return ops.matmul(x, ops.transpose(table))
    if None in rows or math.prod(rows) > FEW_ROWS_OF_TABLE:
        # Without a transposition of the table, which TensorFlow would also compute in the gradient.
        y = tf.matmul(ops.reshape(x, (-1, depth)), ops.convert_to_tensor(table), transpose_b=True)
        return ops.reshape(y, (*ops.shape(x)[:-1], table.shape[0]))  # (..., V)
    y = ops.matmul(table, ops.transpose(ops.reshape(x, (-1, depth))))  # (V, rows)
    return ops.reshape(ops.transpose(y), (*rows, table.shape[0]))  # (..., V)


def add_bias(y, bias):
    """y (..., F) plus bias (F,), whose gradient takes TensorFlow a third to a half of a plain sum's time."""
    return tf.nn.bias_add(y, ops.convert_to_tensor(bias))
