"""Imagen: texts that are absent, cut off or padded, attention by cosines, the names of the re-creation."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.convert import keymap
from keras_tfm.models import ImagenUNet, ImagenUNetConfig
from keras_tfm.models.pictures.imagen_layers import CosineProjections, GlobalContext, Resampler, TextTokens
from tests import contract
from tests.contract import Case, floats, mask, randomise
from tests.parity.references import imagen

SMALL = ImagenUNetConfig(
    8,
    num_channels=2,
    dims=(4, 6),
    num_layers=(1, 1),
    attends=(False, True),
    attends_to_context=(False, True),
    num_heads=2,
    key_dim=3,
    text_dim=5,
    max_length=7,
    condition_dim=4,
    num_sines=4,
    num_latents=2,
    kernels=(3, 5),
)
LARGE = dataclasses.replace(
    SMALL, num_layers=(1, 2), num_latents=0, kernels=(3,), is_super_resolution=True, halves_first=True
)
INPUTS = {"images": floats(8, 8, 2), "log_snr": floats(), "text": floats("S", 5), "text_mask": mask("S")}
SMALL_IMAGE = {"low_resolution": floats(8, 8, 2), "low_resolution_log_snr": floats()}
# It is for texts without any token; it adds the same to all scores.
WITHOUT_EFFECT = ("text_vector/null", "gate/score/bias")

test_contract = contract.check_family(
    Case(
        "base",
        lambda: ImagenUNet(SMALL),
        INPUTS,
        convolves=True,
        attends=True,
        without_effect=WITHOUT_EFFECT,
    ),
    Case(
        "super-resolution",
        lambda: ImagenUNet(LARGE),
        INPUTS | SMALL_IMAGE,
        convolves=True,
        attends=True,
        without_effect=WITHOUT_EFFECT,
    ),
)


@pytest.fixture(scope="module")
def model():
    model = ImagenUNet(SMALL)
    randomise(model, 1)
    return model


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def predict(model, text, shown):
    inputs = {
        "images": draw(len(text), 8, 8, 2),
        "log_snr": draw(len(text)),
        "text": text,
        "text_mask": shown,
    }
    return np.asarray(model(inputs)["prediction"])


def test_a_text_is_what_the_mask_shows(model):
    text, shown = draw(2, 5, 5), np.ones((2, 5), bool)
    y = predict(model, text, shown)
    shown[1, 3:] = False
    changed = text.copy()
    changed[1, 3:] += 1
    cut = predict(model, text, shown)
    np.testing.assert_allclose(predict(model, changed, shown), cut, atol=1e-5)
    np.testing.assert_allclose(cut[0], y[0], atol=1e-5)
    assert np.abs(cut[1] - y[1]).max() > 1e-3
    # More padding, and tokens beyond the greatest length, change nothing.
    longer = np.concatenate([text, draw(2, 4, 5)], axis=1)
    mask = np.concatenate([shown, np.zeros((2, 4), bool)], axis=1)
    np.testing.assert_allclose(predict(model, longer, mask), cut, atol=1e-5)
    mask[:, 7:] = True
    np.testing.assert_allclose(predict(model, longer, mask), cut, atol=1e-5)


def test_without_any_token_there_is_no_text(model):
    text, nothing = draw(2, 5, 5), np.zeros((2, 5), bool)
    y = predict(model, text, nothing)
    np.testing.assert_allclose(predict(model, text + 1, nothing), y, atol=1e-5)
    null = next(weight for weight in model.weights if weight.path.endswith("text_vector/null"))
    before = np.array(null)
    null.assign(before + 1)
    assert np.abs(predict(model, text, nothing) - y).max() > 1e-3
    shown = np.array([[True] * 5, [False] * 5])
    mixed = predict(model, text, shown)
    null.assign(before)
    np.testing.assert_allclose(predict(model, text, shown)[0], mixed[0], atol=1e-5)


@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["base", "super-resolution"])
def test_patches_are_cells_of_a_smaller_map(sizes):
    model = ImagenUNet(dataclasses.replace(sizes, image_size=16, patch_size=2))
    smaller = ImagenUNet(dataclasses.replace(sizes, num_channels=8))
    randomise(model, 1)
    smaller.set_weights(model.get_weights())
    maps = {name: draw(1, 16, 16, 2) for name in model.input if name in ("images", "low_resolution")}
    rest = {name: draw(1) for name in model.input if "log_snr" in name}
    rest |= {"text": draw(1, 5, 5), "text_mask": np.ones((1, 5), bool)}
    cells = {name: x.reshape(1, 8, 2, 8, 2, 2).swapaxes(2, 3).reshape(1, 8, 8, 8) for name, x in maps.items()}
    y = np.reshape(smaller({**cells, **rest})["prediction"], (1, 8, 8, 2, 2, 2))
    expected = y.swapaxes(2, 3).reshape(1, 16, 16, 2)
    np.testing.assert_allclose(model({**maps, **rest})["prediction"], expected, atol=1e-5)


def test_cosines_do_not_depend_on_lengths():
    layer = CosineProjections(num_heads=2, key_dim=3)
    x, context = draw(2, 4, 6), draw(2, 5, 4)
    layer.build(x.shape, context.shape)
    query, key, value = layer.project(x, context)
    assert query.shape == (2, 2, 4, 3) and key.shape == value.shape == (2, 2, 6, 3)
    np.testing.assert_allclose(np.linalg.norm(query, axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(key, axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(value[:, :, 0], np.broadcast_to(layer.null[1], (2, 2, 3)))
    longer = layer.project(3 * x, 3 * context)
    np.testing.assert_allclose(longer[0], query, atol=1e-5)
    np.testing.assert_allclose(longer[1], key, atol=1e-5)
    joined = CosineProjections(2, 3, num_key_value_heads=1, joins=True)
    joined.build(x.shape, context.shape)
    assert joined.project(x, context)[1].shape == (2, 1, 1 + 4 + 5, 3)


def test_a_global_context_is_a_mean_of_cells_by_hand():
    layer, x = GlobalContext(), draw(2, 3, 4, 6)
    layer(x)
    randomise(layer, 1)
    cells = x.reshape(2, 12, 6)
    scores = np.exp(cells @ np.asarray(layer.score.kernel) + np.asarray(layer.score.bias))
    mean = (scores / scores.sum(1, keepdims=True) * cells).sum(1)
    hidden = mean @ np.asarray(layer.hidden.kernel) + np.asarray(layer.hidden.bias)
    hidden = hidden / (1 + np.exp(-hidden))
    gate = 1 / (1 + np.exp(-(hidden @ np.asarray(layer.gate.kernel) + np.asarray(layer.gate.bias))))
    np.testing.assert_allclose(layer(x), x * gate[:, None, None], atol=1e-5)


def test_parts_of_the_text():
    layer = Resampler(num_latents=3, num_heads=2, key_dim=4, num_means=2, num_layers=1)
    assert layer(draw(2, 5, 6)).shape == (2, 5, 6)
    tokens = TextTokens(4, max_length=3)
    text, shown = draw(1, 2, 5), np.array([[True, False]])
    y = np.asarray(tokens(text, shown))
    np.testing.assert_allclose(y[:, 0], tokens.projection(text[:, 0]), atol=1e-6)
    np.testing.assert_allclose(y[0, 1:], tokens.null[1:])


def test_names_of_the_re_creation(model):
    weights = keymap.save(model, imagen.rows(SMALL))
    assert weights["downs.0.4.1.weight"].shape == (4, 16, 1, 1)
    assert weights["ups.0.3.net.0.weight"].shape == (16, 6, 1, 1)
    assert weights["null_text_embed"].shape == (1, 7, 4)
    large = keymap.save(ImagenUNet(LARGE), imagen.rows(LARGE))
    assert large["downs.1.0.1.weight"].shape == (6, 16, 1, 1)
    assert large["to_lowres_time_tokens.0.weight"].shape == (8, 32)


def test_refusals():
    with pytest.raises(ValueError, match="`image_size` must be multiples of 4; it is 6 x 6"):
        dataclasses.replace(LARGE, image_size=6)
    with pytest.raises(ValueError, match="`image_size` must be multiples of 12; it is 8 x 8"):
        dataclasses.replace(LARGE, patch_size=3)
    with pytest.raises(ValueError, match="`kernels` must be odd sides, at least one"):
        dataclasses.replace(SMALL, kernels=(4,))
    with pytest.raises(ValueError, match="must have a number for each stage"):
        dataclasses.replace(SMALL, attends=(True,))
