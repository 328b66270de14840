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
from keras_tfm.layers.compiler.gradients import custom_gradient

FEW_ROWS = 32
LARGE = 1 << 18  # weights of a kernel; smaller kernels stay in the processor's cache
PART = 48  # most kernel rows in a part: about the fastest of 12 to 192, for 1 to 8 rows of x
LEAST_PART = 16
# For up to so many rows XLA on CPUs takes 3 to 10 times as long for x tableᵀ as for (table xᵀ)ᵀ.
FEW_ROWS_OF_TABLE = 128
PARTS_OF_TABLE = 64
LEAST_WEIGHTS = 1 << 14  # of a head, from which on the orientation of a product counts


def multiply(x, kernel, bias=None):
    """x (..., D) times kernel (D, F), plus bias (F,): (..., F).

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
        y = flat_product(x, kernel)
    else:
        parts = depth // size
        x = ops.transpose(ops.reshape(x, (count, parts, size)), (1, 0, 2))  # (P, rows, D/P)
        y = ops.matmul(x, ops.reshape(kernel, (parts, size, width)))  # (P, rows, F)
        y = ops.matmul(ops.ones((1, parts), y.dtype), ops.reshape(y, (parts, count * width)))  # (1, rows F)
        y = ops.reshape(y, (*rows, width))  # (..., F)
    # The gradient of `BiasAdd` takes TensorFlow a third to a half of a plain sum's time.
    return y if bias is None else tf.raw_ops.BiasAdd(value=y, bias=tf.convert_to_tensor(bias))


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
    the gradient. Without a graph, `tf.raw_ops` call a third of the Python functions of their wrappers.
    """
    if isinstance(x, keras.KerasTensor):
        return ops.matmul(x, ops.transpose(kernel) if transpose else kernel)
    x, kernel = tf.convert_to_tensor(x), tf.convert_to_tensor(kernel)
    *sizes, depth = x.shape.as_list()
    if len(sizes) == 1:
        return tf.raw_ops.MatMul(a=x, b=kernel, transpose_b=transpose)
    with tf.name_scope("flat_product"):  # by which exports know it
        rows = tf.reshape(x, (-1, depth))
        y = tf.raw_ops.MatMul(a=rows, b=kernel, transpose_b=transpose)  # (rows, F)
        if None not in sizes:
            return tf.reshape(y, (*sizes, y.shape[-1]))  # (..., F)
        return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [y.shape[-1]]], axis=0))  # (..., F)


def product(x, y, transpose=False, heads_per_key=1):
    """x (B, H, T, K) times y (B, G, K, S), or the transpose of y (B, G, S, K): (B, H, T, S).

    G is H / `heads_per_key`. y may also have heads folded into the batch axis, (B G, ...), as `KeyValueCache`
    stores them; both may be without heads, (B, T, K) and (B, K, S). XLA takes 5 ms to compile an `einsum`,
    and hardly any time for a product.
    """
    if heads_per_key > 1 or len(x.shape) != len(y.shape):
        *rows, length, width = ops.shape(x)
        sizes = ops.shape(y)[:-2]  # (B, G) or (B G,): with T = 0 a reshape could not infer them
        sizes = (rows[0], *sizes[1:]) if len(y.shape) == len(x.shape) else sizes  # y may be for all rows
        # Heads that share a key stand one after the other, so their queries are more rows of one product.
        x = ops.reshape(x, (*sizes, heads_per_key * length, width))  # (B G, H/G T, K), (B, G, H/G T, K)
        y = product(x, y, transpose)
        return ops.reshape(y, (*rows, length, ops.shape(y)[-1]))  # (B, H, T, S)
    if isinstance(x, keras.KerasTensor) or isinstance(y, keras.KerasTensor):
        return ops.matmul(x, ops.swapaxes(y, -2, -1) if transpose else y)
    x, y = ops.convert_to_tensor(x), ops.convert_to_tensor(y)
    weights = (x.shape[-2], y.shape[-2]) if transpose else x.shape[-2:]
    is_plain = None in weights or math.prod(weights) < LEAST_WEIGHTS or x.dtype != tf.float32
    if is_plain or x.shape[:-2] != y.shape[:-2] or not _is_large(x.shape, weights):
        return tf.matmul(x, y, transpose_b=transpose)
    return _product(transpose)(x, y)


@functools.cache
def _product(transpose):
    """`product` of tensors with as many heads, whose gradient by y is a `transposed_product`."""

    @custom_gradient
    def multiply(x, y):
        def gradient(upstream):
            of_x = tf.matmul(upstream, y, transpose_b=not transpose)
            return of_x, transposed_product(*((upstream, x) if transpose else (x, upstream)))

        return tf.matmul(x, y, transpose_b=transpose), gradient

    return multiply


def transposed_product(x, y):
    """The transpose of x (B, H, T, S) times y (B, H, T, K), which is narrower: (B, H, S, K).

    On CPUs XLA takes two to four times as long for it as for yᵀ x where S is a large power of two, for which
    the numbers of a column of x share few places of the cache. It is computed as the transpose of that; a
    transpose alone XLA would undo, therefore heads and K are one axis in between.
    """
    if not _is_large(x.shape, x.shape[-2:]) or None in y.shape[1:]:
        return tf.matmul(x, y, transpose_a=True)
    heads, length, width = x.shape[1], x.shape[3], y.shape[3]
    z = tf.reshape(tf.matmul(y, x, transpose_a=True), (-1, heads * width, length))  # (B, H K, S)
    z = tf.reshape(tf.transpose(z, (0, 2, 1)), (-1, length, heads, width))  # (B, S, H, K)
    return tf.transpose(z, (0, 2, 1, 3))  # (B, H, S, K)


def _is_large(shape, weights):
    """Whether `transposed_product` takes another way for (T, S) `weights` of heads in this `shape`."""
    is_known = len(shape) == 4 and None not in (shape[1], *weights)
    return is_known and math.prod(weights) >= LEAST_WEIGHTS and is_cpu_alone()


@functools.cache
def largest_divisor(number, most):
    """The largest divisor of `number` that is at most `most`."""
    return next(size for size in range(min(number, most), 0, -1) if number % size == 0)


def split(x, sizes):
    """The last axis of `x`, cut into parts of these `sizes`; Keras's `split` needs seven more operations."""
    return tf.split(ops.convert_to_tensor(x), sizes, axis=-1) if len(sizes) > 1 else [x]
