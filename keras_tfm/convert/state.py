"""A whole PyTorch state becomes a model's weights, or nothing does."""

from keras_tfm.convert.keymap import load
from keras_tfm.training.safetensors import CheckpointError


def read_state(model, weights, rows, ignored=(), path="the state"):
    """Set the weights of `model` from `weights` ({key: array}) by `rows`.

    CheckpointError where one is missing, or left over and not in `ignored`.
    """
    read = load(model, weights, rows, path)
    for key in sorted(weights.keys() - read - {*ignored}):
        raise CheckpointError(path, key, "no such weight", f"one of shape {weights[key].shape}")


def check_arguments(arguments, known, path="timm"):
    """Refuse `arguments` of a reference's constructor whose meaning a family does not know.

    CheckpointError names them.
    """
    if unknown := arguments.keys() - {*known}:
        expected, got = ", ".join(sorted(known)), ", ".join(sorted(unknown))
        raise CheckpointError(path, None, f"arguments out of {expected}", got)
