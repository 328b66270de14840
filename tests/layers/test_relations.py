"""Attention and convolutions, the one computed by the other."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm.layers import (
    Chain,
    Convolution,
    FeedForward,
    MultiHeadAttention,
    QuadraticPosition,
    attention_cost,
    attention_from_convolution,
    local_attention_mask,
)
from keras_tfm.layers.relations import (
    as_column,
    as_image,
    attention_filters,
    depthwise_filters,
    filtered,
    receptive_field,
)
from tests import contract
from tests.contract import Case, floats
from tests.layers import reference


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def quadratic(layer, query):
    """Attention in float64 whose scores fall with the distance from each head's centre."""
    position, heads = layer.position, layer.projections
    places = np.indices(position.grid).reshape(2, -1).T
    q, k, v = (np.float64(np.asarray(x)) for x in heads.project(query))
    scores = np.einsum("bhtk,bhsk->bhts", q, k) / 2
    for h, (centre, sharpness) in enumerate(
        zip(reference.exact(position.centers), reference.exact(position.sharpness), strict=True)
    ):
        for t, one in enumerate(places):
            for s, other in enumerate(places):
                scores[:, h, t, s] -= sharpness * ((other - one - centre) ** 2).sum()
    y = reference.softmax(scores, True) @ v
    return reference.dense(layer.output_projection, np.concatenate(list(np.moveaxis(y, 1, 0)), -1))


test_contract = contract.check(
    Case("QuadraticPosition", lambda: MultiHeadAttention(2, 4, position=QuadraticPosition((2, 3))),
         {"query": floats(6, 8)}, attends=True, reference=quadratic),
)  # fmt: skip


def test_a_filter_is_a_weighted_sum_of_neighbours():
    x = np.array([1.0, 10.0, 100.0], "float32").reshape(1, 3, 1)
    kernel = np.array([2.0, 3.0, 4.0], "float32").reshape(3, 1)
    y = filtered(x, depthwise_filters(kernel))
    np.testing.assert_array_equal(np.ravel(y), [3 + 40, 2 + 30 + 400, 20 + 300])


def test_a_separable_convolution_is_one_filter_a_feature_and_a_linear_layer():
    """L01: k D numbers of the filters and D D' of the layer, as Keras's `SeparableConv1D` has."""
    x, layer = draw(2, 7, 4), keras.layers.SeparableConv1D(5, 3, padding="same", bias_initializer="normal")
    expected = layer(x)
    depthwise, pointwise, bias = (np.asarray(weight) for weight in layer.weights)
    y = filtered(x, depthwise_filters(depthwise[..., 0])) @ pointwise[0] + bias
    np.testing.assert_allclose(y, expected, atol=1e-6)
    assert depthwise.size + pointwise.size == 3 * 4 + 4 * 5


def test_attention_is_one_filter_a_head_and_a_linear_layer():
    """L02 and L03: at each token another filter, made of the data; each head's serves all its features."""
    x, layer = draw(2, 5, 8), MultiHeadAttention(2)
    layer.build(x.shape)
    contract.randomise(layer, seed=1)
    query, key, values = layer.projections.project(x)
    filters = attention_filters(layer.weigh(layer.score(query, key)), head_width=4)
    values = ops.reshape(ops.transpose(values, (0, 2, 1, 3)), (2, 5, 8))  # the heads side by side
    y = layer.output_projection(filtered(values, filters))
    np.testing.assert_allclose(y, layer(x), atol=2e-6)
    filters = np.asarray(filters)
    assert filters.shape == (2, 5, 9, 8)
    np.testing.assert_array_equal(filters[..., 0], filters[..., 3])  # of one head
    assert np.abs(filters[..., 0] - filters[..., 4]).max() > 0.01  # of two
    assert np.abs(filters[0, 1, 4:7] - filters[0, 2, 4:7]).max() > 0.01  # of two tokens
    np.testing.assert_allclose(filters.sum(axis=2), 1, atol=1e-6)


