"""Random bits by hashing an index and a seed, which XLA fuses into what they mask.

A general generator would cost a Transformer's training step on a CPU a sixth of its time.
"""

from keras import ops


def keeps(shape, rate, seed):
    """Which values of `shape` a dropout at `rate` keeps, drawn from two seeds (2,)."""
    return uniform_bits(shape, seed) >= round(rate * 2**24)


def fold_in(seed, index):
    """Two seeds for the draws number `index` of those that `seed` (2,) stands for."""
    seed = ops.cast(seed, "uint32")
    return ops.stack([seed[0], _hash(_hash(ops.cast(index, "uint32")) + seed[1])])


def uniform_bits(shape, seed):
    """Independent uniform integers in [0, 2^24), int32, of `shape`, drawn from two seeds (2,).

    Each is its index hashed twice by "lowbias32", a bijection of 32-bit words with a bias near
    the least possible (Wellons, "Hash Function Prospector", 2018), once with each seed.
    """
    seed = ops.cast(seed, "uint32")
    size = 1
    for length in shape:
        size = size * length
    x = ops.cast(ops.arange(size, dtype="int32"), "uint32")
    x = _hash(_hash(ops.bitwise_xor(x, seed[0])) + seed[1])
    return ops.reshape(ops.cast(ops.right_shift(x, _word(8)), "int32"), shape)


def _hash(x):
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ops.bitwise_xor(x, ops.right_shift(x, _word(shift))) * _word(factor)
    return ops.bitwise_xor(x, ops.right_shift(x, _word(16)))


def _word(value):
    return ops.convert_to_tensor(value, "uint32")
