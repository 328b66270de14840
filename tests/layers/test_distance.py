"""Attention by distance: weights by hand, ties of queries and keys, a bounded rate of change, refusals."""

import numpy as np
import pytest

from keras_tfm.layers import (
    DistanceAttention,
    HeadProjections,
    RotaryEmbedding,
    SpectralDense,
    TiedProjections,
)
from keras_tfm.visualize import record_attention
from tests import contract
from tests.contract import Case, floats, mask


def tied(**options):
    return DistanceAttention(TiedProjections(2, **options))


def grouped():
    projections = HeadProjections(4, num_key_value_heads=2)
    return DistanceAttention(projections, position=RotaryEmbedding())


INPUTS = {"query": floats("T", 8), "mask": mask("T")}
test_contract = contract.check(
    Case("tied", tied, INPUTS, attends=True),
    Case("of groups", grouped, INPUTS, {"causal": True}, attends=True, causal="T",
         cache=lambda layer, inputs, length: layer.start(len(inputs["query"]), length)),
)  # fmt: skip


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_weights_are_the_softmax_of_minus_the_squared_distance():
    layer, x = tied(), draw(2, 5, 8)
    layer.build(x.shape)
    with record_attention(layer) as records:
        y = layer(x)
    (weights,) = records.values()
    heads = (
        (x @ np.asarray(layer.projections.query_projection.kernel)).reshape(2, 5, 2, 4).transpose(0, 2, 1, 3)
    )
    scores = -np.sum((heads[:, :, :, None] - heads[:, :, None]) ** 2, -1) / 2
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-6)
    assert (np.asarray(weights).argmax(-1) == np.arange(5)).all()  # nothing is nearer than the token itself
    assert y.shape == x.shape


def test_far_tokens_change_little():
    """The rate of change of the product grows with the square of the tokens; the distance's does not."""
    layer, x, step = tied(), draw(1, 6, 8), 1e-2 * draw(1, 6, 8, seed=1)
    layer.build(x.shape)
    randomise_kernels(layer)

    def rate(attention, size):
        change = np.asarray(attention(size * x + step)) - np.asarray(attention(size * x))
        return np.linalg.norm(change) / np.linalg.norm(step)

    assert rate(layer, 30.0) < 3 * rate(layer, 1.0)


def randomise_kernels(layer):
    for i, weight in enumerate(layer.weights):
        weight.assign(0.3 * draw(*weight.shape, seed=i))


def test_parts_can_be_given():
    layer = tied(query_key=SpectralDense(6, use_bias=False), value=SpectralDense(4))
    assert layer(draw(1, 5, 8)).shape == (1, 5, 8)
    names = {weight.path.split("/")[-2] for weight in layer.weights}
    assert names == {"query_key", "value", "output"}


def test_refusals():
    with pytest.raises(ValueError, match="is for self-attention"):
        tied()(draw(1, 5, 8), draw(1, 4, 8))
    with pytest.raises(ValueError, match="`num_heads` must divide the width of the projections, 8; it is 3"):
        DistanceAttention(TiedProjections(3))(draw(1, 5, 8))
    with pytest.raises(ValueError, match="`num_heads` must be at least 1"):
        TiedProjections(0)
