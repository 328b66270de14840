"""Which maps a decoder of maps reads of a backbone."""

import pytest

from keras_tfm.heads.map_decoders import maps_of
from keras_tfm.models import CeiT, HybridViT, TransReID, ViT, tiny_config


def test_a_single_block_of_patches_gives_one_map():
    sizes = {"image_size": 8, "patch_size": 4, "dim": 8, "num_heads": 2, "intermediate_dim": 8}
    backbone = ViT.from_size("tiny", **sizes, num_layers=1)
    assert [tuple(x.shape) for x in maps_of(backbone)] == [(None, 2, 2, 8)]


@pytest.mark.parametrize(
    ("family", "grid"),
    [(TransReID, (10, 5)), (HybridViT, (8, 8)), (CeiT, (8, 8))],  # overlapping; of maps of two stems
)
def test_maps_are_the_grid_of_patches(family, grid):
    assert {tuple(x.shape[1:3]) for x in maps_of(family(tiny_config(family)))} == {grid}
