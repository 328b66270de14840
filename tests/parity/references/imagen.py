"""Imagen's U-Nets of the re-creation lucidrains/imagen-pytorch, with texts, without them and guided."""

import keras
import numpy as np
from keras import ops

from keras_tfm.convert.keymap import (
    TRANSPOSED,
    Transform,
    convolution,
    linear,
    norm,
    read_state,
    reordered,
    weight,
)
from keras_tfm.models import ImagenUNet, ImagenUNetConfig
from tests.parity.references.state import check_arguments

ARGUMENTS = {
    "text_embed_dim", "lowres_cond", "dim", "dim_mults", "cond_dim", "max_text_len", "num_resnet_blocks",
    "num_image_tokens", "num_time_tokens", "learned_sinu_pos_emb_dim", "attn_dim_head", "attn_heads",
    "layer_attns", "layer_cross_attns", "attn_pool_num_latents", "attn_pool_text", "init_cross_embed",
    "init_cross_embed_kernel_sizes", "init_conv_kernel_size", "memory_efficient",
}  # fmt: skip
FLAT = Transform(lambda array: array.reshape(-1), lambda array, _: [array.reshape(-1, 1, 1)])
LEADING = Transform(lambda array: array[0], lambda array, _: [array[None]])  # of an axis of length 1
# A map's channels (C, 2, 2) before a 1 x 1 convolution: a convolution of 2 x 2 cells.
HALVED = Transform(
    lambda array: array.reshape(len(array), -1, 2, 2).transpose(2, 3, 1, 0),
    lambda array, _: [array.transpose(3, 2, 0, 1).reshape(array.shape[3], -1, 1, 1)],
)
POINT = Transform(  # of a 1 x 1 convolution to a dense layer
    lambda array: array[:, :, 0, 0].T, lambda array, _: [array.T[..., None, None]]
)


def config_of(arguments, shapes):
    """Our configuration for theirs; CheckpointError for arguments of another model."""
    check_arguments(arguments, ARGUMENTS, "imagen_pytorch.py")
    dims = tuple(arguments["dim"] * multiple for multiple in arguments["dim_mults"])
    counts = arguments["num_resnet_blocks"]
    crosses = arguments.get("init_cross_embed", True)
    kernels = arguments.get("init_cross_embed_kernel_sizes", (3, 7, 15))
    return ImagenUNetConfig(
        tuple(shapes["images"][1:3]),
        shapes["images"][3],
        dims,
        (counts,) * len(dims) if isinstance(counts, int) else tuple(counts),
        tuple(arguments["layer_attns"]),
        tuple(arguments["layer_cross_attns"]),
        arguments["attn_heads"],
        arguments["attn_dim_head"],
        arguments["text_embed_dim"],
        arguments["max_text_len"],
        arguments["cond_dim"],
        arguments["num_time_tokens"],
        arguments["learned_sinu_pos_emb_dim"],
        arguments["attn_pool_num_latents"] if arguments.get("attn_pool_text", True) else 0,
        tuple(kernels) if crosses else (arguments["init_conv_kernel_size"],),
        arguments["lowres_cond"],
        arguments.get("memory_efficient", False),
    )


