"""Visformer's checkpoints in timm's format (Chen et al. 2021)."""

from keras_tfm.convert.keymap import (
    POINTWISE,
    Transform,
    batch_norm,
    convolution,
    linear,
    patches,
    weight,
)
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.models import Visformer
from keras_tfm.models.vision.visformer import PATCHES
from keras_tfm.training.safetensors import CheckpointError

# Positions (1, D, rows, columns).
PLANE = Transform(
    lambda array: array[0].transpose(1, 2, 0), lambda array, _: [array.transpose(2, 0, 1)[None]]
)
NORMS = {"norm_layer", "embed_norm"}


def rows(config):
    """The table of weights for a configuration, with the classifier's rows."""
    table = [
        *convolution("stem", "stem.0"),
        *batch_norm("stem/norm", "stem.1"),
        *batch_norm("norm", "norm"),
        *linear("head/output", "head"),
    ]
    for stage, side in enumerate(PATCHES):
        ours, theirs, embedding = f"stage_{stage}", f"stage{stage + 1}.{{}}", f"patch_embed{stage + 1}"
        table += patches(f"{ours}_embedding", f"{embedding}.proj", side)
        table += batch_norm(f"{ours}_norm", f"{embedding}.norm")
        table += weight(f"{ours}_position/table", f"pos_embed{stage + 1}", PLANE)
        table += batch_norm(f"{ours}_block_{{}}/feedforward/norm", f"{theirs}.norm2")
        if stage:
            table += _attending(f"{ours}_block_{{}}", theirs)
        else:
            for i in range(3):
                layer = f"{ours}_block_{{}}/feedforward/branch/layer_{i}"
                table += convolution(layer, f"{theirs}.mlp.conv{i + 1}")
    return table


def _attending(ours, theirs):
    attention = f"{ours}/attention/branch/attention"
    return [
        *batch_norm(f"{ours}/attention/norm", f"{theirs}.norm1"),
        *linear(f"{attention}/projections/query_key_value", f"{theirs}.attn.qkv", transform=POINTWISE),
        *linear(f"{attention}/output", f"{theirs}.attn.proj", transform=POINTWISE),
        *linear(f"{ours}/feedforward/branch/hidden", f"{theirs}.mlp.conv1", transform=POINTWISE),
        *linear(f"{ours}/feedforward/branch/output", f"{theirs}.mlp.conv3", transform=POINTWISE),
    ]


class VisformerFamily(TimmFamily):
    """Refuses other norms than batch normalisation; how timm draws kernels changes nothing."""

    def read_config(self, entries, path="config.json"):
        for name in NORMS & entries.keys():
            if "BatchNorm2d" not in str(entries[name]):
                raise CheckpointError(path, name, "BatchNorm2d", repr(entries[name]))
        return super().read_config(
            {name: value for name, value in entries.items() if name not in {*NORMS, "conv_init"}}, path
        )


TIMM = VisformerFamily(
    model=Visformer,
    rows=rows,
    architectures={"visformer_tiny": "Ti", "visformer_small": "S"},
    fields={
        "image_size": "img_size",
        "num_channels": "in_chans",
        "stem_dim": "init_channels",
        "dim": "embed_dim",
        "depths": "depth",
        "num_heads": "num_heads",
        "groups": "group",
        "mlp_ratio": "mlp_ratio",
        "stochastic_depth": "drop_path_rate",
    },
    fixed_entries={
        "patch_size": 16,
        "global_pool": "avg",
        "attn_stage": "011",
        "spatial_conv": "100",
    },
    fixed_fields={"dropout": 0.0},
)
