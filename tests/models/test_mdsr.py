"""MDSR: its published sizes, its tasks' own weights, images of any size."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.models import MDSR, MDSRConfig
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = MDSRConfig(("x2", "x3", "clean"), (2, 3, 1), num_layers=1, num_features=2)

test_contract = contract.check_family(
    Case("MDSR", lambda: MDSR(dataclasses.replace(SMALL, tasks=("x2", "clean"), scales=(2, 1))),
         {"images": floats(4, 6, 3)}, convolves=True, deviation=0.2),
)  # fmt: skip


def test_parameters_of_the_published_sizes(no_allocation):
    """Lim et al. 2017, table 1: 3.2 and 8.0 million. Two of the paper's three first and last convolutions
    are one.
    """

    def count(size):
        return contract.num_parameters(MDSR.from_size(size).weights)

    body, twice = 2 * (9 * 64 * 64 + 64), 2 * (27 * 64 + 64 + 9 * 64 * 3 + 3)
    assert count("baseline") == 3_227_203 + twice
    assert count("base") == 3_227_203 + twice + (80 - 16) * body == 7_961_033


@pytest.fixture(scope="module")
def model():
    model = MDSR(SMALL)
    randomise(model, 1)
    return model


IMAGES = np.random.default_rng(0).random((2, 4, 6, 3), "float32")


def test_each_task_has_its_own_size_and_weights(model):
    outputs = model({"images": IMAGES})
    shapes = {"x2": (2, 8, 12, 3), "x3": (2, 12, 18, 3), "clean": (2, 4, 6, 3)}
    assert {name: tuple(x.shape) for name, x in outputs.items()} == shapes
    alone = model.for_task("clean")
    np.testing.assert_allclose(alone(IMAGES), outputs["clean"], atol=1e-5)
    assert not any(layer.name.startswith("x2") for layer in alone.layers)
    assert alone(IMAGES[:, :3]).shape == (2, 3, 6, 3)


def test_a_cell_depends_on_a_neighbourhood_alone(model):
    """Four convolutions of 5 x 5 and five of 3 x 3 reach 13 cells far."""
    images = np.random.default_rng(1).random((1, 1, 40, 3), "float32")
    changed = images.copy()
    changed[:, :, 0] += 1
    one, other = (np.asarray(model.for_task("clean")(x)) for x in (images, changed))
    differs = np.abs(one - other).max((0, 1, 3)) > 0
    assert differs[:10].any() and not differs[14:].any()


def test_a_body_without_weights_leaves_the_head():
    model = MDSR(SMALL)
    before = np.asarray(model.for_task("clean")(IMAGES))
    for weight in model.get_layer("convolution").weights:
        weight.assign(np.zeros(weight.shape))
    after = np.asarray(model.for_task("clean")(IMAGES))
    for weight in model.get_layer("clean_head").weights:
        weight.assign(np.zeros(weight.shape))
    mean = np.asarray(model.for_task("clean")(IMAGES))
    assert np.abs(before - after).max() > 1e-5 < np.abs(after - mean).max()
    np.testing.assert_allclose(mean, np.broadcast_to(SMALL.mean, mean.shape), rtol=1e-6)


def test_refusals(model):
    with pytest.raises(ValueError, match="`task` must be one of x2, x3, clean; it is 'x4'"):
        model.for_task("x4")
    with pytest.raises(ValueError, match="`tasks` must be different names, one for each of `scales`"):
        dataclasses.replace(SMALL, tasks=("x2",))
    with pytest.raises(ValueError, match="`scales` must be 1, 3 or powers of 2"):
        dataclasses.replace(SMALL, scales=(2, 6, 1))