def rows(config):
    """The table of weights."""
    table = convolution("convolution_out", "final_conv")
    for i in range(len(config.kernels)):
        theirs = "init_conv" if len(config.kernels) == 1 else f"init_conv.convs.{i}"
        table += convolution(f"convolution_in/branch_{i}", theirs)
    for ours, theirs in (("time", "to_time"), ("low_resolution_time", "to_lowres_time")):
        table += weight(f"{ours}_sines/frequencies", f"{theirs}_hiddens.0.weights")
        table += linear(f"{ours}_hidden", f"{theirs}_hiddens.1")
        table += linear(f"{ours}_tokens", f"{theirs}_tokens.0") + linear(f"{ours}_vector", f"{theirs}_cond.0")
    table += linear("text_tokens/projection", "text_to_cond") + norm("context_norm", "norm_cond")
    table += weight("text_tokens/null", "null_text_embed", LEADING)
    table += norm("text_vector/norm", "to_text_non_attn_cond.0")
    table += linear("text_vector/hidden", "to_text_non_attn_cond.1")
    table += linear("text_vector/output", "to_text_non_attn_cond.3")
    table += weight("text_vector/null", "null_text_hidden", LEADING)
    table += _resampler("resampler", "attn_pool")
    first = 0 if config.halves_first else 4
    for ours, theirs in (("first", "init_resnet_block"), ("last", "final_res_block")):
        table += _block(f"{ours}_block", theirs)
    last = len(config.dims) - 1
    for i in range(last + 1):
        down, up = f"downs.{i}", f"ups.{last - i}"
        table += _block(f"down_{i}_first", f"{down}.1") + _block(f"up_{i}_first", f"{up}.0")
        table += _block(f"down_{i}_block_{{}}", f"{down}.2.{{}}") + _block(
            f"up_{i}_block_{{}}", f"{up}.1.{{}}"
        )
        table += _transformer(f"down_{i}_transformer", f"{down}.3")
        table += _transformer(f"up_{i}_transformer", f"{up}.2")
        half = f"down_{i}_half/convolution"
        table += weight(f"{half}/kernel", f"{down}.{first}.1.weight", HALVED)
        table += weight(f"{half}/bias", f"{down}.{first}.1.bias")
        for k, side in enumerate((3, 1)):
            table += convolution(f"down_{i}_last_{side}", f"{down}.4.fns.{k}")
        if i or config.halves_first:
            width = config.dims[i - 1] if i else config.dims[0]
            table += _doubling(f"up_{i}_double/convolution", f"{up}.3.net.0", width)
    table += _block("middle_block_0", "mid_block1") + _block("middle_block_1", "mid_block2")
    return table + _transformer("middle_transformer", "mid_attn")


def _doubling(ours, theirs, width):
    order = np.arange(4 * width).reshape(width, 2, 2).transpose(1, 2, 0).reshape(-1)
    kernel = Transform(
        lambda array: array.transpose(2, 3, 1, 0), lambda array, _: [array.transpose(3, 2, 0, 1)]
    )
    as_is = Transform(lambda array: array, lambda array, _: [array])
    return [
        *weight(f"{ours}/kernel", f"{theirs}.weight", reordered(kernel, order)),
        *weight(f"{ours}/bias", f"{theirs}.bias", reordered(as_is, order)),
    ]


def _block(ours, theirs):
    table = linear(f"{ours}/condition", f"{theirs}.time_mlp.1")
    table += convolution(f"{ours}/shortcut", f"{theirs}.res_conv")
    for i in (1, 2):
        table += weight(f"{ours}/norm_{i}/gamma", f"{theirs}.block{i}.norm.gamma", FLAT)
        table += convolution(f"{ours}/convolution_{i}", f"{theirs}.block{i}.project")
    residual, cross = f"{ours}/context_attention/residual", f"{theirs}.cross_attn"
    table += weight(f"{residual}/norm/gamma", f"{cross}.norm.g") + _attention(f"{residual}/branch", cross)
    for part, key in {"score": "to_k", "hidden": "net.0", "gate": "net.2"}.items():
        table += weight(f"{ours}/gate/{part}/kernel", f"{theirs}.gca.{key}.weight", POINT)
        table += weight(f"{ours}/gate/{part}/bias", f"{theirs}.gca.{key}.bias")
    return table


