"""Points: sampling, neighbours and interpolation by hand, sets in another order, equal points, NaN."""

import numpy as np
import pytest
from keras import ops
from keras.layers import Dense

from keras_tfm import layers
from keras_tfm.layers import (
    FarthestPoints,
    GatherPoints,
    NearestPoints,
    PointInterpolation,
    VectorAttention,
    farthest_points,
    gather_points,
    interpolate,
    nearest_points,
)
from tests import contract
from tests.contract import Case, Spec, floats, ids, randomise

LINE = np.array([[[0, 0, 0], [1, 0, 0], [5, 0, 0], [3, 0, 0]]], "float32")


def attention(dim=8, width=4):
    position = layers.Chain([layers.NormalizedDense(3, activation="relu", use_bias=True), Dense(dim)])
    weighing = layers.Chain([layers.NormalizedDense(6, activation="relu"), Dense(width)])
    return VectorAttention(dim, position, weighing)


CLOUD = {"x": floats(6, 5), "points": floats(6, 3), "neighbours": Spec((6, 3), "int32", 6)}
PLACES = {"places": floats("T", 3), "points": floats(6, 3)}
BIAS = ("weighing/layer_1/bias",)  # adds the same to all scores
test_contract = contract.check(
    Case("FarthestPoints", lambda: FarthestPoints(3, 0.5), {"points": floats(6, 3)}, chooses=True),
    Case("NearestPoints", lambda: NearestPoints(2), PLACES, chooses=True),
    Case("GatherPoints", GatherPoints, {"x": floats(6, 4), "indices": ids("T", 6)}, chooses=True),
    Case(
        "PointInterpolation",
        PointInterpolation,
        {"x": floats(6, 4), "points": floats(6, 3), "places": floats("T", 3)},
    ),
    Case("VectorAttention", attention, CLOUD, attends=True, without_effect=BIAS),
)


def cloud(seed=0, size=12):
    return np.random.default_rng(seed).normal(size=(2, size, 3)).astype("float32")


def test_the_farthest_points_by_hand():
    assert farthest_points(LINE, 4).numpy().tolist() == [[0, 2, 3, 1]]
    assert farthest_points(LINE[:, ::-1], 3).numpy().tolist() == [[0, 3, 1]]
    assert farthest_points(LINE, 4, least_norm=2.0).numpy().tolist() == [[0, 2, 3, 2]]
    points = cloud()
    order = farthest_points(points, 5).numpy()
    for cloud_, chosen in zip(points, order, strict=True):
        for i in range(1, 5):
            distances = np.linalg.norm(cloud_[:, None] - cloud_[chosen[:i]], axis=-1).min(1)
            assert chosen[i] == distances.argmax()


def test_equal_points_are_chosen_in_their_order():
    """Fewer points differ than are asked for: they repeat, and nothing is NaN."""
    points = np.repeat(LINE[:, :2], 3, axis=1)
    assert farthest_points(points, 4).numpy().tolist() == [[0, 3, 0, 0]]
    assert nearest_points(points, points, 3).numpy().tolist() == [[[0, 1, 2]] * 3 + [[3, 4, 5]] * 3]
    x = np.arange(6, dtype="float32").reshape(1, 6, 1)
    np.testing.assert_allclose(interpolate(x, points, points[:, ::3]), [[[1], [4]]], rtol=1e-6)


def test_distances_and_neighbours_equal_numpy():
    places, points = cloud(1, 4), cloud(2)
    apart = np.square(places[:, :, None] - points[:, None]).sum(-1)
    np.testing.assert_allclose(layers.squared_distances(places, points), apart, rtol=1e-6)
    expected = np.argsort(apart, axis=-1)[..., :5]
    np.testing.assert_array_equal(nearest_points(places, points, 5), expected)
    gathered = gather_points(points, expected)
    np.testing.assert_array_equal(gathered, [p[i] for p, i in zip(points, expected, strict=True)])


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_interpolation_by_hand(power):
    x = np.array([[[0.0], [8.0], [100.0]]], "float32")
    points = np.array([[[0, 0, 0], [4, 0, 0], [0, 50, 0]]], "float32")
    places = np.array([[[1, 0, 0], [4, 0, 0]]], "float32")
    y = interpolate(x, points, places, 2, power).numpy()[0, :, 0]
    np.testing.assert_allclose(y, [8 / (1 + 3**power), 8], rtol=1e-5)


