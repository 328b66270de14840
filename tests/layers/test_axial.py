"""Attention along an axis, and MedT's gated attention: the contract, values by NumPy, refusals."""

import numpy as np
import pytest

from keras_tfm.layers import AxisAttention, DividedAttention, GatedAxialAttention, MultiHeadAttention
from tests import contract
from tests.contract import Case, floats, randomise

LINES = {"x": floats(5, 6)}


def normalised(norm, x):
    """Batch normalisation by the running statistics."""
    gamma, beta, mean, variance = (np.asarray(weight, "float64") for weight in norm.weights)
    return (x - mean) / np.sqrt(variance + norm.epsilon) * gamma + beta


def by_hand(layer, x):
    """Equation 3 of the paper, pair by pair of places, in float64."""
    width, count = layer.dim // layer.num_heads, x.shape[1]
    x = normalised(layer.projection_norm, x @ np.asarray(layer.projection.kernel, "float64"))
    x = x.reshape(*x.shape[:2], layer.num_heads, 2 * width)
    query, key, value = x[..., : width // 2], x[..., width // 2 : width], x[..., width:]
    gates = [float(gate) for gate in getattr(layer, "gates", [1, 1, 1, 1])]
    table = np.asarray(layer.table, "float64") if layer.position != "none" else None
    parts = []
    for i in range(count):
        for j in range(count):
            pair = [(query[:, i] * key[:, j]).sum(-1)]
            if table is not None:
                pair.append(gates[0] * query[:, i] @ table[i - j + count - 1, : width // 2])
                pair.append(gates[1] * key[:, j] @ table[j - i + count - 1, width // 2 : width])
            parts.append(np.concatenate(pair, axis=-1))
    scores = normalised(layer.score_norm, np.stack(parts, 1)).reshape(
        len(x), count, count, -1, layer.num_heads
    )
    weights = np.exp(scores.sum(3) - scores.sum(3).max(2, keepdims=True))
    weights /= weights.sum(2, keepdims=True)
    outputs = [gates[2] * np.einsum("bijh,bjhc->bihc", weights, value)]
    if table is not None:
        far = np.array([[table[i - j + count - 1, width:] for j in range(count)] for i in range(count)])
        outputs.append(gates[3] * np.einsum("bijh,ijc->bihc", weights, far))
    joined = np.stack(outputs, -1).reshape(len(x), count, -1)
    return normalised(layer.output_norm, joined).reshape(len(x), count, layer.dim, -1).sum(-1)


def gated(position):
    return lambda: GatedAxialAttention(8, 2, position)


WITHOUT_EFFECT = ("score_norm/beta",)  # it moves all scores of a row

test_contract = contract.check(
    *(
        Case(position, gated(position), LINES, attends=True, reference=by_hand, without_effect=WITHOUT_EFFECT)
        for position in ("gated", "relative", "none")
    ),
    Case(
        "AxisAttention",
        lambda: AxisAttention(MultiHeadAttention(2), "height"),
        {"x": floats(4, 5, 6)},
        attends=True,
    ),
    *(
        Case(
            f"DividedAttention {axis} {prefix}",
            lambda axis=axis, prefix=prefix: DividedAttention(MultiHeadAttention(2), axis, 3, prefix),
            {"x": floats(prefix + 6, 8)},
            attends=True,
        )
        for axis, prefix in (("time", 1), ("space", 1), ("space", 0))
    ),
)


@pytest.mark.parametrize("axis", ["height", "width"])
def test_cells_see_those_of_their_line_alone(axis):
    layer = AxisAttention(MultiHeadAttention(2), axis)
    layer.build((None, 4, 5, 6))
    randomise(layer, 1)
    x = np.random.default_rng(0).normal(size=(1, 4, 5, 6)).astype("float32")
    other = x.copy()
    other[0, 1, 2] += 1
    changed = np.abs(np.asarray(layer(other)) - np.asarray(layer(x))).max(-1)[0] > 1e-6
    expected = np.zeros((4, 5), bool)
    expected[(slice(None), 2) if axis == "height" else (1, slice(None))] = True
    np.testing.assert_array_equal(changed, expected)


@pytest.mark.parametrize("axis", ["time", "space"])
def test_divided_attention_sees_one_axis_alone(axis):
    """With a class token, before 3 moments of 2 places, the second place of the second moment changes."""
    layer = DividedAttention(MultiHeadAttention(2), axis, num_moments=3, prefix=1)
    layer.build((None, 7, 6))
    randomise(layer, 1)
    x = np.random.default_rng(0).normal(size=(1, 7, 6)).astype("float32")
    other = x.copy()
    other[0, 4] += 1
    changed = np.abs(np.asarray(layer(other)) - np.asarray(layer(x))).max(-1)[0] > 1e-6
    expected = np.zeros((3, 2), bool)
    expected[(slice(None), 1) if axis == "time" else (1, slice(None))] = True
    np.testing.assert_array_equal(changed[1:], expected.ravel())
    assert changed[0] == (axis == "space")
    assert np.any(layer(x)[0, 0]) == (axis == "space")


def test_divided_attention_is_attention_to_each_line():
    """By hand: a sequence for each place along time; for each moment, after the class token, along space."""
    x = np.random.default_rng(0).normal(size=(2, 7, 6)).astype("float32")
    attention = MultiHeadAttention(2)
    time, space = (DividedAttention(attention, axis, num_moments=3, prefix=1) for axis in ("time", "space"))
    y = np.asarray(time(x))
    for place in (0, 1):
        np.testing.assert_allclose(y[:, 1 + place :: 2], attention(x[:, 1 + place :: 2]), atol=1e-6)
    y, tokens = np.asarray(space(x)), []
    for moment in range(3):
        own = slice(1 + 2 * moment, 3 + 2 * moment)
        expected = np.asarray(attention(np.concatenate([x[:, :1], x[:, own]], axis=1)))
        np.testing.assert_allclose(y[:, own], expected[:, 1:], atol=1e-6)
        tokens.append(expected[:, 0])
    np.testing.assert_allclose(y[:, 0], np.mean(tokens, axis=0), atol=1e-6)


def test_gates_begin_as_in_the_authors_code():
    layer = GatedAxialAttention(8, 2)
    layer.build((None, 5, 6))
    assert [round(float(gate), 6) for gate in layer.gates] == [0.1, 0.1, 1.0, 0.1]


def test_refusals():
    with pytest.raises(ValueError, match="`axis` must be 'height' or 'width'; it is 'depth'"):
        AxisAttention(MultiHeadAttention(2), "depth")
    with pytest.raises(ValueError, match="`dim` must be a multiple of twice `num_heads`; they are 6 and 2"):
        GatedAxialAttention(6, 2)
    with pytest.raises(ValueError, match="`position` must be 'gated', 'relative' or 'none'; it is 'sines'"):
        GatedAxialAttention(8, 2, "sines")
    with pytest.raises(ValueError, match="length T of `x` must be known"):
        GatedAxialAttention(8, 2).build((None, None, 6))
    with pytest.raises(ValueError, match="`axis` must be 'time' or 'space'; it is 'height'"):
        DividedAttention(MultiHeadAttention(2), "height", 3)
    with pytest.raises(ValueError, match="`num_moments` must be at least 1; it is 0"):
        DividedAttention(MultiHeadAttention(2), "time", 0)
    with pytest.raises(ValueError, match="1 class tokens and then as many places for each of 3 moments; its"):
        DividedAttention(MultiHeadAttention(2), "time", 3, prefix=1).build((None, 6, 8))
    with pytest.raises(ValueError, match=r"`x` must have the shape \(B, height, width, D\)"):
        AxisAttention(MultiHeadAttention(2), "width").build((None, 4, 6))
