"""DeepViT's checkpoints in the authors' format (Zhou et al. 2021)."""

from keras_tfm.convert.keymap import POINTWISE, batch_norm, weight
from keras_tfm.convert.variant import OF_HEADS, attention_rows, embedding_rows, feedforward_rows
from keras_tfm.models import DeepViT, DeepViTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.variant import fields_of, read_as

MIXING = "block_{}/attention/branch/layer_0/on_weights/layer_0"


def rows(config):
    """The table of a configuration without a convolutional stem."""
    attention = "blocks.{}.attn"
    return [
        *embedding_rows(config),
        *attention_rows(branch="branch/layer_0"),
        *feedforward_rows(branch="branch/layer_0"),
        *weight(f"{MIXING}/mixing/kernel", f"{attention}.reatten_matrix.weight", POINTWISE),
        *weight(f"{MIXING}/mixing/bias", f"{attention}.reatten_matrix.bias", OF_HEADS),
        *batch_norm(f"{MIXING}/norm", f"{attention}.var_norm"),
    ]


def config_of(arguments):
    """Our configuration for their constructor's arguments.

    `apply_transform` tells for each block whether it mixes its heads; only the last blocks do. Raises
    CheckpointError if blocks share weights, and for a convolutional stem, whose names are not known here.
    """
    for name, is_there in (
        ("depth", any(arguments["depth"])),
        ("use_cnn_stem", arguments.get("use_cnn_stem")),
    ):
        if is_there:
            raise CheckpointError("DeepViT", name, "none that is True", f"{arguments[name]}")
    applied = arguments["apply_transform"]
    return DeepViTConfig(
        **fields_of(arguments) | {"num_layers": len(applied)},
        num_mixing_layers=sum(applied),
        scale_weights=arguments.get("transform_scale", False),
        branch_scale=arguments.get("scale_adjustment", 1.0),
    )


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs by their names."""
    config = config_of(arguments)
    return read_as(DeepViT, config, arguments["num_classes"], weights, rows(config))
