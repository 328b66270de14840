"""PiT: its published sizes, what becomes of patches and tokens between its stages, its heads."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.convert import keymap
from keras_tfm.convert.pit import TIMM, rows
from keras_tfm.heads import Classifier, DistilledClassifier
from keras_tfm.models import PiT, PiTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references.timm import read_pit

SMALL = PiTConfig(
    (9, 13),
    patch_size=5,
    stride=2,
    num_channels=1,
    dims=(4, 8),
    depths=(1, 1),
    num_heads=(1, 2),
    mlp_ratio=1.5,
    distilled=True,
)
IMAGES = {"images": floats(9, 13, 1)}

test_contract = contract.check_family(Case("PiT", lambda: PiT(SMALL), IMAGES, attends=True, convolves=True))


# Heo et al. 2021, table 1: 4.9 M, 10.6 M, 23.5 M and 73.8 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"),
    [("Ti", 4_847_272), ("XS", 10_618_888), ("S", 23_461_912), ("B", 73_764_840)],
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(PiT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_parameters_with_two_tokens_and_heads(no_allocation):
    model = DistilledClassifier(PiT.from_size("Ti-distilled"), 1000)
    assert contract.num_parameters(model.trainable_weights) == 5_104_336


def test_outputs_and_states():
    model = PiT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 9, 13, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 2 + 2 * 3, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    np.testing.assert_array_equal(outputs["distilled_output"], outputs["sequence_output"][:, 1])
    assert [block.name for block in model.blocks["encoder"]] == ["stage_0_block_0", "stage_1_block_0"]
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(17, 4), (17, 4), (8, 8)]
    assert [x.shape[1:] for x in model.maps] == [(3, 5, 4), (2, 3, 8)]
    assert "distilled_output" not in PiT(dataclasses.replace(SMALL, distilled=False)).output


def test_between_stages_patches_are_convolved_and_tokens_projected():
    """By hand: each channel's two filters, on every second row and column, with zeros around the grid."""
    model = PiT(SMALL)
    randomise(model, 1)
    pooling = model.get_layer("stage_1_pooling")
    x = np.random.default_rng(0).normal(size=(2, 17, 4)).astype("float32")
    y = np.asarray(pooling(x))
    kernel, bias = pooling.dense.get_weights()
    np.testing.assert_allclose(y[:, :2], x[:, :2] @ kernel + bias, atol=1e-5)
    kernel, bias = pooling.convolution.convolution.get_weights()  # (3, 3, 4, 2)
    cells = np.pad(x[:, 2:].reshape(2, 3, 5, 4), ((0, 0), (1, 1), (1, 1), (0, 0)))
    expected = [
        np.einsum("brcd,rcdm->bdm", cells[:, row : row + 3, column : column + 3], kernel).reshape(2, 8) + bias
        for row in (0, 2)
        for column in (0, 2, 4)
    ]
    np.testing.assert_allclose(y[:, 2:], np.stack(expected, axis=1), atol=1e-5)


def test_names_of_timm():
    model = DistilledClassifier(PiT(SMALL), 5)
    randomise(model, 1)
    weights = keymap.save(model, rows(SMALL))
    assert weights["pos_embed"].shape == (1, 4, 3, 5)
    assert weights["transformers.1.pool.conv.weight"].shape == (8, 1, 3, 3)
    arguments = {
        "img_size": (9, 13),
        "patch_size": 5,
        "stride": 2,
        "in_chans": 1,
        "base_dims": [4, 4],
        "depth": [1, 1],
        "heads": [1, 2],
        "mlp_ratio": 1.5,
        "distilled": True,
        "drop_path_rate": 0.1,
        "num_classes": 5,
    }
    assert TIMM.read_config(arguments) == SMALL
    again, _ = read_pit(arguments, weights)
    for a, b in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(CheckpointError, match="stem_type"):
        TIMM.read_config(arguments | {"stem_type": "deep"})
    assert {*TIMM.architectures.values()} == {*PiT.sizes}


def test_stochastic_depth_grows_with_the_depth():
    blocks = PiT(dataclasses.replace(SMALL, depths=(1, 2), stochastic_depth=0.2)).blocks["encoder"]
    np.testing.assert_allclose([block.attention.stochastic_depth for block in blocks], [0, 0.1, 0.2])


def test_refusals():
    with pytest.raises(ValueError, match="`dims`, `depths` and `num_heads` must have a number for each"):
        dataclasses.replace(SMALL, depths=(1,))
    with pytest.raises(
        ValueError, match=r"Each of `dims` must be a multiple of the one before; they are \(4, 6"
    ):
        dataclasses.replace(SMALL, dims=(4, 6))
    with pytest.raises(ValueError, match="A map of 4 x 13 is smaller than a window of 5 x 5"):
        PiT(dataclasses.replace(SMALL, image_size=(4, 13)))
