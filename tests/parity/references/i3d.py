"""I3D in PyTorch (piergiaj/pytorch-i3d), of any widths, and its logits per moment."""

import keras

from keras_tfm.convert.keymap import Transform, batch_norm, convolution, read_state, weight
from keras_tfm.heads import Classifier
from keras_tfm.models.video.i3d import I3D, WIDTHS, I3DConfig
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import check_arguments

MODULES = {"stage_0": "bc", "stage_1": "bcdef", "stage_2": "bc"}  # Mixed_3b, Mixed_3c, Mixed_4b, ...
BRANCHES = {
    "pointwise": "b0",
    "first/layer_0": "b1a",
    "first/layer_1": "b1b",
    "second/layer_0": "b2a",
    "second/layer_1": "b2b",
    "pooled/layer_1": "b3b",
}
# torch.nn.Conv3d keeps (out, in, frames, height, width), Keras (frames, height, width, in, out).
CUBES = Transform(lambda x: x.transpose(2, 3, 4, 1, 0), lambda x, _: [x.transpose(4, 3, 0, 1, 2)])
POINT = Transform(lambda x: x[:, :, 0, 0, 0].T, lambda x, _: [x.T[..., None, None, None]])
# Arguments that must have one value for these outputs, and arguments that do not change them.
FIXED = {"final_endpoint": "Logits", "spatial_squeeze": True}
IGNORED = {"name", "dropout_keep_prob"}
SIZES = {"num_classes", "in_channels", "average_pool", "width_divisor", "width_minimum", "stem", "mixed"}


def config_of(arguments, videos_shape):
    """Our configuration for their arguments and the shape of the videos; CheckpointError for others."""
    check_arguments(arguments, FIXED.keys() | IGNORED | SIZES, "pytorch_i3d.py")
    for name, value in FIXED.items():
        if arguments.get(name, value) != value:
            raise CheckpointError("pytorch_i3d.py", name, repr(value), repr(arguments[name]))
    divisor, least = arguments.get("width_divisor", 1), arguments.get("width_minimum", 1)
    stem, dims = ([max(dim // divisor, least) for dim in dims] for dims in ((64, 64, 192), sum(WIDTHS, ())))
    mixed = dict(zip(_names(), (dims[i : i + 6] for i in range(0, len(dims), 6)), strict=True))
    mixed |= arguments.get("mixed", {})
    return I3DConfig(
        num_frames=videos_shape[1],
        image_size=tuple(videos_shape[2:4]),
        num_channels=arguments.get("in_channels", 3),
        stem_dims=tuple(arguments.get("stem", stem)),
        dims=tuple(tuple(mixed[name]) for name in _names()),
        window=tuple(arguments.get("average_pool", (2, 7, 7))),
    )


def _names():
    stages = enumerate(MODULES.values(), start=3)
    return [f"Mixed_{number}{letter}" for number, letters in stages for letter in letters]


def rows():
    """The table of the backbone and its classifier."""
    stem = ("Conv3d_1a_7x7", "Conv3d_2b_1x1", "Conv3d_2c_3x3")
    pairs = [(f"stem_{i}", theirs) for i, theirs in enumerate(stem)]
    blocks = [f"{stage}_block_{i}" for stage, letters in MODULES.items() for i in range(len(letters))]
    for block, module in zip(blocks, _names(), strict=True):
        pairs += [(f"{block}/{ours}", f"{module}.{theirs}") for ours, theirs in BRANCHES.items()]
    table = weight("head/output/kernel", "logits.conv3d.weight", POINT)
    table += weight("head/output/bias", "logits.conv3d.bias")
    for ours, theirs in pairs:
        table += convolution(ours, f"{theirs}.conv3d", CUBES)
        table += batch_norm(f"{ours}/norm", f"{theirs}.bn")
    return table


def read(arguments, weights, shapes):
    """The model for their arguments and weights, and its outputs by their names."""
    model = Classifier(I3D(config_of(arguments, shapes["images"])), arguments.get("num_classes", 400))
    read_state(model, weights, rows())
    backbone = model.backbone
    maps = dict(zip([name.lower() for name in _names()], backbone.hidden_states["encoder"][1:], strict=True))
    maps["conv3d_1a_7x7"] = backbone.get_layer("stem_0").output
    maps["maxpool3d_2a_3x3"] = backbone.get_layer("stem_pooling").output
    maps["conv3d_2c_3x3"] = backbone.get_layer("stem_2").output
    logits = model.head.output_projection(backbone.output["sequence_output"])
    outputs = {"logits": logits, "logits_mean": model.output}
    outputs |= {f"features/{name}": x for name, x in maps.items()}
    images = keras.Input(shapes["images"][1:], name="images")
    named = keras.Model({"images": images}, keras.Model(model.input, outputs)({"videos": images}))
    return named, named.output
