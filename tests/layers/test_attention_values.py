"""Attention's values, computed by hand: scores, scales, look-ups, masks and bilinear forms."""

import numpy as np
import pytest
import scipy.linalg
from keras import ops

from keras_tfm import layers


def softmax_of(scores, mask=None):
    """`attention_weights` of given scores, in float64: the queries are the scores, the keys unit vectors."""
    scores = np.asarray(scores, "float64")
    return ops.convert_to_numpy(
        layers.attention_weights(scores[None], np.eye(scores.shape[-1])[None], mask, scale=1.0)
    )[0]


def test_scale_brings_the_scores_variance_from_the_width_to_one():
    """q . k of unit-variance vectors has variance K; log w0 - log w1 is a difference of two such scores."""
    for width in (4, 64, 512):
        query, key = (np.random.default_rng(n).normal(size=(6000, n, width)) for n in (1, 2))
        for scale, variance in ((None, 1), (1.0, width)):
            log = np.log(ops.convert_to_numpy(layers.attention_weights(query, key, scale=scale))[:, 0])
            np.testing.assert_allclose(np.var(log[:, 0] - log[:, 1]) / 2, variance, rtol=0.06)


def test_scale_keeps_the_softmax_from_its_peak():
    """Entropy 0.735 and greatest weight 0.745 without the scale, 4.81 and 0.050 with it, of ln 200 = 5.30."""
    query, key = np.random.default_rng(0).normal(size=(2, 1, 200, 64))
    for scale, entropy, greatest in ((1.0, 0.735, 0.745), (None, 4.81, 0.050)):
        weights = ops.convert_to_numpy(layers.attention_weights(query, key, scale=scale))
        np.testing.assert_allclose(
            -np.mean(np.sum(weights * np.log(weights + 1e-300), -1)), entropy, rtol=0.1
        )
        np.testing.assert_allclose(weights.max(-1).mean(), greatest, rtol=0.1)


def test_equals_a_double_loop():
    query, key, value = np.random.default_rng(3).normal(size=(3, 1, 4, 5))
    expected = np.zeros((4, 5))
    for i in range(4):
        exponents = [np.exp(query[0, i] @ key[0, j] / np.sqrt(5)) for j in range(4)]
        for j in range(4):
            expected[i] += exponents[j] / sum(exponents) * value[0, j]
    np.testing.assert_allclose(layers.dot_product_attention(query, key, value)[0], expected, rtol=1e-12)


def test_look_up_of_colours():
    """Orange, half red and half yellow, is (255, 127.5, 0)."""
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [0, 0, 0], [255, 255, 255.0]])[
        None
    ]
    names = 30 * np.eye(6)[None]
    yellow, orange = 30 * np.eye(6)[3], 30 * (np.eye(6)[0] + np.eye(6)[3])
    found = layers.dot_product_attention(np.stack([yellow, orange])[None], names, colours)
    np.testing.assert_allclose(found[0], [[255, 255, 0], [255, 127.5, 0]], atol=1e-12)


@pytest.mark.parametrize("scale", [None, 1.0])
def test_look_up_of_numbers(scale):
    key = np.array([[10, 0, 0], [0, 10, 0], [0, 0, 10], [0, 0, 10.0]])[None]
    value = np.array([[1, 0, 1], [10, 0, 2], [100, 5, 0], [1000, 6, 0.0]])[None]
    query = np.array([[0, 10, 0], [0, 0, 10], [10, 10, 0.0]])[None]
    found = ops.convert_to_numpy(layers.dot_product_attention(query, key, value, scale=scale))[0]
    np.testing.assert_allclose(found, [[10, 0, 2], [550, 5.5, 0], [5.5, 0, 1.5]], rtol=0, atol=1e-20)


def test_two_near_keys_take_nearly_all():
    """A query near two keys, as "cool" is near "Transformers" and "model": their values make the output."""
    near = [0, 6]
    value, key = np.random.normal(size=(2, 1, 12, 4)) * np.array([1, 0.1])[:, None, None, None]
    key[0, near] = [[3, 1, 0, 0], [3, -1, 0, 0]]
    query = np.array([[[4, 0, 0, 0.0]]])
    weights = ops.convert_to_numpy(layers.attention_weights(query, key))[0, 0]
    assert weights[near].sum() > 0.95
    error = np.abs(layers.dot_product_attention(query, key, value)[0, 0] - weights[near] @ value[0, near])
    assert (error <= (1 - weights[near].sum()) * np.abs(value).max() + 1e-12).all()


