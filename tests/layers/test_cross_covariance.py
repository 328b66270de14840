"""Attention among features: against NumPy, padding, what it refuses."""

import numpy as np
import pytest

from keras_tfm.layers import CrossCovarianceAttention, RelativePositionBias
from tests import contract
from tests.contract import Case, floats, mask

SEQUENCE = {"x": floats("T", 8), "mask": mask("T")}


def by_hand(layer, query, mask=None):
    """XCiT's equation 2 in float64."""
    x = query.astype("float64")
    projection = layer.projections.query_key_value
    kernel, bias = (np.asarray(w, "float64") for w in (projection.kernel, projection.bias))
    heads = (x @ kernel + bias).reshape(*x.shape[:2], 3, layer.num_heads, -1)
    query, key, value = np.moveaxis(heads, 2, 0)  # (B, T, H, K)
    shown = np.ones(x.shape[:2]) if mask is None else mask
    query, key = (part * shown[..., None, None] for part in (query, key))
    query, key = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (query, key))
    scores = np.einsum("bthi,bthj->bhij", query, key) * np.asarray(layer.temperature, "float64")
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    y = np.einsum("bhij,bthj->bthi", weights, value).reshape(x.shape)
    output = layer.output_projection
    return y @ np.asarray(output.kernel, "float64") + np.asarray(output.bias, "float64")


test_contract = contract.check(
    Case(
        "cross-covariance",
        lambda: CrossCovarianceAttention(2, dropout=0.1),
        {"query": floats("T", 8), "mask": mask("T")},
        reference=by_hand,
    )
)


def test_temperatures_are_of_heads():
    layer = CrossCovarianceAttention(2)
    layer.build((None, None, 8))
    assert layer.temperature.shape == (2, 1, 1) and (layer.temperature.numpy() == 1).all()


@pytest.mark.parametrize(
    "arguments",
    [{"causal": True}, {"bias": np.zeros((1, 1, 3, 3))}, {"mask": np.ones((2, 3, 3), "bool")}],
)
def test_what_is_of_pairs_of_tokens_is_refused(arguments):
    with pytest.raises(ValueError, match="compares features, not tokens"):
        CrossCovarianceAttention(2)(np.ones((2, 3, 8), "float32"), **arguments)


def test_a_position_that_acts_on_scores_is_refused():
    with pytest.raises(ValueError, match=r"`position` must not act on scores, .* it is a RelativePos"):
        CrossCovarianceAttention(2, position=RelativePositionBias())


def test_it_cannot_decode():
    with pytest.raises(ValueError, match="compares features, not tokens: it cannot decode step by step"):
        CrossCovarianceAttention(2).start(1, 4)
