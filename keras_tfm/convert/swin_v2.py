"""Swin V2's checkpoints (Liu et al. 2022), with the names of transformers and of timm."""

import dataclasses

from keras_tfm.convert.family import LABELS, Entry, Family, Head
from keras_tfm.convert.keymap import TRANSPOSED, linear, weight
from keras_tfm.convert.swin import ARGUMENTS as SWIN_ARGUMENTS
from keras_tfm.convert.swin import ATTENTION, PARTS, THEIR_BLOCK, TIMM_BLOCK, common_rows, common_timm_rows
from keras_tfm.heads import Classifier
from keras_tfm.models import SwinV2
from keras_tfm.training.safetensors import CheckpointError

MODEL = SwinV2
ARCHITECTURES = {
    f"swinv2_{name}_{window}": f"{name[0].upper()}/{size}"
    for names, windows in {
        ("tiny", "small", "base"): {"window8_256": "8", "window16_256": "16"},
        ("base", "large"): {
            "window12_192": "12",
            "window12to16_192to256": "12to16",
            "window12to24_192to384": "12to24",
        },
    }.items()
    for name in names
    for window, size in windows.items()
}
PRETRAINED_WINDOWS = (
    lambda value, _: value if any(value) else None,
    lambda config: config.pretrained_windows or (0,) * len(config.depths),
)
ARGUMENTS = dataclasses.replace(
    SWIN_ARGUMENTS,
    model=SwinV2,
    fields={
        **SWIN_ARGUMENTS.fields,
        "pretrained_window_sizes": Entry("pretrained_windows", *PRETRAINED_WINDOWS),
    },
    fixed_entries={**SWIN_ARGUMENTS.fixed_entries, "always_partition": False},
)
config_of, arguments_of = ARGUMENTS.config_of, ARGUMENTS.arguments_of


def rows(config):
    """The table with transformers' names."""
    window(config)  # raises an error, in both directions, if the models differ
    theirs = f"{THEIR_BLOCK}.attention.self"
    kernels = [row for row in linear(PROJECTIONS, *(f"{theirs}.{x}" for x in PARTS)) if "kernel" in row.ours]
    return [
        *common_rows(config),
        *kernels,
        *weight(f"{ATTENTION}/projections/query_bias", f"{theirs}.query.bias"),
        *weight(f"{ATTENTION}/projections/value_bias", f"{theirs}.value.bias"),
        *_cosines(theirs, "continuous_position_bias_mlp"),
    ]


def timm_rows(config):
    """The table with timm's names and the classifier."""
    theirs = f"{TIMM_BLOCK}.attn"
    return [
        *common_timm_rows(config),
        *weight(f"{PROJECTIONS}/kernel", f"{theirs}.qkv.weight", TRANSPOSED),
        *weight(f"{ATTENTION}/projections/query_bias", f"{theirs}.q_bias"),
        *weight(f"{ATTENTION}/projections/value_bias", f"{theirs}.v_bias"),
        *_cosines(theirs, "cpb_mlp"),
    ]


PROJECTIONS = f"{ATTENTION}/projections/query_key_value"


def _cosines(theirs, network):
    """The rows of the factor of the cosines, and of the network that computes the position bias."""
    return [
        *weight(f"{ATTENTION}/temperature", f"{theirs}.logit_scale"),
        *linear(f"{ATTENTION}/position/hidden", f"{theirs}.{network}.0"),
        *weight(f"{ATTENTION}/position/output/kernel", f"{theirs}.{network}.2.weight", TRANSPOSED),
    ]


def window(config):
    """Their window size for ours; CheckpointError if theirs, which looks at rows only, has other windows."""
    for stage, (grid, depth) in enumerate(zip(config.grids, config.depths, strict=True)):
        side, rows = min(grid), config.grids[0][0] // 2**stage
        is_same = min(rows, config.window) == min(side, config.window)
        if not is_same or (depth > 1 and (rows > config.window) != (side > config.window)):
            expected = "windows that both axes of a map are longer than, or neither"
            raise CheckpointError("Swinv2Model", "window_size", expected, f"{config.window} for {grid}")
    return config.window


FAMILY = Family(
    model_type="swinv2",
    backbone="Swinv2Model",
    model=SwinV2,
    prefix="swinv2.",
    fields={
        "image_size": "image_size",
        "patch_size": "patch_size",
        "num_channels": "num_channels",
        "depths": "depths",
        "dim": "embed_dim",
        "num_heads": "num_heads",
        "window": Entry("window_size", lambda value, _: value, window),
        "pretrained_windows": Entry("pretrained_window_sizes", *PRETRAINED_WINDOWS),
        "mlp_ratio": "mlp_ratio",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "stochastic_depth": "drop_path_rate",
        "activation": "hidden_act",
        "epsilon": "layer_norm_eps",
    },
    default_entries={"image_size": 224, "window_size": 7},
    fixed_entries={"use_absolute_embeddings": False, "qkv_bias": True},
    fixed_fields={"fixed_windows": False},
    shapes={
        "embeddings.patch_embeddings.projection.weight": ("dim", "num_channels", "patch_size", "patch_size"),
        "encoder.layers.0.blocks.0.attention.self.logit_scale": (
            lambda config: config.num_heads[0],
            lambda _: 1,
            lambda _: 1,
        ),
        "encoder.layers.0.blocks.0.intermediate.dense.bias": (
            lambda config: int(config.mlp_ratio * config.dim),
        ),
        "layernorm.weight": (lambda config: config.widths[-1],),
    },
    rows=rows,
    heads={
        "Swinv2ForImageClassification": Head(
            Classifier, linear("head/output", "classifier"), {"hidden_dim": None}, {"num_classes": LABELS}
        ),
    },
)
