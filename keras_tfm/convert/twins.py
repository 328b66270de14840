"""Twins's checkpoints in timm's format (Chu et al. 2021)."""

from keras_tfm.convert.keymap import convolution, depthwise_kernel, linear, norm, patches
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.models import Twins


def check_windows(config):
    """ValueError for a map that is smaller than its windows: timm pads it."""
    for grid, window in zip(config.grids, config.windows or (), strict=False):
        if min(grid) < window:
            raise ValueError(f"timm pads a map of {grid} for `windows` of {window}; ours are the map's then.")


def rows(config):
    """The table of weights for a configuration."""
    ours, theirs = "stage_{}_block_{}", "blocks.{}.{}"
    attention = f"{ours}/attention/branch"
    table = [
        *linear(f"{attention}/attention/projections/query_key_value", f"{theirs}.attn.qkv"),
        *linear(f"{attention}/attention/projections/query", f"{theirs}.attn.q"),
        *linear(f"{attention}/attention/projections/key_value", f"{theirs}.attn.kv"),
        *linear(f"{attention}/attention/output", f"{theirs}.attn.proj"),
        *convolution(f"{attention}/reduction", f"{theirs}.attn.sr"),
        *norm(f"{attention}/reduction/norm", f"{theirs}.attn.norm"),
        *norm(f"{ours}/attention/norm", f"{theirs}.norm1"),
        *linear(f"{ours}/feedforward/branch/hidden", f"{theirs}.mlp.fc1"),
        *linear(f"{ours}/feedforward/branch/output", f"{theirs}.mlp.fc2"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.norm2"),
        *convolution("stage_{}_position/branch", "pos_block.{}.proj.0", depthwise_kernel()),
        *norm("stage_{}_embedding_norm", "patch_embeds.{}.norm"),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
    ]
    for stage in range(len(config.depths)):
        patch_size = 2 if stage else config.patch_size
        table += patches(f"stage_{stage}_embedding", f"patch_embeds.{stage}.proj", patch_size)
    return table


TIMM = TimmFamily(
    model=Twins,
    rows=rows,
    architectures={
        f"twins_{kind.lower()}_{name}": f"{kind}-{size}"
        for kind in ("PCPVT", "SVT")
        for name, size in {"small": "S", "base": "B", "large": "L"}.items()
    },
    fields={
        "image_size": "img_size",
        "patch_size": "patch_size",
        "num_channels": "in_chans",
        "dims": "embed_dims",
        "depths": "depths",
        "num_heads": "num_heads",
        "mlp_ratios": "mlp_ratios",
        "reductions": "sr_ratios",
        "windows": "wss",
        "dropout": "proj_drop_rate",
        "attention_dropout": "attn_drop_rate",
        "stochastic_depth": "drop_path_rate",
    },
    fixed_entries={"pos_drop_rate": 0.0, "global_pool": "avg"},
    fixed_fields={"epsilon": 1e-6},
    check=check_windows,
)
