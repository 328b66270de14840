"""PCT: the published count, its attention by hand, clouds in another order; its numbers are compared by
tests.parity.golden.
"""

import numpy as np
import pytest

from keras_tfm.heads import Classifier
from keras_tfm.models import PCT, PCTConfig
from keras_tfm.models.points.pct import OffsetAttention
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = PCTConfig(12, 6, (8, 6), 3, num_layers=2, fused_dim=16, head_dims=(12, 10))

# It promises no weights that sum to 1: 1e-9 is added to the sum by which they are divided.
test_contract = contract.check_family(
    Case("PCT", lambda: Classifier(PCT(SMALL), 5), {"points": floats(12, 3)})
)


@pytest.fixture(scope="module")
def model():
    model = Classifier(PCT(SMALL), 5)
    randomise(model, 1)
    return model


def clouds(seed=0, size=12):
    return np.random.default_rng(seed).normal(size=(2, size, 3)).astype("float32")


# zoo2: with the head for 40 classes, counted from the reference's constructor.
@pytest.mark.parametrize(("size", "expected"), [("base", 2_876_136)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = Classifier(PCT.from_size(size), 40)
    assert contract.num_parameters(model.trainable_weights) == expected


def test_the_order_of_points_changes_nothing(model):
    """The first one apart, from which the others are sampled."""
    points = clouds()
    order = np.array([0, *np.random.default_rng(1).permutation(np.arange(1, 12))])
    np.testing.assert_allclose(model(points[:, order]), model(points), rtol=1e-4, atol=1e-5)
    assert np.abs(np.asarray(model(2 * points)) - model(points)).max() > 1e-3


def test_offset_attention_by_hand():
    layer, x = OffsetAttention(), np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    layer(x)
    randomise(layer, 1)
    for i in range(2):
        queries, values = (np.asarray(part(x[i])) for part in (layer.query_key, layer.value))
        weights = np.exp(queries @ queries.T)
        weights /= weights.sum(1, keepdims=True)
        weights /= weights.sum(0, keepdims=True)
        expected = x[i] + layer.output_projection((x[i] - weights.T @ values)[None])[0].numpy()
        np.testing.assert_allclose(layer(x)[i], expected, rtol=1e-4, atol=1e-5)


def test_a_wrong_coordinate_spoils_its_cloud_alone(model):
    points = clouds()
    points[1, 4, 0] = np.nan
    logits = np.asarray(model(points))
    assert np.isnan(logits[1]).all()
    np.testing.assert_allclose(logits[0], model(points[:1])[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_points": 100}, r"`counts` must be numbers that do not grow, from 100; it is \(512, 256\)"),
        ({"counts": (512, 600)}, "`counts` must be numbers that do not grow"),
        ({"counts": (16, 8)}, "`num_neighbours` must be at most the points of a cloud, 16; it is 32"),
        ({"dim": 63, "counts": (512,)}, "`dim` must be such that the last points have a multiple of four"),
    ],
)
def test_refusals(fields, message):
    with pytest.raises(ValueError, match=message):
        PCTConfig(**fields)
