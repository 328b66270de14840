"""VQGAN: its published sizes, codes and back, what learns from which loss, the names of the authors' code."""

import dataclasses
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.convert import keymap
from keras_tfm.heads import LanguageModel
from keras_tfm.models import GPT2, VQGAN, GPT2Config, VQGANConfig
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references import vqgan

SIZES = {"dim": 4, "num_blocks": 1, "latent_dim": 6, "num_codes": 12, "code_dim": 5, "num_groups": 2}
SMALL = VQGANConfig((8, 12), 2, factors=(1, 2), attends=(False, True), **SIZES)

test_contract = contract.check_family(
    Case(
        "VQGAN",
        lambda: VQGAN(SMALL),
        {"images": floats(8, 12, 2)},
        attends=True,
        convolves=True,
        without_effect=("quantizer/codebook", "query_key_value/bias"),
        chooses=True,
    )
)


def count(layers):
    return sum(math.prod(weight.shape) for layer in layers for weight in layer.trainable_weights)


# Counted by the authors' constructors; theirs have the projections to codes and back apart from both halves.
@pytest.mark.parametrize("size", ["f16-1024", "f16-16384"])
def test_parameters_of_the_published_sizes(size, no_allocation):
    model = VQGAN.from_size(size)
    *encoder, encoder_projection = model.halves["encoder"]
    decoder_projection, *decoder = model.halves["decoder"]
    assert count(encoder) == 29_298_176
    assert count(decoder) == 42_449_795
    assert count([encoder_projection, decoder_projection]) == 2 * 257 * 256
    assert count([model]) == 72_141_699 + (model.num_codes - 1024) * 256
    assert model.grid == (16, 16)


@pytest.mark.slow
def test_parameters_of_the_second_stage(no_allocation):
    """The authors' Transformer of FacesHQ is a GPT-2 without tied tables."""
    gpt = LanguageModel(GPT2(GPT2Config(1024, 512, num_layers=24, dim=1024, num_heads=16)), tied=False)
    assert count([gpt]) == 304_932_864


@pytest.fixture(scope="module")
def model():
    model = VQGAN(SMALL)
    randomise(model, 1)
    return model


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_codes_and_back(model):
    images = draw(2, 8, 12, 2)
    codes = np.asarray(model.encode(images))
    assert codes.shape == (2, 4, 6) == (2, *model.grid) and 0 <= codes.min() < codes.max() < model.num_codes
    np.testing.assert_allclose(model.decode(codes), model({"images": images})["images"], atol=1e-5)
    with pytest.raises(ValueError, match=r"`code_ids` must lie in \[0, 12\); one of them is 12"):
        model.decode(np.full((1, 4, 6), 12))


def test_larger_pictures_have_more_codes(model):
    codes = model.encode(draw(1, 16, 20, 2))
    assert codes.shape == (1, 8, 10)
    assert model.decode(codes).shape == (1, 16, 20, 2)


def test_who_learns_from_which_loss(model):
    """The encoder by the images and the codes, the codes by their own loss, the decoder by the images."""
    with tf.GradientTape(persistent=True) as tape:
        images = model({"images": draw(2, 8, 12, 2)}, training=True)["images"]
        of_images, of_codes = tf.reduce_mean(images**2), sum(model.losses)
    codebook = model.quantizer.codebook.value
    encoder, decoder = (model.halves[half][0].weights[0].value for half in ("encoder", "decoder"))
    for loss, learners in ((of_images, [encoder, decoder]), (of_codes, [encoder, codebook])):
        for weight in (encoder, decoder, codebook):
            gradient = tape.gradient(loss, weight)
            size = 0 if gradient is None else np.abs(tf.convert_to_tensor(gradient)).max()
            assert (size > 1e-6) == any(weight is learner for learner in learners)


@pytest.mark.parametrize("is_local", [False, True])
def test_what_a_code_sees(is_local):
    """With local codes its own square of pixels alone; a picture is made of all codes in both cases."""
    model = VQGAN(dataclasses.replace(SMALL, local_codes=is_local))
    randomise(model, 1)
    images = draw(1, 8, 12, 2)
    changed = images.copy()
    changed[:, 2:4, 4:6] += 1  # the square of the code at (1, 2)
    encode = keras.Sequential(list(model.halves["encoder"]))
    differs = np.asarray(abs(encode(images) - encode(changed)) > 1e-6).any((0, -1))
    assert differs[1, 2] and differs.sum() == (1 if is_local else 24)
    codes = np.zeros((1, 4, 6), int)
    others = codes.copy()
    others[:, 1, 2] = 1
    assert (np.asarray(abs(model.decode(codes) - model.decode(others))) > 1e-6).any((0, -1)).all()


@pytest.mark.slow
def test_tiles_become_codes():
    """Pictures of four tiles out of five: after some steps each kind of tile has codes of its own."""
    rng = np.random.default_rng(0)
    tiles = rng.choice([-0.8, 0.8], (5, 4, 4))
    kinds = rng.integers(0, 5, (256, 2, 2))
    images = tiles[kinds].transpose(0, 1, 3, 2, 4).reshape(256, 8, 8, 1).astype("float32")
    keras.utils.set_random_seed(0)
    model = VQGAN(
        VQGANConfig(
            8, 1, dim=16, factors=(1, 1, 1), attends=(False,) * 3, num_blocks=1, latent_dim=16, num_codes=16,
            code_dim=8, num_groups=4, dead_after=20,
        )
    )  # fmt: skip
    model.compile(keras.optimizers.Adam(3e-3), {"images": "mse"})
    model.fit(images, {"images": images}, batch_size=32, epochs=64, verbose=0)
    error = np.mean((np.asarray(model.predict(images, verbose=0)["images"]) - images) ** 2)
    assert error < 0.3 * np.mean((images.mean(0) - images) ** 2)
    assert len(np.unique(model.encode(images))) >= 5


def test_names_of_the_authors_code(model):
    weights = keymap.save(model, vqgan.rows())
    assert weights["encoder.down.1.attn.0.q.weight"].shape == (8, 8, 1, 1)
    assert weights["decoder.up.1.block.1.conv2.weight"].shape == (8, 8, 3, 3)
    assert weights["quantize.embedding.weight"].shape == (12, 5)
    assert "decoder.up.0.upsample.conv.weight" not in weights


def test_refusals():
    with pytest.raises(ValueError, match="`factors` and `attends` must have a number for each stage"):
        VQGANConfig(factors=(1, 2))
    with pytest.raises(ValueError, match="`image_size` must be a multiple of 16; it is 40"):
        VQGANConfig(40)
    with pytest.raises(ValueError, match="`num_groups` must be a divisor of `dim`, 128; it is 48"):
        VQGANConfig(num_groups=48)
