"""torch.nn.Transformer's stacks as arrays: how their weights map to ours, and how the outputs compare.

No torch is needed here: the live comparison and the stored files hand over NumPy arrays.
"""

import numpy as np
from keras import ops

from keras_tfm import layers


def make_stacks(config, state):
    """Our encoder and decoder of `config`, holding torch's weights `state`, {name: array}."""
    options = {name: config[name] for name in ("num_layers", "num_heads", "activation")}
    options |= {"normalize_first": bool(config["normalize_first"]), "dropout": 0.0}
    options |= {"intermediate_dim": config["hidden_dim"]}
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
        for layer in stack._flatten_layers():
            if isinstance(layer, layers.LayerNormalization):
                layer.epsilon = 1e-5  # torch's
    return encoder, decoder


def _set_block(block, state, prefix):
    is_decoder = block.context_attention is not None
    parts = [block.attention, block.context_attention, block.feedforward]
    for i, part in enumerate(part for part in parts if part is not None):
        _set_norm(part.norm, state, f"{prefix}norm{i + 1}.")
    for i, layer in enumerate((block.feedforward.branch.hidden, block.feedforward.branch.output_projection)):
        _set_dense(layer, *(state[f"{prefix}linear{i + 1}.{name}"] for name in ("weight", "bias")))
    weight, bias = (state[f"{prefix}self_attn.in_proj_{part}"] for part in ("weight", "bias"))
    _set_dense(block.attention.branch.projections.query_key_value, weight, bias)
    _set_output(block.attention.branch, state, f"{prefix}self_attn.out_proj.")
    if is_decoder:
        weight, bias = (state[f"{prefix}multihead_attn.in_proj_{part}"] for part in ("weight", "bias"))
        dim = weight.shape[1]
        attention = block.context_attention.branch
        _set_dense(attention.projections.query, weight[:dim], bias[:dim])
        _set_dense(attention.projections.key_value, weight[dim:], bias[dim:])
        _set_output(attention, state, f"{prefix}multihead_attn.out_proj.")


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
