"""Which maps a decoder of maps reads of a backbone."""

from keras_tfm.heads.map_decoders import maps_of
from keras_tfm.models import ViT


def test_a_single_block_of_patches_gives_one_map():
    sizes = {"image_size": 8, "patch_size": 4, "dim": 8, "num_heads": 2, "intermediate_dim": 8}
    backbone = ViT.from_size("tiny", **sizes, num_layers=1)
    assert [tuple(x.shape) for x in maps_of(backbone)] == [(None, 2, 2, 8)]
