"""VQGAN as the authors' code has it (CompVis/taming-transformers), with both forms of the codes' loss."""

from keras import ops

from keras_tfm.convert.keymap import POINTWISE, convolution, linear, norm, read_state, weight
from keras_tfm.layers import quantization_loss
from keras_tfm.models import VQGAN, VQGANConfig
from keras_tfm.models.base import Trace
from tests.parity.references.state import check_arguments

FIELDS = {
    "ch": "dim",
    "ch_mult": "factors",
    "num_res_blocks": "num_blocks",
    "z_channels": "latent_dim",
    "in_channels": "num_channels",
    "resolution": "image_size",
    "dropout": "dropout",
}


def config_of(arguments):
    """Our configuration for their arguments; CheckpointError for others."""
    check_arguments(arguments, {"ddconfig", "n_embed", "embed_dim", "beta", "norm_groups"}, "vqgan.py")
    sizes = arguments["ddconfig"]
    check_arguments(sizes, {*FIELDS, "double_z", "out_ch", "attn_resolutions"}, "vqgan.py")
    sides = [sizes["resolution"] // 2**level for level in range(len(sizes["ch_mult"]))]
    return VQGANConfig.from_json(
        {FIELDS[name]: value for name, value in sizes.items() if name in FIELDS}
        | {"attends": [side in sizes["attn_resolutions"] for side in sides]}
        | {"num_codes": arguments["n_embed"], "code_dim": arguments["embed_dim"]}
        | {"commitment": arguments.get("beta", 0.25), "num_groups": arguments.get("norm_groups", 32)}
    )


def rows():
    """The table of weights."""
    table = weight("quantizer/codebook", "quantize.embedding.weight")
    table += convolution("encoder_projection", "quant_conv") + convolution(
        "decoder_projection", "post_quant_conv"
    )
    for half, levels in (("encoder", "down"), ("decoder", "up")):
        table += convolution(f"{half}_input", f"{half}.conv_in")
        table += norm(f"{half}_output/layer_0", f"{half}.norm_out")
        table += convolution(f"{half}_output/layer_2", f"{half}.conv_out")
        for i in range(2):
            table += _block(f"{half}_middle_block_{i}", f"{half}.mid.block_{i + 1}")
        table += _attention(f"{half}_middle_attention", f"{half}.mid.attn_1")
        table += _block(half + "_level_{}_block_{}", f"{half}.{levels}." + "{}.block.{}")
        table += _attention(half + "_level_{}_attention_{}", f"{half}.{levels}." + "{}.attn.{}")
    table += convolution("encoder_level_{}_halved", "encoder.down.{}.downsample.conv")
    table += convolution("decoder_level_{}_doubled/layer_1", "decoder.up.{}.upsample.conv")
    return table


def _block(ours, theirs):
    table = convolution(f"{ours}/shortcut", f"{theirs}.nin_shortcut")
    for i in (1, 2):
        table += norm(f"{ours}/norm_{i}", f"{theirs}.norm{i}")
        table += convolution(f"{ours}/convolution_{i}", f"{theirs}.conv{i}")
    return table


def _attention(ours, theirs):
    ours = f"{ours}/attention"
    layer = f"{ours}/branch/attention"
    keys = [f"{theirs}.{part}" for part in "qkv"]
    return [
        *norm(f"{ours}/norm", f"{theirs}.norm"),
        *linear(f"{layer}/projections/query_key_value", *keys, transform=POINTWISE),
        *linear(f"{layer}/output", f"{theirs}.proj_out", transform=POINTWISE),
    ]


def read(arguments, arrays):
    """The inputs' names, and the outputs for them by their names."""
    config = config_of(arguments)
    model = VQGAN(config)
    weights = {name.removeprefix("weights/"): x for name, x in arrays.items() if name.startswith("weights/")}
    read_state(model, weights, rows())
    *encoder, projection = model.halves["encoder"]
    features = Trace().run("encoder", encoder, ops.convert_to_tensor(arrays["images"]))
    latent = projection(features)
    codes = model.quantizer.embed(model.encode(arrays["images"]))
    outputs = {
        "features/encoder": features,
        "features/latent": latent,
        "indices": model.encode(arrays["images"]),
        "quantized": codes,
        "output": model({"images": arrays["images"]})["images"],
        "loss_fixed": quantization_loss(latent, codes, config.commitment),
        "loss_legacy": quantization_loss(latent, codes, 1.0, config.commitment),
    }
    return {"images", *(f"weights/{name}" for name in weights)}, outputs
