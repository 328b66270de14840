"""Dropout: the share, the scale, and draws that are as good as independent."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.layers import Dropout
from keras_tfm.layers.compiler.bits import uniform_bits
from tests import contract
from tests.contract import Case, floats

test_contract = contract.check(
    Case("dropout", lambda: Dropout(0.3), {"x": floats("T", 6)}, kind="random numbers")
)

COUNT = 100_000


def kept(seed=1, rate=0.5, calls=1, size=COUNT):
    """Which of `size` ones each call of a layer keeps: (calls, size)."""
    layer = Dropout(rate, seed=seed)
    return np.array([layer(tf.ones(size), training=True).numpy() > 0 for _ in range(calls)])


def correlation(a, b):
    return abs(np.corrcoef(a, b)[0, 1])


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_share_and_scale(rate):
    y = Dropout(rate, seed=1)(tf.ones(COUNT), training=True).numpy()
    deviation = np.sqrt(rate * (1 - rate) / COUNT)
    assert abs((y == 0).mean() - rate) <= 4 * deviation
    np.testing.assert_allclose(y[y > 0], 1 / (1 - rate), rtol=1e-6)


def test_inference_changes_nothing():
    x = np.random.normal(size=(2, 3)).astype("float32")
    for layer, training in ((Dropout(0.9), False), (Dropout(0.9), None), (Dropout(0.0), True)):
        np.testing.assert_array_equal(layer(x, training=training), x)


def test_draws_are_independent_of_place_and_call():
    first, second = kept(calls=2)
    bound = 4 / np.sqrt(COUNT)
    assert correlation(first, second) < bound
    for distance in (1, 2, 64, 512, 4096):
        assert correlation(first[:-distance], first[distance:]) < bound
    assert correlation(first, kept(seed=2)[0]) < bound


def test_every_bit_is_even():
    bits = uniform_bits((COUNT,), tf.constant([3, 5], tf.uint32)).numpy()
    assert bits.min() >= 0 and bits.max() < 2**24
    for bit in range(24):
        assert abs((bits >> bit & 1).mean() - 0.5) < 4 * 0.5 / np.sqrt(COUNT)
    counts = np.bincount(bits >> 16, minlength=256)
    assert abs(((counts - COUNT / 256) ** 2 / (COUNT / 256)).sum() - 255) < 4 * np.sqrt(2 * 255)


def test_a_seed_repeats_its_sequence_and_calls_differ():
    np.testing.assert_array_equal(kept(calls=3), kept(calls=3))
    assert len(np.unique(kept(calls=5, size=64), axis=0)) == 5


def test_traced_equals_eager():
    x, eager = tf.ones((3, 5, 7)), Dropout(0.5, seed=4)
    expected = [eager(x, training=True) for _ in range(2)]
    for jit_compile in (False, True):
        layer = Dropout(0.5, seed=4)
        call = tf.function(
            lambda x, layer=layer: layer(x, training=True), autograph=False, jit_compile=jit_compile
        )
        for one in expected:
            np.testing.assert_array_equal(call(x), one)


def test_gradient_flows_where_something_was_kept():
    x = tf.ones((4, 5))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = Dropout(0.5, seed=3)(x, training=True)
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_impossible_rates_are_refused():
    for rate in (-0.1, 1.0):
        with pytest.raises(ValueError, match=rf"`rate` must lie in \[0, 1\); it is {rate}"):
            Dropout(rate)
