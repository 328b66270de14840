"""Codes in place of vectors: the nearest entry of a learned table, or draws from a distribution over entries.

`VectorQuantizer` is the layer of VQ-VAE (van den Oord et al. 2017, "Neural Discrete Representation
Learning"), `GumbelSoftmax` the relaxation of Jang et al. 2017, "Categorical Reparameterization with
Gumbel-Softmax". Both have `code_ids`, from a map to integers, and `embed`, from integers to what `call` gives
at inference.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.inputs import as_integers, refuse_outside
from keras_tfm.layers.base import SameShape, require_sizes
from keras_tfm.layers.compiler.bits import gumbel_noise, uniform_bits
from keras_tfm.layers.compiler.gradients import custom_gradient
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.positions import outside_is_nan
from keras_tfm.layers.rematerialization import Reading
from keras_tfm.layers.signatures import Tensor
from keras_tfm.training.replicas import is_one_of_several, sum_over_replicas

SHARED: dict[str, Any] = {"aggregation": "only_first_replica", "autocast": False}  # for what a call assigns
Scheduled = Any  # a number, or one of Keras's schedules of a step


class VectorQuantizer(SameShape):
    """The nearest of K code vectors in place of each vector: (..., D) -> (..., D).

    Gradients pass to the input as if nothing had been replaced ("straight through"). In training the layer
    adds the loss `quantization_loss`, by which the codes learn, and counts in `idle` (K,) for how many steps
    each code was the nearest of no vector.

    Args:
        num_codes: K.
        commitment: the weight of the loss by which vectors approach their codes.
        codebook_weight: the weight of the loss by which codes approach their vectors.
        dead_after: after so many idle steps a code is dead, and a vector drawn from the batch takes its
            place, the likelier the larger its squared distance from its code (Arthur and Vassilvitskii 2007,
            "k-means++"); None for never.

    >>> layer = keras_tfm.layers.VectorQuantizer(num_codes=16)
    >>> layer(np.ones((1, 4, 4, 8))).shape, layer.code_ids(np.ones((1, 4, 4, 8))).shape
    (TensorShape([1, 4, 4, 8]), TensorShape([1, 4, 4]))
    """

    communicates = True  # in training, with the other replicas: see `ExactTrainer._forward`

    def __init__(
        self,
        num_codes: int,
        commitment: float = 0.25,
        codebook_weight: float = 1.0,
        dead_after: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(num_codes=num_codes, **({} if dead_after is None else {"dead_after": dead_after}))
        self.num_codes = num_codes
        self.commitment = commitment
        self.codebook_weight = codebook_weight
        self.dead_after = dead_after
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, x_shape):
        bound = 1 / self.num_codes  # as in the code of VQ-VAE and of VQGAN
        initializer = keras.initializers.RandomUniform(-bound, bound)
        self.codebook = self.add_weight((self.num_codes, x_shape[-1]), initializer, name="codebook", **SHARED)
        self.idle = self.add_weight(
            (self.num_codes,), "zeros", dtype="int32", trainable=False, name="idle", **SHARED
        )

    def call(self, x, training=None):
        """(..., D) -> (..., D)."""
        code_ids = self.code_ids(x)
        codes = ops.take(self.codebook, code_ids, axis=0)  # (..., D)
        if training:
            self.add_loss(quantization_loss(x, codes, self.commitment, self.codebook_weight))
            self._count(code_ids, x)
        return straight_through(x, ops.cast(codes, x.dtype))

    def code_ids(self, x):
        """The number of the nearest code for each vector, in float32: (..., D) -> (...)."""
        return nearest(x, self.codebook)

    def embed(self, code_ids):
        """The codes with these numbers: (...) -> (..., D). ValueError outside [0, K); NaN in a graph."""
        code_ids = as_integers(ops.convert_to_tensor(code_ids), "code_ids")
        refuse_outside(code_ids, self.num_codes, "code_ids")
        codes = ops.cast(ops.take(self.codebook, code_ids, axis=0), self.compute_dtype)
        return codes + outside_is_nan(code_ids, self.num_codes, codes.dtype)

    def _count(self, code_ids, x):
        """One more step: `idle` counts it, and dead codes are replaced."""
        code_ids = ops.reshape(code_ids, (-1, 1))
        counts = ops.scatter(code_ids, ops.ones_like(code_ids[:, 0]), (self.num_codes,))
        if is_one_of_several():
            (counts,) = sum_over_replicas([counts])
        idle = ops.where(counts > 0, 0, self.idle + 1)
        if self.dead_after is not None:
            count = ops.shape(code_ids)[0]
            is_dead = ops.logical_and(idle >= self.dead_after, count > 0)  # a replica may have got no example
            vectors = ops.reshape(ops.stop_gradient(in_float32(x)), (-1, x.shape[-1]))
            # Common vectors would be drawn again and again, although their codes serve them well.
            codes = ops.take(self.codebook, code_ids[:, 0], axis=0)
            sums = ops.cumsum(ops.sum(ops.square(vectors - codes), axis=-1))
            bits = uniform_bits((self.num_codes,), self.seed_generator.next())
            shares = (ops.cast(bits, "float32") + 0.5) * np.float32(2**-24)  # in (0, 1)
            rows = ops.searchsorted(sums, shares * ops.max(sums, initial=0.0), side="right")
            rows = ops.clip(rows, 0, ops.maximum(count - 1, 0))  # also where all distances are 0
            drawn = ops.take(ops.pad(vectors, ((0, 1), (0, 0))), rows, axis=0)
            self.codebook.assign(ops.where(is_dead[:, None], drawn, self.codebook))
            idle = ops.where(is_dead, 0, idle)
        self.idle.assign(idle)


class GumbelSoftmax(SameShape):
    """Logits of K codes become a distribution near one code: (..., K) -> (..., K).

    In training it is softmax((logits + g) / `temperature`) with Gumbel noise g, and the layer adds
    `divergence` times the mean Kullback-Leibler divergence, in nats, of softmax(logits) from the uniform
    distribution. At inference it is 1 at the likeliest code and 0 elsewhere, with the gradient of the
    softmax. Both numbers may be Keras's schedules of the number of calls in training so far, `num_draws`,
    a weight, so that a model that was read from a file goes on where it was.

    >>> keras_tfm.layers.GumbelSoftmax()(np.array([[1.0, 3.0, 2.0]])).numpy().tolist()
    [[0.0, 1.0, 0.0]]
    """

    communicates = True  # `num_draws` gets the first replica's value: see `ExactTrainer._forward`

    def __init__(
        self,
        temperature: Scheduled = 1.0,
        divergence: Scheduled = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not is_schedule(temperature) and temperature <= 0:
            raise ValueError(f"`temperature` must be above 0; it is {temperature}.")
        self.temperature = temperature
        self.divergence = divergence
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, logits_shape):
        self.num_codes = logits_shape[-1]
        self.num_draws = self.add_weight(
            (), "zeros", dtype="int32", trainable=False, name="num_draws", **SHARED
        )
        self.reading = Reading(self.num_draws)

    def call(self, logits, training=None):
        """(..., K) -> (..., K)."""
        scores = in_float32(logits)
        if not training:
            chosen = ops.one_hot(self.code_ids(logits), self.num_codes, dtype=scores.dtype)
            return ops.cast(straight_through(ops.softmax(scores), chosen), logits.dtype)
        draw = self.reading.next()
        self.num_draws.assign(draw + 1)
        temperature, weight = (
            value(draw) if is_schedule(value) else value for value in (self.temperature, self.divergence)
        )
        if is_schedule(self.divergence) or self.divergence:
            self.add_loss(weight * divergence_from_uniform(scores))
        scores = scores + gumbel_noise(uniform_bits(ops.shape(scores), self.seed_generator.next()))
        return ops.cast(ops.softmax(scores / temperature), logits.dtype)

    def code_ids(self, logits):
        """The number of the likeliest code: (..., K) -> (...)."""
        return ops.cast(ops.argmax(logits, axis=-1), "int32")

    def embed(self, code_ids):
        """1 at these codes and 0 elsewhere: (...) -> (..., K). ValueError outside [0, K); NaN in a graph."""
        code_ids = as_integers(ops.convert_to_tensor(code_ids), "code_ids")
        refuse_outside(code_ids, self.num_codes, "code_ids")
        chosen = ops.one_hot(code_ids, self.num_codes, dtype=self.compute_dtype)
        return chosen + outside_is_nan(code_ids, self.num_codes, chosen.dtype)


def is_schedule(value):
    """Whether a number is given for each step."""
    return isinstance(value, keras.optimizers.schedules.LearningRateSchedule)


def nearest(x: Tensor, codebook: Tensor) -> Tensor:
    """The row of `codebook` (K, D) at the least Euclidean distance, and of several the first: (..., D) ->
    (...).

    >>> keras_tfm.layers.nearest(np.array([[0.9, 0.0]]), np.eye(2)).numpy().tolist()
    [0]
    """
    x = in_float32(x)
    codebook = ops.cast(codebook, x.dtype)
    products = ops.matmul(x, ops.transpose(codebook))  # (..., K)
    return ops.cast(ops.argmax(2 * products - ops.sum(ops.square(codebook), axis=-1), axis=-1), "int32")


def quantization_loss(
    x: Tensor, codes: Tensor, commitment: float = 0.25, codebook_weight: float = 1.0
) -> Tensor:
    """`codebook_weight` mean (codes - sg[x])² + `commitment` mean (x - sg[codes])² for arrays of one shape.

    sg[.] passes no gradient (van den Oord et al. 2017, eq. 3, where the mean is a sum).

    >>> float(keras_tfm.layers.quantization_loss(np.zeros((1, 2)), np.ones((1, 2))))
    1.25
    """
    x = in_float32(x)
    codes = ops.cast(codes, x.dtype)
    learning = ops.mean(ops.square(codes - ops.stop_gradient(x)))
    committing = ops.mean(ops.square(x - ops.stop_gradient(codes)))
    return codebook_weight * learning + commitment * committing


def divergence_from_uniform(logits):
    """The mean of sum_k p_k log(p_k K) for the distributions p = softmax(`logits`), (..., K)."""
    logs = ops.log_softmax(logits)
    return ops.mean(ops.sum(ops.exp(logs) * logs, axis=-1)) + float(np.log(logits.shape[-1]))


@custom_gradient
def straight_through(x, replacement):
    """`replacement`, with the gradient of `x`: both have one shape."""
    return replacement, lambda upstream: (upstream, ops.zeros_like(upstream))