def test_vector_attention_by_hand():
    """Zhao et al. 2021, eq. 3: four weights for eight features, feature n has weight n modulo 4."""
    layer = attention()
    rng = np.random.default_rng(0)
    x, points = rng.normal(size=(2, 6, 5)).astype("float32"), cloud(size=6)
    neighbours = rng.integers(0, 6, (2, 6, 3))
    layer(x, points, neighbours)
    randomise(layer, 1)
    expected = np.zeros((2, 6, 8))
    for b, i in np.ndindex(2, 6):
        near = neighbours[b, i]
        offsets = layer.position((points[b, i] - points[b, near])[None, None])[0, 0].numpy()  # (K, 8)
        key, value = (np.asarray(part(x[b, near])) for part in (layer.key, layer.value))
        scores = np.asarray(layer.query(x[b, i][None])) - key + offsets
        scores = layer.weighing(scores[None, None])[0, 0].numpy()  # (K, 4)
        weights = np.exp(scores) / np.exp(scores).sum(0)
        expected[b, i] = (np.tile(weights, 2) * (value + offsets)).sum(0)
    np.testing.assert_allclose(layer(x, points, neighbours), expected, rtol=1e-4, atol=1e-5)


def test_a_cloud_is_a_set():
    """In another order the same points are chosen, after the first, and every point has the same output."""
    points, x = cloud(), np.random.default_rng(3).normal(size=(2, 12, 5)).astype("float32")
    order = np.array([0, *np.random.default_rng(4).permutation(np.arange(1, 12))])
    chosen, again = (gather_points(p, farthest_points(p, 5)) for p in (points, points[:, order]))
    np.testing.assert_array_equal(chosen, again)
    layer = attention()

    def outputs(points, x):
        y = layer(x, points, nearest_points(points, points, 4))
        return y, interpolate(y, points, chosen)

    (y, at_chosen), (permuted, at_same) = outputs(points, x), outputs(points[:, order], x[:, order])
    np.testing.assert_allclose(ops.take(y, order, axis=1), permuted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(at_chosen, at_same, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_point_that_is_not_finite_makes_its_cloud_nan(wrong):
    points = cloud()
    points[1, 7, 2] = wrong
    order = farthest_points(points, 5).numpy()
    assert (order >= 0).all() and (order < 12).all()
    np.testing.assert_array_equal(order[0], farthest_points(points[:1], 5)[0])
    y = layers.nan_where_points_are_not_finite(np.ones((2, 12, 4), "float32"), points).numpy()
    assert (y[0] == 1).all() and np.isnan(y[1]).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: farthest_points(LINE, 5),
            "at most the number of points, 4; it is 5. Ask for fewer, or repeat",
        ),
        (lambda: nearest_points(LINE, LINE, 5), "`count` must be at most the number of points, 4; it is 5"),
        (lambda: PointInterpolation(5)(LINE, LINE, LINE), "`count` must be at most the number of points, 4"),
        (lambda: FarthestPoints(0), "`count` must be at least 1; it is 0"),
        (lambda: VectorAttention(0, Dense(1), Dense(1)), "`dim` must be at least 1"),
        (
            lambda: VectorAttention(8, Dense(8), Dense(3))(LINE, LINE, np.zeros((1, 4, 2), "int32")),
            "`weighing` must give a divisor of `dim`, 8; it gives 3 numbers",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
