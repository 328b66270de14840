"""Random GPT-2s of transformers: configuration, weights, inputs, and the model itself."""

import numpy as np
import torch
import transformers


def draw_gpt2(rng):
    """(our configuration, transformers' model) with every weight, biases and gammas too, at random."""
    num_heads = int(rng.integers(1, 5))
    config = {
        "vocabulary_size": int(rng.integers(20, 60)),
        "max_length": int(rng.integers(24, 40)),
        "num_layers": int(rng.integers(1, 4)),
        "dim": num_heads * int(rng.integers(3, 9)),
        "num_heads": num_heads,
        "hidden_dim": int(rng.integers(5, 50)),
        "epsilon": float(rng.choice([1e-5, 1e-3])),
    }
    torch.manual_seed(int(rng.integers(2**31)))
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=config["vocabulary_size"],
            n_positions=config["max_length"],
            n_layer=config["num_layers"],
            n_embd=config["dim"],
            n_head=config["num_heads"],
            n_inner=config["hidden_dim"],
            layer_norm_epsilon=config["epsilon"],
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()
    for name, parameter in model.named_parameters():
        is_gamma = ".ln_" in name and name.endswith("weight")
        torch.nn.init.normal_(parameter, mean=float(is_gamma), std=0.3)
    return config, model


def state_of(model):
    """The weights by name, the tied head once."""
    state = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    assert "lm_head.weight" not in state
    return state


def draw_prompts(rng, config, most=8):
    """A batch {"token_ids", "padding_mask"} (B, P), padded on the left with random ids."""
    batch, length = int(rng.integers(1, 5)), int(rng.integers(1, most + 1))
    mask = np.arange(length) >= rng.integers(0, length, (batch, 1))
    token_ids = rng.integers(0, config["vocabulary_size"], (batch, length), "int32")
    return {"token_ids": token_ids, "padding_mask": mask}


def logits_of(model, inputs):
    """transformers' logits, positions counted over the mask as its `generate` counts them."""
    mask = torch.from_numpy(inputs["padding_mask"]).long()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    token_ids = torch.from_numpy(inputs["token_ids"]).long()
    return model(input_ids=token_ids, attention_mask=mask, position_ids=positions).logits
