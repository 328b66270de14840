"""Gradients through time: by hand, by finite differences, vanishing and exploding; clipping."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.tasks import Forecaster, Translator
from keras_tfm.training import input_jacobians, norms, products_to_end, state_jacobians
from keras_tfm.training.model import Model
from keras_tfm.training.optimizers import SGD
from keras_tfm.training.options import Training

X, TARGET = np.array([0.3, -0.2, 0.9]), 0.7
W_X, W_H, W_Y = 0.8, 0.6, 1.1


def scalar_loss(w_x, states=None):
    """h_t = tanh(w_h h_(t-1) + w_x x_t) three times, y = tanh(w_y h), J = (y - target)^2."""
    h = 0.1
    for x in X:
        h = np.tanh(W_H * h + w_x * x)
        if states is not None:
            states.append(h)
    return (np.tanh(W_Y * h) - TARGET) ** 2


def test_back_propagation_through_time_by_hand():
    """The sum over k of dh_T/dh_k times the immediate dh_k/dw_x, h_(k-1) held: finite differences agree."""
    states: list = []
    scalar_loss(W_X, states)
    cell = keras.layers.SimpleRNNCell(1, use_bias=False, dtype="float64")
    cell.build((None, 1))
    cell.set_weights([np.array([[W_X]]), np.array([[W_H]])])
    jacobians = state_jacobians(cell, X[:, None], [np.array([[0.1]])])
    derivatives = 1 - np.array(states) ** 2
    np.testing.assert_allclose(jacobians[:, 0, 0], derivatives * W_H, rtol=1e-12)
    products = products_to_end(jacobians)[:, 0, 0]
    np.testing.assert_allclose(products[0], np.prod(derivatives) * W_H**3, rtol=1e-12)
    y = np.tanh(W_Y * states[-1])
    through_time = np.sum(products[1:] * derivatives * X)
    gradient = 2 * (y - TARGET) * (1 - y**2) * W_Y * through_time
    step = 1e-6
    np.testing.assert_allclose(
        gradient, (scalar_loss(W_X + step) - scalar_loss(W_X - step)) / (2 * step), rtol=1e-8
    )


@pytest.mark.parametrize("make", [keras.layers.SimpleRNNCell, keras.layers.LSTMCell, keras.layers.GRUCell])
def test_products_are_what_a_change_of_an_early_state_does_to_the_last(make):
    cell = make(3, dtype="float64")
    x = np.random.normal(size=(5, 2))
    products = products_to_end(state_jacobians(cell, x))
    size = products.shape[-1]

    def last(first):
        state = np.split(first[None], size // 3, axis=1)
        for token in x:
            state = cell(token[None], list(state))[1]
        return np.concatenate(state, axis=1)[0]

    change = np.random.normal(size=size)
    difference = (last(1e-6 * change) - last(-1e-6 * change)) / 2e-6
    np.testing.assert_allclose(products[0] @ change, difference, atol=1e-8)
    np.testing.assert_array_equal(products[-1], np.eye(size))


def test_gradients_vanish_or_explode_but_not_through_attention():
    """Small recurrent weights forget, large ones explode, an open LSTM keeps; attention sees all."""
    x, by_scale = np.random.normal(size=(30, 4)) * 0.1, {}
    for scale in (0.5, 2.0):
        cell = keras.layers.SimpleRNNCell(4, activation="linear", dtype="float64")
        cell.build((None, 4))
        cell.recurrent_kernel.assign(scale * np.linalg.qr(np.random.normal(size=(4, 4)))[0])
        by_scale[scale] = norms(products_to_end(state_jacobians(cell, x)))
    for scale, curve in by_scale.items():
        np.testing.assert_allclose(np.log(curve), np.arange(30, -1, -1) * np.log(scale), atol=1e-9)
    cell = keras.layers.LSTMCell(4, dtype="float64")
    cell.build((None, 4))
    cell.bias.assign(np.repeat([-20.0, 20, 0, 0], 4))  # the input gate closed, the forget gate open
    assert norms(products_to_end(state_jacobians(cell, x)))[0] > 0.9
    attend = keras.layers.Attention()
    reach = norms(input_jacobians(lambda x: attend([x, x]), x))
    assert reach[:-1].max() < 3 * reach[:-1].min()


def test_clipping_keeps_the_direction():
    """A step is tau long in all, and as before where the gradient is shorter."""
    weights = [keras.Variable(np.zeros(shape)) for shape in ((3, 2), (4,))]
    gradients = [tf.random.normal(weight.shape) * 5 for weight in weights]
    joined = np.concatenate([np.ravel(g) for g in gradients])
    for tau, expected in ((0.5, 0.5), (1e3, np.linalg.norm(joined))):
        for weight in weights:
            weight.assign(np.zeros(weight.shape))
        SGD(1.0, global_clipnorm=tau).apply(gradients, weights)
        step = -np.concatenate([np.ravel(weight) for weight in weights])
        np.testing.assert_allclose(np.linalg.norm(step), expected, rtol=1e-5)
        np.testing.assert_allclose(step @ joined, np.linalg.norm(step) * np.linalg.norm(joined), rtol=1e-5)


def test_rows_that_are_looked_up_twice_are_clipped_as_one():
    inputs = keras.Input((3,), dtype="int32")
    model = Model(inputs, keras.layers.Embedding(4, 2, name="table")(inputs))
    for options, expected in (({"global_clipnorm": 0.5}, 0.5), ({"clipnorm": 0.25}, 0.25), ({}, None)):
        model.compile(SGD(1.0, **options), loss=lambda y, y_pred: keras.ops.sum(y_pred, axis=(1, 2)) * 7)
        before = model.get_weights()[0]
        model.train_on_batch(np.array([[1, 1, 2], [1, 2, 1]]), np.zeros(2))
        step = before - model.get_weights()[0]
        np.testing.assert_allclose(np.linalg.norm(step), expected or 7 * np.sqrt(2 * (2**2 + 1)), rtol=1e-5)
        np.testing.assert_allclose(step[1], 2 * step[2], rtol=1e-5)


def test_tasks_clip_by_an_option():
    for task in (Forecaster, Translator):
        own = task.optimizer(task, Training(), 1e-3)
        assert (own.clipnorm, own.global_clipnorm) in ((None, 1.0), (1.0, None))
        asked = task.optimizer(task, Training(clip_norm=0.3), 1e-3)
        assert (asked.clipnorm, asked.global_clipnorm) == (None, 0.3)
    with pytest.raises(ValueError, match="`clip_norm` must be above 0; it is 0"):
        Training(clip_norm=0)
