"""MiT, SegFormer's encoder: its published sizes, its maps, where positions come from, its checkpoints."""

import dataclasses
import json

import numpy as np
import pytest

from keras_tfm.convert import save_huggingface
from keras_tfm.heads import Classifier
from keras_tfm.models import MiT, MiTConfig
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import check_both_ways, check_refusal

SMALL = MiTConfig(
    image_size=(12, 20),
    num_channels=1,
    dims=(4, 6),
    depths=(2, 1),
    num_heads=(1, 2),
    patch_sizes=(3, 3),
    strides=(2, 2),
    reductions=(2, 1),
    mlp_ratios=(2, 3),
)
IMAGES = {"images": floats(12, 20, 1)}

test_contract = contract.check_family(Case("MiT", lambda: MiT(SMALL), IMAGES, attends=True, convolves=True))


# Xie et al. 2021, table 1, has the encoders alone: 3.4 M, 13.1 M, 24.2 M, 44.0 M, 60.8 M and 81.4 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"),
    [
        ("B0", 3_576_392),
        ("B1", 13_664_424),
        ("B2", 24_709_288),
        ("B3", 44_585_128),
        ("B4", 61_355_688),
        ("B5", 81_956_008),
    ],
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(MiT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = MiT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 12, 20, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 15, 6)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    names = [block.name for block in model.blocks["encoder"]]
    assert names == ["stage_0_block_0", "stage_0_block_1", "stage_1_block_0"]
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(6, 10, 4)] * 3 + [(3, 5, 6)]
    assert [x.shape[1:] for x in model.maps] == [(6, 10, 4), (3, 5, 6)]


def test_a_feedforward_layer_tells_cells_where_they_are():
    """In a map of equal cells the inner ones stay equal; cells at an edge see the zeros around it."""
    model = MiT(SMALL)
    randomise(model, 1)
    part = model.blocks["encoder"][0].feedforward
    x = np.broadcast_to(np.random.default_rng(0).normal(size=4).astype("float32"), (1, 6, 10, 4))
    y = np.asarray(part(x))
    inner = y[:, 1:-1, 1:-1]
    np.testing.assert_allclose(inner, np.broadcast_to(inner[:, :1, :1], inner.shape), atol=1e-5)
    assert (np.abs(y[:, [0, -1]] - inner[:, 0, 0]).max(-1) > 1e-3).all()


def test_keys_are_those_of_a_smaller_map():
    model = MiT(SMALL)
    reduced, whole = (model.blocks["encoder"][i].attention.branch for i in (0, 2))
    assert reduced.reduction.compute_output_shape((1, 6, 10, 4)) == (1, 3, 5, 4)
    assert whole.reduction is None


def test_folders_of_transformers_both_ways(tmp_path):
    model = Classifier(MiT(SMALL), 3)
    check_both_ways(model, tmp_path / "folder")
    entries = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert (entries["num_encoder_blocks"], entries["mlp_ratios"]) == (2, [2, 3])
    for name, value, message in (
        ("hidden_sizes", [4, 2**20], "`dims` is 1,048,576, and no weight"),
        ("mlp_ratios", [2, 64], r"mlp\.dense1\.weight: expected the shape \(384,"),
        ("sr_ratios", [4, 1], r"attention\.self\.sr\.weight"),
        ("sr_ratios", [2, 3], r"attention\.self\.sr\.weight: .* got none"),
        ("depths", [2, 1, 1], "must have a number for each stage"),
        ("reshape_last_stage", False, "reshape_last_stage"),
    ):
        check_refusal(tmp_path / "folder", {name: value}, message)
    with pytest.raises(ValueError, match=r"takes whole `mlp_ratios`; they are \(2\.5, 3\.0\)"):
        save_huggingface(MiT(dataclasses.replace(SMALL, mlp_ratios=(2.5, 3))), tmp_path / "other")


def test_refusals():
    with pytest.raises(ValueError, match="no size 'B6'; it has B0"):
        MiT.from_size("B6")
    with pytest.raises(ValueError, match="`mlp_ratios` must have a number for each stage"):
        MiTConfig(mlp_ratios=(4, 4))
    with pytest.raises(ValueError, match="A map of 2 x 3 is smaller than a window of 5 x 5"):
        MiT(dataclasses.replace(SMALL, image_size=(8, 12), reductions=(2, 5)))
