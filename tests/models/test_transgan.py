"""TransGAN: its sizes by hand, windows of large maps, the joined patches of its discriminator."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.models import TransGAN, TransGANConfig, TransGANDiscriminator, TransGANDiscriminatorConfig
from keras_tfm.models.pictures.transgan import PixelNormalization
from keras_tfm.visualize import record_attention
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = TransGANConfig((1, 1), 1, 16, 2, 2.0, first_side=2, latent_dim=5, largest_map=2, window=2)
CRITIC = TransGANDiscriminatorConfig((1, 1), 1, 16, 2, 2.0, image_size=4, patch_size=1)

test_contract = contract.check_family(
    Case("TransGAN", lambda: TransGAN(SMALL), {"latents": floats(5)}, attends=True),
    Case("TransGANDiscriminator", lambda: TransGANDiscriminator(CRITIC), {"images": floats(4, 4, 1)},
         attends=True, convolves=True, deviation=0.1),
)  # fmt: skip
test_norm = contract.check(Case("pixel norm", PixelNormalization, {"x": floats("T", 6)}))


def test_parameters_of_the_published_size(no_allocation):
    model = TransGAN.from_size("32")
    blocks = [(1024, 8, 5), (256, 16, 4), (64, 32, 2)]  # width, side, how many
    expected = 513 * 64 * 1024 + sum(side**2 * width for width, side, _ in blocks) + 3 * 65
    for width, side, count in blocks:
        expected += count * (12 * width**2 + 6 * width + 4 * (2 * side - 1) ** 2)
    assert contract.num_parameters(model.trainable_weights) == expected


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_a_stage_doubles_the_sides():
    model = TransGAN(dataclasses.replace(SMALL, depths=(1, 1, 1), dim=32))
    assert [x.shape[1:] for x in model.maps] == [(2, 2, 32), (4, 4, 8), (8, 8, 2)]
    assert model.config.image_size == 8
    assert [block.name for block in model.blocks["generator"]] == [f"stage_{i}_block_0" for i in range(3)]


def test_cells_of_large_maps_attend_to_their_window():
    model = TransGAN(SMALL)
    with record_attention(model) as records:
        model({"latents": draw(3, 5)})
    assert [np.shape(x) for x in records.values()] == [(3, 2, 4, 4), (4 * 3, 2, 4, 4)]
    whole = TransGAN(dataclasses.replace(SMALL, largest_map=4))
    with record_attention(whole) as records:
        whole({"latents": draw(3, 5)})
    assert [np.shape(x) for x in records.values()] == [(3, 2, 4, 4), (3, 2, 16, 16)]


def test_one_window_is_attention_to_all():
    """A window as large as the map makes no difference."""
    windowed, whole = (
        TransGAN(dataclasses.replace(SMALL, window=4)),
        TransGAN(dataclasses.replace(SMALL, largest_map=4)),
    )
    randomise(windowed, 1)
    whole.set_weights(windowed.get_weights())
    latents = {"latents": draw(3, 5)}
    np.testing.assert_allclose(windowed(latents)["images"], whole(latents)["images"], atol=1e-5)


def test_pixel_normalisation_divides_by_the_root_mean_square():
    y = np.asarray(PixelNormalization()(10 * draw(2, 3, 8)))
    np.testing.assert_allclose(np.mean(y**2, -1), 1, rtol=1e-5)


def test_the_discriminator_sees_larger_patches_in_its_second_stage():
    model = TransGANDiscriminator(CRITIC)
    randomise(model, 1)
    assert [x.shape[1:] for x in model.hidden_states["discriminator"]] == [
        (4, 4, 8), (4, 4, 8), (2, 2, 16), (5, 16)
    ]  # fmt: skip
    images = draw(2, 4, 4, 1)
    scores = np.asarray(model({"images": images})["scores"])
    assert scores.shape == (2, 1)
    model.get_layer("stage_1_patches").projection.kernel.assign(np.zeros((4, 8)))
    assert np.abs(np.asarray(model({"images": images})["scores"]) - scores).min() > 1e-4


def test_refusals():
    with pytest.raises(ValueError, match="`dim` must be a multiple of 8, for 2 stages and 2 heads; it is 20"):
        dataclasses.replace(SMALL, dim=20)
    with pytest.raises(ValueError, match="`image_size` must be a multiple of 2, the largest patch; it is 5"):
        dataclasses.replace(CRITIC, image_size=5)
