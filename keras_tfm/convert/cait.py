"""CaiT's checkpoints in timm's format (Touvron et al. 2021)."""

from keras_tfm.convert.entries import Entry, multiple, ratio_of, ratios, times
from keras_tfm.convert.keymap import TRANSPOSED, linear, norm, weight
from keras_tfm.convert.timm import PATCHED_FIELDS, TimmFamily
from keras_tfm.convert.variant import OF_HEADS, attention_rows, embedding_rows, feedforward_rows
from keras_tfm.models import CaiT


def read_class_width(ratio, arguments):
    """The width inside the class token's feed-forward layers; None if all others have the same."""
    width = multiple("mlp_ratio_token_only", ratio, "embed_dim", arguments)
    return None if width == times(arguments.get("mlp_ratio", 4.0), arguments["embed_dim"]) else width


def write_class_ratio(config):
    """timm's ratio for that width."""
    return ratio_of(config.class_intermediate_dim or config.intermediate_dim, config.dim)


CLASS_BLOCK = "blocks_token_only.{}"


def rows(config):
    """The table of weights for a configuration."""
    table = [
        *embedding_rows(config),
        *weight("class_token/embedding", "cls_token"),
        *attention_rows(),
        *feedforward_rows(),
        *class_attention_rows(),
        *feedforward_rows("class_block_{}/feedforward", theirs=CLASS_BLOCK),
    ]
    for ours, theirs in (("on_scores", "proj_l"), ("on_weights", "proj_w")):
        mixing = f"block_{{}}/attention/branch/{ours}/mixing"
        table += weight(f"{mixing}/kernel", f"blocks.{{}}.attn.{theirs}.weight", TRANSPOSED)
        table += weight(f"{mixing}/bias", f"blocks.{{}}.attn.{theirs}.bias", OF_HEADS)
    for ours, theirs in (("block_{}", "blocks.{}"), ("class_block_{}", CLASS_BLOCK)):
        table += weight(f"{ours}/attention/scale", f"{theirs}.gamma_1")
        table += weight(f"{ours}/feedforward/scale", f"{theirs}.gamma_2")
    return table


def class_attention_rows():
    """The class token's attention and its norm."""
    ours, theirs = "class_block_{}/attention", f"{CLASS_BLOCK}.attn"
    return [
        *linear(f"{ours}/branch/projections/query", f"{theirs}.q"),
        *linear(f"{ours}/branch/projections/key_value", f"{theirs}.k", f"{theirs}.v"),
        *linear(f"{ours}/branch/output", f"{theirs}.proj"),
        *norm(f"{ours}/norm", f"{CLASS_BLOCK}.norm1"),
    ]


TIMM = TimmFamily(
    model=CaiT,
    rows=rows,
    architectures={
        "cait_xxs24_224": "XXS24/224",
        "cait_xxs24_384": "XXS24/384",
        "cait_xxs36_224": "XXS36/224",
        "cait_xxs36_384": "XXS36/384",
        "cait_xs24_384": "XS24/384",
        "cait_s24_224": "S24/224",
        "cait_s24_384": "S24/384",
        "cait_s36_384": "S36/384",
        "cait_m36_384": "M36/384",
        "cait_m48_448": "M48/448",
    },
    fields={
        **PATCHED_FIELDS,
        "num_class_layers": "depth_token_only",
        "class_intermediate_dim": Entry("mlp_ratio_token_only", read_class_width, write_class_ratio),
        "layer_scale": "init_values",
        "dropout": ("proj_drop_rate", "attn_drop_rate"),
        "stochastic_depth": "drop_path_rate",
        **ratios("mlp_ratio", ["intermediate_dim"], "dim", "embed_dim"),
    },
    fixed_entries={"qkv_bias": True, "pos_drop_rate": 0.0, "global_pool": "token"},
    fixed_fields={"activation": "gelu", "epsilon": 1e-6},
)
