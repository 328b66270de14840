"""IPT as its authors' code has it, whose tokens and whose upsampling order the channels before the places."""

import numpy as np
from keras import ops

from keras_tfm.convert.keymap import TRANSPOSED, Row, convolution, linear, norm, read_state, weight
from keras_tfm.models import IPT, IPTConfig
from keras_tfm.models.pictures.restoration import steps_of
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import check_arguments, in_order, rows_before_channels

FIXED = {"dropout_rate": 0, "no_mlp": False, "pos_every": True, "no_pos": False, "no_norm": False}
NORMS = tuple(f"norm{i}.{part}" for i in (1, 2, 3) for part in ("weight", "bias"))
READS = ("in_proj_weight", "linear1.weight", "linear_encoding.weight", "mlp_head.0.weight", "pe.weight")
LAYERS = ("linear2", "linear_encoding", "mlp_head.3")
WRITES = ("out_proj.weight", *(f"{layer}.{part}" for layer in LAYERS for part in ("weight", "bias")), *NORMS)


def config_of(arguments):
    """Our configuration for their arguments; CheckpointError for others."""
    names = {
        "scale",
        "patch_size",
        "rgb_range",
        "n_colors",
        "n_feats",
        "patch_dim",
        "num_heads",
        "num_layers",
    }
    check_arguments(arguments, {*names, *FIXED, "num_queries"}, "IPT")
    for name, value in FIXED.items():
        if arguments.get(name, value) != value:
            raise CheckpointError("IPT", name, f"{value}", f"{arguments[name]}")
    scales = arguments["scale"]
    return IPTConfig(
        tasks=tuple(f"task_{i}" for i in range(len(scales))),
        scales=tuple(scales),
        image_size=arguments["patch_size"],
        patch_size=arguments["patch_dim"],
        num_features=arguments["n_feats"],
        num_layers=arguments["num_layers"],
        num_heads=arguments["num_heads"],
    )


def rows(config):
    """The table of weights."""
    table = [
        *linear("embedding/branch", "body.linear_encoding"),
        *linear("mlp/branch/hidden", "body.mlp_head.0"),
        *linear("mlp/branch/output", "body.mlp_head.3"),
        *weight("positions/table", "body.position_encoding.pe.weight"),
    ]
    for stack in ("encoder", "decoder"):
        ours, theirs = f"{stack}_block_{{}}", f"body.{stack}.layers.{{}}"
        parts = {"attention": "self_attn", "context_attention": "multihead_attn"}
        for i, (part, name) in enumerate(parts.items(), start=1):
            attention = f"{ours}/{part}/branch/attention"
            for j, projection in enumerate(("query", "key", "value")):
                ours_kernel = f"{attention}/projections/{projection}/kernel"
                key = f"{theirs}.{name}.in_proj_weight"
                table.append(Row(ours_kernel, (key,), TRANSPOSED, (j, j + 1, 3)))
            table += linear(f"{attention}/output", f"{theirs}.{name}.out_proj")
            table += norm(f"{ours}/{part}/norm", f"{theirs}.norm{i}")
        table += norm(f"{ours}/feedforward/norm", f"{theirs}.norm{2 if stack == 'encoder' else 3}")
        table += linear(f"{ours}/feedforward/branch/hidden", f"{theirs}.linear1")
        table += linear(f"{ours}/feedforward/branch/output", f"{theirs}.linear2")
    for i, task in enumerate(config.tasks):
        table += weight(f"{task}_query/table", f"{task}.query")
        table += convolution(f"{task}_head/layer_0", f"head.{i}.0")
        for block in (1, 2):
            for layer in (0, 1):
                ours = f"{task}_head/layer_{block}/branch/layer_{layer}"
                table += convolution(ours, f"head.{i}.{block}.body.{2 * layer}")
        count = len(steps_of(config.scales[i]))
        for step in range(count):
            table += convolution(f"{task}_tail/layer_{2 * step}", f"tail.{i}.0.{2 * step}")
        table += convolution(f"{task}_tail/layer_{2 * count}", f"tail.{i}.1")
    return table


def reordered(weights, config):
    """The `weights` with the channels behind the places in tokens and before upsampling."""
    weights = dict(weights)
    side, width = config.patch_size, config.num_features
    queries = weights.pop("body.query_embed.weight")
    table = in_order(weights, rows_before_channels(width, side), READS, WRITES)
    for i, (task, scale) in enumerate(zip(config.tasks, config.scales, strict=True)):
        table[f"{task}.query"] = queries[i].reshape(-1, config.dim)[:, rows_before_channels(width, side)]
        for step, factor in enumerate(steps_of(scale)):
            for part in ("weight", "bias"):
                key = f"tail.{i}.0.{2 * step}.{part}"
                table[key] = table[key][rows_before_channels(width, factor)]
    return table


def read(arguments, weights):
    """The model for their arguments and weights, and its outputs by their names."""
    config = config_of(arguments)
    size, mean = arguments["rgb_range"], np.asarray(config.mean, "float32")
    for key, sign in (("sub_mean", -1), ("add_mean", 1)):  # fixed in ours
        kernel, bias = weights.pop(f"{key}.weight"), weights.pop(f"{key}.bias")
        np.testing.assert_allclose(kernel[:, :, 0, 0], np.eye(len(mean)), atol=1e-6)
        np.testing.assert_allclose(bias, sign * size * mean, atol=1e-6)
    model = IPT(config)
    read_state(model, reordered(weights, config), rows(config))
    back = np.argsort(rows_before_channels(config.num_features, config.patch_size))
    states, outputs = model.hidden_states, {}
    for i, task in enumerate(config.tasks):
        outputs[f"output_{i}"] = model.output[task]
        outputs[f"features/head_{i}"] = model.get_layer(f"{task}_head").output
        # A stack's states of all tasks stand in a row: the input of the first task's, then each block's
        # output.
        last = (i + 1) * config.num_layers
        for stack in ("encoder", "decoder"):
            outputs[f"features/{stack}_{i}"] = ops.take(states[stack][last], back, axis=-1)
        sums = model.get_layer(f"{task}_tail").input
        outputs[f"features/body_{i}"] = sums - model.get_layer(f"{task}_head").output
    return model, outputs
