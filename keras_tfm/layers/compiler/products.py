"""Matrix products that compile quickly and are fast for a few rows, as decoding needs them; their bias.

XLA on CPUs uses a single core for one row, gains hardly anything from a second core for several rows, and
reads a transposed table slowly: `multiply` and `multiply_transposed` compute such products in another order.
"""

import functools
import math

import keras
import tensorflow as tf
from keras import ops

from keras_tfm.jit import is_cpu_alone

FEW_ROWS = 32
LARGE = 1 << 18  # weights of a kernel; smaller kernels stay in the processor's cache
PART = 48  # most kernel rows in a part: about the fastest of 12 to 192, for 1 to 8 rows of x
LEAST_PART = 16
# For up to so many rows XLA on CPUs takes 3 to 10 times as long for x tableᵀ as for (table xᵀ)ᵀ.
FEW_ROWS_OF_TABLE = 128
PARTS_OF_TABLE = 64


def multiply(x, kernel):
    """x (..., D) times kernel (D, F): (..., F).

    For a few rows and a large kernel it is a sum of products of parts of both, each so small that XLA on
    CPUs leaves it to one core, and every core has some: on two cores 4 to 32 rows take two thirds to four
    fifths of the time, and one row two thirds. The sum is a product too, for XLA's reduction of the parts
    runs on a single core.
    """
    *rows, depth = x.shape
    width = kernel.shape[1]
    count = FEW_ROWS + 1 if None in rows else math.prod(rows)
    size = largest_divisor(depth, PART)
    if count > FEW_ROWS or size < LEAST_PART or depth * width < LARGE or not is_cpu_alone():
        return flat_product(x, kernel)
    parts = depth // size
    x = ops.transpose(ops.reshape(x, (count, parts, size)), (1, 0, 2))  # (P, rows, D/P)
    y = ops.matmul(x, ops.reshape(kernel, (parts, size, width)))  # (P, rows, F)
    y = ops.matmul(ops.ones((1, parts), y.dtype), ops.reshape(y, (parts, count * width)))  # (1, rows F)
    return ops.reshape(y, (*rows, width))  # (..., F)


def multiply_transposed(x, table):
    """x (..., D) times the transpose of table (V, D): (..., V)."""
    *rows, depth = x.shape
    size = table.shape[0]
    if isinstance(x, keras.KerasTensor) or None in rows or math.prod(rows) > FEW_ROWS_OF_TABLE:
        return flat_product(x, table, transpose=True)
    x = ops.transpose(ops.reshape(x, (-1, depth)))  # (D, rows)
    if math.prod(rows) == 1 and size * depth >= LARGE and is_cpu_alone():  # parts again, some for each core
        parts = largest_divisor(size, PARTS_OF_TABLE)
        table = ops.reshape(table, (parts, size // parts, depth))  # (P, V/P, D)
        x = ops.broadcast_to(x, (parts, depth, 1))
    y = ops.matmul(table, x)  # (V, rows) or (P, V/P, 1)
    return ops.reshape(ops.transpose(y) if y.ndim == 2 else y, (*rows, size))  # (..., V)


def flat_product(x, kernel, transpose=False):
    """x (..., D) times kernel (D, F), or the transpose of kernel (F, D): (..., F).

    Where sizes of x are not known before, Keras's `matmul` makes several times as many operations, and XLA
    compiles each of them for each shape of a batch. A separate transpose of the kernel would be repeated in
    the gradient.
    """
    if isinstance(x, keras.KerasTensor) or len(x.shape) == 2:
        return product(x, kernel, transpose)
    x = ops.convert_to_tensor(x)
    with tf.name_scope("flat_product"):  # by which exports know it
        x_rows = tf.reshape(x, (-1, x.shape[-1]))  # (rows, D)
        y = tf.matmul(x_rows, ops.convert_to_tensor(kernel), transpose_b=transpose)  # (rows, F)
        return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [y.shape[-1]]], axis=0))  # (..., F)


def product(x, y, transpose=False):
    """x (..., T, K) times y (..., K, S), or the transpose of y (..., S, K): (..., T, S).

    XLA takes 5 ms to compile an `einsum`, and hardly any time for a product.
    """
    if isinstance(x, keras.KerasTensor) or isinstance(y, keras.KerasTensor):
        return ops.matmul(x, ops.swapaxes(y, -2, -1) if transpose else y)
    return tf.matmul(ops.convert_to_tensor(x), ops.convert_to_tensor(y), transpose_b=transpose)


@functools.cache
def largest_divisor(number, most):
    """The largest divisor of `number` that is at most `most`."""
    return next(size for size in range(min(number, most), 0, -1) if number % size == 0)


def add_bias(y, bias):
    """y (..., F) plus bias (F,), whose gradient takes TensorFlow a third to a half of a plain sum's time."""
    return tf.nn.bias_add(y, ops.convert_to_tensor(bias))
