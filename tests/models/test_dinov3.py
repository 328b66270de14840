"""DINOv3: its published sizes, its rotations by row and column, its folders."""

import dataclasses
import math

import numpy as np
import pytest

from keras_tfm.convert import save_huggingface
from keras_tfm.layers import GridRotaryEmbedding
from keras_tfm.models import DINOv3, DINOv3Config
from tests import contract
from tests.contract import Case, floats
from tests.models.folders import check_both_ways, check_refusal

SMALL = DINOv3Config(
    (4, 6), 2, num_channels=1, num_layers=1, dim=8, num_heads=2, intermediate_dim=16, num_registers=2
)
BIASES = {"query_bias": False, "key_bias": True}
GATED = dataclasses.replace(SMALL, num_layers=2, gated=True, activation="silu", **BIASES)

test_contract = contract.check_family(
    Case("DINOv3", lambda: DINOv3(GATED), {"images": floats(4, 6, 1)}, attends=True)
)


# The model cards say 21 M, 29 M, 86 M, 300 M, 840 M and 6,716 M. transformers' counts, less the mask token.
@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("S/16", 21_596_160),
        ("S+/16", 28_692_480),
        ("B/16", 85_659_648),
        ("L/16", 303_128_576),
        ("H+/16", 840_591_360),
        ("7B/16", 6_716_030_976),
    ],
)
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    assert contract.num_parameters(DINOv3.from_size(size).weights) == expected


def test_rotations_by_hand():
    """The cell in the second row and third column of a 2 x 3 grid, of a head with two pairs."""
    position = GridRotaryEmbedding(grid=(2, 3), prefix=1)
    query = np.random.default_rng(0).normal(size=(1, 1, 7, 4)).astype("float32")
    rotated, _ = position.rotate(query, None)
    np.testing.assert_array_equal(rotated[0, 0, 0], query[0, 0, 0])  # the prefix
    a, b, c, d = query[0, 0, 6].astype("float64")
    y, x = 2 * math.pi * 0.5, 2 * math.pi * 2 / 3  # the centre lies at (1/2, 2/3)
    expected = [
        a * math.cos(y) - c * math.sin(y),
        b * math.cos(x) - d * math.sin(x),
        c * math.cos(y) + a * math.sin(y),
        d * math.cos(x) + b * math.sin(x),
    ]
    np.testing.assert_allclose(rotated[0, 0, 6], expected, atol=1e-6)


def test_scores_depend_on_offsets_alone():
    """Equal queries and keys in every cell: one offset, one score."""
    position = GridRotaryEmbedding(grid=4)
    rng = np.random.default_rng(0)
    query, key = (np.broadcast_to(rng.normal(size=8), (1, 1, 16, 8)).astype("float32") for _ in range(2))
    query, key = (np.asarray(x)[0, 0] for x in position.rotate(query, key))
    scores = (query @ key.T).reshape(4, 4, 4, 4)  # query's row and column, key's row and column
    np.testing.assert_allclose(scores[0, 0, 1, 2], scores[2, 1, 3, 3], atol=1e-5)
    assert abs(scores[0, 0, 1, 2] - scores[0, 0, 2, 1]) > 1e-3


def test_another_image_size_keeps_all_weights():
    model = DINOv3(SMALL)
    larger = model.with_image_size((8, 12))
    outputs = larger({"images": np.zeros((1, 8, 12, 1), "float32")})
    assert outputs["sequence_output"].shape == (1, 27, 8) and outputs["patch_output"].shape == (1, 24, 8)
    for old, new in zip(model.weights, larger.weights, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("config", [SMALL, GATED])
def test_folders_of_transformers_both_ways(config, tmp_path):
    model = DINOv3(config)
    check_both_ways(model, tmp_path / "folder")


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="must be a multiple of 4 `num_heads`"):
        dataclasses.replace(SMALL, dim=12)
    with pytest.raises(ValueError, match="must be a multiple of four"):
        GridRotaryEmbedding(2).build((1, 6, 6))
    with pytest.raises(ValueError, match="for 4 tokens; there are 5"):
        GridRotaryEmbedding(2).rotate(np.zeros((1, 1, 5, 4)), None)
    with pytest.raises(ValueError, match="`prefix` must be at least 0"):
        GridRotaryEmbedding(2, prefix=-1)
    save_huggingface(DINOv3(GATED), tmp_path / "folder")
    for changes, message in (
        ({"use_gated_mlp": False}, "gate_proj"),
        ({"key_bias": False}, "k_proj.bias"),
        ({"num_register_tokens": 3}, "register_tokens"),
        ({"proj_bias": False}, "proj_bias"),
    ):
        check_refusal(tmp_path / "folder", changes, message)
