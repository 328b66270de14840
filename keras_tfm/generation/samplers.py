"""Samplers: how a step's token is chosen, `sampler(logits, number) -> token ids (R,)`.

`logits` (R, V) were processed; `number` () counts the tokens that were chosen before.
"""

import numpy as np
from keras import ops

from keras_tfm.generation.processors import Value, require
from keras_tfm.layers.compiler.bits import uniform_bits


def greedy(logits, number):
    """The likeliest token, the first of equals."""
    return ops.cast(ops.argmax(logits, axis=-1), "int32")


class Sample(Value):
    """Draws from softmax(logits), by the highest of logits + Gumbel noise (Gumbel 1954; "Gumbel-max").

    The draws are a function of `seed` (an integer from 0 to 2^31 - 1, or a scalar tensor), the token's
    number and the row, whatever else stands in the batch.
    """

    def __init__(self, seed):
        require("seed", seed, lambda seed: seed >= 0, "must be at least 0", whole=True)
        self.seed = seed

    def __call__(self, logits, number):
        seed = ops.cast(self.seed, "int32")
        # Seeds are drawn from the seed first: noise of neighbouring ones would be each other's, permuted.
        first = uniform_bits((2,), ops.stack([seed, seed]))
        bits = uniform_bits(ops.shape(logits), ops.stack([first[0] * 64, number + first[1]]))
        uniform = (ops.cast(bits, "float32") + 1.0) * np.float32(1 / (2**24 + 1))  # in (0, 1)
        return greedy(logits - ops.log(-ops.log(uniform)), number)
