"""STTN's generator as the authors' code has it (researchmm/STTN), without and with its mask of holes."""

import dataclasses

import keras
from keras import ops

from keras_tfm.convert.keymap import POINTWISE, convolution, linear, read_state
from keras_tfm.models import STTN, STTNConfig
from tests.parity.references.state import check_arguments

ARGUMENTS = {"channel", "stack_num", "patchsize_wh", "encoder", "decoder"}
DEFAULT = STTNConfig()


def config_of(arguments, videos_shape):
    """Our configuration for their sizes and the shape of the videos; CheckpointError for other arguments."""
    check_arguments(arguments, ARGUMENTS | {"init_weights"}, "sttn.py")
    dim = arguments.get("channel", DEFAULT.encoder_dims[-1])
    sizes = arguments.get("patchsize_wh")
    return STTNConfig(
        num_frames=videos_shape[1],
        image_size=tuple(videos_shape[2:4]),
        num_channels=videos_shape[4],
        num_layers=arguments.get("stack_num", DEFAULT.num_layers),
        encoder_dims=(*arguments.get("encoder", DEFAULT.encoder_dims)[:3], dim),
        decoder_dims=tuple(arguments.get("decoder", DEFAULT.decoder_dims)[:3]),
        patch_sizes=DEFAULT.patch_sizes
        if sizes is None
        else tuple((height, width) for width, height in sizes),
    )


def rows():
    """The table of weights."""
    table = []
    for i in range(4):
        table += convolution(f"encoder_{i}", f"encoder.{2 * i}")
        table += convolution(f"decoder_{i}", f"decoder.{2 * i}" + (".conv" if i % 2 == 0 else ""))
    ours, theirs = "block_{}/attention/branch", "transformer.{}.attention"
    for part in ("query", "key", "value"):
        table += linear(f"{ours}/{part}", f"{theirs}.{part}_embedding", transform=POINTWISE)
    table += convolution(f"{ours}/output", f"{theirs}.output_linear.0")
    for i in range(2):
        branch = f"block_{{}}/feedforward/branch/layer_{i}"
        table += convolution(branch, f"transformer.{{}}.feed_forward.conv.{2 * i}")
    return table


def read(arguments, weights, shapes):
    """The model for their arguments and weights, and its outputs by their names."""
    config = config_of(arguments, shapes["images"])
    model = STTN(config)
    read_state(model, weights, rows())
    masked = STTN(dataclasses.replace(config, masks_holes=True))
    masked.set_weights(model.get_weights())
    images = keras.Input(shapes["images"][1:], name="images")
    mask = keras.Input(shapes["mask"][1:], name="mask")
    videos = images * (1 - mask)
    states = {"output": model.output["videos"]}
    for i, state in enumerate(model.hidden_states["encoder"]):
        name = f"block_{i - 1}" if i else "encoder"
        states[f"features/{name}"] = ops.reshape(state, (-1, config.num_frames, *state.shape[1:]))
    outputs = keras.Model(model.input, states)({"videos": videos})
    holes = ops.squeeze(mask, -1) > 0.5
    outputs = {**outputs, "output_if_masked": masked({"videos": videos, "holes": holes})["videos"]}
    named = keras.Model({"images": images, "mask": mask}, outputs)
    return named, outputs
