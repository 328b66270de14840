"""CaiT's checkpoints as timm has them (Touvron et al. 2021)."""

from keras import ops

from keras_tfm.convert.keymap import TRANSPOSED, linear, norm, weight
from keras_tfm.convert.state import read_state
from keras_tfm.convert.variant import (
    OF_HEADS,
    attention_rows,
    embedding_rows,
    feedforward_rows,
    fields_of,
    outputs_of,
)
from keras_tfm.heads import Classifier
from keras_tfm.models import CaiT, CaiTConfig
from keras_tfm.training.safetensors import CheckpointError

ARCHITECTURES = {
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
}
CLASS_BLOCK = "blocks_token_only.{}"


def rows(config):
    """The table of a configuration."""
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


def config_of(arguments):
    """Our configuration for timm's constructor's arguments; CheckpointError for another kind of model."""
    ratio = arguments.get("mlp_ratio", 4.0)
    for name, value in (("mlp_ratio_token_only", ratio), ("qkv_bias", True), ("global_pool", "token")):
        if arguments.get(name, value) != value:
            raise CheckpointError("timm", name, f"{value}", f"{arguments[name]}")
    return CaiTConfig(
        **fields_of(arguments),
        num_class_layers=arguments.get("depth_token_only", 2),
        layer_scale=arguments.get("init_values", 1e-4),
        stochastic_depth=arguments.get("drop_path_rate", 0.0),
    )


def read(arguments, weights):
    """Our model of timm's class, and its outputs by the names of theirs."""
    config = config_of(arguments)
    model = Classifier(CaiT(config), arguments["num_classes"])
    read_state(model, weights, rows(config))
    states = model.backbone.hidden_states["class"][1:]
    tokens = {f"features/class_block_{i}": ops.take(x, [0], axis=1) for i, x in enumerate(states)}
    return model, outputs_of(model) | tokens
