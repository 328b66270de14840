"""Arguments of constructors and maps of stages, for the readers beside this file."""

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
