"""DeepViT's checkpoints in the authors' format (Zhou et al. 2021)."""

from keras_tfm.convert.keymap import POINTWISE, batch_norm, convolution, patches, weight
from keras_tfm.convert.variant import OF_HEADS, attention_rows, embedding_rows, feedforward_rows
from keras_tfm.layers.patches import height_and_width
from keras_tfm.models import DeepViT, DeepViTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.variant import fields_of, read_as

MIXING = "block_{}/attention/branch/layer_0/on_weights/layer_0"


def stem_rows(config, weights):
    """The rows of the convolutional stem and of the patches behind it, whatever their keys in `weights` are:
    two convolutions, each with a norm, then one for the patches, in this order.
    """
    stem = {key: x for key, x in weights.items() if key.startswith("patch_embed.")}
    kernels = sorted(key for key, x in stem.items() if x.ndim == 4)
    norms = sorted(key.removesuffix(".running_mean") for key in stem if key.endswith(".running_mean"))
    if len(kernels) != 3 or len(norms) != 2:
        got = ", ".join(sorted(stem))
        raise CheckpointError("DeepViT", "patch_embed", "three convolutions and two norms", got)
    *first, last = (key.removesuffix(".weight") for key in kernels)
    half = tuple(side // 2 for side in height_and_width(config.patch_size))
    table = patches("patch_embedding", last, half)
    for i, (kernel, their_norm) in enumerate(zip(first, norms, strict=True)):
        table += [*convolution(f"stem/layer_{i}", kernel), *batch_norm(f"stem/layer_{i}/norm", their_norm)]
    return table


def rows(config, weights):
    """The table of a configuration; `weights` say how a convolutional stem is called."""
    attention, table = "blocks.{}.attn", embedding_rows(config)
    if config.convolutional_stem:
        table = [row for row in table if not row.ours.startswith("patch_embedding/")]
        table += stem_rows(config, weights)
    return [
        *table,
        *attention_rows(branch="branch/layer_0"),
        *feedforward_rows(branch="branch/layer_0"),
        *weight(f"{MIXING}/mixing/kernel", f"{attention}.reatten_matrix.weight", POINTWISE),
        *weight(f"{MIXING}/mixing/bias", f"{attention}.reatten_matrix.bias", OF_HEADS),
        *batch_norm(f"{MIXING}/norm", f"{attention}.var_norm"),
    ]


def config_of(arguments):
    """Our configuration for their constructor's arguments.

    `apply_transform` says for each block whether it mixes its heads; only the last blocks do. Raises
    CheckpointError if blocks share weights.
    """
    if any(arguments["depth"]):
        raise CheckpointError("DeepViT", "depth", "none that is True", f"{arguments['depth']}")
    applied = arguments["apply_transform"]
    return DeepViTConfig(
        **fields_of(arguments) | {"num_layers": len(applied)},
        num_mixing_layers=sum(applied),
        scale_weights=arguments.get("transform_scale", False),
        branch_scale=arguments.get("scale_adjustment", 1.0),
        convolutional_stem=arguments.get("use_cnn_stem", False),
    )


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs by their names."""
    config = config_of(arguments)
    return read_as(DeepViT, config, arguments["num_classes"], weights, rows(config, weights))
