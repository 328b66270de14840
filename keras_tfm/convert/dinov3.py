"""DINOv3's checkpoints (Siméoni et al. 2025) by transformers' names, which have no classifier.

The mask token is not read, since only pre-training uses it.
"""

from keras_tfm.convert.family import Family
from keras_tfm.convert.keymap import linear, norm, patches, weight
from keras_tfm.convert.vit import FIELDS, side
from keras_tfm.models import DINOv3

BLOCK, LAYER = "block_{}", "layer.{}"


def rows(config):
    """The table of weights for a configuration."""
    projections, branch = f"{BLOCK}/attention/branch/projections", f"{BLOCK}/feedforward/branch"
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}
    table = [
        *patches("patch_embedding", "embeddings.patch_embeddings", config.patch_size),
        *weight("class_token/embedding", "embeddings.cls_token"),
        *weight("register_tokens/embedding", "embeddings.register_tokens"),
        *linear(f"{projections}/query_key_value", *(f"{LAYER}.attention.{x}" for x in names.values())),
        *linear(f"{BLOCK}/attention/branch/output", f"{LAYER}.attention.o_proj"),
        *norm(f"{BLOCK}/attention/norm", f"{LAYER}.norm1"),
        *weight(f"{BLOCK}/attention/scale", f"{LAYER}.layer_scale1.lambda1"),
        *norm(f"{BLOCK}/feedforward/norm", f"{LAYER}.norm2"),
        *weight(f"{BLOCK}/feedforward/scale", f"{LAYER}.layer_scale2.lambda1"),
        *linear(f"{branch}/gate", f"{LAYER}.mlp.gate_proj"),
        *linear(f"{branch}/{'value' if config.gated else 'hidden'}", f"{LAYER}.mlp.up_proj"),
        *linear(f"{branch}/output", f"{LAYER}.mlp.down_proj"),
        *norm("norm", "norm"),
    ]
    for part, theirs in names.items():
        table += weight(f"{projections}/{part}_bias", f"{LAYER}.attention.{theirs}.bias")
    return table


FAMILY = Family(
    model_type="dinov3_vit",
    backbone="DINOv3ViTModel",
    model=DINOv3,
    prefix="model.",
    fields={
        **{ours: theirs for ours, theirs in FIELDS.items() if ours != "dropout"},
        "attention_dropout": "attention_dropout",
        "stochastic_depth": "drop_path_rate",
        "layer_scale": "layerscale_value",
        "gated": "use_gated_mlp",
        "num_registers": "num_register_tokens",
        "rotary_base": "rope_theta",
        **{f"{part}_bias": f"{part}_bias" for part in ("query", "key", "value")},
    },
    default_entries={
        "hidden_size": 384,
        "num_attention_heads": 6,
        "intermediate_size": 1536,
        "num_register_tokens": 0,
    },
    fixed_entries={"proj_bias": True, "mlp_bias": True},
    fixed_fields={"dropout": 0.0},
    shapes={
        "embeddings.patch_embeddings.weight": ("dim", "num_channels", side(0), side(1)),
        "embeddings.register_tokens": (lambda _: 1, "num_registers", "dim"),
        "layer.0.mlp.up_proj.bias": ("intermediate_dim",),
    },
    rows=rows,
    heads={},
    buffers=(r"embeddings\.mask_token",),
)
