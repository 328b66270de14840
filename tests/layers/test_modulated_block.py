"""ModulatedBlock: its two forms by hand."""

import numpy as np

from keras_tfm import layers
from tests import contract
from tests.contract import Case, floats, randomise

INPUTS = {"x": floats("T", 8), "w": floats(4)}


def block(**options):
    return layers.ModulatedBlock(layers.MultiHeadAttention(2), layers.FeedForward(12, "gelu"), **options)


test_contract = contract.check(
    Case("plain", block, INPUTS, attends=True),
    Case("gated", lambda: block(is_gated=True), INPUTS, attends=True),
)


def test_parts_are_weighed_by_their_gates():
    layer = block(is_gated=True)
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype("float32") for shape in ((2, 3, 8), (2, 4)))
    layer(x, w)
    randomise(layer, 1)
    gates = [
        w @ np.asarray(gate.kernel) + np.asarray(gate.bias)
        for gate in (layer.attention_gate, layer.feedforward_gate)
    ]
    y = x + gates[0][:, None] * np.asarray(layer.attention(layer.attention_norm(x, w)))
    y = y + gates[1][:, None] * np.asarray(layer.feedforward(layer.feedforward_norm(y, w)))
    np.testing.assert_allclose(layer(x, w), y, rtol=1e-5, atol=1e-5)
    of_each = np.repeat(w[:, None], 3, axis=1)
    np.testing.assert_allclose(layer(x, of_each), y, rtol=1e-5, atol=1e-5)
