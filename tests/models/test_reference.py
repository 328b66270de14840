"""Hand-Transformer and HOT-Net: counts by formula, what depends on what, sets of points."""

import numpy as np
import pytest

from keras_tfm.models import HandTransformer, HandTransformerConfig, HOTNet, HOTNetConfig
from tests import contract
from tests.contract import Case, floats, randomise

SIZES = {"num_joints": 5, "dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 12, "dropout": 0.0}
HAND = HandTransformerConfig(**SIZES, num_points=7, point_dims=(6, 4))
OBJECT = HOTNetConfig(**SIZES)
INPUTS = {"points": floats(7, 3), "reference": floats(5, 3)}
PLACES = {"points": floats(5, 2), "reference": floats(5, 3)}

test_contract = contract.check_family(
    Case("HandTransformer", lambda: HandTransformer(HAND), INPUTS, attends=True),
    Case("HOTNet", lambda: HOTNet(OBJECT), PLACES, attends=True),
)


def transformer(config):
    """The weights of the blocks, of the reference's embedding and of the joints."""
    dim, width = config.dim, config.intermediate_dim
    attention, feedforward = 4 * dim * (dim + 1), 2 * dim * width + dim + width
    encoder, decoder = attention + feedforward + 4 * dim, 2 * attention + feedforward + 6 * dim
    return config.num_layers * (encoder + decoder) + 4 * dim + config.num_joints * dim + 3 * (dim + 1)


@pytest.mark.parametrize("size", ["tiny", "base"])
def test_counts_by_formula(size, no_allocation):
    config = HOTNet.sizes[size]
    assert HOTNet.from_size(size).count_params() == transformer(config) + (3 + config.num_joints) * config.dim
    config = HandTransformer.sizes[size]
    first, second = config.point_dims
    points = 4 * first + (first + 1) * second + (2 * second + 1) * config.dim
    assert HandTransformer.from_size(size).count_params() == transformer(config) + points


def drawn(inputs, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(2, *spec.shape)).astype("float32") for name, spec in inputs.items()}


@pytest.fixture(scope="module")
def hand():
    model = HandTransformer(HAND)
    randomise(model, 1)
    return model


def test_points_are_a_set(hand):
    inputs = drawn(INPUTS)
    turned = {**inputs, "points": inputs["points"][:, ::-1]}
    np.testing.assert_allclose(hand(inputs)["joints"], hand(turned)["joints"], atol=1e-5)


def test_every_joint_depends_on_every_point_and_on_the_whole_reference(hand):
    model = HOTNet(OBJECT)
    randomise(model, 1)
    for made, inputs in ((hand, drawn(INPUTS)), (model, drawn(PLACES))):
        expected = np.asarray(made(inputs)["joints"])
        assert expected.shape == (2, 5, 3)
        for name, x in inputs.items():
            for row in range(x.shape[1]):
                changed = x.copy()
                changed[:, row] += 1
                found = np.asarray(made({**inputs, name: changed})["joints"])
                assert (np.abs(found - expected).max(axis=-1) > 1e-6).all(), (name, row)


def test_places_are_not_a_set():
    """Which joint is where in the image matters."""
    model, inputs = HOTNet(OBJECT), drawn(PLACES)
    randomise(model, 1)
    turned = model({**inputs, "points": inputs["points"][:, ::-1]})["joints"]
    assert np.abs(np.asarray(turned) - np.asarray(model(inputs)["joints"])).max() > 1e-3
