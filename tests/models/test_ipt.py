"""IPT: its published size, its tasks' own weights, how it enlarges."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.models import IPT, IPTConfig
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = IPTConfig(
    ("x2", "x4", "clean"),
    (2, 4, 1),
    2,
    image_size=(4, 6),
    patch_size=2,
    num_layers=1,
    num_heads=2,
    mlp_ratio=2,
)

test_contract = contract.check_family(
    Case("IPT", lambda: IPT(dataclasses.replace(SMALL, tasks=("x2", "clean"), scales=(2, 1))),
         {"images": floats(4, 6, 3)}, attends=True, convolves=True, deviation=0.2),
)  # fmt: skip


def test_parameters_of_the_published_size(no_allocation):
    """Attention has no biases: with them, and with the fixed colours, it would be the 118,975,338 that a
    count of the authors' layers by their arguments gives.
    """
    model = IPT.from_size("base")

    whole = contract.num_parameters(model.weights)
    outside = [layer for layer in model.layers if layer.name.endswith(("_head", "_tail"))]
    assert whole == 118_892_370 == 118_975_338 - 12 * 3 * 4 * 576 - 24
    assert whole - sum(contract.num_parameters(layer.weights) for layer in outside) == 115_636_608
    assert contract.num_parameters([model.get_layer("x3_query").table]) == 256 * 576


@pytest.fixture(scope="module")
def model():
    model = IPT(SMALL)
    randomise(model, 1)
    return model


IMAGES = np.random.default_rng(0).random((2, 4, 6, 3), "float32")


def test_each_task_has_its_own_size_and_weights(model):
    outputs = model({"images": IMAGES})
    shapes = {"x2": (2, 8, 12, 3), "x4": (2, 16, 24, 3), "clean": (2, 4, 6, 3)}
    assert {name: tuple(x.shape) for name, x in outputs.items()} == shapes
    alone = model.for_task("clean")
    np.testing.assert_allclose(alone(IMAGES), outputs["clean"], atol=1e-5)
    names = {layer.name for layer in alone.layers}
    assert "clean_query" in names and not any(name.startswith("x2") for name in names)
    model.get_layer("clean_query").table.assign(model.get_layer("x2_query").table)
    assert np.abs(np.asarray(alone(IMAGES)) - outputs["clean"]).max() > 1e-3
    np.testing.assert_allclose(model({"images": IMAGES})["x2"], outputs["x2"], atol=1e-6)


def test_blocks_are_listed_once(model):
    assert {name: len(blocks) for name, blocks in model.blocks.items()} == {"encoder": 1, "decoder": 1}


def test_a_tail_without_weights_gives_the_mean_colour():
    model = IPT(dataclasses.replace(SMALL, tasks=("clean",), scales=(1,)))
    last = model.get_layer("clean_tail").layers[-1]
    for weight in last.weights:
        weight.assign(np.zeros(weight.shape))
    y = np.asarray(model({"images": IMAGES})["clean"])
    np.testing.assert_allclose(y, np.broadcast_to(SMALL.mean, y.shape), rtol=1e-6)


def test_refusals(model):
    with pytest.raises(ValueError, match="`task` must be one of x2, x4, clean; it is 'x3'"):
        model.for_task("x3")
    with pytest.raises(ValueError, match="`tasks` must be different names, one for each of `scales`"):
        dataclasses.replace(SMALL, tasks=("x2",))
    with pytest.raises(ValueError, match="`scales` must be 1, 3 or powers of 2"):
        dataclasses.replace(SMALL, scales=(2, 6, 1))
    with pytest.raises(ValueError, match="`num_heads` must be a divisor of 8, the width of a token; it is 3"):
        dataclasses.replace(SMALL, num_heads=3)
