"""Dropout by a counter-based generator that XLA fuses into what it masks."""

import keras
from keras import ops

from keras_tfm.layers.base import Layer
from keras_tfm.layers.compiler.bits import keeps


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


class StochasticDepth(Dropout):
    """Zeroes whole examples with probability `rate` in training, and scales the others by 1/(1 - rate).

    Huang et al. 2016, "Deep Networks with Stochastic Depth": a residual's branch is left out, example by
    example.
    """

    def call(self, x, training=False):
        """Any shape (B, ...) in, the same out; `x` itself where not `training`."""
        if not training or not self.rate:
            return x
        keep = keeps(ops.shape(x)[:1], self.rate, self.seed_generator.next())
        keep = ops.reshape(keep, (-1, *[1] * (len(x.shape) - 1)))  # (B, 1, ...)
        return ops.where(keep, x, ops.zeros((), x.dtype)) * (1 / (1 - self.rate))
