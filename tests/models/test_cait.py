"""CaiT: its published sizes, its mixed heads, its blocks of the class token."""

import dataclasses

import numpy as np
import pytest
from keras import ops

from keras_tfm.convert import keymap
from keras_tfm.convert.cait import TIMM, rows
from keras_tfm.heads import Classifier
from keras_tfm.models import CaiT, CaiTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references.timm import read_cait

SMALL = CaiTConfig(
    (4, 6),
    patch_size=2,
    num_channels=1,
    num_layers=1,
    num_class_layers=1,
    dim=8,
    num_heads=2,
    intermediate_dim=12,
    class_intermediate_dim=20,
    layer_scale=0.5,
)
IMAGES = {"images": floats(4, 6, 1)}

test_contract = contract.check_family(Case("CaiT", lambda: CaiT(SMALL), IMAGES))


# timm's counts; Touvron et al. 2021, table 3, has 12.0 M, 17.3 M, 26.6 M, 46.9 M, 68.2 M and 270.9 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"),
    [
        ("XXS24/224", 11_956_264),
        ("XS24/384", 26_670_088),
        ("S24/224", 46_916_200),
    ],
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(CaiT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = CaiT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 4, 6, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 7, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    names = {stack: [block.name for block in blocks] for stack, blocks in model.blocks.items()}
    assert names == {"encoder": ["block_0"], "class": ["class_block_0"]}
    assert [x.shape[1] for x in model.hidden_states["encoder"]] == [6, 6]
    assert [x.shape[1] for x in model.hidden_states["class"]] == [7, 7]


def test_heads_are_mixed_before_and_after_the_softmax():
    model = CaiT(SMALL)
    randomise(model, 1)
    attention = model.blocks["encoder"][0].attention.branch
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    query, key, value = (np.float64(part) for part in attention.projections.project(ops.convert_to_tensor(x)))

    def mixed(layer, y):
        kernel, bias = layer.mixing.get_weights()
        return np.einsum("bhts,hg->bgts", y, kernel) + bias

    scores = mixed(attention.on_scores, np.einsum("bhtk,bhsk->bhts", query, key) / 2)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    heads = np.einsum("bhts,bhsk->bhtk", mixed(attention.on_weights, weights), value)
    np.testing.assert_allclose(attention(x), attention.merge(heads.astype("float32")), atol=1e-5)


def test_gains_and_rates():
    model = CaiT(dataclasses.replace(SMALL, num_layers=2, stochastic_depth=0.25))
    for block in model.blocks["encoder"] + model.blocks["class"]:
        for part in (block.attention, block.feedforward):
            np.testing.assert_array_equal(part.scale, np.full(8, 0.5, "float32"))
            assert part.stochastic_depth == (0 if "class" in block.name else 0.25)


def test_names_of_timm():
    model = Classifier(CaiT(SMALL), 5)
    randomise(model, 1)
    weights = keymap.save(model, rows(SMALL))
    assert weights["blocks.0.attn.proj_l.bias"].shape == (2,)
    arguments = {
        "img_size": (4, 6),
        "patch_size": 2,
        "in_chans": 1,
        "embed_dim": 8,
        "depth": 1,
        "num_heads": 2,
        "mlp_ratio": 1.5,
        "mlp_ratio_token_only": 2.5,
        "depth_token_only": 1,
        "init_values": 0.5,
        "drop_path_rate": 0.1,
        "num_classes": 5,
    }
    assert TIMM.read_config(arguments) == SMALL
    again, _ = read_cait(arguments, weights)
    for a, b in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert weights["blocks_token_only.0.mlp.fc1.weight"].shape == (20, 8)
    usual = TIMM.read_config(arguments | {"mlp_ratio_token_only": 1.5})
    assert usual == dataclasses.replace(SMALL, class_intermediate_dim=None)
    with pytest.raises(CheckpointError, match="mlp_ratio_token_only: expected a multiple of `embed_dim`"):
        TIMM.read_config(arguments | {"mlp_ratio_token_only": "4.0"})
    assert {*TIMM.architectures.values()} == {*CaiT.sizes}


def test_refusals():
    with pytest.raises(ValueError, match=r"no size 'S24'; it has XXS24/224"):
        CaiT.from_size("S24")
    with pytest.raises(ValueError, match="`num_heads` must divide `dim`, 8; it is 3"):
        dataclasses.replace(SMALL, num_heads=3)
    with pytest.raises(ValueError, match="5 x 6 are not divisible into patches of 2 x 2"):
        CaiT(dataclasses.replace(SMALL, image_size=(5, 6)))
