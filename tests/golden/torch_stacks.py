"""torch.nn.Transformer's stacks as arrays: how their weights map to ours, and how the outputs compare.

No torch is needed here: the live comparison and the stored files hand over NumPy arrays.
"""

import numpy as np
from keras import ops

from keras_tfm import layers


def make_stacks(config, state):
    """Our encoder and decoder of `config`, holding torch's weights `state`, {name: array}."""
    options = {name: config[name] for name in ("num_layers", "num_heads", "intermediate_dim", "activation")}
    options |= {"normalize_first": bool(config["normalize_first"]), "epsilon": 1e-5, "dropout": 0.0}
    encoder = layers.TransformerEncoder(**options)
    decoder = layers.TransformerDecoder(**options, cross_attention=True)
    shape = (None, None, int(config["dim"]))
    encoder.build(shape)
    decoder.build(shape, shape)
    for stack, name in ((encoder, "encoder"), (decoder, "decoder")):
        for i, block in enumerate(stack.blocks):
            _set_block(block, state, f"{name}.layers.{i}.")
        if stack.norm is not None:
            _set_norm(stack.norm, state, f"{name}.norm.")
    return encoder, decoder


def _set_block(block, state, prefix):
    is_decoder = block.context_attention is not None
    norms = [block.attention_norm, block.context_norm, block.feedforward_norm]
    for i, norm in enumerate(norm for norm in norms if norm is not None):
        _set_norm(norm, state, f"{prefix}norm{i + 1}.")
    _set_dense(block.feedforward.hidden, state[f"{prefix}linear1.weight"], state[f"{prefix}linear1.bias"])
    _set_dense(
        block.feedforward.output_projection, state[f"{prefix}linear2.weight"], state[f"{prefix}linear2.bias"]
    )
    weight, bias = (state[f"{prefix}self_attn.in_proj_{part}"] for part in ("weight", "bias"))
    _set_dense(block.attention.query_key_value, weight, bias)
    _set_output(block.attention, state, f"{prefix}self_attn.out_proj.")
    if is_decoder:
        weight, bias = (state[f"{prefix}multihead_attn.in_proj_{part}"] for part in ("weight", "bias"))
        dim = weight.shape[1]
        _set_dense(block.context_attention.query, weight[:dim], bias[:dim])
        _set_dense(block.context_attention.key_value, weight[dim:], bias[dim:])
        _set_output(block.context_attention, state, f"{prefix}multihead_attn.out_proj.")


def _set_output(attention, state, prefix):
    _set_dense(attention.output_projection, state[f"{prefix}weight"], state[f"{prefix}bias"])


def _set_dense(dense, weight, bias):
    dense.set_weights([weight.T, bias])


def _set_norm(norm, state, prefix):
    norm.set_weights([state[f"{prefix}weight"], state[f"{prefix}bias"]])


def check_stacks(config, state, inputs, expected):
    """Our outputs equal torch's to 1e-5 wherever there is a token: `expected` (encoded, decoded)."""
    encoder, decoder = make_stacks(config, state)
    source_mask, target_mask = inputs["source_mask"], inputs["target_mask"]
    encoded = encoder(inputs["source"], mask=source_mask)
    decoded = decoder(inputs["target"], encoded, mask=target_mask, context_mask=source_mask)
    for ours, theirs, mask in zip((encoded, decoded), expected, (source_mask, target_mask), strict=True):
        error = np.abs(ops.convert_to_numpy(ours) - theirs)[mask].max()
        assert error < 1e-5, (error, config)
