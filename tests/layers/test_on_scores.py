"""Layers on scores and weights: the greatest of a row, heads that are mixed; blocks of a class token."""

import numpy as np
import pytest
from keras import ops

from keras_tfm.layers import (
    Attention,
    BatchNormalization,
    ClassAttentionBlock,
    FeedForward,
    HeadMixing,
    HeadProjections,
    LayerNormalization,
    MultiHeadAttention,
    Residual,
    SoftCap,
    TopK,
    masked_softmax,
)
from tests import contract
from tests.contract import Case, floats, mask, randomise


def class_block():
    attention = Residual(MultiHeadAttention(2), LayerNormalization(), "input", layer_scale=0.5)
    return ClassAttentionBlock(attention, Residual(FeedForward(6), LayerNormalization(), "input"))


CAUSAL = {"query": floats("T", 8), "mask": mask("T")}, {"causal": True}
DECODES = {
    "causal": "T",
    "left_padding": "T",
    "cache": lambda layer, inputs, max_length: layer.start(len(inputs["query"]), max_length),
}

test_contract = contract.check(
    Case(
        "the greatest scores",
        lambda: Attention(HeadProjections(2), on_scores=TopK(4)),
        {"query": floats("T", 8)},
        attends=True,
        kind="greatest scores",
    ),
    Case(
        "the greatest scores of what is visible",
        lambda: Attention(HeadProjections(2), on_scores=TopK(2)),
        *CAUSAL,
        attends=True,
        **DECODES,
        chooses=True,
    ),
    Case(
        "mixed weights of what is visible",
        lambda: Attention(HeadProjections(2), on_weights=HeadMixing()),
        *CAUSAL,
        **DECODES,
    ),
    Case(
        "bounded scores",
        lambda: Attention(HeadProjections(2), on_scores=SoftCap(0.5)),
        *CAUSAL,
        attends=True,
        **DECODES,
    ),
    Case("mixed heads", HeadMixing, {"x": floats(3, "T", "S")}),
    Case(
        "mixed and normalised heads",
        lambda: HeadMixing(BatchNormalization(axis=1)),
        {"x": floats(3, "T", "S")},
    ),
    Case("a class token's block", class_block, {"x": floats("T", 8)}, attends=True),
)


def test_exactly_k_are_kept_of_which_equal_ones_are_the_first():
    scores = np.array([[3, 1, 2, 2, 2], [0, 0, 0, 0, 0], [-5, 9, -5, 7, -6]], "float32")
    weights = ops.convert_to_numpy(ops.softmax(TopK(3)(scores)))
    np.testing.assert_array_equal(weights > 0, [[1, 0, 1, 1, 0], [1, 1, 1, 0, 0], [1, 1, 0, 1, 0]])
    expected = np.exp([3, 2, 2]) / np.exp([3, 2, 2]).sum()
    np.testing.assert_allclose(weights[0, [0, 2, 3]], expected, rtol=1e-6)
    np.testing.assert_array_equal(TopK(5)(scores), scores)


def test_masked_keys_are_not_among_the_k():
    scores = np.array([[9.0, 3.0, 1.0, 2.0]], "float32")
    mask = np.array([[False, True, True, True]])
    weights = masked_softmax(TopK(2)(scores, mask=mask), mask)
    expected = np.exp([3, 2]) / np.exp([3, 2]).sum()
    np.testing.assert_allclose(weights, [[0, expected[0], 0, expected[1]]], rtol=1e-6)


@pytest.mark.parametrize("num_keys", [5, 3])  # 3 as there are heads
def test_heads_are_mixed_by_a_matrix_and_a_bias(num_keys):
    x = np.random.default_rng(0).random((2, 3, 4, num_keys)).astype("float32")
    layer = HeadMixing(BatchNormalization(axis=1))
    layer.build(x.shape)
    randomise(layer, 1)
    kernel, bias = layer.mixing.get_weights()
    gamma, beta, mean, variance = layer.norm.get_weights()
    expected = np.einsum("bhts,hg->btsg", x, kernel) + bias[:, 0, 0]
    expected = (expected - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    np.testing.assert_allclose(layer(x), np.moveaxis(expected, -1, 1), atol=1e-5)


def test_the_class_token_alone_changes():
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    block = class_block()
    block.build(x.shape)
    randomise(block, 1)
    y = ops.convert_to_numpy(block(x))
    np.testing.assert_array_equal(y[:, 1:], x[:, 1:])
    part = block.attention
    normed = part.norm(x)
    token = x[:, :1] + part.scale * part.branch(normed[:, :1], normed)
    np.testing.assert_allclose(y[:, :1], block.feedforward(token), atol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match="`k` must be at least 1; it is 0"):
        TopK(0)


def test_a_cap_bounds_what_is_far_and_keeps_what_is_near():
    x = np.array([-1e9, -4.0, -1e-3, 0.0, 1e-3, 4.0, 1e9])
    np.testing.assert_allclose(SoftCap(4.0, dtype="float64")(x), 4 * np.tanh(x / 4), rtol=1e-12)
    for cap in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="`cap` must be above 0; it is"):
            SoftCap(cap)
