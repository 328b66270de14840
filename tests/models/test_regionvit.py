"""RegionViT: its published sizes, its states, how regions and cells attend."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import RegionViT, RegionViTConfig
from keras_tfm.models.vision.regionvit import ToRegions, cells_of, regions_of
from keras_tfm.training.safetensors import CheckpointError
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references.regionvit import config_of, offsets

SMALL = RegionViTConfig(
    image_size=(16, 32), num_channels=1, dims=(8, 16), depths=(2, 1), num_heads=(1, 2), window=2
)
IMAGES = {"images": floats(16, 32, 1)}

# The outputs are of the regions, which no bias of the last block reaches.
IDLE = "stage_1_block_0/position/table"

test_contract = contract.check_family(
    Case(
        "RegionViT",
        lambda: RegionViT(SMALL),
        IMAGES,
        attends=True,
        convolves=True,
        without_effect=(IDLE,),
    )
)


# Chen et al. 2022, table 2: 13.8 M, 30.6 M, 41.2 M and 72.7 M.
@pytest.mark.parametrize(
    ("size", "with_1000_classes"),
    [("Ti", 13_842_676), ("S", 30_586_618), ("M", 41_215_906), ("B", 72_747_232)],
)
def test_parameters_of_the_published_sizes(size, with_1000_classes, no_allocation):
    model = Classifier(RegionViT.from_size(size), 1000)
    assert contract.num_parameters(model.trainable_weights) == with_1000_classes


def test_outputs_and_states():
    model = RegionViT(SMALL)
    outputs = model({"images": np.random.default_rng(0).random((3, 16, 32, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 2, 16)
    np.testing.assert_allclose(outputs["pooled_output"], np.mean(outputs["sequence_output"], 1), atol=1e-6)
    names = [block.name for block in model.blocks["encoder"]]
    assert names == ["stage_0_block_0", "stage_0_block_1", "stage_1_block_0"]
    assert [x.shape[1:] for x in model.hidden_states["encoder"]] == [(8, 5, 8)] * 3 + [(2, 5, 16)]
    assert [x.shape[1:] for x in model.maps] == [(4, 8, 8), (2, 4, 16)]
    assert [x.shape[1:] for x in model.region_maps] == [(2, 4, 8), (1, 2, 16)]
    one_convolution = RegionViT(dataclasses.replace(SMALL, deep_stem=False))
    assert one_convolution.get_layer("stem").output.shape[1:] == (4, 8, 8)


def test_a_state_is_windows_behind_their_regions():
    cells = np.arange(8, dtype="float32").reshape(1, 2, 4, 1)
    regions = np.float32([10, 20]).reshape(1, 1, 2, 1)
    state = ToRegions(2)(cells, regions)
    np.testing.assert_array_equal(np.squeeze(state), [[10, 0, 1, 4, 5], [20, 2, 3, 6, 7]])
    np.testing.assert_array_equal(cells_of(state, 2, (1, 2)), cells)
    np.testing.assert_array_equal(regions_of(state, (1, 2)), regions)


def test_a_cell_hears_of_its_window_and_of_all_regions():
    model = RegionViT(SMALL)
    randomise(model, 1)
    block = model.blocks["encoder"][0]
    x = np.random.default_rng(0).normal(size=(1, 8, 5, 8)).astype("float32")

    def changed(token):
        other = x.copy()
        other[0, 2, token, 0] += 1
        return np.abs(np.asarray(block(other)) - np.asarray(block(x)))[0].max(-1) > 1e-6

    own = np.zeros((8, 5), "bool")
    own[2] = True
    np.testing.assert_array_equal(changed(3), own)
    assert changed(0).all()


def test_offsets_come_round_in_the_authors_table():
    """For a window of 2 theirs counts key - query from -1: columns -1, 0, 1; ours query - key: 1, 0, -1."""
    table = np.arange(18.0).reshape(2, 9)
    ours = offsets(2).load(table)
    np.testing.assert_array_equal(ours[:, 0], [8, 7, 6, 5, 4, 3, 2, 1, 0])
    np.testing.assert_array_equal(offsets(3).load(np.arange(25)[None])[:5, 0], [18, 17, 16, 15, 19])
    for window in (2, 3, 4):
        table = np.random.default_rng(0).random((2, (2 * window - 1) ** 2))
        (again,) = offsets(window).save(offsets(window).load(table), 1)
        np.testing.assert_array_equal(again, table)


def test_refusals():
    with pytest.raises(ValueError, match="no size 'L'; it has Ti, S, M, B"):
        RegionViT.from_size("L")
    with pytest.raises(
        ValueError, match="`dims`, `depths` and `num_heads` must have a number for each stage"
    ):
        RegionViTConfig(dims=(8, 16))
    with pytest.raises(ValueError, match=r"Each of `dims` must be a multiple of the one before it"):
        RegionViTConfig(dims=(4, 6), depths=(1, 1), num_heads=(1, 1))
    with pytest.raises(ValueError, match="16 x 24 are not divisible into patches of 16 x 16"):
        RegionViT(dataclasses.replace(SMALL, image_size=(16, 24)))
    arguments = {
        "patch_conv_type": "1conv",
        "embed_dim": [4, 4, 8],
        "depth": [1, 1],
        "downsampling": ["c", "sc"],
        "kernel_sizes": [2, 2],
    }
    assert not config_of(arguments | {"num_heads": [1, 1]}).deep_stem
    for changes, message in (
        ({"peg": True}, "peg: expected False, got True"),
        ({"patch_conv_type": "linear"}, "patch_conv_type: expected one of 3conv, 1conv"),
        ({"embed_dim": [2, 4, 8]}, "embed_dim: expected a width for the patches and the first stage"),
        ({"kernel_sizes": [2, 3]}, "kernel_sizes: expected one number in all stages"),
    ):
        with pytest.raises(CheckpointError, match=message):
            config_of(arguments | changes)
