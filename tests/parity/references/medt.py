"""MedT, the gated axial U-Net and their blocks as the authors' code has them (Valanarasu et al. 2021)."""

import keras

from keras_tfm.convert.keymap import Transform, batch_norm, convolution, read_state, weight
from keras_tfm.models.detection.medt import GatedAxialUNet, MedT, MedTConfig, axial_block
from keras_tfm.training.safetensors import CheckpointError

GATES = {"query": "f_qr", "key": "f_kr", "value": "f_sv", "value_position": "f_sve"}
AXES = {"layer_1": "hight_block", "layer_2": "width_block"}
POSITIONS = {"AxialBlock_dynamic": "gated", "AxialBlock": "relative", "AxialBlock_wopos": "none"}
# A torch.nn.Conv1d of kernel 1 stores (out, in, 1).
LINE = Transform(lambda array: array[..., 0].T, lambda array, _: [array.T[..., None]])
TABLE = Transform(lambda array: array.T, lambda array, _: [array.T])


def block_rows(ours, theirs):
    """The table of a block."""
    table = _normalized(f"{ours}/branch/layer_0", f"{theirs}conv_down", f"{theirs}bn1")
    table += _normalized(f"{ours}/branch/output", f"{theirs}conv_up", f"{theirs}bn2")
    table += _normalized(f"{ours}/shortcut", f"{theirs}downsample.0", f"{theirs}downsample.1")
    for name, key in AXES.items():
        attention, their_attention = f"{ours}/branch/{name}/attention", f"{theirs}{key}"
        table += weight(f"{attention}/projection/kernel", f"{their_attention}.qkv_transform.weight", LINE)
        table += batch_norm(f"{attention}/projection_norm", f"{their_attention}.bn_qkv")
        table += batch_norm(f"{attention}/score_norm", f"{their_attention}.bn_similarity")
        table += batch_norm(f"{attention}/output_norm", f"{their_attention}.bn_output")
        table += weight(f"{attention}/table", f"{their_attention}.relative", TABLE)
        for gate, their_gate in GATES.items():
            table += weight(f"{attention}/{gate}_gate", f"{their_attention}.{their_gate}")
    return table


def rows():
    """The table of a model and its head."""
    table = []
    for prefix, end in (("", ""), ("local_", "_p")):
        for i in range(3):
            table += _normalized(f"{prefix}stem_{i}", f"conv{i + 1}{end}", f"bn{i + 1}{end}")
        for stage in range(4):
            ours, theirs = f"{prefix}stage_{stage}_block_{{}}", f"layer{stage + 1}{end}.{{}}."
            table += block_rows(ours, theirs)
        for i in range(5):
            table += convolution(f"{prefix}decoder_{i}", f"decoder{i + 1}{end}")
    table += convolution("joining", "decoderf")
    pointwise = Transform(lambda x: x[:, :, 0, 0].T, lambda x, _: [x.T[..., None, None]])
    return (
        table + weight("classes/kernel", "adjust.weight", pointwise) + weight("classes/bias", "adjust.bias")
    )


def _normalized(ours, theirs, their_norm):
    return [*convolution(ours, theirs), *batch_norm(f"{ours}/norm", their_norm)]


def read_model(model_class, arguments, weights, fixed):
    """(A segmenter around our `model_class`, that model); CheckpointError for arguments of another model."""
    for name, value in fixed.items():
        if arguments.get(name) != value:
            raise CheckpointError("axialnet.py", name, repr(value), repr(arguments.get(name)))
    config = MedTConfig(
        image_size=arguments["img_size"],
        num_channels=arguments["imgchan"],
        dim=int(128 * arguments["s"]),
        depths=tuple(arguments["layers"]),
        num_heads=arguments["groups"],
    )
    backbone = model_class(config)
    classes = keras.layers.Dense(arguments["num_classes"], name="classes")  # theirs allows one class too
    model = keras.Model(backbone.input, classes(backbone.maps[0]))
    # Weights that theirs has and never uses.
    unused = [
        key
        for key in weights
        if key.startswith("adjust_p.") or key.endswith((".conv1.weight", ".conv1.bias"))
    ]
    read_state(model, weights, rows(), unused)
    return model, backbone


def read_u_net(arguments, weights):
    """The model for the authors' U-Net, and its outputs by their names."""
    model, backbone = read_model(GatedAxialUNet, arguments, weights, {"block": "AxialBlock_dynamic"})
    depths = backbone.config.depths
    states = backbone.hidden_states["encoder"]
    ends = [states[sum(depths[: stage + 1])] for stage in range(len(depths))]
    return model, {"logits": model.output} | {f"features/stage_{i}": x for i, x in enumerate(ends)}


def read(arguments, weights):
    """The model for the authors' MedT, and its output."""
    fixed = {"block": "AxialBlock_dynamic", "block_2": "AxialBlock_wopos"}
    model, _ = read_model(MedT, arguments, weights, fixed)
    return model, {"logits": model.output}


def _reader(position):
    def read_block(arguments, weights):
        size, width = arguments["kernel_size"], arguments["inplanes"]
        block = axial_block(
            arguments["planes"], arguments["groups"], position, width, arguments["stride"], name="block"
        )
        images = keras.Input((size, size, width), name="images")
        model = keras.Model({"images": images}, block(images))
        states = [images]
        for part in block.branch.layers[:3]:
            states.append(part(states[-1]))
        unused = [key for key in weights if key.startswith("conv1.")]
        read_state(model, weights, block_rows("block", ""), unused)
        return model, {"output": model.output, "features/height": states[2], "features/width": states[3]}

    return read_block


read_gated, read_relative, read_none = map(_reader, ("gated", "relative", "none"))
