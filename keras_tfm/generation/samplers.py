"""Samplers choose the token of a step: `sampler(logits, number) -> token ids (R,)`.

`logits` (R, V) have passed the processors; `number` () counts the tokens chosen before.
"""

from typing import Any

from keras import ops

from keras_tfm.generation.processors import Value, require
from keras_tfm.layers.compiler.bits import bits_of_rows, gumbel_noise, uniform_bits
from keras_tfm.layers.signatures import Tensor


def greedy(logits: Any, number: Any) -> Any:
    """The likeliest token, and of equally likely ones the first: (R, V) -> (R,).

    >>> keras_tfm.generation.greedy(np.array([[0.1, 0.7, 0.2]]), number=0).numpy().tolist()
    [1]
    """
    return ops.cast(ops.argmax(logits, axis=-1), "int32")


class Sample(Value):
    """Draws from softmax(logits), by the argmax of logits + Gumbel noise (Gumbel 1954; "Gumbel-max").

    A draw depends only on `seed` (an integer from 0 to 2^31 - 1, or a scalar tensor), the token's number and
    the row, not on the rest of the batch. With seeds (R,) each row has its own, on which alone, and on the
    number, its draws depend.

    >>> sample = keras_tfm.generation.Sample(seed=1)
    >>> sample(np.array([[0.0, 50.0]], "float32"), number=0).numpy().tolist()
    [1]
    """

    def __init__(self, seed: int | Tensor) -> None:
        require("seed", seed, lambda seed: seed >= 0, "must be at least 0", whole=True)
        self.seed = seed

    def __call__(self, logits, number):
        seed = ops.cast(self.seed, "int32")
        if len(seed.shape):
            hashed = bits_of_rows(2, seed, seed)  # (R, 2)
            bits = bits_of_rows(logits.shape[-1], hashed[:, 0] * 64, number + hashed[:, 1])
            return greedy(logits + gumbel_noise(bits), number)
        # Hash the seed first: the noise of neighbouring seeds would otherwise be permutations of each other.
        first = uniform_bits((2,), ops.stack([seed, seed]))
        bits = uniform_bits(ops.shape(logits), ops.stack([first[0] * 64, number + first[1]]))
        return greedy(logits + gumbel_noise(bits), number)
