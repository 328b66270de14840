"""Dropout and stochastic depth, with random numbers that XLA can fuse into the masking."""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.base import SameShape
from keras_tfm.layers.compiler.bits import keeps
from keras_tfm.layers.compiler.fused import fused


class Dropout(SameShape):
    """Sets each value to zero with probability `rate` in training, and multiplies the others by 1/(1 -
    rate).

    Srivastava et al. 2014. The random numbers are hashes of each element's index and a seed, a few integer
    operations; a general random generator would take a sixth of the time of a Transformer's training step on
    a CPU. The seeds come from a `SeedGenerator`: they differ from call to call, and a checkpoint of
    training keeps them.

    >>> keras_tfm.layers.Dropout(0.5)(np.ones((1, 2))).numpy().tolist()  # not training
    [[1.0, 1.0]]
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"`rate` must lie in [0, 1); it is {rate}.")
        self.rate = rate
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, x, training=False):
        """The shape of `x`, which is any; without `training` the result is `x` itself."""
        if not training or not self.rate:
            return x
        return keep_some(x, chosen(x, self.seed_generator.next(), rate=self.rate), rate=self.rate)


class StochasticDepth(Dropout):
    """Sets whole examples to zero with probability `rate` in training, and multiplies the others by 1/(1 -
    rate).

    Applied to the branch of a residual, it skips the branch, example by example (Huang et al. 2016, "Deep
    Networks with Stochastic Depth").

    >>> keras_tfm.layers.StochasticDepth(0.5, seed=1)(np.ones((8, 2), "float32"), training=True).shape
    TensorShape([8, 2])
    """

    def call(self, x, training=False):
        """(B, ...) -> (B, ...); without `training` the result is `x` itself."""
        if not training or not self.rate:
            return x
        keep = keeps(ops.shape(x)[:1], self.rate, self.seed_generator.next())
        keep = ops.reshape(keep, (-1, *[1] * (len(x.shape) - 1)))  # (B, 1, ...)
        return keep_some(x, keep, rate=self.rate)


@fused
def chosen(x, seed, rate):
    """Which values of `x` dropout at `rate` keeps: booleans in its shape."""
    return keeps(ops.shape(x), rate, seed)


# Not one function with `chosen`: XLA on CPUs computes both together half as fast.
@fused
def keep_some(x, keep, rate):
    """`x` / (1 - rate) where `keep`, which broadcasts over `x`, is True, else 0."""
    # Scaled last, so that the gradient ends with `where`: XLA on CPUs then sums it fast for a bias.
    return ops.where(keep, x, ops.zeros((), x.dtype)) * (1 / (1 - rate))
