"""The one place where attention weights pass, between the softmax and the values.

Every attention layer hands its weights to `tap`, after the layers that change them and before dropout. Where
nobody records that is a look at an empty list: compiled code is the same as without it.
"""

import contextlib

recorders: list = []


def tap(layer, weights):
    """Hand the `weights` (B, H, T, S) of `layer` to all who record."""
    for record in recorders:
        record(layer, weights)


def is_recorded():
    """Whether anybody records, so that weights have to exist as a whole."""
    return bool(recorders)


@contextlib.contextmanager
def recording(record):
    """Call `record(layer, weights)` for all attention weights that are computed within."""
    recorders.append(record)
    try:
        yield
    finally:
        recorders.remove(record)
