"""BoTNet's checkpoints in timm's format (Srinivas et al. 2021)."""

import dataclasses

import numpy as np

from keras_tfm.convert.arguments import Arguments
from keras_tfm.convert.family import Entry
from keras_tfm.convert.keymap import POINTWISE, batch_norm, convolution, linear, weight
from keras_tfm.models import BoTNet

MODEL = BoTNet
ARCHITECTURES = {"botnet26t_256": "26T"}
BLOCK, THEIRS = "stage_{}_block_{}", "stages.{}.{}"
# The widths of the stem's convolutions before the last one, as shares of the last one's width.
TIERED = (3 / 8, 1 / 2)
_26T = BoTNet.sizes["26T"]
# In a folder, the architecture's name determines the blocks, and a factor their widths.
ARGUMENTS = Arguments(
    BoTNet,
    fields={
        "img_size": "image_size",
        "in_chans": "num_channels",
        "act_layer": Entry(
            "activation", lambda value, _: _known(value), lambda config: _known(config.activation)
        ),
        "width_factor": Entry(
            "dims",
            lambda value, _: _widths(_26T.dims, value),
            lambda config: config.dims[0] / _26T.dims[0],
        ),
    },
    fixed_entries={
        "stem_type": "tiered",
        "stem_pool": "maxpool",
        "stem_chs": 64,
        "output_stride": 32,
        "drop_path_rate": 0.0,
        "drop_block_rate": 0.0,
    },
    fixed_fields={
        "depths": _26T.depths,
        "strides": _26T.strides,
        "attending": _26T.attending,
        "num_heads": 4,
        "scale_positions": False,
    },
    default_entries={},
    check=lambda config: _refuse_odd(config.image_size),
)


def rows(config):
    """The table of weights for a configuration, with the classifier's rows."""
    table = [
        *_normalized(f"{BLOCK}/shortcut", f"{THEIRS}.shortcut"),
        *_normalized(f"{BLOCK}/branch/layer_0", f"{THEIRS}.conv1_1x1"),
        *_normalized(f"{BLOCK}/branch/layer_1", f"{THEIRS}.conv2_kxk"),
        *attention_rows(f"{BLOCK}/branch/layer_1/layer_0/attention", f"{THEIRS}.self_attn."),
        *batch_norm(f"{BLOCK}/branch/layer_2", f"{THEIRS}.post_attn"),
        *_normalized(f"{BLOCK}/branch/layer_2", f"{THEIRS}.conv3_1x1"),  # in blocks that convolve
        *_normalized(f"{BLOCK}/branch/layer_4", f"{THEIRS}.conv3_1x1"),  # in blocks that attend
        *linear("head/output", "head.fc"),
    ]
    for i in range(len(config.inner_stem_dims) + 1):
        table += _normalized(f"stem/layer_{i}", f"stem.conv{i + 1}")
    return table


def attention_rows(ours, theirs):
    """The rows of an attention layer; `theirs` is empty or ends with a full stop."""
    return [
        *linear(f"{ours}/projections/query_key_value", f"{theirs}qkv", transform=POINTWISE),
        *weight(f"{ours}/position/vertical", f"{theirs}pos_embed.height_rel"),
        *weight(f"{ours}/position/horizontal", f"{theirs}pos_embed.width_rel"),
    ]


def _normalized(ours, theirs):
    return [*convolution(ours, f"{theirs}.conv"), *batch_norm(f"{ours}/norm", f"{theirs}.bn")]


def config_of(arguments):
    """Our configuration for the arguments in a folder of timm."""
    arguments = {"img_size": 256, "width_factor": 1.0, **arguments}
    factor = arguments["width_factor"]
    if arguments.get("global_pool") == "avg":  # the default of timm's class
        del arguments["global_pool"]
    config = ARGUMENTS.config_of(arguments)
    stem = round(_26T.stem_dim * factor)
    return dataclasses.replace(
        config,
        stem_dim=stem,
        inner_stem_dims=tuple(int(part * stem) for part in TIERED),
        inner_dims=_widths(config.dims, 1 / 4),
    )


def arguments_of(config):
    """timm's arguments for a configuration; ValueError for one that timm does not have."""
    arguments = ARGUMENTS.arguments_of(config)
    if config_of(arguments) != config:
        raise ValueError("timm's class computes only the widths of botnet26t_256, all by one factor.")
    return arguments


def _refuse_odd(image_size):
    """ValueError for images of whose feature maps timm computes other sizes than its convolutions have."""
    if any(side % 32 for side in np.broadcast_to(image_size, 2)):
        raise ValueError(f"timm's class computes only sides that are multiples of 32; they are {image_size}.")


def _known(activation, _=None):
    """`activation`, if timm has one of this name; ValueError otherwise."""
    if activation not in ("relu", "silu"):
        raise ValueError(f"`activation` must be relu or silu; it is {activation!r}.")
    return activation


def _widths(dims, factor):
    if type(factor) not in (int, float) or not 0 < factor < 2**10:
        raise ValueError(f"`width_factor` must be a number above 0; it is {factor!r}.")
    return tuple(divisible(dim * factor) for dim in dims)


def divisible(width, by=8):
    """A width, rounded as timm does."""
    rounded = max(by, int(width + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * width else rounded
