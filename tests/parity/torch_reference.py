"""Random torch.nn.Transformer stacks, run once: configuration, weights, inputs and outputs as arrays."""

import numpy as np
import torch
from torch import nn


def draw_config(rng):
    """Odd sizes on purpose: a transposed kernel or a swapped axis cannot hide."""
    num_heads = int(rng.integers(1, 4))
    return {
        "num_layers": int(rng.integers(1, 4)),
        "num_heads": num_heads,
        "dim": num_heads * int(rng.integers(3, 8)),
        "hidden_dim": int(rng.integers(5, 40)),
        "activation": str(rng.choice(["relu", "gelu"])),
        "normalize_first": bool(rng.integers(2)),
    }


def run_stacks(config, rng):
    """(weights, inputs, (encoded, decoded)) with every weight, biases and gammas too, at random."""
    torch.manual_seed(int(rng.integers(2**31)))
    options = (config["dim"], config["num_heads"], config["hidden_dim"], 0.0, config["activation"])
    options_by_name = {"batch_first": True, "norm_first": config["normalize_first"]}

    def norm():
        return nn.LayerNorm(config["dim"]) if config["normalize_first"] else None

    encoder_layer = nn.TransformerEncoderLayer(*options, **options_by_name)
    decoder_layer = nn.TransformerDecoderLayer(*options, **options_by_name)
    stacks = nn.ModuleDict(
        {
            "encoder": nn.TransformerEncoder(
                encoder_layer, config["num_layers"], norm(), enable_nested_tensor=False
            ),
            "decoder": nn.TransformerDecoder(decoder_layer, config["num_layers"], norm()),
        }
    ).eval()
    for parameter in stacks.parameters():
        nn.init.normal_(parameter, std=0.3)
    batch, source_length, target_length = (int(n) for n in rng.integers(2, 7, 3))

    def draw(length):
        mask = np.arange(length) < rng.integers(1, length + 1, (batch, 1))
        return rng.normal(size=(batch, length, config["dim"])).astype("float32"), mask

    (source, source_mask), (target, target_mask) = draw(source_length), draw(target_length)
    causal = torch.ones(target_length, target_length, dtype=torch.bool).triu(1)
    hidden_source, hidden_target = (torch.from_numpy(~mask) for mask in (source_mask, target_mask))
    # In training mode without dropout: the fast path of evaluation writes zeros at padding.
    stacks.train()
    with torch.no_grad():
        encoded = stacks["encoder"](torch.from_numpy(source), src_key_padding_mask=hidden_source)
        decoded = stacks["decoder"](
            torch.from_numpy(target),
            encoded,
            tgt_mask=causal,
            tgt_key_padding_mask=hidden_target,
            memory_key_padding_mask=hidden_source,
        )
    state = {name: tensor.numpy() for name, tensor in stacks.state_dict().items()}
    inputs = {
        "source": source,
        "source_mask": source_mask,
        "target": target,
        "target_mask": target_mask,
    }
    return state, inputs, (encoded.numpy(), decoded.numpy())
