"""DINOv2's checkpoints (Oquab et al. 2023), without and with registers.

The mask token, which no classifier reads, is left behind.
"""

import dataclasses

from keras_tfm.convert.family import LABELS, Entry, Family, Head
from keras_tfm.convert.keymap import feedforward, linear, norm, weight
from keras_tfm.convert.vit import FIELDS, SHAPES, attention_rows, embedding_rows
from keras_tfm.heads import PatchClassifier
from keras_tfm.models import DINOv2

BLOCK, LAYER = "block_{}", "encoder.layer.{}"


def rows(config):
    """The table of a configuration: with a gate its projection and the values' are one of theirs."""
    table = [
        *embedding_rows(config),
        *weight("register_tokens/embedding", "embeddings.register_tokens"),
        *attention_rows(BLOCK, LAYER),
        *norm(f"{BLOCK}/attention/norm", f"{LAYER}.norm1"),
        *weight(f"{BLOCK}/attention/scale", f"{LAYER}.layer_scale1.lambda1"),
        *norm(f"{BLOCK}/feedforward/norm", f"{LAYER}.norm2"),
        *weight(f"{BLOCK}/feedforward/scale", f"{LAYER}.layer_scale2.lambda1"),
        *norm("norm", "layernorm"),
    ]
    if not config.gated:
        return table + feedforward(f"{BLOCK}/feedforward", f"{LAYER}.mlp.fc1", f"{LAYER}.mlp.fc2")
    branch = f"{BLOCK}/feedforward/branch"
    table += linear(f"{branch}/gate", f"{LAYER}.mlp.weights_in", part=(0, 1, 2))
    table += linear(f"{branch}/value", f"{LAYER}.mlp.weights_in", part=(1, 2, 2))
    return table + linear(f"{branch}/output", f"{LAYER}.mlp.weights_out")


def hidden_width(dim, ratio, gated):
    """The feed-forward width by their ratio to the model's: with a gate 2/3 of it, made a multiple of 8."""
    hidden = int(dim * ratio)
    return (int(hidden * 2 / 3) + 7) // 8 * 8 if gated else hidden


def read_width(ratio, entries):
    """Our feed-forward width; TypeError where theirs are no numbers."""
    dim = entries.get("hidden_size", 768)
    if type(dim) is not int or type(ratio) not in (int, float):
        raise TypeError
    return hidden_width(dim, ratio, entries.get("use_swiglu_ffn", False))


def write_ratio(config):
    """Their ratio, a whole number; ValueError where there is none for our width."""
    width, dim = config.intermediate_dim, config.dim
    guess = width * 3 // (2 * dim) if config.gated else width // dim
    for ratio in range(max(guess - 1, 1), guess + 3):
        if hidden_width(dim, ratio, config.gated) == width:
            return ratio
    raise ValueError(
        f"Dinov2Model has no whole `mlp_ratio` for `intermediate_dim` {width:,} and `dim` {dim:,}."
    )


def hidden_size(config):
    """The first dense layer's width, 0 with a gate, where it has another key."""
    return 0 if config.gated else config.intermediate_dim


def gated_size(config):
    """The width of the gate and the values together, 0 without a gate."""
    return 2 * config.intermediate_dim if config.gated else 0


HEAD = Head(PatchClassifier, linear("head/output", "classifier"), options={"num_classes": LABELS})
FAMILY = Family(
    model_type="dinov2",
    backbone="Dinov2Model",
    model=DINOv2,
    prefix="dinov2.",
    fields={
        **FIELDS,
        "intermediate_dim": Entry("mlp_ratio", read_width, write_ratio),
        "attention_dropout": "attention_probs_dropout_prob",
        "stochastic_depth": "drop_path_rate",
        "layer_scale": "layerscale_value",
        "gated": "use_swiglu_ffn",
    },
    absent={"mlp_ratio": 4, "image_size": 224},
    written={"use_mask_token": lambda _: False},
    fixed={"qkv_bias": True},
    only={"num_registers": 0},
    shapes={
        **{key: shape for key, shape in SHAPES.items() if "intermediate" not in key},
        "encoder.layer.0.mlp.fc1.bias": (hidden_size,),
        "encoder.layer.0.mlp.weights_in.bias": (gated_size,),
    },
    rows=rows,
    heads={"Dinov2ForImageClassification": HEAD},
    ignored=(r"embeddings\.mask_token",),
)
WITH_REGISTERS = dataclasses.replace(
    FAMILY,
    model_type="dinov2_with_registers",
    backbone="Dinov2WithRegistersModel",
    prefix="dinov2_with_registers.",
    fields={**FAMILY.fields, "num_registers": "num_register_tokens"},
    absent={**FAMILY.absent, "patch_size": 16, "num_register_tokens": 4},
    written={},
    only={},
    shapes={**FAMILY.shapes, "embeddings.register_tokens": (lambda _: 1, "num_registers", "dim")},
    heads={"Dinov2WithRegistersForImageClassification": HEAD},
)
