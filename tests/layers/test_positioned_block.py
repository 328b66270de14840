"""Blocks with positions on queries and keys alone, and attention of the class token alone."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers import ClassAttention, MultiHeadAttention, PositionedAttention
from tests import contract
from tests.contract import Case, floats, mask
from tests.layers.flat import detr_block

SEQUENCE = {"x": floats("T", 8), "mask": mask("T")}
ENCODER = {"x": floats("T", 8), "position": floats("T", 8), "mask": mask("T")}
DECODER = {
    "x": floats("T", 8),
    "context": floats("S", 8),
    "position": floats("T", 8),
    "context_position": floats("S", 8),
    "context_mask": mask("S"),
}

test_contract = contract.check(
    Case("encoder", lambda: detr_block(), ENCODER, attends=True),
    Case(
        "decoder",
        lambda: detr_block(True),
        DECODER,
        attends=True,
    ),
    Case("attention", lambda: PositionedAttention(MultiHeadAttention(2)), SEQUENCE, attends=True),
    Case(
        "class attention",
        lambda: ClassAttention(MultiHeadAttention(2)),
        {"x": floats("T", 8)},
        attends=True,
    ),
)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def test_values_have_no_positions():
    """A position that is the same everywhere changes no weight of a query without one, and no value."""
    attention = PositionedAttention(MultiHeadAttention(2))
    x, context, position = draw(2, 3, 8), draw(2, 5, 8, seed=1), draw(2, 5, 8, seed=2)
    plain = attention(x, context)
    everywhere = np.broadcast_to(position[:, :1], position.shape)
    np.testing.assert_allclose(attention(x, context, None, everywhere), plain, atol=1e-5)
    assert np.abs(attention(x, context, None, position) - plain).max() > 1e-3
    assert np.abs(attention(x, context, x, None) - plain).max() > 1e-3


def test_a_carried_mask_is_obeyed_with_positions_too():
    attention, position = PositionedAttention(MultiHeadAttention(2)), draw(1, 4, 8)
    token_ids = np.array([[3, 1, 2, 0]])
    x = keras.layers.Embedding(7, 8, mask_zero=True)(token_ids)
    expected = attention(np.array(x), position=position, mask=token_ids != 0)
    np.testing.assert_allclose(attention(x, position=position), expected, atol=1e-6)
    expected = attention(position, np.array(x), context_position=position, mask=token_ids != 0)
    np.testing.assert_allclose(attention(position, x, context_position=position), expected, atol=1e-6)


def test_one_position_serves_the_batch():
    block = detr_block(True)
    x, context, position, of_context = draw(2, 3, 8), draw(2, 5, 8), draw(1, 3, 8), draw(1, 5, 8)
    positions = {"position": position, "context_position": of_context}
    repeated = {name: np.repeat(part, 2, axis=0) for name, part in positions.items()}
    np.testing.assert_allclose(block(x, context, **positions), block(x, context, **repeated), atol=1e-6)


def test_the_class_token_alone_changes():
    layer = ClassAttention(MultiHeadAttention(2))
    x = draw(2, 5, 8)
    y = ops.convert_to_numpy(layer(x))
    np.testing.assert_array_equal(y[:, 1:], x[:, 1:])
    np.testing.assert_allclose(y[:, :1], layer.attention(x[:, :1], x), atol=1e-6)


def test_a_decoder_needs_a_context():
    with pytest.raises(ValueError, match=r"has cross-attention: call it with a `context`"):
        detr_block(True)(draw(1, 3, 8))
