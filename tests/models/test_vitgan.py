"""ViTGAN: the sizes of its paper, what its tokens draw, its discriminator's norms."""

import dataclasses
import math

import numpy as np
import pytest

from keras_tfm.models import ViTGAN, ViTGANConfig, ViTGANDiscriminator, ViTGANDiscriminatorConfig
from keras_tfm.models.pictures.vitgan import PixelFunction
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = ViTGANConfig((4, 6), 2, 1, latent_dim=5, num_layers=2, dim=8, num_heads=2, intermediate_dim=12)
CRITIC = ViTGANDiscriminatorConfig(
    (4, 6), 2, 1, overlap=1, num_layers=2, dim=8, num_heads=2, intermediate_dim=12
)
IMAGES = {"images": floats(4, 6, 1)}

test_contract = contract.check_family(
    Case("ViTGAN", lambda: ViTGAN(SMALL), {"latents": floats(5)}, attends=True),
    Case("ViTGANDiscriminator", lambda: ViTGANDiscriminator(CRITIC), IMAGES, attends=True, convolves=True),
)


def by_hand(dim, hidden, layers):
    """The weights of a generator's blocks: two modulated norms, attention, a feed-forward layer."""
    return layers * (4 * dim * (dim + 1) + 4 * dim * (dim + 1) + 2 * dim * hidden + hidden + dim)


@pytest.mark.parametrize("size", ["32", "64"])
def test_parameters_of_the_published_sizes(size, no_allocation):
    model, layers = ViTGAN.from_size(size), 4 if size == "32" else 6
    blocks = sum(math.prod(weight.shape) for block in model.blocks["generator"] for weight in block.weights)
    assert blocks == by_hand(384, 1536, layers)
    critic = ViTGANDiscriminator.from_size(size)
    trained = [w for block in critic.blocks["discriminator"] for w in block.trainable_weights]
    each = 2 * 384**2 + 384 * 385 + 2 * 384 * 1536 + 1536 + 384 + 4 * 384  # queries are keys
    assert contract.num_parameters(trained) == layers * each


@pytest.fixture(scope="module")
def generator():
    model = ViTGAN(SMALL)
    randomise(model, 1)
    return model


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_each_image_is_of_its_own_noise(generator):
    latents = draw(3, 5)
    images = np.asarray(generator({"latents": latents})["images"])
    assert images.shape == (3, 4, 6, 1) and np.abs(images).max() <= 1
    latents[1] += 1
    changes = np.abs(np.asarray(generator({"latents": latents})["images"]) - images).max((1, 2, 3))
    assert changes[1] > 1e-3 and max(changes[0], changes[2]) < 1e-6


def test_a_token_draws_its_patch_alone():
    layer, x = PixelFunction(3, 2, 16), draw(2, 4, 8)
    y = np.asarray(layer(x))
    assert y.shape == (2, 4, 18) and np.std(y.reshape(2, 4, 9, 2), axis=2).min() > 1e-3
    x[:, 1] += 1
    changes = np.abs(np.asarray(layer(x)) - y).max((0, 2))
    assert changes[1] > 1e-2 and changes[[0, 2, 3]].max() < 1e-6


def test_kernels_of_the_discriminator_keep_their_norms():
    """However large its kernels, the discriminator computes the same."""
    model, images = ViTGANDiscriminator(CRITIC), {"images": draw(2, 4, 6, 1)}
    scores = model(images)["scores"]
    kernels = [weight for weight in model.trainable_weights if weight.path.endswith("kernel")]
    assert len(kernels) == 2 + 2 * 5
    for kernel in kernels:
        kernel.assign(3 * kernel)
    np.testing.assert_allclose(model(images)["scores"], scores, rtol=1e-4, atol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match="Images of 4 x 6 are not divisible into patches of 4 x 4"):
        dataclasses.replace(SMALL, patch_size=4)
    with pytest.raises(ValueError, match="not divisible into patches"):
        dataclasses.replace(CRITIC, patch_size=4)
