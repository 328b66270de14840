"""LeViT: its published sizes, its stages, its heads."""

import dataclasses

import numpy as np
import pytest
from keras import ops

from keras_tfm.convert import from_huggingface, save_huggingface
from keras_tfm.heads import Classifier, DistilledClassifier
from keras_tfm.models import LeViT, LeViTConfig
from tests import contract
from tests.contract import Case, floats
from tests.models.folders import assert_same, check_both_ways, check_refusal

SMALL = LeViTConfig(
    (32, 48), num_channels=1, dims=(8, 12), num_layers=(1, 1), num_heads=(2, 3), key_dim=4, distilled=True
)
ONE_STAGE = dataclasses.replace(SMALL, dims=(8,), num_layers=(1,), num_heads=(2,))  # enough under a head
IMAGES = {"images": floats(32, 48, 1)}

test_contract = contract.check_family(
    Case("LeViT", lambda: LeViT(SMALL), IMAGES, attends=True, convolves=True),
    Case(
        "DistilledClassifier",
        lambda: DistilledClassifier(LeViT(ONE_STAGE), 3),
        IMAGES,
        attends=True,
        convolves=True,
    ),
)


# Graham et al. 2021, table 1, with both heads of 1,000 classes: 7.8 M, 9.2 M, 11 M, 19 M and 39 M.
@pytest.mark.parametrize(
    ("size", "with_two_heads"),
    [
        ("128S", 7_777_058),
        ("128", 9_213_936),
        ("192", 10_947_069),
        ("256", 18_893_876),
        ("384", 39_128_836),
    ],
)
def test_parameters_of_the_published_sizes(size, with_two_heads, no_allocation):
    model = DistilledClassifier(LeViT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_two_heads


def test_outputs_and_states():
    model = LeViT(SMALL)
    images = np.random.default_rng(0).random((3, 32, 48, 1), "float32")
    outputs = model({"images": images})
    assert {name: y.shape for name, y in outputs.items()} == {
        "sequence_output": (3, 2, 12),  # of 2 x 3 cells every second row and column: 1 x 2
        "pooled_output": (3, 12),
        "distilled_output": (3, 12),
    }
    names = [block.name for block in model.blocks["encoder"]]
    assert names == ["stage_0_block_0", "stage_1_shrinking", "stage_1_block_0"]
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(6, 8), (6, 8), (2, 12), (2, 12)]
    plain = LeViT(dataclasses.replace(SMALL, distilled=False))
    assert "distilled_output" not in plain.output


def test_blocks_begin_as_the_identity():
    """The last batch norm of a branch has the gain 0; what shrinks has no residual, and one of 1."""
    model = LeViT(SMALL)
    block, shrinking, _ = model.blocks["encoder"]
    x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
    np.testing.assert_array_equal(block(x), x)
    assert np.abs(ops.convert_to_numpy(shrinking(x))).max() > 0.01


def test_shrinking_queries_are_every_second_row_and_column():
    """A query sees its own cell first where a bias says so."""
    _, shrinking, _ = LeViT(SMALL).blocks["encoder"]
    table = np.zeros((6, 2), "float32")
    table[0] = 1e4  # the offset 0
    shrinking.attention.position.table.assign(table)
    x = np.random.default_rng(0).normal(size=(1, 6, 8)).astype("float32")
    only = shrinking.attention(x[:, [0, 2]], x)
    for i, cell in enumerate((0, 2)):
        values = np.repeat(x[:, cell : cell + 1], 6, axis=1)
        alone = shrinking.attention(x[:, [0, 2]], values)
        np.testing.assert_allclose(only[:, i], alone[:, i], atol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match="no size '512'; it has 128S, 128, 192, 256, 384"):
        LeViT.from_size("512")
    with pytest.raises(ValueError, match="must have a `distilled_output`"):
        DistilledClassifier(LeViT(dataclasses.replace(SMALL, distilled=False)), 3)
    with pytest.raises(
        ValueError, match="`dims`, `num_layers` and `num_heads` must have a number for each stage"
    ):
        LeViT(dataclasses.replace(SMALL, num_heads=(2, 3, 4)))
    with pytest.raises(ValueError, match="`dims` must be multiples of 8 and of `key_dim`"):
        LeViT(dataclasses.replace(SMALL, dims=(12, 12)))


THREE_STAGES = LeViTConfig(
    32, num_channels=1, dims=(8, 8, 16), num_layers=(1, 2, 1), num_heads=(1, 2, 3), key_dim=4
)


def test_folders_of_transformers_both_ways(tmp_path):
    distilled = dataclasses.replace(THREE_STAGES, distilled=True)
    check_both_ways(DistilledClassifier(LeViT(distilled), 3), tmp_path / "distilled")
    check_both_ways(Classifier(LeViT(THREE_STAGES), 3), tmp_path / "plain")
    check_both_ways(LeViT(THREE_STAGES), tmp_path / "backbone")
    backbone = LeViT.from_huggingface(tmp_path / "distilled")
    assert_same(backbone, from_huggingface(tmp_path / "distilled").backbone)


def test_what_transformers_computes_otherwise(tmp_path):
    for changes, message in (
        ({"image_size": (32, 48)}, r"squares of a multiple of 16 pixels; `image_size` is \(32, 48\)"),
        ({"image_size": 40}, "squares of a multiple of 16 pixels; `image_size` is 40"),
        ({"dims": (8, 8), "num_layers": (1, 1), "num_heads": (1, 1)}, "LevitModel has three stages"),
    ):
        with pytest.raises(ValueError, match=message):
            save_huggingface(LeViT(dataclasses.replace(THREE_STAGES, **changes)), tmp_path / "other")
    save_huggingface(LeViT(THREE_STAGES), tmp_path / "folder")
    check_refusal(tmp_path / "folder", {"key_dim": [4, 4, 8]}, "key_dim: expected a value of its kind")
    check_refusal(tmp_path / "folder", {"mlp_ratio": [2, 4, 2]}, r"mlp_ratio: expected \[2, 2, 2\]")
    check_refusal(tmp_path / "folder", {"depths": [1, 2, 300]}, "`num_layers` is 300")
