"""Methods of objects that are replaced for a `with` block, such as `add_loss` of layers, whose losses a
compiled or recomputed function then returns.

Replicas call one model in turns, each in its own thread, and one that waits is inside its block still. So a
block replaces a method for its own thread alone.
"""

import collections
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from keras_tfm.private.keras import layers_in


@contextlib.contextmanager
def added_losses(layer: Any) -> Iterator[list]:
    """Within this context, a list of what `layer` and its sub-layers pass to `add_loss` in this thread; they
    keep none of it.
    """
    losses: list = []
    with replaced(layers_in(layer), "add_loss", lambda _: losses.append):
        yield losses


@contextlib.contextmanager
def replaced(objects: Iterable, name: str, make: Callable[[Callable], Callable]) -> Iterator[None]:
    """Within this context, and in this thread, the method `name` of each of the `objects` is
    `make(method)`.
    """
    objects, thread = list(objects), threading.get_ident()
    for one in objects:
        if not isinstance(vars(one).get(name), _ByThread):
            vars(one)[name] = _ByThread(one, name)
        methods = vars(one)[name].methods[thread]
        methods.append(make(methods[-1]))
    try:
        yield
    finally:
        for one in objects:
            vars(one)[name].leave(thread)


class _ByThread:
    """A method of which threads have replacements, each its own."""

    def __init__(self, one: Any, name: str) -> None:
        self.one, self.name, self.before = one, name, vars(one).get(name)
        method = getattr(one, name)
        self.methods: dict = collections.defaultdict(lambda: [method])  # {thread: the innermost comes last}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.methods[threading.get_ident()][-1](*args, **kwargs)

    def leave(self, thread: int) -> None:
        """Undo the last replacement of a thread, and of the last thread all of it."""
        self.methods[thread].pop()
        if all(len(methods) == 1 for methods in list(self.methods.values())):
            del vars(self.one)[self.name]
            if self.before is not None:  # an attribute of the object itself
                vars(self.one)[self.name] = self.before
