"""A whole PyTorch state becomes a model's weights, or nothing does."""

from keras import ops

from keras_tfm.convert.keymap import load
from keras_tfm.training.safetensors import CheckpointError


def fields_of(arguments, names):
    """{our field: value} of a timm constructor's `arguments`, by `names`, {their argument: our field}.

    The number of classes, a head's, is left out. CheckpointError for arguments that `names` lack.
    """
    check_arguments(arguments, {*names, "num_classes"})
    return {names[name]: value for name, value in arguments.items() if name in names}


def read_state(model, weights, rows, ignored=(), path="the state"):
    """Set the weights of `model` from `weights` ({key: array}) by `rows`.

    CheckpointError where one is missing, or left over and not in `ignored`.
    """
    read = load(model, weights, rows, path)
    for key in sorted(weights.keys() - read - {*ignored}):
        raise CheckpointError(path, key, "no such weight", f"one of shape {weights[key].shape}")


def as_sequences(maps):
    """A map of each stage, as a sequence (B, N, D): {"features/stage_0": ...}."""
    shapes = [(-1, x.shape[1] * x.shape[2], x.shape[3]) for x in maps]
    sequences = enumerate(map(ops.reshape, maps, shapes))
    return {f"features/stage_{i}": x for i, x in sequences}


def check_arguments(arguments, known, path="timm"):
    """Refuse `arguments` of a reference's constructor whose meaning a family does not know.

    CheckpointError names them.
    """
    if unknown := arguments.keys() - {*known}:
        expected, got = ", ".join(sorted(known)), ", ".join(sorted(unknown))
        raise CheckpointError(path, None, f"arguments out of {expected}", got)
