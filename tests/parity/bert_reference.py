"""Random BERTs of transformers, and what they answer, as arrays."""

import numpy as np
import torch
import transformers

ACTIVATIONS = ("gelu", "relu", "silu", "tanh", "gelu_new", "gelu_pytorch_tanh", "quick_gelu")


def draw_entries(rng):
    """A configuration's entries: odd sizes, one to four layers, any activation."""
    num_heads = int(rng.integers(1, 5))
    return {
        "vocab_size": int(rng.integers(11, 60)),
        "hidden_size": num_heads * int(rng.integers(2, 9)),
        "num_hidden_layers": int(rng.integers(1, 5)),
        "num_attention_heads": num_heads,
        "intermediate_size": int(rng.integers(5, 50)),
        "hidden_act": str(rng.choice(ACTIVATIONS)),
        "max_position_embeddings": int(rng.integers(12, 30)),
        "type_vocab_size": int(rng.integers(1, 4)),
        "layer_norm_eps": float(rng.choice([1e-12, 1e-5, 1e-2])),
        "classifier_dropout": [None, 0.0, 0.25][rng.integers(3)],
    }


def draw_model(rng, architecture, entries, num_labels=2):
    """A model of these entries with every weight, biases and gammas too, at random."""
    config = transformers.BertConfig(**entries, num_labels=num_labels)
    model = getattr(transformers, architecture)(config).eval()
    torch.manual_seed(int(rng.integers(2**31)))
    for name, parameter in model.named_parameters():
        is_gamma = name.endswith("LayerNorm.weight")
        torch.nn.init.normal_(parameter, mean=float(is_gamma), std=0.3)
    return model


def draw_inputs(rng, entries):
    """A padded batch of ours."""
    batch, length = int(rng.integers(1, 5)), int(rng.integers(1, 13))
    return {
        "token_ids": rng.integers(0, entries["vocab_size"], (batch, length), "int32"),
        "padding_mask": np.arange(length) < rng.integers(1, length + 1, (batch, 1)),
        "segment_ids": rng.integers(0, entries["type_vocab_size"], (batch, length), "int32"),
    }


def answer(model, inputs, **options):
    """What `model` says to a batch of ours."""
    return model(
        input_ids=torch.from_numpy(inputs["token_ids"]).long(),
        attention_mask=torch.from_numpy(inputs["padding_mask"]).long(),
        token_type_ids=torch.from_numpy(inputs["segment_ids"]).long(),
        **options,
    )
