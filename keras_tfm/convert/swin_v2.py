"""Swin V2's checkpoints (Liu et al. 2022), with the names of transformers and of timm."""

from keras_tfm.convert import swin
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import Family, class_head
from keras_tfm.convert.keymap import TRANSPOSED, linear, weight
from keras_tfm.convert.swin import ATTENTION, PARTS, THEIR_BLOCK, TIMM_BLOCK, common_rows, common_timm_rows
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.models import SwinV2
from keras_tfm.training.safetensors import CheckpointError

PRETRAINED_WINDOWS = Entry(
    "pretrained_window_sizes",
    lambda value, _: value if any(value) else None,
    lambda config: config.pretrained_windows or (0,) * len(config.depths),
)


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
        **swin.FAMILY.fields,
        "window": Entry("window_size", lambda value, _: value, window),
        "pretrained_windows": PRETRAINED_WINDOWS,
    },
    default_entries={"image_size": 224, "window_size": 7},
    fixed_entries=swin.FAMILY.fixed_entries,
    fixed_fields=swin.FAMILY.fixed_fields,
    rows=rows,
    heads={
        "Swinv2ForImageClassification": class_head(),
    },
)
TIMM = TimmFamily(
    model=SwinV2,
    rows=timm_rows,
    architectures={
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
    },
    fields={**swin.TIMM.fields, "pretrained_windows": PRETRAINED_WINDOWS},
    fixed_entries={**swin.TIMM.fixed_entries, "always_partition": False},
    fixed_fields=swin.TIMM.fixed_fields,
    default_entries=swin.TIMM.default_entries,
    check=swin.check_windows,
)
