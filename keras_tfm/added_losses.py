"""Losses that layers add while they are called, as values that a compiled or recomputed function returns."""

import contextlib

from keras_tfm.private.keras import layers_in


@contextlib.contextmanager
def added_losses(layer):
    """The list of what `layer`, and all within it, give to `add_loss` meanwhile; nothing is kept in them."""
    losses: list = []
    attributes = [vars(one) for one in layers_in(layer)]
    outer = [own.get("add_loss") for own in attributes]  # of a function around this one
    for own in attributes:
        own["add_loss"] = losses.append
    try:
        yield losses
    finally:
        for own, add_loss in zip(attributes, outer, strict=True):
            if add_loss is None:
                del own["add_loss"]
            else:
                own["add_loss"] = add_loss
