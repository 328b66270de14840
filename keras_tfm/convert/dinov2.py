"""DINOv2's checkpoints (Oquab et al. 2023), without and with registers, with transformers' or timm's names.

The mask token is not read, since no classifier uses it.
"""

import dataclasses

import numpy as np

from keras_tfm.convert.entries import Entry, multiple, ratio_of
from keras_tfm.convert.family import LABELS, Family, Head
from keras_tfm.convert.keymap import feedforward, linear, norm, patches, weight
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.convert.vit import (
    FIELDS,
    FIRST_OF_ONE,
    TIMM_FIELDS,
    TIMM_FIXED,
    attention_rows,
    embedding_rows,
    timm_encoder_rows,
)
from keras_tfm.heads import PatchClassifier
from keras_tfm.models import DINOv2

BLOCK, LAYER = "block_{}", "encoder.layer.{}"


def rows(config):
    """The table of a configuration; of a gated layer, theirs has one projection for gate and values."""
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
    """The feed-forward width for their ratio; with a gate 2/3 of the product, as a multiple of 8."""
    hidden = int(dim * ratio)
    return (int(hidden * 2 / 3) + 7) // 8 * 8 if gated else hidden


def read_width(ratio, entries):
    """Our feed-forward width; TypeError if their entries are not numbers."""
    dim = entries.get("hidden_size", 768)
    if type(dim) is not int or type(ratio) not in (int, float):
        raise TypeError
    return hidden_width(dim, ratio, entries.get("use_swiglu_ffn", False))


def write_ratio(config):
    """Their ratio, a whole number; ValueError if no ratio gives our width."""
    width, dim = config.intermediate_dim, config.dim
    guess = width * 3 // (2 * dim) if config.gated else width // dim
    for ratio in range(max(guess - 1, 1), guess + 3):
        if hidden_width(dim, ratio, config.gated) == width:
            return ratio
    raise ValueError(
        f"Dinov2Model has no whole `mlp_ratio` for `intermediate_dim` {width:,} and `dim` {dim:,}."
    )


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
        "qkv_bias": "qkv_bias",
    },
    default_entries={"mlp_ratio": 4, "image_size": 224},
    derived_entries={"use_mask_token": lambda _: False},
    fixed_fields={"num_registers": 0},
    rows=rows,
    heads={"Dinov2ForImageClassification": HEAD},
    buffers=(r"embeddings\.mask_token",),
)
WITH_REGISTERS = dataclasses.replace(
    FAMILY,
    model_type="dinov2_with_registers",
    backbone="Dinov2WithRegistersModel",
    prefix="dinov2_with_registers.",
    fields={**FAMILY.fields, "num_registers": "num_register_tokens"},
    default_entries={**FAMILY.default_entries, "patch_size": 16, "num_register_tokens": 4},
    derived_entries={},
    fixed_fields={},
    heads={"Dinov2WithRegistersForImageClassification": HEAD},
)


def timm_rows(config):
    """The table with timm's names and a classifier that reads the class token."""
    encoder, branch = "patch_encoder", f"{BLOCK}/feedforward/branch"
    table = [
        *patches(f"{encoder}/patches", "patch_embed.proj", config.patch_size),
        *weight(f"{encoder}/class_token/embedding", "cls_token"),
        *weight(f"{encoder}/position/embedding/embeddings", "pos_embed", FIRST_OF_ONE),
        *weight("register_tokens/embedding", "reg_token"),
        *weight(f"{BLOCK}/attention/scale", "blocks.{}.ls1.gamma"),
        *weight(f"{BLOCK}/feedforward/scale", "blocks.{}.ls2.gamma"),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
    ]
    encoder_rows = timm_encoder_rows(BLOCK, "blocks.{}")
    if not config.gated:
        return table + encoder_rows
    table += [row for row in encoder_rows if not row.ours.startswith(f"{branch}/")]
    table += linear(f"{branch}/gate", "blocks.{}.mlp.fc1", part=(0, 1, 2))
    table += linear(f"{branch}/value", "blocks.{}.mlp.fc1", part=(1, 2, 2))
    return table + linear(f"{branch}/output", "blocks.{}.mlp.fc2")


def read_timm_tensors(config, tensors):
    """timm's weights with a position of the class token: models with registers have none, so it is 0."""
    positions = tensors.get("pos_embed")
    if not config.num_registers or positions is None or positions.ndim != 3:
        return tensors
    return {**tensors, "pos_embed": np.concatenate([np.zeros_like(positions[:, :1]), positions], axis=1)}


def write_timm_tensors(config, tensors):
    """timm's weights for ours; with registers, the class token's position is added to the token."""
    if not config.num_registers:
        return tensors
    positions, token = tensors["pos_embed"], tensors["cls_token"]
    return {**tensors, "cls_token": token + positions[:, :1], "pos_embed": positions[:, 1:].copy()}


def read_timm_width(ratio, arguments):
    """Our feed-forward width; with a gate timm's ratio is for the gate and the values together."""
    whole = multiple("mlp_ratio", ratio, "embed_dim", arguments)
    return whole // 2 if arguments.get("mlp_layer") else whole


def write_timm_ratio(config):
    """timm's ratio for our feed-forward width."""
    return ratio_of(config.intermediate_dim * (1 + config.gated), config.dim)


TIMM = TimmFamily(
    model=DINOv2,
    rows=timm_rows,
    architectures={
        f"vit_{name}_patch14_{kind}dinov2": f"{letter}/14{registers}"
        for kind, registers in (("", ""), ("reg4_", "-registers"))
        for name, letter in {"small": "S", "base": "B", "large": "L", "giant": "g"}.items()
    },
    fields={
        **TIMM_FIELDS,
        "dropout": ("proj_drop_rate", "pos_drop_rate"),
        "intermediate_dim": Entry("mlp_ratio", read_timm_width, write_timm_ratio),
        "attention_dropout": "attn_drop_rate",
        "layer_scale": "init_values",
        "num_registers": "reg_tokens",
        "gated": "mlp_layer",
    },
    derived_entries={"no_embed_class": lambda config: config.num_registers > 0},
    fixed_entries={**TIMM_FIXED, "global_pool": "token", "class_token": True},
    fixed_fields={"activation": "gelu", "epsilon": 1e-6},
    default_entries={"drop_path_rate": 0.0, "init_values": 1e-5},
    named_entries=("mlp_layer",),
    read_tensors=read_timm_tensors,
    write_tensors=write_timm_tensors,
)
