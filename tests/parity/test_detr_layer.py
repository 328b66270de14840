"""Live: DETR's decoder and encoder layers against transformers', on random weights."""

import keras
import numpy as np
import pytest
import torch
from transformers import DetrConfig
from transformers.models.detr.modeling_detr import DetrDecoderLayer, DetrEncoderLayer

from keras_tfm.convert import keymap
from tests.layers.flat import detr_block

pytestmark = pytest.mark.parity
DIM = 24
ATTENTION = "block/{}/branch/attention"


def rows():
    """The table of both kinds of layers."""
    table = []
    for ours, theirs in (("attention", "self_attn"), ("context_attention", "encoder_attn")):
        branch = ATTENTION.format(ours)
        for part, key in (("query", "q"), ("key", "k"), ("value", "v")):
            table += keymap.linear(f"{branch}/projections/{part}", f"{theirs}.{key}_proj")
        table += keymap.linear(f"{branch}/output", f"{theirs}.o_proj")
        table += keymap.norm(f"block/{ours}/norm", f"{theirs}_layer_norm")
    table += keymap.linear("block/feedforward/branch/hidden", "mlp.fc1")
    table += keymap.linear("block/feedforward/branch/output", "mlp.fc2")
    return table + keymap.norm("block/feedforward/norm", "final_layer_norm")


def reference(layer_class, seed):
    torch.manual_seed(seed)
    config = DetrConfig(
        d_model=DIM,
        decoder_attention_heads=3,
        encoder_attention_heads=3,
        decoder_ffn_dim=40,
        encoder_ffn_dim=40,
    )
    config._attn_implementation = "eager"
    layer = layer_class(config).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer, {key: tensor.numpy() for key, tensor in layer.state_dict().items()}


def assert_equal(block, state, inputs, expected):
    """The outputs of `block`, with their weights `state`, equal theirs; and the weights go back."""
    symbols = {name: keras.Input(x.shape[1:], dtype=str(x.dtype), name=name) for name, x in inputs.items()}
    model = keras.Model(symbols, block(**symbols))
    assert keymap.load(model, state, rows(), "theirs") == state.keys()
    for key, tensor in keymap.save(model, rows()).items():
        np.testing.assert_array_equal(tensor, state[key])
    y = keras.ops.convert_to_numpy(model(inputs))
    assert np.abs(y - expected.numpy()).max() <= 1e-5 * np.abs(expected.numpy()).max()


def additive(mask):
    """What transformers adds to the scores for a padding mask."""
    return torch.from_numpy(np.where(mask, 0, np.finfo("float32").min).astype("float32"))[:, None, None]


def draw(rng, *shape):
    return rng.normal(size=shape).astype("float32")


@pytest.mark.parametrize("seed", range(3))
def test_the_decoders_layer(seed):
    rng = np.random.default_rng(seed)
    layer, state = reference(DetrDecoderLayer, seed)
    inputs = {
        "x": draw(rng, 2, 5, DIM),
        "context": draw(rng, 2, 7, DIM),
        "position": draw(rng, 2, 5, DIM),
        "context_position": draw(rng, 2, 7, DIM),
        "context_mask": np.arange(7) < [[7], [4]],
    }
    theirs = {name: torch.from_numpy(x) for name, x in inputs.items()}
    with torch.no_grad():
        expected = layer(
            theirs["x"],
            spatial_position_embeddings=theirs["context_position"],
            object_queries_position_embeddings=theirs["position"],
            encoder_hidden_states=theirs["context"],
            encoder_attention_mask=additive(inputs["context_mask"]),
        )
    assert_equal(detr_block(True, 3, 40, name="block"), state, inputs, expected)


@pytest.mark.parametrize("seed", range(3))
def test_the_encoders_layer(seed):
    rng = np.random.default_rng(seed)
    layer, state = reference(DetrEncoderLayer, seed)
    inputs = {
        "x": draw(rng, 2, 7, DIM),
        "position": draw(rng, 2, 7, DIM),
        "mask": np.arange(7) < [[7], [4]],
    }
    with torch.no_grad():
        expected = layer(
            torch.from_numpy(inputs["x"]),
            additive(inputs["mask"]),
            torch.from_numpy(inputs["position"]),
        )
    expected = expected[0] if isinstance(expected, tuple) else expected
    assert_equal(detr_block(False, 3, 40, name="block"), state, inputs, expected)
