"""Dropout by a counter-based generator that XLA fuses into what it masks."""

import keras
from keras import ops

from keras_tfm.layers.base import Layer


class Dropout(Layer):
    """Zeroes each value with probability `rate` in training, and scales the others by 1/(1 - rate).

    Srivastava et al. 2014. The draws hash (element, seed) in a few integer operations, where a
    general generator would cost a Transformer's training step on a CPU a sixth of its time; the
    seeds come from a `SeedGenerator`, so they differ from call to call and are saved.
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must lie in [0, 1); it is {rate}.")
        self.rate = rate
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, x, training=False):
        """Any shape in, the same out; `x` itself where not `training`."""
        if not training or not self.rate:
            return x
        keep = keeps(ops.shape(x), self.rate, self.seed_generator.next())
        # Scaled last: the gradient then ends with the choice, which XLA's CPU compiler sums fast for a bias.
        return ops.where(keep, x, ops.zeros((), x.dtype)) * (1 / (1 - self.rate))

    def compute_output_shape(self, x_shape):
        return tuple(x_shape)


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
