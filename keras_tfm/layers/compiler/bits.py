"""Random bits for dropout, computed by hashing an index and a seed; XLA fuses them with what they mask.

A general random generator would take a sixth of the time of a Transformer's training step on a CPU.
"""

import numpy as np
from keras import ops


def keeps(shape, rate, seed):
    """Which values of a tensor of this `shape` dropout at `rate` keeps; `seed` holds two integers (2,)."""
    return uniform_bits(shape, seed) >= round(rate * 2**24)


def fold_in(seed, index):
    """A new seed (2,) from `seed` (2,) and a number, `index`, for draws that are made one after another."""
    seed = ops.cast(seed, "uint32")
    return ops.stack([seed[0], _hash(_hash(ops.cast(index, "uint32")) + seed[1])])


def uniform_bits(shape, seed):
    """Independent uniform integers in [0, 2^24) of this `shape`, int32; `seed` holds two integers (2,).

    Each is its index hashed twice, once with each integer of the seed. The hash "lowbias32" is a bijection
    of 32-bit words with nearly the lowest possible bias (Wellons, "Hash Function Prospector", 2018).
    """
    seed = ops.cast(seed, "uint32")
    size = 1
    for length in shape:
        size = size * length
    x = ops.cast(ops.arange(size, dtype="int32"), "uint32")
    x = _hash(_hash(ops.bitwise_xor(x, seed[0])) + seed[1])
    return ops.reshape(ops.cast(ops.right_shift(x, _word(8)), "int32"), shape)


def bits_of_rows(width, first, second):
    """Integers as of `uniform_bits`, (R, `width`): row r by the seed (`first`[r], `second`[r]) alone."""
    first, second = (ops.cast(seed, "uint32")[:, None] for seed in (first, second))
    x = ops.cast(ops.arange(width, dtype="int32"), "uint32")[None]
    x = _hash(_hash(ops.bitwise_xor(x, first)) + second)
    return ops.cast(ops.right_shift(x, _word(8)), "int32")


def gumbel_noise(bits):
    """-log(-log u) in float32, for u in (0, 1) by `bits`, integers in [0, 2^24)."""
    uniform = (ops.cast(bits, "float32") + 1.0) * np.float32(1 / (2**24 + 1))
    return -ops.log(-ops.log(uniform))


def _hash(x):
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ops.bitwise_xor(x, ops.right_shift(x, _word(shift))) * _word(factor)
    return ops.bitwise_xor(x, ops.right_shift(x, _word(16)))


def _word(value):
    return ops.convert_to_tensor(value, "uint32")
