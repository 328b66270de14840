"""DiffusionUNet: its published sizes, times by hand, what conditions change, the names of diffusers."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.convert import keymap
from keras_tfm.models import DiffusionUNet, DiffusionUNetConfig
from keras_tfm.models.pictures.times import SinesOfTimes
from keras_tfm.models.pictures.unet import MapTransformer
from tests import contract
from tests.contract import Case, Spec, floats, randomise
from tests.parity.references import unet

SMALL = DiffusionUNetConfig(
    (4, 6), num_channels=2, dims=(4, 8), attends=(False, True), num_layers=1, num_groups=2, num_heads=2
)
IMAGES = {"images": floats(4, 6, 2), "timesteps": floats()}
CLASSES = dataclasses.replace(SMALL, num_classes=3, output_channels=4)
CONTEXT = dataclasses.replace(SMALL, context_dim=3)

test_contract = contract.check_family(
    Case(
        "classes",
        lambda: DiffusionUNet(CLASSES),
        IMAGES | {"classes": Spec((), "int32", 4)},
        attends=True,
        convolves=True,
    ),
    Case(
        "context",
        lambda: DiffusionUNet(CONTEXT),
        IMAGES | {"context": floats("S", 3)},
        attends=True,
        convolves=True,
    ),
)


# As the papers round them; counted by diffusers' constructors.
@pytest.mark.parametrize(
    ("size", "expected"),
    [("CIFAR-10", 35_746_307), ("256", 113_673_219), ("stable-diffusion-1", 859_520_964)],
)
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = DiffusionUNet.from_size(size)
    assert contract.num_parameters(model.trainable_weights) == expected


@pytest.fixture(scope="module")
def model():
    model = DiffusionUNet(CLASSES)
    randomise(model, 1)
    return model


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def predict(model, **inputs):
    inputs = {"images": draw(2, 4, 6, 2), "timesteps": np.array([3.0, 40.0])} | inputs
    return np.asarray(model(inputs)["prediction"])


def test_every_example_has_its_own_time_and_class(model):
    y = predict(model, classes=np.array([0, 2]))
    assert y.shape == (2, 4, 6, 4)
    other = predict(model, classes=np.array([0, 1]))
    np.testing.assert_allclose(other[0], y[0], atol=1e-5)
    assert np.abs(other[1] - y[1]).max() > 1e-3
    later = predict(model, classes=np.array([0, 2]), timesteps=np.array([3.0, 41.0]))
    np.testing.assert_allclose(later[0], y[0], atol=1e-5)
    assert np.abs(later[1] - y[1]).max() > 1e-3


def test_no_class_is_the_default_and_others_are_refused(model):
    np.testing.assert_allclose(predict(model), predict(model, classes=np.array([3, 3])), atol=1e-6)
    with pytest.raises(ValueError, match=r"must lie in \[0, 4\); one of them is 4"):
        predict(model, classes=np.array([0, 4]))
    with pytest.raises(ValueError, match="needs 'timesteps'"):
        model({"images": draw(1, 4, 6, 2)})


def test_times_by_hand():
    times = np.array([0.0, 999.0])
    y = np.asarray(SinesOfTimes(6)(times))
    angles = times[:, None] * 10_000.0 ** (-np.arange(3) / 3)
    np.testing.assert_allclose(y, np.concatenate([np.cos(angles), np.sin(angles)], -1), atol=1e-4)
    y = np.asarray(SinesOfTimes(6, sines_first=True, ends=True)(times))
    angles = times[:, None] * np.array([1, 1e-2, 1e-4])
    np.testing.assert_allclose(y, np.concatenate([np.sin(angles), np.cos(angles)], -1), atol=1e-4)
    layer = SinesOfTimes(6, dtype="mixed_bfloat16")  # in which 998 and 999 are the same number
    symbolic = keras.Model(x := keras.Input(()), layer(x))
    y = np.asarray(symbolic(np.array([998.0, 999.0], "float32")), "float32")
    assert np.abs(y[0] - y[1]).max() > 0.1
    with pytest.raises(ValueError, match="`dim` must be even and at least 4; it is 5"):
        SinesOfTimes(5)


def test_a_context_is_attended_to_as_a_set():
    layer = MapTransformer(num_heads=2)
    x, context = draw(2, 2, 3, 4), draw(2, 5, 3)
    layer(x, context)
    randomise(layer, 1)
    y = np.asarray(layer(x, context))
    np.testing.assert_allclose(layer(x, context[:, ::-1]), y, atol=1e-5)
    assert np.abs(np.asarray(layer(x, context[:, :4])) - y).max() > 1e-3
    np.testing.assert_allclose(layer(x[:, ::-1, ::-1], context), y[:, ::-1, ::-1], atol=1e-5)


def test_names_of_diffusers(model):
    weights = keymap.save(model, unet.rows(CLASSES))
    assert weights["up_blocks.0.attentions.1.to_q.weight"].shape == (8, 8)
    assert weights["up_blocks.1.resnets.1.conv1.weight"].shape == (4, 8, 3, 3)
    weights = keymap.save(DiffusionUNet(CONTEXT), unet.rows(CONTEXT))
    name = "mid_block.attentions.0.transformer_blocks.0.{}.weight"
    assert weights[name.format("ff.net.0.proj")].shape == (64, 8)
    assert weights[name.format("attn2.to_k")].shape == (8, 3)


def test_refusals():
    with pytest.raises(ValueError, match="`image_size` must be multiples of 2; it is 4 x 5"):
        dataclasses.replace(SMALL, image_size=(4, 5))
    with pytest.raises(ValueError, match="`dims` must be multiples of 2 groups"):
        dataclasses.replace(SMALL, dims=(3, 8))
    with pytest.raises(ValueError, match="must have a number for each stage"):
        dataclasses.replace(SMALL, attends=(True,))
    with pytest.raises(ValueError, match=r"`sines` must be one of cosines first, sines first"):
        dataclasses.replace(SMALL, sines="none")
