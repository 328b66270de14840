"""Live: recurrent layers against torch's on copied weights, their sizes drawn at random."""

import os

import keras
import numpy as np
import pytest
import torch
from torch import nn

from keras_tfm.layers import RecurrentEncoder
from tests.parity.test_attention import randomised

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
TORCHS = {"simple": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
KERAS = {"simple": keras.layers.SimpleRNNCell, "lstm": keras.layers.LSTMCell, "gru": keras.layers.GRUCell}


def weights_of(theirs, suffix, kind):
    """Kernel, recurrent kernel and bias as Keras has them: (in, out), a GRU's gates z, r, n, not r, z, n."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    kernel, recurrent, bias, recurrent_bias = (
        getattr(theirs, f"{name}_{suffix}").detach().numpy().T for name in names
    )
    if kind == "gru":
        kernel, recurrent, bias, recurrent_bias = (
            np.concatenate([z, r, n], axis=-1)
            for r, z, n in (np.split(x, 3, axis=-1) for x in (kernel, recurrent, bias, recurrent_bias))
        )
        return kernel, recurrent, np.stack([bias, recurrent_bias])
    return kernel, recurrent, bias + recurrent_bias


@pytest.mark.parametrize("kind", ["simple", "lstm", "gru"])
@pytest.mark.parametrize("seed", CONFIGS)
def test_stacks_of_one_and_two_directions(seed, kind):
    """States at every position and the last ones, rows of several lengths packed by torch and masked here."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    dim, units, num_layers, batch, length = (int(n) for n in rng.integers((1, 1, 1, 1, 2), (9, 9, 4, 5, 9)))
    bidirectional = bool(seed % 2)
    theirs = TORCHS[kind](dim, units, num_layers, batch_first=True, bidirectional=bidirectional)
    randomised(theirs)
    ours = RecurrentEncoder(units, num_layers, KERAS[kind](units), bidirectional)
    x = rng.normal(size=(batch, length, dim)).astype("float32")
    lengths = np.sort(rng.integers(1, length + 1, batch))[::-1].copy()
    lengths[0] = length
    mask = np.arange(length) < lengths[:, None]
    ours(x)
    for i, layer in enumerate(ours.layers):
        cells = [layer.forward_layer, layer.backward_layer] if bidirectional else [layer]
        for cell, direction in zip(cells, ("", "_reverse"), strict=False):
            cell.set_weights(weights_of(theirs, f"l{i}{direction}", kind))
    packed = nn.utils.rnn.pack_padded_sequence(torch.from_numpy(x), lengths, batch_first=True)
    with torch.no_grad():
        expected, last = theirs(packed)
    expected = nn.utils.rnn.pad_packed_sequence(expected, batch_first=True, total_length=length)[0].numpy()
    states, own_last = ours(x, mask)
    np.testing.assert_allclose(states, expected, atol=1e-5)
    last = np.stack(
        [part.numpy() for part in (last if kind == "lstm" else (last,))]
    )  # (h c, L directions, B, P)
    last = last.transpose(2, 1, 0, 3).reshape(batch, -1)  # (B, L directions h c P)
    np.testing.assert_allclose(own_last, last, atol=1e-5)
