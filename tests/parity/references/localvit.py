"""LocalViT's checkpoints in the authors' format (Li et al. 2021)."""

from keras_tfm.convert.keymap import CONVOLVED, batch_norm, depthwise_kernel, linear, weight
from keras_tfm.convert.variant import attention_rows, embedding_rows
from keras_tfm.models import LocalViT, LocalViTConfig
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.variant import fields_of, read_as

# {their number of an activation: (its name, whether squeeze-and-excitation follows)}
ACTIVATIONS = {1: ("relu6", False), 2: ("hard_swish", False), 3: ("hard_swish", True)}


def rows(config):
    """The table of a configuration; theirs numbers all layers of a sequence, with and without weights."""
    ours, theirs = "block_{}/feedforward/layer/branch", "blocks.{}.conv.conv"
    output = 6 if config.reduction is None else 7
    table = [*embedding_rows(config), *attention_rows()]
    for name, number in (("layer_0", 0), ("layer_1", 3), ("output", output)):
        transform = depthwise_kernel() if number == 3 else CONVOLVED
        kernel = f"{ours}/{name}/convolution/kernel"
        table += weight(kernel, f"{theirs}.{number}.weight", transform)
        table += batch_norm(f"{ours}/{name}/norm", f"{theirs}.{number + 1}")
    for name, number in (("hidden", 0), ("gate", 2)):
        table += linear(f"{ours}/excitation/{name}", f"{theirs}.6.fc.{number}")
    return table


def config_of(arguments):
    """Our configuration for their constructor's arguments; CheckpointError for an activation of others."""
    if arguments["act"] not in ACTIVATIONS:
        known = ", ".join(map(str, ACTIVATIONS))
        raise CheckpointError("LocalViT", "act", f"one of {known}", f"{arguments['act']}")
    activation, is_gated = ACTIVATIONS[arguments["act"]]
    reduction = arguments.get("reduction", 4) if is_gated else None
    return LocalViTConfig(**fields_of(arguments), activation=activation, reduction=reduction)


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs by their names."""
    config = config_of(arguments)
    return read_as(LocalViT, config, arguments["num_classes"], weights, rows(config))
