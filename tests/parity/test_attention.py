"""Live: attention layers against torch's and transformers' on copied weights, their sizes drawn at random."""

import os

import numpy as np
import pytest
import torch
from torch import nn

from keras_tfm import layers
from tests.layers.reference import assert_as_exact

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))


def randomised(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.eval()


def weights(*parameters):
    """torch's (out, in) kernels as (in, out), biases as they are."""
    return [parameter.detach().numpy().T for parameter in parameters]


def mask_with_a_key_in_each_row(rng, *shape):
    return (rng.random(shape) < 0.6) | (np.arange(shape[-1]) == 0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["self", "cross", "separate"])
@pytest.mark.parametrize("seed", CONFIGS)
def test_multihead_attention(seed, kind, bias):
    """With padding, a mask of rows and an additive bias at once."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    num_heads, batch, length, keys = (int(n) for n in rng.integers(1, 6, 4))
    dim = num_heads * int(rng.integers(3, 17))
    keys = length if kind == "self" else keys
    key_dim, value_dim = (int(n) for n in rng.integers(2, 9, 2)) if kind == "separate" else (dim, dim)
    theirs = nn.MultiheadAttention(dim, num_heads, bias=bias, batch_first=True, kdim=key_dim, vdim=value_dim)
    randomised(theirs)
    query, key, value = (
        rng.normal(size=(batch, n, d)).astype("float32")
        for n, d in ((length, dim), (keys, key_dim), (keys, value_dim))
    )
    value = key if kind == "cross" else value
    query, key, value = (query, query, query) if kind == "self" else (query, key, value)
    padding, rows = (
        mask_with_a_key_in_each_row(rng, batch, keys),
        mask_with_a_key_in_each_row(rng, length, keys),
    )
    added = rng.normal(size=(batch, num_heads, length, keys)).astype("float32")
    floats = np.where(rows, added, -np.inf).reshape(batch * num_heads, length, keys)

    def run(module, dtype):
        tensors = (torch.from_numpy(x).to(dtype) for x in (query, key, value))
        hidden = torch.zeros(padding.shape, dtype=dtype).masked_fill(torch.from_numpy(~padding), -torch.inf)
        with torch.no_grad():
            return module(*tensors, hidden, attn_mask=torch.from_numpy(floats).to(dtype))[0].numpy()

    ours = layers.MultiHeadAttention(num_heads, use_bias=bias)
    inputs = {"self": (query,), "cross": (query, value), "separate": (query, value, key)}[kind]
    ours.build(*(x.shape for x in inputs))
    biases = theirs.in_proj_bias.chunk(3) if bias else ()
    output = weights(theirs.out_proj.weight, *([theirs.out_proj.bias] if bias else []))
    if kind == "self":
        projections = weights(theirs.in_proj_weight, *([theirs.in_proj_bias] if bias else []))
    elif kind == "cross":
        kernels = (theirs.in_proj_weight[:dim], theirs.in_proj_weight[dim:])
        split = (theirs.in_proj_bias[:dim], theirs.in_proj_bias[dim:]) if bias else ()
        projections = weights(*interleaved(kernels, split))
    else:
        kernels = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
        projections = weights(*interleaved(kernels, biases))
    ours.set_weights([*projections, *output])
    mask = padding[:, None] & rows
    actual = ours(*inputs, mask=mask, bias=added)
    expected, exact = run(theirs, torch.float32), run(theirs.double(), torch.float64)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert_as_exact(actual, expected, exact)


def interleaved(kernels, biases):
    """kernel, bias, kernel, bias, ..., or the kernels alone."""
    return [w for pair in zip(kernels, biases, strict=True) for w in pair] if biases else kernels


@pytest.mark.parametrize("is_decoder", [True, False])
@pytest.mark.parametrize("seed", CONFIGS)
def test_t5_attention(seed, is_decoder):
    """T5 does not scale its scores: the queries' weights here are sqrt(K) times theirs."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    num_heads, head_dim, dim, length = (int(n) for n in rng.integers([1, 2, 3, 2], [5, 9, 20, 40]))
    num_buckets, max_distance = 2 * int(rng.integers(4, 17)), 40
    buckets = {"relative_attention_num_buckets": num_buckets, "relative_attention_max_distance": max_distance}
    sizes = {"d_model": dim, "d_kv": head_dim, "num_heads": num_heads}
    config = T5Config(**sizes, **buckets, is_decoder=is_decoder, dropout_rate=0.0)
    theirs = randomised(T5Attention(config, has_relative_attention_bias=True, layer_idx=0))
    position = layers.RelativePositionBias(num_buckets, max_distance, bidirectional=not is_decoder)
    ours = layers.MultiHeadAttention(num_heads, head_dim, use_bias=False, position=position)
    x = rng.normal(size=(2, length, dim)).astype("float32")
    ours.build(x.shape)
    query, key, value, output = weights(theirs.q.weight, theirs.k.weight, theirs.v.weight, theirs.o.weight)
    ours.projections.query_key_value.set_weights([np.c_[query * head_dim**0.5, key, value]])
    ours.output_projection.set_weights([output])
    position.set_weights([theirs.relative_attention_bias.weight.detach().numpy()])
    mask = mask_with_a_key_in_each_row(rng, 2, length)[:, None] & (
        np.tri(length, dtype=bool) | (not is_decoder)
    )
    hidden = torch.zeros(2, 1, length, length).masked_fill(torch.from_numpy(~mask[:, None]), -1e30)
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x), mask=hidden)[0].numpy()
    np.testing.assert_allclose(ours(x, mask=mask), expected, atol=1e-5)


@pytest.mark.parametrize("seed", CONFIGS)
def test_llama_attention(seed):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    num_heads, length, half = (int(n) for n in rng.integers([1, 2, 1], [5, 40, 9]))
    dim = num_heads * 2 * half
    config = LlamaConfig(hidden_size=dim, num_attention_heads=num_heads, attn_implementation="eager")
    theirs = randomised(LlamaAttention(config, layer_idx=0))
    ours = layers.MultiHeadAttention(num_heads, use_bias=False, position=layers.RotaryEmbedding())
    x = rng.normal(size=(2, length, dim)).astype("float32")
    ours.build(x.shape)
    projections = (theirs.q_proj.weight, theirs.k_proj.weight, theirs.v_proj.weight)
    ours.projections.query_key_value.set_weights([np.concatenate(weights(*projections), axis=1)])
    ours.output_projection.set_weights(weights(theirs.o_proj.weight))
    angles = LlamaRotaryEmbedding(config)(torch.from_numpy(x), torch.arange(length)[None])
    later = torch.full((length, length), -1e30).triu(1)[None, None]
    with torch.no_grad():
        expected = theirs(torch.from_numpy(x), angles, later)[0].numpy()
    # Outputs reach 10, where both are up to 2e-5 from what float64 gives.
    np.testing.assert_allclose(ours(x, causal=True), expected, rtol=1e-5, atol=1e-5)
