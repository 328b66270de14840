"""AutoFormer's checkpoints in the format of the authors' code (Chen et al. 2021): supernets, sliced.

A published file holds a supernet. The network that its search found is the first part of each array: of a
linear layer, as many outputs and inputs as the network has. In the projection to queries, keys and values,
the rows i, i + 3, i + 6, ... are one of the three. Its bias is ordered in another way: it has the queries
first, then the keys and the values, for the number of heads that the network has.
"""

import numpy as np
from keras import ops

from keras_tfm.convert.keymap import (
    TRANSPOSED,
    Transform,
    linear,
    norm,
    patches,
    read_state,
    reordered,
    weight,
)
from keras_tfm.heads import Classifier
from keras_tfm.models import AutoFormer, AutoFormerConfig

BLOCK = "blocks.{}"
ATTENTION = "block_{}/attention/branch"
# A table of positions: theirs is (1, N, D), ours (N, D).
FIRST = Transform(lambda array: array[0], lambda array, count: [array[None]])


def rows(config):
    """The table of a configuration, for the sliced arrays of `sub_state`."""
    table = [
        *patches("patch_embedding", "patch_embed_super.proj", config.patch_size),
        *weight("class_token/embedding", "cls_token"),
        *weight("position/embedding/embeddings", "pos_embed", FIRST),
        *linear(f"{ATTENTION}/output", f"{BLOCK}.attn.proj"),
        *norm("block_{}/attention/norm", f"{BLOCK}.attn_layer_norm"),
        *norm("block_{}/feedforward/norm", f"{BLOCK}.ffn_layer_norm"),
        *linear("block_{}/feedforward/branch/hidden", f"{BLOCK}.fc1"),
        *linear("block_{}/feedforward/branch/output", f"{BLOCK}.fc2"),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
    ]
    for part in ("key", "value"):
        for axis in ("vertical", "horizontal"):
            theirs = f"{BLOCK}.attn.rel_pos_embed_{part[0]}.embeddings_table_{axis[0]}"
            table += weight(f"{ATTENTION}/position/{part}_{axis}", theirs)
    for i, num_heads in enumerate(config.num_heads):
        ours, theirs = f"block_{i}/attention/branch/projections/query_key_value", f"blocks.{i}.attn.qkv"
        order = np.arange(3 * num_heads * config.key_dim).reshape(-1, 3).T.ravel()
        table += weight(f"{ours}/kernel", f"{theirs}.weight", reordered(TRANSPOSED, order))
        table += weight(f"{ours}/bias", f"{theirs}.bias")
    return table


def sub_state(config, weights):
    """The part of a supernet's `weights` that is the network of a configuration."""
    state = {}
    for key, array in weights.items():
        shape = list(array.shape)
        layer = int(key.split(".")[1]) if key.startswith("blocks.") else 0
        if layer >= len(config.num_heads):
            continue
        heads, hidden = config.num_heads[layer] * config.key_dim, config.hidden_dims[layer]
        name = key.split(".", 2)[-1] if key.startswith("blocks.") else key
        if name in ("cls_token", "pos_embed", "head.weight"):
            shape[-1] = config.dim
        elif name.startswith(("attn_layer_norm", "ffn_layer_norm", "norm", "patch_embed_super")):
            shape[0] = config.dim
        elif name.startswith(SLICED):
            outputs, inputs = {
                "attn.qkv": (3 * heads, config.dim),
                "attn.proj": (config.dim, heads),
                "fc1": (hidden, config.dim),
                "fc2": (config.dim, hidden),
            }[name.rsplit(".", 1)[0]]
            shape = [outputs, inputs][: array.ndim]
        state[key] = array[tuple(map(slice, shape))]
    return state


SLICED = ("attn.qkv", "attn.proj", "fc1", "fc2")


def read(arguments, weights):
    """Our model of the authors' class, at the sizes of `arguments["sample"]`, and its outputs."""
    sample = arguments["sample"]
    config = AutoFormerConfig(
        image_size=arguments["img_size"],
        patch_size=arguments["patch_size"],
        dim=sample["embed_dim"][0],
        num_heads=sample["num_heads"][: sample["layer_num"]],
        mlp_ratios=sample["mlp_ratio"][: sample["layer_num"]],
        key_dim=weights["blocks.0.attn.rel_pos_embed_k.embeddings_table_v"].shape[1],
        max_distance=arguments["max_relative_position"],
    )
    backbone = AutoFormer(config)
    model = Classifier(backbone, arguments["num_classes"])
    read_state(model, sub_state(config, weights), rows(config))
    patch_map = backbone.get_layer("patch_embedding").output
    outputs = {
        "logits": model.output,
        "features/norm": backbone.output["sequence_output"],
        "features/embed": ops.reshape(patch_map, (-1, patch_map.shape[1] * patch_map.shape[2], config.dim)),
    }
    states = backbone.hidden_states["encoder"][1:]
    return model, outputs | {f"features/block_{i}": x for i, x in enumerate(states)}
