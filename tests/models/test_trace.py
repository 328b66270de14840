"""What a trace records: blocks once, and what goes into the first and comes out of each application."""

import keras
import pytest

from keras_tfm import layers
from keras_tfm.models.base import Trace


def test_a_stack_in_pieces_with_other_layers_and_a_block_that_runs_twice():
    x = keras.Input((3, 4))
    first, second = (layers.TransformerBlock(2, 8, name=f"block_{i}") for i in range(2))
    between = keras.layers.Dense(4, name="between")
    trace = Trace()
    middle = trace.run("encoder", [between, first], x)
    last = trace.run("encoder", [between, second, first], middle)
    assert trace.blocks == {"encoder": [first, second]}
    states = trace.hidden_states["encoder"]
    assert len(states) == 4 and states[1] is middle and states[-1] is last
    model = keras.Model(x, states[0])  # the input of the first block, behind the layer before it
    assert [layer.name for layer in model.layers[1:]] == ["between"]


def test_blocks_get_the_tensors_and_stacks_stand_apart():
    x, hidden = keras.Input((3, 4)), keras.Input((3,), dtype="bool")
    block, other = (layers.TransformerBlock(2, 8, name=f"block_{i}") for i in range(2))
    trace = Trace()
    y = trace.run("images", [keras.layers.Dense(4), block], x, mask=hidden)
    trace.run("texts", [other], x)
    assert list(trace.blocks) == list(trace.hidden_states) == ["images", "texts"]
    assert keras.Model([x, hidden], y).get_layer("block_0") is block
    with pytest.raises(ValueError, match="not connected"):  # without the mask
        keras.Model(x, y)
