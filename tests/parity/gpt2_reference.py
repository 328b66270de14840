"""Random GPT-2s of transformers, batches for them, and what they answer."""

import numpy as np
import torch
import transformers


def draw_gpt2(rng):
    """A language model of odd sizes with every weight, biases and gammas too, at random."""
    num_heads = int(rng.integers(1, 5))
    config = transformers.GPT2Config(
        vocab_size=int(rng.integers(20, 60)),
        n_positions=int(rng.integers(24, 40)),
        n_layer=int(rng.integers(1, 4)),
        n_embd=num_heads * int(rng.integers(3, 9)),
        n_head=num_heads,
        n_inner=[None, int(rng.integers(5, 50))][rng.integers(2)],
        layer_norm_epsilon=float(rng.choice([1e-5, 1e-3])),
        activation_function=str(rng.choice(["gelu_new", "gelu", "relu"])),
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(int(rng.integers(2**31)))
    model = transformers.GPT2LMHeadModel(config).eval()
    for name, parameter in model.named_parameters():
        is_gamma = ".ln_" in name and name.endswith("weight")
        torch.nn.init.normal_(parameter, mean=float(is_gamma), std=0.3)
    return model


def draw_prompts(rng, vocabulary_size, most=8):
    """A batch {"token_ids", "padding_mask"} (B, P), padded on the left with random ids."""
    batch, length = int(rng.integers(1, 5)), int(rng.integers(1, most + 1))
    mask = np.arange(length) >= rng.integers(0, length, (batch, 1))
    token_ids = rng.integers(0, vocabulary_size, (batch, length), "int32")
    return {"token_ids": token_ids, "padding_mask": mask}


def logits_of(model, inputs):
    """transformers' logits, positions counted over the mask as its `generate` counts them."""
    mask = torch.from_numpy(inputs["padding_mask"]).long()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    token_ids = torch.from_numpy(inputs["token_ids"]).long()
    return model(input_ids=token_ids, attention_mask=mask, position_ids=positions).logits
