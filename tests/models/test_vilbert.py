"""ViLBERT's two streams: the contract, the order of blocks and connections, who reads whom."""

import numpy as np
import pytest

from keras_tfm.models import ViLBERT, ViLBERTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, mask, randomise
from tests.parity.references.vilbert import config_of

SMALL = ViLBERTConfig(1, 6, 2, 5, 2, 8, 2, 7, 4, 2, (0, 1), (1, 1))
INPUTS = {
    "image_tokens": floats("S", 6),
    "text_tokens": floats("T", 8),
    "image_mask": mask("S"),
    "text_mask": mask("T"),
}

test_contract = contract.check_family(Case("ViLBERT", lambda: ViLBERT(SMALL), INPUTS, attends=True))


def draw():
    rng = np.random.default_rng(0)
    names = ("image_tokens", "text_tokens")
    shapes = zip(names, ((2, 4, 6), (2, 5, 8)), strict=True)
    return {name: rng.normal(size=shape).astype("float32") for name, shape in shapes}


@pytest.fixture(scope="module")
def model():
    model = ViLBERT(SMALL)
    randomise(model, 1)
    return model


def test_blocks_and_connections_in_their_order(model):
    assert {side: [block.name for block in blocks] for side, blocks in model.blocks.items()} == {
        "image": ["image_connection_0", "image_block_0", "image_connection_1"],
        "text": ["text_block_0", "text_connection_0", "text_connection_1", "text_block_1"],
    }
    outputs = model(draw())
    assert outputs["image_sequence_output"].shape == (2, 4, 6)
    assert outputs["text_sequence_output"].shape == (2, 5, 8)
    assert [len(states) for states in model.hidden_states.values()] == [4, 5]


def test_each_stream_reads_the_other_and_no_padding(model):
    inputs = draw()
    masks = {"image_mask": np.ones((2, 4), bool), "text_mask": np.ones((2, 5), bool)}
    whole = model(inputs | masks)
    np.testing.assert_allclose(model(inputs)["image_sequence_output"], whole["image_sequence_output"])
    with pytest.raises(ValueError, match=r"`image_mask` must have the shape \(2, 4\), like `image_tokens`"):
        model(inputs | {"image_mask": np.ones((2, 5), bool)})
    for side, other in (("image", "text"), ("text", "image")):
        changed = {name: x.copy() for name, x in inputs.items()}
        changed[f"{other}_tokens"][:, -1] += 1
        differs = np.abs(model(changed | masks)[f"{side}_sequence_output"] - whole[f"{side}_sequence_output"])
        assert differs.max() > 1e-3
        hidden = {name: x.copy() for name, x in masks.items()}
        hidden[f"{other}_mask"][:, -1] = False
        a, b = (model(x | hidden)[f"{side}_sequence_output"] for x in (inputs, changed))
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_each_stream_has_its_activation():
    """Read by the authors' arguments; what is behind it is not negative where it is a ReLU."""
    arguments = {
        **{
            f"{letter}{name}": 1
            for letter in ("v_", "")
            for name in ("num_hidden_layers", "num_attention_heads")
        },
        **{f"{letter}{name}": 6 for letter in ("v_", "") for name in ("hidden_size", "intermediate_size")},
        "bi_hidden_size": 4,
        "bi_num_attention_heads": 2,
        "v_biattention_id": [0],
        "t_biattention_id": [1],
        "v_hidden_act": "relu",
        "hidden_act": "gelu",
    }
    model = ViLBERT(config_of(arguments))
    randomise(model, 1)
    x = np.random.default_rng(0).normal(size=(2, 4, 6)).astype("float32")
    for side, blocks in model.blocks.items():
        for block in blocks:
            hidden = np.asarray(block.feedforward.branch.hidden(x))
            assert (hidden.min() == 0) == (side == "image") and hidden.max() > 0, block.name
    with pytest.raises(CheckpointError, match="hidden_act: expected one of gelu, relu, swish, got 'tanh'"):
        config_of(arguments | {"hidden_act": "tanh"})


def test_the_published_size(no_allocation):
    """Counted by hand: blocks of the two streams, and connections of 1,024 between 1,024 and 768."""

    def dense(rows, columns):
        return rows * columns + columns

    def block(dim, width):
        return 4 * dense(dim, dim) + dense(dim, width) + dense(width, dim) + 4 * dim

    def half(dim, other, width):
        attention = dense(dim, 1024) + 2 * dense(other, 1024) + dense(1024, dim)
        return attention + dense(dim, width) + dense(width, dim) + 4 * dim

    expected = 6 * block(1024, 1024) + 12 * block(768, 3072)
    expected += 6 * (half(1024, 768, 1024) + half(768, 1024, 3072))
    model = ViLBERT.from_size("base")
    assert sum(int(np.prod(weight.shape)) for weight in model.trainable_weights) == expected


def test_refusals():
    for wrong, message in (
        ({"image_connections": (0,)}, "must have one length; they have"),
        ({"image_connections": (1, 0)}, "`image_connections` must rise, to 1 blocks at most"),
        ({"text_connections": (1, 3)}, "`text_connections` must rise, to 2 blocks at most"),
        ({"connection_dim": 5}, "`num_connection_heads` must divide `connection_dim`"),
    ):
        with pytest.raises(ValueError, match=message):
            ViLBERTConfig(**{**vars(SMALL), **wrong})
    with pytest.raises(ValueError, match="needs 'text_"):
        ViLBERT(SMALL)({"image_tokens": draw()["image_tokens"]})
