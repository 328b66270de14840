"""The one place where attention weights pass, between the softmax and the values.

Every attention layer hands its weights to `tap`, after the layers that change them and before dropout; layers
whose scores are products also hand on their queries and keys. Where nobody records that is a look at an empty
list: compiled code is the same as without it.
"""

import contextlib

recorders: list = []


def tap(layer, value, stage="weights"):
    """Hand what `layer` computed to all who record this stage.

    "weights" are (B, H, T, S); "products" are the queries (B, H, T, K), the keys (B, H, S, K) and the number
    that multiplies their products.
    """
    for record, recorded_stage in recorders:
        if stage == recorded_stage:
            record(layer, value)


def is_recorded():
    """Whether anybody records, so that weights have to exist as a whole."""
    return bool(recorders)


@contextlib.contextmanager
def recording(record, stage="weights"):
    """Call `record(layer, value)` for all that attention layers compute at this `stage` within."""
    recorders.append((record, stage))
    try:
        yield
    finally:
        recorders.remove((record, stage))
