"""Live: convolutions, depthwise and grouped ones and batch normalisation against torch.nn's."""

import keras
import numpy as np
import pytest
import torch
from torch import nn

from keras_tfm import layers
from keras_tfm.convert import keymap

pytestmark = pytest.mark.parity

# (channels, filters, kernel, stride, padding or None for (k - 1) // 2, groups)
SIZES = [
    (3, 8, (3, 3), 2, None, 1),
    (3, 8, (5, 2), 1, (2, 0), 1),
    (3, 5, (7, 7), 2, (3, 3), 1),
    (3, 5, (4, 4), 4, (0, 0), 1),
    (6, 6, (3, 3), 1, None, 6),
    (6, 12, (3, 3), 2, None, 6),
    (8, 12, (3, 3), 1, None, 4),
    (8, 4, (1, 1), 1, None, 2),
]


def state_of(module, rng):
    """The arrays of a torch module, drawn anew: variances positive."""
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            drawn = rng.normal(0, 0.3, tensor.shape)
            tensor.copy_(torch.from_numpy(0.5 + abs(drawn) if name.endswith("var") else drawn))
    return {name: x.numpy().copy() for name, x in module.state_dict().items() if x.is_floating_point()}


def channels_last(tensor):
    return tensor.detach().numpy().transpose(0, 2, 3, 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_normalized", [False, True])
def test_convolution(size, is_normalized):
    channels, filters, kernel, stride, padding, groups = size
    rng = np.random.default_rng(0)
    margins = tuple((n - 1) // 2 for n in kernel) if padding is None else padding
    theirs = nn.Sequential(
        nn.Conv2d(channels, filters, kernel, stride, margins, groups=groups, bias=not is_normalized),
        *([nn.BatchNorm2d(filters)] if is_normalized else []),
        nn.Hardswish(),
    ).eval()
    state = state_of(theirs, rng)
    norm = layers.BatchNormalization() if is_normalized else None
    ours = layers.Convolution(
        filters, kernel, stride, padding, groups, norm, "hard_swish", name="convolution"
    )
    images = keras.Input((9, 8, channels))
    model = keras.Model(images, ours(images))
    is_depthwise = groups == channels
    kernel = keymap.depthwise_kernel(filters // channels) if is_depthwise else keymap.CONVOLVED
    rows = [*keymap.convolution("convolution", "0", kernel), *keymap.batch_norm("convolution/norm", "1")]
    assert keymap.load(model, state, rows, "theirs") == state.keys()
    for key, tensor in keymap.save(model, rows).items():
        np.testing.assert_array_equal(tensor, state[key])
    x = rng.normal(size=(2, 9, 8, channels)).astype("float32")
    expected = channels_last(theirs(torch.from_numpy(x.transpose(0, 3, 1, 2))))
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-5)


def test_statistics_in_training():
    """The outputs are the same; torch divides the moving variance by one example less."""
    rng = np.random.default_rng(0)
    theirs = nn.BatchNorm1d(5)
    state = state_of(theirs, rng)
    ours = layers.BatchNormalization(name="norm")
    tokens = keras.Input((None, 5))
    model = keras.Model(tokens, ours(tokens))
    ours.set_weights([state[key] for key in ("weight", "bias", "running_mean", "running_var")])
    x = rng.normal(2, 3, size=(4, 6, 5)).astype("float32")
    expected = theirs(torch.from_numpy(x.reshape(24, 5))).detach().numpy().reshape(4, 6, 5)
    np.testing.assert_allclose(model(x, training=True), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours.moving_mean, theirs.running_mean, rtol=1e-5, atol=1e-5)
    added = (theirs.running_var.numpy() - 0.9 * state["running_var"]) * 23 / 24
    np.testing.assert_allclose(ours.moving_variance, 0.9 * state["running_var"] + added, rtol=1e-4)


def test_a_dense_layer_with_batch_norm():
    rng = np.random.default_rng(0)
    theirs = nn.Sequential(nn.Linear(6, 5, bias=False), nn.BatchNorm1d(5)).eval()
    state = state_of(theirs, rng)
    tokens = keras.Input((None, 6))
    model = keras.Model(tokens, layers.NormalizedDense(5, name="dense")(tokens))
    rows = [*keymap.linear("dense/dense", "0"), *keymap.batch_norm("dense/norm", "1")]
    assert keymap.load(model, state, rows, "theirs") == state.keys()
    x = rng.normal(size=(2, 7, 6)).astype("float32")
    expected = theirs(torch.from_numpy(x.reshape(14, 6))).detach().numpy().reshape(2, 7, 5)
    np.testing.assert_allclose(model(x), expected, rtol=1e-5, atol=1e-5)