def test_equal_scores_give_the_mean():
    value = np.random.normal(size=(1, 5, 3))
    y = layers.dot_product_attention(np.zeros((1, 5, 2)), np.random.normal(size=(1, 5, 2)), value)
    np.testing.assert_allclose(y[0], np.broadcast_to(value.mean(1), (5, 3)), atol=1e-15)


SCORES = np.array([[0.5, 0.2, 0.1], [0.1, 0.6, 0.2], [0.1, 0.2, 0.3]])


def test_look_ahead_mask():
    weights = softmax_of(SCORES, layers.causal_mask(3, 3))
    np.testing.assert_allclose(weights, [[1, 0, 0], [0.3775, 0.6225, 0], [0.3006, 0.3322, 0.3672]], atol=5e-5)


def test_mask_is_added_before_the_softmax_not_multiplied():
    """Scores times a 0/1 mask would give [.452, .274, .274]; weights times one would sum to .415 and .706."""
    triangle = np.tri(3)
    np.testing.assert_allclose(softmax_of(SCORES * triangle)[0], [0.452, 0.274, 0.274], atol=5e-4)
    np.testing.assert_allclose((softmax_of(SCORES) * triangle).sum(-1)[:2], [0.415, 0.706], atol=6e-4)
    right = softmax_of(SCORES, layers.causal_mask(3, 3))
    np.testing.assert_allclose(right, softmax_of(SCORES + np.where(triangle, 0, -1e30)), atol=1e-15)
    np.testing.assert_allclose(right.sum(-1), 1)


def test_no_future_score_moves_an_earlier_row():
    changed = SCORES.copy()
    changed[0, 2] = 5
    assert softmax_of(changed)[0, 0] < 0.1
    for scores in (SCORES, changed):
        np.testing.assert_array_equal(softmax_of(scores, layers.causal_mask(3, 3))[0], [1, 0, 0])


def test_parameter_free_attention():
    x = np.random.normal(size=(1, 4, 3))
    scores = x[0] @ x[0].T
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True) @ x[0]
    np.testing.assert_allclose(layers.parameter_free_attention(x)[0], expected, rtol=1e-12)
    hidden = layers.parameter_free_attention(x, mask=np.array([[1, 1, 1, 0]]))
    np.testing.assert_allclose(hidden[:, :3], layers.parameter_free_attention(x[:, :3]), rtol=1e-12)


def test_bilinear_attention():
    x, matrix, value = (
        np.random.normal(size=(1, 4, 3)),
        np.random.normal(size=(3, 3)),
        np.random.normal(size=(1, 4, 2)),
    )
    scores = np.array([[x[0, i] @ matrix @ x[0, j] for j in range(4)] for i in range(4)])
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(layers.bilinear_attention(x, matrix)[0], weights @ x[0], rtol=1e-12)
    np.testing.assert_allclose(layers.bilinear_attention(x, matrix, value)[0], weights @ value[0], rtol=1e-12)
    identity = layers.bilinear_attention(x, np.eye(3))
    np.testing.assert_array_equal(identity, layers.parameter_free_attention(x))


def test_values_are_a_linear_map_of_the_average():
    x, matrix, kernel = (
        np.random.normal(size=(1, 4, 3)),
        np.random.normal(size=(3, 3)),
        np.random.normal(size=(3, 5)),
    )
    averaged = ops.convert_to_numpy(layers.bilinear_attention(x, matrix))
    np.testing.assert_allclose(
        layers.bilinear_attention(x, matrix, x @ kernel), averaged @ kernel, rtol=1e-12
    )


def test_factors_of_the_bilinear_form():
    """P = L O gives q = Lᵀ x and k = O x: xᵀ P y = q . k; so does P = W_Q W_Kᵀ, of rank K at most."""
    x, matrix = np.random.normal(size=(1, 6, 5)), np.random.normal(size=(5, 5))
    upper, orthogonal = scipy.linalg.rq(matrix[::-1])  # rows upside down make R Q an L O
    lower, orthogonal = upper[::-1, ::-1], orthogonal[::-1]
    assert (np.triu(lower, 1) == 0).all()
    np.testing.assert_allclose(lower @ orthogonal, matrix, atol=1e-12)
    query, key = x @ lower, x @ orthogonal.T
    expected = layers.bilinear_attention(x, matrix)
    np.testing.assert_allclose(layers.dot_product_attention(query, key, x, scale=1.0), expected, atol=1e-12)
    to_query, to_key = np.random.normal(size=(2, 5, 2))
    expected = layers.bilinear_attention(x, to_query @ to_key.T)
    np.testing.assert_allclose(
        layers.dot_product_attention(x @ to_query, x @ to_key, x, scale=1.0), expected, atol=1e-12
    )
