"""Random encoder-decoders of transformers, batches for them, and what they answer."""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
import transformers

ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new")


@dataclasses.dataclass(frozen=True)
class Reference:
    """A family: the prefix of its classes' names, and its random entries."""

    prefix: str
    draw: Callable

    def kind(self, with_head=True):
        return self.named("ForConditionalGeneration" if with_head else "Model")

    def named(self, name):
        return getattr(transformers, f"{self.prefix}{name}")

    def draw_model(self, rng):
        """A model of random sizes with every weight, biases and gammas too, at random."""
        return self.make(self.draw(rng), rng)

    def make(self, entries, rng, name="ForConditionalGeneration"):
        """A model of these entries with every weight at random."""
        config = getattr(transformers, f"{self.prefix}Config")(**entries)
        model = self.named(name)(config).eval()
        torch.manual_seed(int(rng.integers(2**31)))
        if not entries.get("tie_word_embeddings", True):
            model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
        for name, parameter in model.named_parameters():
            is_gamma = "norm" in name and name.endswith("weight")
            torch.nn.init.normal_(parameter, mean=float(is_gamma), std=0.3)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.3)
        return model


def draw_t5(rng):
    """v1.0 or v1.1: gated or not, tied or not, independently."""
    gated, activation = bool(rng.integers(2)), str(rng.choice(("relu", "gelu", "silu")))
    num_layers = int(rng.integers(1, 4))
    return {
        "vocab_size": int(rng.integers(20, 60)),
        "d_model": int(rng.integers(3, 30)),
        "d_kv": int(rng.integers(2, 9)),
        "d_ff": int(rng.integers(5, 50)),
        "num_layers": num_layers,
        "num_decoder_layers": int(rng.integers(1, num_layers + 1)),  # their cache has no room for more
        "num_heads": int(rng.integers(1, 5)),
        "relative_attention_num_buckets": int(rng.integers(4, 33)),
        "relative_attention_max_distance": int(rng.integers(20, 130)),
        "feed_forward_proj": f"gated-{activation}" if gated else activation,
        "layer_norm_epsilon": float(rng.choice([1e-6, 1e-3])),
        "tie_word_embeddings": bool(rng.integers(2)),
        "decoder_start_token_id": 0,
    }


def draw_bart(rng):
    heads = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    return {
        "vocab_size": int(rng.integers(20, 60)),
        "d_model": heads[0] * heads[1] * int(rng.integers(2, 6)),
        "encoder_layers": int(rng.integers(1, 4)),
        "decoder_layers": int(rng.integers(1, 4)),
        "encoder_attention_heads": heads[0],
        "decoder_attention_heads": heads[1],
        "encoder_ffn_dim": int(rng.integers(5, 50)),
        "decoder_ffn_dim": int(rng.integers(5, 50)),
        "max_position_embeddings": int(rng.integers(24, 40)),
        "activation_function": str(rng.choice(ACTIVATIONS)),
        "scale_embedding": bool(rng.integers(2)),
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
    }


REFERENCES = {
    "t5": Reference("T5", draw_t5),
    "bart": Reference("Bart", draw_bart),
    "mbart": Reference("MBart", draw_bart),
}


def draw_inputs(rng, vocabulary_size, most=12):
    """A batch of ours, padded on the right on both sides."""
    batch, source, target = (int(rng.integers(1, n)) for n in (5, most + 1, 9))
    return {
        # Not the padding's ids: theirs hold that row's gradient still.
        "token_ids": rng.integers(3, vocabulary_size, (batch, source), "int32"),
        "padding_mask": np.arange(source) < rng.integers(1, source + 1, (batch, 1)),
        "decoder_token_ids": rng.integers(3, vocabulary_size, (batch, target), "int32"),
        "decoder_padding_mask": np.arange(target) < rng.integers(1, target + 1, (batch, 1)),
    }


def answer(model, inputs, **options):
    """What `model` says to a batch of ours."""
    return model(
        input_ids=torch.from_numpy(inputs["token_ids"]).long(),
        attention_mask=torch.from_numpy(inputs["padding_mask"]).long(),
        decoder_input_ids=torch.from_numpy(inputs["decoder_token_ids"]).long(),
        decoder_attention_mask=torch.from_numpy(inputs["decoder_padding_mask"]).long(),
        **options,
    )
