"""The losses that layers add while they are called, collected so that a compiled or recomputed function
returns them.
"""

import collections
import contextlib
import threading
from typing import Any

from keras_tfm.private.keras import layers_in

# Replicas call one model in turns, each in its own thread, and one that waits is inside its context still.
_of_this_thread = threading.local()
_contexts: collections.Counter[int] = collections.Counter()  # that are open, by the identity of a layer


@contextlib.contextmanager
def added_losses(layer):
    """Within this context, a list of what `layer` and its sub-layers pass to `add_loss` in this thread; they
    keep none of it.
    """
    lists = vars(_of_this_thread).setdefault("lists", [])
    losses: list = []
    lists.append(losses)
    layers = list(layers_in(layer))
    for one in layers:
        _contexts[id(one)] += 1
        vars(one)["add_loss"] = _add
    try:
        yield losses
    finally:
        lists.pop()
        for one in layers:
            _contexts[id(one)] -= 1
            if not _contexts[id(one)]:
                del _contexts[id(one)], vars(one)["add_loss"]


def _add(loss: Any) -> None:
    """Append to the list of this thread's innermost context."""
    _of_this_thread.lists[-1].append(loss)
