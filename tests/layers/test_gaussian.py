"""The Gaussian bias: values by hand, what a trained layer's offsets and scales do, and the contract."""

import numpy as np
import pytest

from keras_tfm.layers import GaussianBias, MultiHeadAttention, gaussian_bias
from tests import contract
from tests.contract import Case, floats, randomise

INPUTS = {"query": floats("T", 8), "centres": floats("T", 2)}

test_contract = contract.check(
    *(
        Case(f"{count} scales", lambda count=count: GaussianBias(2, (3, 4), count), INPUTS)
        for count in (0, 1)
    ),
    Case("2 scales", lambda: GaussianBias(2, (3, 4)), INPUTS),
)


def test_values_by_hand():
    centre = np.array([1.0, 0.5])  # in the second column, between the two rows
    found = gaussian_bias(centre, np.array([1.0]), (2, 3), smoothness=4.0)
    np.testing.assert_allclose(found, -np.array([1.25, 0.25, 1.25, 1.25, 0.25, 1.25]) / 4)
    found = gaussian_bias(centre, np.array([3.0, 2.0]), (2, 3), smoothness=1.0)
    np.testing.assert_allclose(found, -np.array([10, 1, 10, 10, 1, 10]))  # 9 along x, 4 / 4 along y


def test_it_multiplies_the_weights_by_a_gaussian():
    """Attention of equal scores weighs cells as a normal distribution of variance smoothness / 2."""
    bias = gaussian_bias(np.array([[[[2.0, 0.0]]]]), np.ones((1, 1, 1, 1)), (1, 5), smoothness=2.0)
    attention = MultiHeadAttention(1)
    x, cells = np.zeros((1, 1, 4)), np.zeros((1, 5, 4))
    attention(x, cells, bias=bias)
    weights = attention.weigh(attention.score(*attention.projections.project(x, cells, None)[:2], bias))
    density = np.exp(-((np.arange(5) - 2.0) ** 2) / 2)
    np.testing.assert_allclose(np.asarray(weights).ravel(), density / density.sum(), rtol=1e-5)


def test_a_layer_begins_with_equal_heads_around_the_centre():
    centres = np.random.default_rng(0).uniform(0, 3, (2, 5, 2)).astype("float32")
    found = GaussianBias(3, (3, 4))(np.ones((2, 5, 8)), centres)
    expected = gaussian_bias(centres, np.ones((2, 5, 1)), (3, 4))
    for head in range(3):
        np.testing.assert_allclose(found[:, head], expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_a_centre_stays_where_it_is_in_lower_precision(dtype):
    """At column 600.6 the nearest cell is 601; bfloat16 has 600 and 604, float16 600.5 and 601."""
    centres = np.array([[[600.6, 0.0]]], "float32")
    bias = GaussianBias(1, (1, 700), dtype=dtype)(np.ones((1, 1, 8), "float32"), centres)
    assert bias.dtype == dtype.removeprefix("mixed_")
    expected = gaussian_bias(centres[0, 0], np.ones(1), (1, 700))
    np.testing.assert_allclose(np.asarray(bias, "float32").ravel()[590:610], expected[590:610], rtol=1e-2)


@pytest.mark.parametrize("num_scales", [0, 1, 2])
def test_each_head_has_offsets_and_scales_of_its_own(num_scales):
    """Outputs of the two linear layers stand head by head, x before y."""
    rng = np.random.default_rng(0)
    query = rng.normal(size=(2, 5, 8)).astype("float32")
    centres = rng.uniform(0, 3, (2, 5, 2)).astype("float32")
    layer = GaussianBias(3, (3, 4), num_scales, smoothness=5.0)
    layer(query, centres)
    randomise(layer, 1)
    found = layer(query, centres)
    assert found.shape == (2, 3, 5, 12)
    offsets = np.asarray(layer.offsets(query))
    for head in range(3):
        own = centres + offsets[..., 2 * head : 2 * head + 2]
        scales = np.ones((2, 5, 1))
        if num_scales:
            scales = np.asarray(layer.scales(query))[..., num_scales * head : num_scales * (head + 1)]
        expected = np.zeros((2, 5, 3, 4))
        for row in range(3):
            for column in range(4):
                distances = (np.array([column, row]) - own) * scales
                expected[:, :, row, column] = -(distances**2).sum(-1) / 5
        np.testing.assert_allclose(found[:, head], expected.reshape(2, 5, 12), rtol=1e-4, atol=1e-5)


def test_refusals():
    for arguments, message in (
        ({"num_heads": 0}, "`num_heads` must be at least 1"),
        ({"num_scales": 3}, "`num_scales` must be 0, 1 or 2; it is 3"),
        ({"smoothness": 0.0}, "`smoothness` must be above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            GaussianBias(**{"num_heads": 2, "grid": (3, 4)} | arguments)
    assert GaussianBias(2, (3, 4), smoothness=0.5).smoothness == 0.5
