"""Arguments of constructors and maps of stages, for the readers beside this file."""

import numpy as np
from keras import ops

from keras_tfm.training.safetensors import CheckpointError


def fields_of(arguments, names):
    """{our field: value} for the `arguments` of a constructor, by `names`, {their argument: our field}.

    The number of classes belongs to the head and is left out. Raises CheckpointError for other arguments.
    """
    check_arguments(arguments, {*names, "num_classes"})
    return {names[name]: value for name, value in arguments.items() if name in names}


def as_sequences(maps):
    """The maps of the stages as sequences (B, N, D): {"features/stage_0": ...}."""
    shapes = [(-1, x.shape[1] * x.shape[2], x.shape[3]) for x in maps]
    sequences = enumerate(map(ops.reshape, maps, shapes))
    return {f"features/stage_{i}": x for i, x in sequences}


def check_arguments(arguments, known, path="timm"):
    """Raise CheckpointError, naming them, for `arguments` of a reference's constructor that are not known."""
    if unknown := arguments.keys() - {*known}:
        expected, got = ", ".join(sorted(known)), ", ".join(sorted(unknown))
        raise CheckpointError(path, None, f"arguments out of {expected}", got)


def in_order(weights, order, reads, writes):
    """The `weights` of layers between which D channels flow, with the channels in this `order`.

    D is the last axis of weights whose names end with one of `reads`, and the first of `writes`.
    """
    weights = {key: x[..., order] if key.endswith(reads) else x for key, x in weights.items()}
    return {key: x[order] if key.endswith(writes) else x for key, x in weights.items()}


def rows_before_channels(num_channels, side):
    """The order that changes (channel, row, column) to (row, column, channel) in a patch of this `side`."""
    return np.arange(num_channels * side**2).reshape(num_channels, side, side).transpose(1, 2, 0).ravel()
