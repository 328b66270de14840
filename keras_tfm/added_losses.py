"""The losses that layers add while they are called, collected so that a compiled or recomputed function
returns them.
"""

import contextlib

from keras_tfm.private.keras import layers_in


@contextlib.contextmanager
def added_losses(layer):
    """Within this context, a list of what `layer` and its sub-layers pass to `add_loss`; they keep none of
    it.
    """
    losses: list = []
    attributes = [vars(one) for one in layers_in(layer)]
    outer = [own.get("add_loss") for own in attributes]  # set where contexts are nested
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
