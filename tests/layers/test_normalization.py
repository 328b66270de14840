"""Normalisations have the values and the gradients of Keras's own layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import layers
from tests import contract
from tests.contract import Case, floats
from tests.layers import reference

test_contract = contract.check(
    Case("normalization", lambda: layers.LayerNormalization(), {"x": floats("T", 6)}, kind="own gradient",
         reference=reference.norm),
    Case("root_mean_square", lambda: layers.RMSNormalization(), {"x": floats("T", 6)},
         reference=reference.norm),
    Case("offset", lambda: layers.RMSNormalization(offset=1.0), {"x": floats("T", 6)},
         reference=reference.norm),
    Case("group", lambda: layers.GroupNormalization(2), {"x": floats(4, 3, 6)}),
    Case("modulated", lambda: layers.ModulatedNormalization(), {"x": floats("T", 6), "w": floats(4)}),
)  # fmt: skip


def test_a_modulation_is_of_all_tokens_or_of_each():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3, 6)), rng.normal(size=(2, 4))
    layer, plain = layers.ModulatedNormalization(), layers.LayerNormalization()
    y = layer(x, w)
    np.testing.assert_allclose(layer(x, np.repeat(w[:, None], 3, 1)), y, atol=1e-6)
    parts = [w.astype("float32") @ np.asarray(dense.kernel) for dense in (layer.gamma, layer.beta)]
    expected = plain(x) * (1 + parts[0][:, None]) + parts[1][:, None]
    np.testing.assert_allclose(y, expected, atol=1e-5)


PAIRS = {
    "layer": lambda: (layers.LayerNormalization(1e-3), keras.layers.LayerNormalization(epsilon=1e-3)),
    "root_mean_square": lambda: (layers.RMSNormalization(1e-3), keras.layers.RMSNormalization(epsilon=1e-3)),
    "group": lambda: (layers.GroupNormalization(4, 1e-3), keras.layers.GroupNormalization(4, epsilon=1e-3)),
}


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 16), (2, 3, 4, 12)])
@pytest.mark.parametrize("pair", PAIRS)
def test_values_and_gradients_are_those_of_keras(pair, shape, dtype, tolerance):
    keras.config.set_dtype_policy(dtype)
    pair = PAIRS[pair]()
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(3.0, 2.0, shape), dtype)
    upstream = tf.constant(rng.normal(size=shape), dtype)
    weights = rng.normal(size=(2, shape[-1]))
    results = []
    for layer in pair:
        layer.build(shape)
        layer.set_weights(list(weights[: len(layer.weights)]))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        results.append([y, *tape.gradient(y, [x, *layer.trainable_variables], upstream)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, theirs, atol=tolerance)


def test_an_offset_changes_where_gamma_starts_and_nothing_else():
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("float32")
    plain, shifted = layers.RMSNormalization(), layers.RMSNormalization(offset=1.0)
    np.testing.assert_array_equal(plain(x), shifted(x))
    assert not shifted.gamma.numpy().any()
    shifted.gamma.assign(np.arange(5) - 1)
    plain.gamma.assign(np.arange(5))
    np.testing.assert_allclose(plain(x), shifted(x), rtol=1e-6)


def test_channels_must_be_groups():
    with pytest.raises(ValueError, match="has 4 groups; channels must be a multiple, got 6"):
        layers.GroupNormalization(4)(np.zeros((1, 2, 6)))