def test_receptive_fields():
    """L04 and L10: convolutions and local attention see neighbours, layer by layer more; attention all."""
    x, full = draw(9, 8), MultiHeadAttention(2)
    mask = local_attention_mask((1, 9), (1, 3))

    def seen(function):
        return np.flatnonzero(receptive_field(function, x, 4)).tolist()

    kernel = Convolution(8, (3, 1))
    assert seen(lambda x: kernel(as_column(x))[:, :, 0]) == [3, 4, 5]
    two = Chain([Convolution(8, (3, 1)), Convolution(8, (3, 1))])
    assert seen(lambda x: two(as_column(x))[:, :, 0]) == [2, 3, 4, 5, 6]
    assert seen(lambda x: full(x, mask=mask)) == [3, 4, 5]
    assert seen(lambda x: full(full(x, mask=mask), mask=mask)) == [2, 3, 4, 5, 6]
    assert seen(full) == list(range(9))
    assert seen(FeedForward(4 * 8)) == [4]  # L05: it mixes features alone, D -> 4 D -> D


def test_sequences_are_images():
    """L06 and L07: one channel a feature, or one for all, and kernels over tokens and features."""
    x = draw(2, 6, 4)
    assert Convolution(3, (5, 1), stride=1)(as_column(x)).shape == (2, 6, 1, 3)
    assert Convolution(3, 3, stride=2)(as_image(x)).shape == (2, 3, 2, 3)


def test_local_attention():
    """I11: the window of the whole image is full attention; a corner of a 3 x 3 window sees four cells."""
    x, layer = draw(2, 12, 8), MultiHeadAttention(2)
    np.testing.assert_array_equal(layer(x, mask=local_attention_mask((3, 4), (5, 7))), layer(x))
    mask = local_attention_mask((3, 4), 3)
    assert mask.shape == (1, 12, 12)
    assert np.flatnonzero(mask[0, 0]).tolist() == [0, 1, 4, 5]
    assert np.flatnonzero(mask[0, 6]).tolist() == [1, 2, 3, 5, 6, 7, 9, 10, 11]
    with pytest.raises(ValueError, match="`window` must be odd"):
        local_attention_mask(4, 2)


def test_attention_among_pixels_costs_too_much():
    """I10: 224 x 224 pixels are 50,176 tokens with 2.5 thousand million weights a head."""
    pixels, patches = attention_cost(224, num_heads=1), attention_cost(224, 16, num_heads=1)
    assert pixels.tokens == 50_176 and pixels.weights == 2_517_630_976
    assert pixels.num_bytes == 4 * pixels.weights
    assert (patches.tokens, patches.weights) == (196, 38_416)
    assert pixels.weights // patches.weights == 16**4
    assert attention_cost((4, 6), 2, dim=8, num_heads=2) == (6, 72, 4 * 6 * 64 + 2 * 36 * 8, 288)


@pytest.mark.parametrize("size", [(3, 3), (1, 3), (3, 5)])
def test_attention_computes_a_convolution(size):
    """I18: a head a cell of the kernel, borders too."""
    maps, convolution = draw(2, 5, 6, 3), Convolution(4, size)
    convolution.build(maps.shape)
    contract.randomise(convolution, seed=1)
    kernel, bias = (np.asarray(weight) for weight in convolution.weights)
    layer = attention_from_convolution(kernel, (5, 6), bias)
    np.testing.assert_allclose(layer(maps), convolution(maps), atol=1e-5)
    assert layer.layers[1].attention.projections.num_heads == size[0] * size[1]


def test_refusals():
    with pytest.raises(ValueError, match=r"`kernel` must be .*, kh and kw odd; it is"):
        attention_from_convolution(np.zeros((2, 3, 1, 1)), 4)
    with pytest.raises(ValueError, match="must have an odd number of offsets, their third axis; it is 2"):
        filtered(draw(1, 3, 1), np.ones((1, 1, 2, 1), "float32"))
    with pytest.raises(ValueError, match="for 6 tokens; it is called with 5"):
        MultiHeadAttention(2, position=QuadraticPosition((2, 3)))(draw(1, 5, 8))
