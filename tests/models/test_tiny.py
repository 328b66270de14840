"""The small configurations: one of each family of images, that all have about a million weights."""

import pytest

from keras_tfm.models import ViT, tiny_config
from keras_tfm.tasks import IMAGE_FAMILIES
from tests import contract


@pytest.mark.parametrize("name", IMAGE_FAMILIES)
def test_every_family_has_a_tiny_model(name, no_allocation):
    family = IMAGE_FAMILIES[name]
    model = family(tiny_config(family))
    assert model.input["images"].shape[1] <= 64
    assert 3e5 < contract.num_parameters(model.weights) < 4e6


def test_families_keep_their_own():
    assert tiny_config(ViT) is ViT.sizes["tiny"]
