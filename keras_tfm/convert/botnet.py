"""BoTNet's checkpoints in timm's format (Srinivas et al. 2021)."""

import numpy as np

from keras_tfm.convert.entries import Entry
from keras_tfm.convert.keymap import POINTWISE, batch_norm, convolution, linear, weight
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.models import BoTNet

BLOCK, THEIRS = "stage_{}_block_{}", "stages.{}.{}"
# The widths of the stem's convolutions before the last one, as shares of the last one's width.
TIERED = (3 / 8, 1 / 2)
_26T = BoTNet.sizes["26T"]


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


def widths_of(factor):
    """Our fields for timm's `width_factor`; ValueError for another value."""
    if type(factor) not in (int, float) or not 0 < factor < 2**10:
        raise ValueError(f"`width_factor` must be a number above 0; it is {factor!r}.")
    dims, stem = tuple(divisible(dim * factor) for dim in _26T.dims), round(_26T.stem_dim * factor)
    return {
        "dims": dims,
        "inner_dims": tuple(divisible(dim / 4) for dim in dims),
        "stem_dim": stem,
        "inner_stem_dims": tuple(int(part * stem) for part in TIERED),
    }


def factor_of(config):
    """timm's `width_factor`."""
    return config.dims[0] / _26T.dims[0]


def check(config):
    """ValueError for widths of another model, and for images of whose feature maps timm computes other sizes
    than its convolutions have.
    """
    if any(getattr(config, name) != value for name, value in widths_of(factor_of(config)).items()):
        raise ValueError("timm's class computes only the widths of botnet26t_256, all by one factor.")
    sides = np.broadcast_to(config.image_size, 2)
    if any(side % 32 for side in sides):
        raise ValueError(
            f"timm's class computes only sides that are multiples of 32; they are {config.image_size}."
        )


def same_activation(activation):
    """`activation`, if timm has one of this name; ValueError otherwise."""
    if activation not in ("relu", "silu"):
        raise ValueError(f"`activation` must be relu or silu; it is {activation!r}.")
    return activation


def divisible(width, by=8):
    """A width, rounded as timm does."""
    rounded = max(by, int(width + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * width else rounded


# In a folder, the architecture's name determines the blocks, and a factor their widths.
TIMM = TimmFamily(
    model=BoTNet,
    rows=rows,
    architectures={"botnet26t_256": "26T"},
    fields={
        "image_size": "img_size",
        "num_channels": "in_chans",
        "activation": Entry(
            "act_layer",
            lambda value, _: same_activation(value),
            lambda config: same_activation(config.activation),
        ),
        **{
            name: Entry("width_factor", lambda factor, _, name=name: widths_of(factor)[name], factor_of)
            for name in widths_of(1)
        },
    },
    fixed_entries={
        "stem_type": "tiered",
        "stem_pool": "maxpool",
        "stem_chs": 64,
        "output_stride": 32,
        "drop_path_rate": 0.0,
        "drop_block_rate": 0.0,
        "global_pool": "avg",
    },
    fixed_fields={
        "depths": _26T.depths,
        "strides": _26T.strides,
        "attending": _26T.attending,
        "num_heads": 4,
        "scale_positions": False,
    },
    default_entries={},
    check=check,
)
