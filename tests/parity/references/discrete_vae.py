"""The encoder and the decoder of DALL-E's discrete variational autoencoder, as its package has them."""

from keras import ops

from keras_tfm.convert.keymap import CONVOLVED, check_unread, load, weight
from keras_tfm.models import DiscreteVAE, DiscreteVAEConfig
from tests.parity.references.state import check_arguments

FIELDS = {
    "n_hid": "dim",
    "n_blk_per_group": "num_blocks",
    "input_channels": "num_channels",
    "output_channels": "num_channels",
    "vocab_size": "num_codes",
    "n_init": "code_dim",
}


def config_of(arguments, image_size):
    """Our configuration for their arguments; CheckpointError for others."""
    check_arguments(arguments, {*FIELDS, "group_count"}, "dall_e")
    sizes = {FIELDS[name]: value for name, value in arguments.items() if name in FIELDS}
    return DiscreteVAEConfig.from_json(sizes | {"image_size": image_size})


def rows(half, config):
    """The table of weights of one half, "encoder" or "decoder"."""
    table = _convolution(f"{half}_input", "blocks.input")
    table += _convolution(f"{half}_output/layer_1", "blocks.output.conv")
    for group in range(4):
        for block in range(config.num_blocks):
            ours, theirs = (
                f"{half}_group_{group}_block_{block}",
                f"blocks.group_{group + 1}.block_{block + 1}",
            )
            table += _convolution(f"{ours}/shortcut", f"{theirs}.id_path")
            for i in range(4):
                table += _convolution(f"{ours}/branch/layer_{i + 1}", f"{theirs}.res_path.conv_{i + 1}")
    return table


def _convolution(ours, theirs):
    ours = f"{ours}/convolution"
    return [*weight(f"{ours}/kernel", f"{theirs}.w", CONVOLVED), *weight(f"{ours}/bias", f"{theirs}.b")]


class Half:
    """The weights of one half of a model, which the other half's table does not name."""

    def __init__(self, model, half):
        self.weights = [w for layer in model.halves[half] for w in layer.weights]


def read_half(half, arguments, arrays, image_size):
    """The model, its weights' names in `arrays`, with the weights of one half."""
    config = config_of(arguments, image_size)
    model = DiscreteVAE(config)
    weights = {name.removeprefix("weights/"): x for name, x in arrays.items() if name.startswith("weights/")}
    read = load(Half(model, half), weights, rows(half, config), "the state")
    check_unread(weights, read, (), "the state")
    return model, {f"weights/{name}" for name in weights}


def outputs_after_groups(layers, x):
    """(The output of the last layer, {"features/group_1": the map after the group, its size changed})."""
    features = {}
    for layer in layers:
        x = layer(x)
        if "_group_" in layer.name:
            features[f"features/group_{int(layer.name.split('_group_')[1][0]) + 1}"] = x
    return x, features


def read_encoder(arguments, arrays):
    """The inputs' names, and the encoder's outputs for them by their names."""
    model, names = read_half("encoder", arguments, arrays, arrays["images"].shape[1:3])
    logits, features = outputs_after_groups(model.halves["encoder"], ops.convert_to_tensor(arrays["images"]))
    return {"images", *names}, {"logits": logits, **features}


def read_decoder(arguments, arrays):
    """The inputs' names, and the decoder's outputs for them by their names."""
    sides = tuple(8 * side for side in arrays["indices"].shape[1:3])
    model, names = read_half("decoder", arguments, arrays, sides)
    codes = model.quantizer.embed(arrays["indices"].astype("int32"))
    output, features = outputs_after_groups(model.halves["decoder"], codes)
    reconstruction = model.decode(arrays["indices"].astype("int32"))
    return {"indices", *names}, {"output": output, "reconstruction": reconstruction, **features}
