"""RegionViT's checkpoints in the format of the authors' code (Chen et al. 2022)."""

import numpy as np

from keras_tfm.convert.keymap import (
    Transform,
    convolution,
    depthwise_kernel,
    linear,
    norm,
    patches,
    read_state,
    weight,
)
from keras_tfm.heads import Classifier
from keras_tfm.models import RegionViT, RegionViTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import fields_of

FIELDS = {
    "img_size": "image_size",
    "in_chans": "num_channels",
    "patch_conv_type": "deep_stem",
    "embed_dim": "dims",
    "depth": "depths",
    "num_heads": "num_heads",
    "kernel_sizes": "window",
    "mlp_ratio": "mlp_ratio",
    "drop_rate": "dropout",
    "attn_drop_rate": "attention_dropout",
    "drop_path_rate": "stochastic_depth",
}
FIXED = {"patch_size": 4, "qkv_bias": True, "computed_cls_token": True, "peg": False, "det_norm": False}
STEMS = {"3conv": True, "1conv": False}
# The norms of feature maps have the features on the second of four axes.
OF_MAPS = Transform(lambda array: array[0, :, 0, 0], lambda array, _: [array[None, :, None, None]])


def offsets(window):
    """Their indices of our table.

    Ours is sorted by the differences query - key on each axis. Theirs has key - query, begins at
    -(window // 2), and continues with the remaining differences after the largest one.
    """
    count = 2 * window - 1
    axis = (window // 2 - np.arange(1 - window, window)) % count
    order = (axis[:, None] * count + axis[None, :]).ravel()
    back = np.argsort(order)
    return Transform(lambda array: array[:, order].T, lambda array, _: [array[back].T])


def map_norm(ours, theirs):
    """The rows of a `LayerNormalization`, which is a norm of feature maps in theirs."""
    return [
        *weight(f"{ours}/gamma", f"{theirs}.weight", OF_MAPS),
        *weight(f"{ours}/beta", f"{theirs}.bias", OF_MAPS),
    ]


def rows(config):
    """The table of a configuration; in theirs a merging is the first block of its stage."""
    table = [
        *convolution("stem", "patch_embed.proj"),
        *patches("region_embedding", "cls_token.proj", 4 * config.window),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
    ]
    for i in range(3):
        table += convolution(f"stem/layer_{i}", f"patch_embed.proj.{3 * i}")
        table += map_norm(f"stem/layer_{i}/norm", f"patch_embed.proj.{3 * i + 1}")
    for stage, depth in enumerate(config.depths):
        ours, theirs = f"stage_{stage}_merging", f"layers.{stage}.block.0.proj"
        table += map_norm(f"{ours}/norm", f"{theirs}.0")
        if stage:
            multiplier = config.dims[stage] // config.dims[stage - 1]
            table += convolution(f"{ours}/convolution", f"{theirs}.2", depthwise_kernel(multiplier))
        for i in range(depth):
            table += block_rows(f"stage_{stage}_block_{i}", f"layers.{stage}.block.{i + 1}", config.window)
    return table


def block_rows(ours, theirs, window):
    """The rows of one block."""
    return [
        *norm(f"{ours}/region_norm", f"{theirs}.norm0"),
        *norm(f"{ours}/attention/norm", f"{theirs}.norm1"),
        *linear(f"{ours}/attention/branch/projections/query_key_value", f"{theirs}.attn.qkv"),
        *linear(f"{ours}/attention/branch/output", f"{theirs}.attn.proj"),
        *weight(f"{ours}/position/table", f"{theirs}.attn.rel_pos", offsets(window)),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.norm2"),
        *linear(f"{ours}/feedforward/branch/hidden", f"{theirs}.mlp.fc1"),
        *linear(f"{ours}/feedforward/branch/output", f"{theirs}.mlp.fc2"),
    ]


def config_of(arguments):
    """The configuration for the authors' arguments; CheckpointError for another model's."""
    for name, value in FIXED.items():
        if arguments.get(name, value) != value:
            raise CheckpointError("RegionViT", name, f"{value}", f"{arguments[name]}")
    stem, widths = arguments["patch_conv_type"], arguments["embed_dim"]
    if stem not in STEMS:
        raise CheckpointError("RegionViT", "patch_conv_type", f"one of {', '.join(STEMS)}", f"{stem}")
    stages = len(arguments["depth"])
    if widths[0] != widths[1] or arguments["downsampling"] != ["c"] + ["sc"] * (stages - 1):
        expected = "a width for the patches and the first stage, and mergings behind the others"
        raise CheckpointError("RegionViT", "embed_dim", expected, f"{widths}")
    sides = {*arguments["kernel_sizes"]}
    if len(sides) > 1:
        raise CheckpointError("RegionViT", "kernel_sizes", "one number in all stages", f"{sides}")
    known = {key: x for key, x in arguments.items() if key not in (*FIXED, "downsampling")}
    known |= {"patch_conv_type": STEMS[stem], "embed_dim": widths[1:], "kernel_sizes": sides.pop()}
    return RegionViTConfig.from_json(fields_of(known, FIELDS))


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs by their names."""
    backbone = RegionViT(config_of(arguments))
    model = Classifier(backbone, arguments.get("num_classes", 1000))
    # A merging has the same weights for regions and for cells.
    shared = [key for key in weights if ".proj_cls." in key]
    read_state(model, weights, rows(backbone.config), shared)
    outputs = {
        "logits": model.output,
        "features/embed_local": backbone.get_layer("stem").output,
        "features/embed_region": backbone.get_layer("region_embedding").output,
    }
    for i, (cells, regions) in enumerate(zip(backbone.maps, backbone.region_maps, strict=True)):
        outputs |= {f"features/stage_{i}_local": cells, f"features/stage_{i}_region": regions}
    return model, outputs
