"""Live: our stacks against torch.nn.Transformer's on copied weights, KERAS_TFM_PARITY_CONFIGS of them."""

import os

import keras
import numpy as np
import pytest
import torch
from torch import nn

from keras_tfm import layers
from tests.golden.torch_stacks import check_stacks
from tests.parity.torch_reference import draw_config, run_stacks

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))


@pytest.mark.parametrize("seed", CONFIGS)
def test_encoder_and_decoder(seed):
    rng = np.random.default_rng(seed)
    config = draw_config(rng)
    check_stacks(config, *run_stacks(config, rng))


@pytest.mark.parametrize("seed", CONFIGS)
def test_attention_errs_no_more_than_torch_does(seed):
    """Against float64: our error is at most four times torch.nn.MultiheadAttention's."""
    rng = np.random.default_rng(seed)
    num_heads, batch = (int(n) for n in rng.integers(1, 5, 2))
    dim, length = num_heads * int(rng.integers(3, 17)), int(rng.integers(2, 20))
    theirs = nn.MultiheadAttention(dim, num_heads, batch_first=True)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.from_numpy(rng.normal(size=(batch, length, dim)).astype("float32"))
    mask = np.arange(length) < rng.integers(1, length + 1, (batch, 1))
    hidden = torch.from_numpy(~mask)
    with torch.no_grad():
        output = theirs(x, x, x, key_padding_mask=hidden, need_weights=False)[0].numpy()
        exact = theirs.double()(*[x.double()] * 3, key_padding_mask=hidden, need_weights=False)[0].numpy()
    ours = layers.MultiHeadAttention(num_heads)
    ours.build(tuple(x.shape))
    weights = (theirs.in_proj_weight.T, theirs.in_proj_bias, theirs.out_proj.weight.T, theirs.out_proj.bias)
    ours.set_weights([weight.detach().numpy() for weight in weights])
    error = np.abs(keras.ops.convert_to_numpy(ours(x.numpy(), mask=mask)) - exact).max()
    assert error <= max(4 * np.abs(output - exact).max(), 1e-6)


@pytest.mark.parametrize("seed", CONFIGS)
def test_buckets_of_relative_positions_are_t5s(seed):
    from transformers.models.t5.modeling_t5 import T5Attention

    rng = np.random.default_rng(seed)
    num_buckets, bidirectional = 2 * int(rng.integers(4, 40)), bool(rng.integers(2))
    max_distance = int(rng.integers(num_buckets, 300))
    distance = np.arange(-400, 401)
    expected = T5Attention._relative_position_bucket(
        torch.from_numpy(distance), bidirectional, num_buckets, max_distance
    )
    position = layers.RelativePositionBias(num_buckets, max_distance, bidirectional)
    buckets = keras.ops.convert_to_numpy(position.buckets(distance.astype("int32")))
    # Where a distance falls on a bucket's very border, one rounding of the logarithm decides.
    differs = buckets != expected.numpy()
    assert differs.mean() < 0.01 and np.abs(buckets - expected.numpy()).max() <= 1


@pytest.mark.parametrize("seed", CONFIGS)
def test_rotary_positions_are_llamas(seed):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    rng = np.random.default_rng(seed)
    length, dim = int(rng.integers(2, 40)), 2 * int(rng.integers(1, 20))
    query, key = rng.normal(size=(2, 2, 3, length, dim)).astype("float32")
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, dim, 2) / dim)
    angles = torch.from_numpy(np.concatenate([angles, angles], -1).astype("float32"))[None]
    expected = apply_rotary_pos_emb(
        torch.from_numpy(query), torch.from_numpy(key), angles.cos(), angles.sin()
    )
    for ours, theirs in zip(layers.RotaryEmbedding().rotate(query, key), expected, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-5)
