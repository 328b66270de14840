"""DiT: its published sizes, blocks that begin as the identity, what conditions change."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.models import DiT, DiTConfig
from tests import contract
from tests.contract import Case, Spec, floats, randomise

SMALL = DiTConfig(
    (4, 6), 2, num_channels=2, num_layers=2, dim=8, num_heads=2, intermediate_dim=12, num_classes=3
)
IMAGES = {"images": floats(4, 6, 2), "timesteps": floats()}

test_contract = contract.check_family(
    Case("DiT", lambda: DiT(SMALL), IMAGES | {"classes": Spec((), "int32", 4)}, attends=True),
)


# As the paper rounds them, 33 and 675 million; counted by hand.
@pytest.mark.parametrize(("size", "expected"), [("S/2", 32_865_056), ("XL/2", 674_834_720)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = DiT.from_size(size)
    assert contract.num_parameters(model.trainable_weights) == expected


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def predict(model, **inputs):
    inputs = {"images": draw(2, 4, 6, 2), "timesteps": np.array([3.0, 40.0])} | inputs
    return np.asarray(model(inputs)["prediction"])


def test_blocks_are_the_identity_at_first():
    model = DiT(SMALL)
    rng = np.random.default_rng(1)
    x, w = (rng.normal(size=shape).astype("float32") for shape in ((2, 6, 8), (2, 8)))
    for block in model.blocks["denoiser"]:
        np.testing.assert_array_equal(block(x, w), x)
    np.testing.assert_array_equal(predict(model), np.zeros((2, 4, 6, 2)))


@pytest.fixture(scope="module")
def model():
    model = DiT(dataclasses.replace(SMALL, output_channels=4))
    randomise(model, 1)
    return model


def test_every_example_has_its_own_time_and_class(model):
    y = predict(model, classes=np.array([0, 2]))
    assert y.shape == (2, 4, 6, 4)
    for change in ({"classes": np.array([0, 1])}, {"timesteps": np.array([3.0, 41.0])}):
        other = predict(model, **{"classes": np.array([0, 2])} | change)
        np.testing.assert_allclose(other[0], y[0], atol=1e-5)
        assert np.abs(other[1] - y[1]).max() > 1e-3


def test_no_class_is_the_default_and_others_are_refused(model):
    np.testing.assert_allclose(predict(model), predict(model, classes=np.array([3, 3])), atol=1e-6)
    with pytest.raises(ValueError, match=r"must lie in \[0, 4\); one of them is 4"):
        predict(model, classes=np.array([0, 4]))
    with pytest.raises(ValueError, match="takes images, timesteps; it was given classes"):
        predict(DiT(dataclasses.replace(SMALL, num_classes=0)), classes=np.array([0, 1]))


def test_places_matter(model):
    images = draw(2, 4, 6, 2)
    y = predict(model, images=images)
    moved = predict(model, images=np.roll(images, 2, axis=2))
    assert np.abs(np.roll(moved, -2, axis=2) - y).max() > 1e-3


def test_patches_that_do_not_divide_the_image_are_refused():
    with pytest.raises(ValueError, match="patch"):
        DiT(dataclasses.replace(SMALL, image_size=(4, 5)))
