"""The U-Nets of diffusers, UNet2DModel and UNet2DConditionModel."""

import keras

from keras_tfm.convert.keymap import POINTWISE, convolution, embedding, linear, norm, read_state
from keras_tfm.models import DiffusionUNet, DiffusionUNetConfig
from tests.parity.references.state import check_arguments

ARGUMENTS = {
    "sample_size",
    "in_channels",
    "out_channels",
    "block_out_channels",
    "layers_per_block",
    "norm_num_groups",
    "attention_head_dim",
    "down_block_types",
    "up_block_types",
    "num_class_embeds",
    "cross_attention_dim",
}


def config_of(arguments):
    """Our configuration for theirs; CheckpointError for arguments of another model."""
    check_arguments(arguments, ARGUMENTS, "unet.py")
    dims = tuple(arguments["block_out_channels"])
    heads, context_dim = arguments["attention_head_dim"], arguments.get("cross_attention_dim")
    return DiffusionUNetConfig(
        arguments["sample_size"],
        arguments["in_channels"],
        arguments["out_channels"],
        dims=dims,
        num_layers=arguments["layers_per_block"],
        attends=tuple("Attn" in kind for kind in arguments["down_block_types"]),
        # In the conditional U-Net their `attention_head_dim` is a number of heads, whatever its name.
        num_heads=heads if context_dim else dims[-1] // heads,
        num_groups=arguments["norm_num_groups"],
        num_classes=arguments.get("num_class_embeds", 1) - 1,
        context_dim=context_dim,
    )


def rows(config):
    """The table of weights."""
    last = len(config.dims) - 1
    table = convolution("convolution_in", "conv_in") + convolution("convolution_out", "conv_out")
    table += norm("norm", "conv_norm_out") + embedding("class/token", "class_embedding")
    table += linear("time_hidden", "time_embedding.linear_1") + linear("time", "time_embedding.linear_2")
    stacks = [("middle", "mid_block")]
    for level in range(last + 1):
        stacks += [
            (f"down_{level}", f"down_blocks.{level}"),
            (f"up_{last - level}", f"up_blocks.{level}"),
        ]
        table += convolution(f"down_{level}_half", f"down_blocks.{level}.downsamplers.0.conv")
        table += convolution(f"up_{last - level}_double/layer_1", f"up_blocks.{level}.upsamplers.0.conv")
    for ours, theirs in stacks:
        table += _block(f"{ours}_block_{{}}", f"{theirs}.resnets.{{}}")
        attention = f"{ours}_attention_{{}}/attention"
        kind = _attention if config.context_dim is None else _transformer
        table += kind(attention, f"{theirs}.attentions.{{}}")
    return table


def _block(ours, theirs):
    table = linear(f"{ours}/condition", f"{theirs}.time_emb_proj")
    table += convolution(f"{ours}/shortcut", f"{theirs}.conv_shortcut")
    for i in (1, 2):
        table += norm(f"{ours}/norm_{i}", f"{theirs}.norm{i}")
        table += convolution(f"{ours}/convolution_{i}", f"{theirs}.conv{i}")
    return table


def _attention(ours, theirs):
    branch = f"{ours}/branch/attention"
    keys = [f"{theirs}.to_{part}" for part in "qkv"]
    return [
        *norm(f"{ours}/norm", f"{theirs}.group_norm"),
        *linear(f"{branch}/projections/query_key_value", *keys),
        *linear(f"{branch}/output", f"{theirs}.to_out.0"),
    ]


def _transformer(ours, theirs):
    branch, their_block = f"{ours}/branch", f"{theirs}.transformer_blocks.0"
    parts = ("attention", "context_attention", "feedforward")
    table = norm(f"{ours}/norm", f"{theirs}.norm")
    table += linear(f"{branch}/input", f"{theirs}.proj_in", transform=POINTWISE)
    table += linear(f"{branch}/output", f"{theirs}.proj_out", transform=POINTWISE)
    for i, part in enumerate(parts, 1):
        table += norm(f"{branch}/block/{part}/norm", f"{their_block}.norm{i}")
    attentions = {
        "attention": ("attn1", {"query_key_value": "qkv"}),
        "context_attention": ("attn2", {"query": "q", "key_value": "kv"}),
    }
    for part, (key, projections) in attentions.items():
        ours = f"{branch}/block/{part}/branch"
        for projection, letters in projections.items():
            keys = [f"{their_block}.{key}.to_{letter}" for letter in letters]
            table += linear(f"{ours}/projections/{projection}", *keys)
        table += linear(f"{ours}/output", f"{their_block}.{key}.to_out.0")
    feedforward = f"{branch}/block/feedforward/branch"
    table += linear(f"{feedforward}/value", f"{their_block}.ff.net.0.proj", part=(0, 1, 2))
    table += linear(f"{feedforward}/gate", f"{their_block}.ff.net.0.proj", part=(1, 2, 2))
    return table + linear(f"{feedforward}/output", f"{their_block}.ff.net.2")


def read(arguments, weights):
    """The model for their arguments and weights, and its outputs by their names."""
    config = config_of(arguments)
    model = DiffusionUNet(config)
    read_state(model, weights, rows(config))
    last = len(config.dims) - 1
    outputs = {"output": model.output["prediction"]}
    for name, ours in {"time": "time", "conv_in": "convolution_in"}.items():
        outputs[f"features/{name}"] = model.get_layer(ours).output
    states = model.hidden_states
    outputs["features/middle"] = states["middle"][-1]
    for level in range(last + 1):
        half, double = f"down_{level}_half", f"up_{level}_double"
        down = model.get_layer(half).output if level < last else states[f"down_{level}"][-1]
        up = model.get_layer(double).output if level else states["up_0"][-1]
        outputs |= {f"features/down_{level}": down, f"features/up_{last - level}": up}
    return model, outputs


def read_conditional(arguments, weights):
    """`read`, for inputs called as theirs are."""
    model, outputs = read(arguments, weights)
    inputs = {"text" if name == "context" else name: x for name, x in model.input.items()}
    inputs = {name: keras.Input(x.shape[1:], dtype=x.dtype, name=name) for name, x in inputs.items()}
    ours = {"context" if name == "text" else name: x for name, x in inputs.items()}
    return keras.Model(inputs, model(ours)), keras.Model(model.input, outputs)(ours)
