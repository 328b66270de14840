"""Pooling by a learned query: its values by hand, what a mask hides, its weights."""

import numpy as np
import pytest

from keras_tfm.layers import AttentionPooling
from tests import contract
from tests.contract import Case, floats, mask

test_contract = contract.check(
    Case(
        "attention pooling",
        lambda: AttentionPooling(2, 6),
        {"x": floats("S", 8), "mask": mask("S")},
        attends=True,
    ),
)


def new(**options):
    """A layer of width 4 whose feed-forward layer gives zero: what it gives is what attention does."""
    layer = AttentionPooling(2, **options)
    layer.build((None, None, 4))
    output = layer.feedforward.branch.output_projection
    output.set_weights([np.zeros_like(x) for x in output.get_weights()])
    return layer


def test_a_query_of_zeros_gives_the_mean_of_the_values():
    layer = new()
    layer.query.assign(np.zeros((1, 1, 4)))
    layer.attention.projections.key_value.set_weights([np.eye(4, 8, 4), np.zeros(8)])  # the keys are zero
    layer.attention.output_projection.set_weights([2 * np.eye(4), np.ones(4)])
    x = np.random.default_rng(0).normal(size=(3, 5, 4)).astype("float32")
    np.testing.assert_allclose(layer(x), 2 * x.mean(1) + 1, atol=1e-6)
    shown = np.array([[1, 1, 0, 0, 0], [1, 0, 0, 0, 1], [1, 1, 1, 1, 1]], "bool")
    expected = [2 * row[keep].mean(0) + 1 for row, keep in zip(x, shown, strict=True)]
    np.testing.assert_allclose(layer(x, mask=shown), expected, atol=1e-6)


def test_the_query_chooses_what_it_is_like():
    layer = new()
    layer.query.assign(np.full((1, 1, 4), 100.0))
    identity = [np.eye(4), np.zeros(4)]
    layer.attention.projections.query.set_weights(identity)
    layer.attention.projections.key_value.set_weights([np.hstack([np.eye(4)] * 2), np.zeros(8)])
    layer.attention.output_projection.set_weights(identity)
    x = np.array([[[1, 1, -1, -1], [-1, -1, 1, 1], [0, 0, 0, 0]]], "float32")
    np.testing.assert_allclose(layer(x), [[1, 1, 1, 1]], atol=1e-6)  # a head for each half


def test_the_feed_forward_layer_is_a_residual_behind_a_norm():
    layer = AttentionPooling(1, 6, epsilon=1e-3)
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    y = layer(x)
    z = layer.attention(np.broadcast_to(layer.query, (2, 1, 4)).astype("float32"), x)
    np.testing.assert_allclose(y, layer.feedforward(z)[:, 0], atol=1e-6)
    assert layer.feedforward.normalize == "input" and layer.feedforward.norm.epsilon == 1e-3
    assert layer.feedforward.branch.intermediate_dim == 6 and new().feedforward.branch.intermediate_dim == 16


def test_refusals():
    with pytest.raises(ValueError, match="`intermediate_dim` must be at least 1, or None; it is 0"):
        AttentionPooling(2, 0)
    with pytest.raises(ValueError, match="`num_heads` must divide"):
        AttentionPooling(3).build((None, None, 4))
