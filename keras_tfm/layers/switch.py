"""A mixture of experts: a feed-forward layer of many experts, of which each token uses one.

Fedus, Zoph and Shazeer 2021, "Switch Transformers: Scaling to Trillion Parameter Models with Simple and
Efficient Sparsity", section 2. An expert has a limited number of slots in each sequence, its capacity:

    tokens          a b c d e f     3 experts, capacity 2
    expert          1 0 1 1 0 2
    place in it     0 0 1 2 1 0     d finds its expert full: its output is zero, the residual passes it on

    slots           b e | a c | f .

Deviates from the paper in three places. Capacity and balance are counted for each sequence by itself, so
that no example depends on the others in its batch, nor on how a batch is split between replicas. Outside of
training every token is served unless a capacity is asked for: a causal model then never depends on later
tokens, and decodes as it was trained. And the authors' random jitter of the router's input is left out.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.base import SameShape, copy_of, require_sizes
from keras_tfm.layers.feedforward import activation_of
from keras_tfm.layers.masks import in_float32, padding_mask_of
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.signatures import Activation, Initializer
from keras_tfm.registry import register


class SwitchFeedForward(SameShape):
    """p_i expert_i(x) for the largest gate p_i of p = softmax(W x) (equation 2): (B, T, D) in and out.

    Each expert is a feed-forward layer D -> `intermediate_dim` -> D; the gates are computed in float32.
    Training adds the loss `balance` * N sum_i f_i P_i (eq. 4), averaged over the sequences, where f_i is the
    share of tokens sent to expert i and P_i the mean of its gate over all tokens. Padding takes no slot and
    is not counted.

    Args:
        num_experts: N, the number of experts.
        intermediate_dim: F, the width of an expert's hidden layer.
        activation: of the experts.
        capacity_factor: in training an expert takes this times the mean number of tokens per expert; the
            output for further tokens, in order, is zero.
        balance: the weight of the balance loss.
        dropout: the rate for the hidden values.
        inference_capacity_factor: the same outside of training; None serves every token, for `num_experts`
            times the work.

    >>> layer = keras_tfm.layers.SwitchFeedForward(num_experts=4, intermediate_dim=16)
    >>> layer(np.ones((1, 5, 8), "float32")).shape
    TensorShape([1, 5, 8])
    """

    def __init__(
        self,
        num_experts: int,
        intermediate_dim: int,
        activation: Activation = "relu",
        capacity_factor: float = 1.25,
        balance: float = 0.01,
        dropout: float = 0.0,
        inference_capacity_factor: float | None = None,
        kernel_initializer: Initializer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_sizes(num_experts=num_experts, intermediate_dim=intermediate_dim)
        if not capacity_factor > 0 or not (
            inference_capacity_factor is None or inference_capacity_factor > 0
        ):
            raise ValueError(
                "`capacity_factor` must be positive, and `inference_capacity_factor` positive or None; "
                f"they are {capacity_factor} and {inference_capacity_factor}."
            )
        if not balance >= 0:
            raise ValueError(f"`balance` must be at least 0; it is {balance}.")
        self.num_experts = num_experts
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.capacity_factor = capacity_factor
        self.balance = balance
        self.dropout = dropout
        self.inference_capacity_factor = inference_capacity_factor
        self.kernel_initializer = kernel_initializer
        self.hidden_dropout = Dropout(dropout, name="dropout")

    def build(self, x_shape, mask_shape=None):
        dim = x_shape[-1]
        # The router stays in float32 under mixed precision too (section 2.4).
        self.router = self.add_weight(
            (dim, self.num_experts), copy_of(self._initializer()), name="router", autocast=False
        )
        self.hidden = self._experts("becd,edf->becf", self.intermediate_dim, self.activation, "hidden")
        self.hidden.build((None, self.num_experts, None, dim))
        self.output_projection = self._experts("becf,efd->becd", dim, None, "output")
        self.output_projection.build((None, self.num_experts, None, self.intermediate_dim))

    def _initializer(self):
        """By default weights with a tenth of the usual variance (section 2.4)."""
        return self.kernel_initializer or keras.initializers.VarianceScaling(0.1, "fan_in")

    def _experts(self, equation, width, activation, name):
        """One dense layer per expert: (B, E, C, .) -> (B, E, C, `width`)."""
        return keras.layers.EinsumDense(
            equation,
            (self.num_experts, None, width),
            activation=activation_of(activation),
            bias_axes="e" + equation[-1],
            kernel_initializer=EachExpert(self._initializer()),
            name=name,
        )

    def call(self, x, mask=None, training=None):
        """(B, T, D) -> (B, T, D); `mask` (B, T) is False at padding, whose output is zero."""
        mask = padding_mask_of(x, mask)
        if mask is None:
            mask = ops.ones(ops.shape(x)[:2], "bool")
        gates = ops.softmax(ops.matmul(in_float32(x), in_float32(self.router)))  # (B, T, E)
        expert = ops.argmax(gates, axis=-1)  # (B, T)
        is_sent = ops.logical_and(expert[..., None] == ops.arange(self.num_experts), mask[..., None])
        if training and self.balance:
            self.add_loss(self.balance * balance_loss(gates, is_sent, mask))
        factor = self.capacity_factor if training else self.inference_capacity_factor
        limits, size = capacities(mask, factor, self.num_experts)
        tokens, slots, is_served = places(is_sent, expert, limits, size)
        batch_size, dim = ops.shape(x)[0], x.shape[-1]
        y = ops.take_along_axis(x, tokens[..., None], axis=1)  # (B, E C, D)
        y = ops.reshape(y, (batch_size, self.num_experts, size, dim))  # (B, E, C, D)
        y = self.output_projection(self.hidden_dropout(self.hidden(y), training=training))
        y = ops.reshape(y, (batch_size, self.num_experts * size, dim))  # (B, E C, D)
        y = ops.take_along_axis(y, slots[..., None], axis=1)  # (B, T, D)
        gate = ops.take_along_axis(gates, expert[..., None], axis=2)  # (B, T, 1)
        return y * ops.cast(ops.where(is_served[..., None], gate, 0.0), y.dtype)


def balance_loss(gates, is_sent, mask):
    """N sum_i f_i P_i of each sequence, averaged over the batch: 1 if all N experts are used equally."""
    weights = ops.cast(mask, gates.dtype)[..., None]  # (B, T, 1)
    count = ops.maximum(ops.sum(weights, axis=1), 1.0)
    shares = ops.sum(ops.cast(is_sent, gates.dtype), axis=1) / count  # (B, E)
    means = ops.sum(gates * weights, axis=1) / count  # (B, E)
    losses = gates.shape[-1] * ops.sum(shares * means, axis=-1)  # (B,)
    return ops.sum(losses) / ops.maximum(ops.cast(ops.shape(losses)[0], losses.dtype), 1.0)


def capacities(mask, factor, num_experts):
    """The slots of an expert for each sequence of `mask` (B, T), (B,), and for a sequence of length T.

    They are ceil(tokens * `factor` / `num_experts`), computed in float32; with a `factor` of None all
    tokens.
    """
    length = mask.shape[1] or ops.shape(mask)[1]
    counts = ops.sum(ops.cast(mask, "int32"), axis=1)  # (B,)
    if factor is None:
        return counts, length
    share = np.float32(factor / num_experts)
    limits = ops.cast(ops.ceil(ops.cast(counts, "float32") * share), "int32")
    if isinstance(length, int):
        return limits, min(math.ceil(np.float32(length) * share), length)
    return limits, ops.minimum(ops.cast(ops.ceil(ops.cast(length, "float32") * share), "int32"), length)


def places(is_sent, expert, limits, size):
    """The token in each slot (B, E C), the slot of each token (B, T), and whether a token has one (B, T).

    Each expert has C = `size` slots. It fills up to `limits` (B,) of them with the first tokens that
    `is_sent` (B, T, E) sends to it; `expert` (B, T) is the same as a number. The other slots hold token 0.
    """
    batch_size, length, num_experts = ops.shape(is_sent)
    number = ops.cumsum(ops.cast(is_sent, "int32"), axis=1) - 1  # (B, T, E)
    place = ops.squeeze(ops.take_along_axis(number, expert[..., None], axis=2), -1)  # (B, T)
    is_served = ops.logical_and(ops.any(is_sent, axis=-1), place < limits[:, None])
    slots = ops.where(
        is_served, expert * size + place, num_experts * size
    )  # tokens without a slot go to an extra one
    rows, columns = (
        ops.broadcast_to(x, (batch_size, length))
        for x in (ops.arange(batch_size, dtype="int32")[:, None], ops.arange(length, dtype="int32")[None])
    )
    indices = ops.reshape(ops.stack([rows, slots], axis=-1), (-1, 2))  # (B T, 2)
    tokens = ops.scatter(indices, ops.reshape(columns, (-1,)), (batch_size, num_experts * size + 1))
    return tokens[:, :-1], ops.where(is_served, slots, 0), is_served


@register
class EachExpert(keras.initializers.Initializer):
    """Initializes each kernel of a stack (E, D, F) separately, as `initializer` initializes one of (D, F)."""

    def __init__(self, initializer):
        self.initializer = keras.initializers.get(initializer)

    def __call__(self, shape, dtype=None):
        kernels = []
        for expert in range(shape[0]):
            config = self.initializer.get_config()
            if isinstance(config.get("seed"), int):  # a copy with the same seed would draw the same kernel
                config["seed"] += expert
            kernels.append(type(self.initializer).from_config(config)(shape[1:], dtype))
        return ops.stack(kernels)

    def get_config(self):
        return {"initializer": keras.initializers.serialize(self.initializer)}
