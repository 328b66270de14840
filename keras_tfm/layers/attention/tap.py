"""The one place where attention layers hand out what they computed, for those who record it.

Every attention layer passes its weights to `tap`, before dropout and after any layers on the weights. Layers
whose scores are dot products pass their queries and keys too. While nobody records, `tap` loops over an
empty list, so compiled code does not change.
"""

import contextlib
import threading

recorders: list = []


def tap(layer, value, stage="weights"):
    """Pass `value`, which `layer` computed, to everybody who records this `stage`.

    At the stage "weights" the value is (B, H, T, S). At "products" it is the queries (B, H, T, K), the keys
    (B, H, S, K), or (B H, S, K) while decoding, and the scale of their dot products.
    """
    for record, *recorded in recorders:
        if recorded == [stage, threading.get_ident()]:
            record(layer, value)


def is_recorded():
    """Whether anybody records, in which case the weights have to be computed as a whole."""
    return bool(recorders)


@contextlib.contextmanager
def recording(record, stage="weights"):
    """Within this context, call `record(layer, value)` for all that attention layers compute in this thread
    at this `stage`.
    """
    recorder = record, stage, threading.get_ident()
    recorders.append(recorder)
    try:
        yield
    finally:
        recorders.remove(recorder)
