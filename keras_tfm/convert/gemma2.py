"""Gemma 2's checkpoints (Gemma Team 2024)."""

from keras_tfm.convert.entries import Entry
from keras_tfm.convert.rotary_decoder import family
from keras_tfm.models import Gemma2
from keras_tfm.training.safetensors import CheckpointError

WINDOWED, FULL = "sliding_attention", "full_attention"


def kinds_of(num_layers):
    """Their names of the blocks' kinds: every other one has a window."""
    return [FULL if i % 2 else WINDOWED for i in range(num_layers)]


def read_window(value, entries):
    """The window; CheckpointError where other blocks have it than here."""
    kinds = kinds_of(entries["num_hidden_layers"])
    if entries.get("layer_types") not in (None, kinds):
        raise CheckpointError("config.json", "layer_types", f"{WINDOWED} and {FULL} by turns", "other kinds")
    return value


NORMS = {
    "attention/norm": "input_layernorm",
    "attention/output_norm": "post_attention_layernorm",
    "feedforward/norm": "pre_feedforward_layernorm",
    "feedforward/output_norm": "post_feedforward_layernorm",
}
FAMILY = family(
    "gemma2",
    Gemma2,
    {
        "window": Entry("sliding_window", read_window, lambda config: config.window),
        "activation": "hidden_activation",
        "query_scale_dim": "query_pre_attn_scalar",
        "score_cap": "attn_logit_softcapping",
        "logit_cap": "final_logit_softcapping",
    },
    {"sliding_window": 4_096},
    NORMS,
    derived_entries={"layer_types": lambda config: kinds_of(config.num_layers)},
    fixed_entries={"attention_bias": False, "use_bidirectional_attention": None},
)
