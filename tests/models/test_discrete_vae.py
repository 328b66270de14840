"""DALL-E's autoencoder: its published size, codes and back, its schedules, the names of its package."""

import math

import keras
import numpy as np
import pytest

from keras_tfm.convert import keymap
from keras_tfm.heads import LogitLaplace
from keras_tfm.models import DiscreteVAE, DiscreteVAEConfig
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references import discrete_vae

SMALL = DiscreteVAEConfig((8, 16), 2, dim=8, num_blocks=1, num_codes=7, code_dim=8, temperature_steps=4)

test_contract = contract.check_family(
    Case(
        "DiscreteVAE", lambda: DiscreteVAE(SMALL), {"images": floats(8, 16, 2)}, convolves=True, chooses=True
    )
)


def test_parameters_of_the_published_size(no_allocation):
    """As counted in the released weights, and by the package's constructors."""
    model = DiscreteVAE.from_size("dall-e")
    counts = {
        half: sum(math.prod(weight.shape) for layer in layers for weight in layer.weights)
        for half, layers in model.halves.items()
    }
    assert counts == {"encoder": 53_786_240, "decoder": 43_829_766}
    assert model.grid == (32, 32) and model.num_codes == 8192


@pytest.fixture(scope="module")
def model():
    model = DiscreteVAE(SMALL)
    randomise(model, 1)
    return model


def test_codes_and_back(model):
    images = np.random.default_rng(0).uniform(size=(2, 8, 16, 2)).astype("float32")
    codes = np.asarray(model.encode(images))
    assert codes.shape == (2, 1, 2)
    outputs = model({"images": images})
    np.testing.assert_allclose(model.decode(codes), outputs["images"], atol=1e-5)
    means = np.asarray(outputs["distributions"], "float64")[..., :2]
    expected = np.clip((1 / (1 + np.exp(-means)) - 0.1) / 0.8, 0, 1)
    np.testing.assert_allclose(outputs["images"], expected, atol=1e-5)


def test_schedules():
    quantizer = DiscreteVAE.from_size("tiny").quantizer
    for step, temperature, divergence in (
        (0, 1, 0),
        (500, (1 + 1 / 16) / 2, 6.6 / 192),
        (2000, 1 / 16, 6.6 / 192),
    ):
        np.testing.assert_allclose(quantizer.temperature(step), temperature, rtol=1e-5)
        np.testing.assert_allclose(quantizer.divergence(step), divergence, rtol=1e-5)


@pytest.mark.slow
def test_tiles_become_codes():
    """Pictures of four tiles out of five become four codes."""
    rng = np.random.default_rng(0)
    tiles = np.repeat(np.repeat(rng.choice([0.1, 0.9], (5, 4, 4)), 2, 1), 2, 2)
    kinds = rng.integers(0, 5, (256, 2, 2))
    images = tiles[kinds].transpose(0, 1, 3, 2, 4).reshape(256, 16, 16, 1).astype("float32")
    keras.utils.set_random_seed(0)
    model = DiscreteVAE(
        DiscreteVAEConfig(
            16, 1, dim=16, num_blocks=1, num_codes=12, code_dim=16, temperature_steps=2000,
            least_temperature=0.25, divergence=0.0,
        )
    )  # fmt: skip
    model.compile(keras.optimizers.Adam(3e-3), {"distributions": LogitLaplace()})
    model.fit(images, {"distributions": images}, batch_size=32, epochs=64, verbose=0)
    assert int(model.quantizer.num_draws) == 512
    error = np.mean(np.abs(np.asarray(model.predict(images, verbose=0)["images"]) - images))
    assert error < 0.7 * np.mean(np.abs(images.mean(0) - images))
    assert len(np.unique(model.encode(images))) >= 3


def test_names_of_the_package(model):
    weights = keymap.save(discrete_vae.Half(model, "decoder"), discrete_vae.rows("decoder", SMALL))
    assert weights["blocks.group_1.block_1.res_path.conv_4.w"].shape == (64, 16, 3, 3)
    assert weights["blocks.output.conv.b"].shape == (4,)


def test_refusals():
    with pytest.raises(ValueError, match="`image_size` must be a multiple of 8; it is 20"):
        DiscreteVAEConfig(20)