def _attention(ours, theirs, has_torch_norm=False):
    """Attention by cosines, with or without a null key, and the norm after it."""
    projections, output = f"{ours}/projections", f"{ours}/output_layer"
    table = weight(f"{projections}/null", f"{theirs}.null_kv")
    for side, letter in (("query", "q"), ("key", "k")):
        table += weight(f"{projections}/{side}_scale", f"{theirs}.{letter}_scale")
    for part, key in {"query": "to_q", "key_value": "to_kv"}.items():
        table += weight(f"{projections}/{part}/kernel", f"{theirs}.{key}.weight", TRANSPOSED)
    table += norm(f"{projections}/context_norm", f"{theirs}.to_context.0")
    table += linear(f"{projections}/context_key_value", f"{theirs}.to_context.1")
    table += weight(f"{output}/layer_0/kernel", f"{theirs}.to_out.0.weight", TRANSPOSED)
    if has_torch_norm:
        return table + norm(f"{output}/layer_1", f"{theirs}.to_out.1")
    return table + weight(f"{output}/layer_1/gamma", f"{theirs}.to_out.1.g")


def _feedforward(ours, theirs):
    return [
        *weight(f"{ours}/norm/gamma", f"{theirs}.0.g"),
        *weight(f"{ours}/branch/layer_0/kernel", f"{theirs}.1.weight", TRANSPOSED),
        *weight(f"{ours}/branch/layer_1/gamma", f"{theirs}.3.g"),
        *weight(f"{ours}/branch/layer_2/kernel", f"{theirs}.4.weight", TRANSPOSED),
    ]


def _transformer(ours, theirs):
    return [
        *weight(f"{ours}/attention/norm/gamma", f"{theirs}.layers.0.0.norm.g"),
        *_attention(f"{ours}/attention/branch", f"{theirs}.layers.0.0"),
        *_feedforward(f"{ours}/feedforward", f"{theirs}.layers.0.1"),
    ]


def _resampler(ours, theirs):
    table = weight(f"{ours}/latents", f"{theirs}.latents")
    table += weight(f"{ours}/position", f"{theirs}.pos_emb.weight")
    means = f"{theirs}.to_latents_from_mean_pooled_seq"
    table += weight(f"{ours}/mean_norm/gamma", f"{means}.0.g")
    table += linear(f"{ours}/mean_projection", f"{means}.1")
    layer = f"{theirs}.layers.{{}}"
    table += norm(f"{ours}/token_norm_{{}}", f"{layer}.0.norm")
    table += norm(f"{ours}/latent_norm_{{}}", f"{layer}.0.norm_latents")
    table += _attention(f"{ours}/attention_{{}}", f"{layer}.0", has_torch_norm=True)
    return table + _feedforward(f"{ours}/feedforward_{{}}", f"{layer}.1")


def read(arguments, weights, shapes):
    """The model for their arguments and weights, and its outputs by their names."""
    config = config_of(arguments, shapes)
    model = ImagenUNet(config)
    read_state(model, weights, rows(config))
    states, features = model.hidden_states, {}
    size = model.input["images"].shape[1:3]

    def as_map(x, side):
        return x if len(x.shape) == 4 else ops.reshape(x, (-1, *side, x.shape[-1]))

    features["init_conv"] = model.get_layer("convolution_in").output
    features["condition_tokens"] = model.get_layer("context_norm").output
    if config.num_latents:
        features["text_tokens"] = model.get_layer("resampler").output
    last = len(config.dims) - 1
    for i in range(last + 1):
        power = i + 1 if config.halves_first else i
        side = tuple(x // 2**power for x in size)
        features[f"down_{i}"] = as_map(states[f"down_{i}"][-1], side)
        features[f"up_{last - i}"] = as_map(states[f"up_{i}"][-1], side)
    features["middle"] = states["middle"][-1]
    named = {f"features/{name}": x for name, x in features.items()}
    inner = keras.Model(model.input, named | {"output": model.output["prediction"]})
    inputs = {name: keras.Input(x.shape[1:], dtype=x.dtype, name=name) for name, x in model.input.items()}
    outputs = inner(inputs)
    nothing = ops.zeros_like(inputs["text_mask"])
    without = outputs["output_without_text"] = model(inputs | {"text_mask": nothing})["prediction"]
    outputs["output_guided_3"] = without + 3.0 * (outputs["output"] - without)
    return keras.Model(inputs, outputs), outputs
