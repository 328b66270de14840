"""TransReID (He et al. 2021) by its authors' names, with the jigsaw and without. A neck's shift, which is 0
in theirs, is taken into its mean.
"""

import numpy as np
from keras import ops

from keras_tfm.convert.keymap import (
    CONVOLVED,
    Row,
    Transform,
    feedforward,
    linear,
    norm,
    read_state,
    weight,
)
from keras_tfm.heads import Reidentifier
from keras_tfm.models import TransReID, TransReIDConfig
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import fields_of

FIELDS = {
    "img_size": "image_size",
    "patch_size": "patch_size",
    "embed_dim": "dim",
    "depth": "num_layers",
    "num_heads": "num_heads",
    "qkv_bias": "qkv_bias",
    "STRIDE_SIZE": "stride",
    "stride_size": "stride",
    "SIE_COE": "camera_scale",
    "sie_xishu": "camera_scale",
    "camera": "num_cameras",
    "SHIFT_NUM": "shift",
    "SHUFFLE_GROUP": "num_groups",
    "DEVIDE_LENGTH": "num_parts",
}
OTHERS = {"mlp_ratio", "RE_ARRANGE", "NECK_FEAT", "view", "norm_layer", "grid", "qkv_bias"}
EPSILON = 1e-5
UNSQUEEZED = Transform(lambda array: array[:, 0], lambda array, _: [array[:, None]])


def block_rows(ours, theirs):
    """A block of ViT."""
    projections = f"{ours}/attention/branch/projections/query_key_value"
    return [
        *norm(f"{ours}/attention/norm", f"{theirs}.norm1"),
        *linear(projections, f"{theirs}.attn.qkv"),
        *linear(f"{ours}/attention/branch/output", f"{theirs}.attn.proj"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.norm2"),
        *feedforward(f"{ours}/feedforward", f"{theirs}.mlp.fc1", f"{theirs}.mlp.fc2"),
    ]


def start_rows(prefix):
    """What stands before the blocks."""
    return [
        *weight("patch_embedding/convolution/kernel", f"{prefix}patch_embed.proj.weight", CONVOLVED),
        *weight("patch_embedding/convolution/bias", f"{prefix}patch_embed.proj.bias"),
        *weight("tokens/embedding", f"{prefix}cls_token"),
        *weight("position/embedding/embeddings", f"{prefix}pos_embed", FIRST),
        *weight("cameras/table", f"{prefix}sie_embed", UNSQUEEZED),
    ]


FIRST = Transform(lambda array: array[0], lambda array, _: [array[None]])


def neck_rows(count):
    """The necks and their classes."""

    def mean(mean, shift, variance, scale):
        return mean - shift * np.sqrt(variance + EPSILON) / scale

    table = []
    for i in range(count):
        end = f"_{i}" if i else ""
        theirs = f"bottleneck{end}"
        keys = tuple(f"{theirs}.{name}" for name in ("running_mean", "bias", "running_var", "weight"))
        table += linear(f"classes_{i}", f"classifier{end}")[:1]
        table += weight(f"neck_{i}/gamma", f"{theirs}.weight")
        table += weight(f"neck_{i}/moving_variance", f"{theirs}.running_var")
        table.append(Row(f"neck_{i}/moving_mean", keys, Transform(mean, lambda array, _: [array] * 4)))
    return table


def config_of(arguments, **fields):
    """The configuration for the authors' arguments."""
    if arguments.get("view"):
        raise CheckpointError("TransReID", "view", "0", repr(arguments["view"]))
    own = fields_of({name: x for name, x in arguments.items() if name not in OTHERS}, FIELDS)
    own["image_size"] = tuple(own["image_size"])
    width = arguments["mlp_ratio"] * arguments["embed_dim"]
    return TransReIDConfig(**{**own, "intermediate_dim": width, **fields})


def read_plain(arguments, weights):
    """The model without parts for their arguments and weights, and its output by their name."""
    model = TransReID(config_of(arguments, num_parts=0))
    read_state(model, weights, [*start_rows(""), *block_rows("block_{}", "blocks.{}"), *norm("norm", "norm")])
    return model, {"output": model.output["pooled_output"]}


def read(arguments, weights):
    """The model with parts for their arguments and weights, and its outputs by their names."""
    config = config_of(arguments)
    backbone = TransReID(config)
    model = Reidentifier(backbone, arguments["num_classes"])
    last = config.num_layers - 1
    table = [row for i in range(last) for row in block_rows(f"block_{i}", f"base.blocks.{i}")]
    table += start_rows("base.") + block_rows(f"block_{last}", "b1.0") + block_rows("local_block", "b2.0")
    table += norm("norm", "b1.1") + norm("local_norm", "b2.1") + neck_rows(config.num_parts + 1)
    read_state(model, weights, table)
    states = backbone.hidden_states["encoder"]
    necks = [model.get_layer(f"neck_{i}").output for i in range(config.num_parts + 1)]
    embedded = backbone.get_layer("patch_embedding").output
    outputs = {
        "output": ops.concatenate([necks[0], *(x / config.num_parts for x in necks[1:])], axis=-1),
        "logits": model.output["logits"],
        "features/embed": ops.reshape(embedded, (-1, embedded.shape[1] * embedded.shape[2], config.dim)),
        "features/base": states[last],
        "features/global": backbone.output["sequence_output"],
        "features/global_norm": necks[0],
    }
    for i in range(config.num_parts):
        outputs[f"features/local_{i + 1}_norm"] = necks[i + 1]
    return model, outputs
