"""Decoding as two functions of tensors, which a loop outside TensorFlow calls.

    start   a context -> keys and values of cross-attention, first states
    step    tokens, the entries so far, what `start` gave -> logits, the entries of these tokens, new states

Tensors have names. The entries of self-attention are inputs `past_00`, `past_01`, ... (R, H, S, K), which are
only read, and outputs `new_00`, ... (R, H, T, K): the loop writes these into its arrays, and no cache is
copied. The tensors of contexts are `context_00`, ..., and states that each step replaces `state_00`, ...
"""

from typing import Any

import keras
from keras import ops

from keras_tfm.layers.cache import ContextCache, KeyValueCache, PastCache, PositionCache


class Stepwise:
    """The functions `start` and `step` of a `LanguageModel`, or of another `model` with a `backbone` and a
    `head`.

    `context` is an example of what the model's own `start` takes, with one row; None for a model of prompts
    alone. `entries` are the (H, K) of each past tensor; `contexts` and `states` are {name: (dtype, shape)},
    the rows and the length of a context None; `context_length` is the length of the example.

    Raises:
        ValueError: if the model computes in another precision than float32.

    >>> model = keras_tfm.heads.LanguageModel(keras_tfm.models.GPT2.from_size("tiny", vocabulary_size=50))
    >>> stepwise = keras_tfm.generation.Stepwise(model)
    >>> stepwise.entries[0]
    (4, 32)
    """

    def __init__(self, model: Any, context: Any = None) -> None:
        if model.compute_dtype != "float32":
            raise ValueError(f"A model is exported in float32; it computes in {model.compute_dtype}.")
        self.model = model
        self.cache = model.start(1, 1, context)
        tensors = _Collect()
        _replace(self.cache, tensors)
        self.entries = tensors.entries
        self.contexts = {name: _kind(x, _length_axis(x)) for name, x in tensors.contexts.items()}
        self.context_length = max((x.shape[_length_axis(x)] for x in tensors.contexts.values()), default=0)
        self.states = {name: _kind(x) for name, x in tensors.states.items()}

    def start(self, context: Any) -> dict[str, Any]:
        """The tensors of the context and the first states, {name: tensor}, of B rows."""
        tensors = _Collect()
        _replace(self.model.start(ops.shape(next(iter(context.values())))[0], 1, context), tensors)
        return tensors.contexts | tensors.states

    def step(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The logits (R, V) after the last of T tokens, the `new` entries of all, and the states.

        Args:
            inputs: `token_ids` (R, T); `padding_mask` (R, T), False at padding, which stands in front;
                `visible` (R, S), which past entries a row may attend to; `index` (), how many positions were
                written before; and the `past`, `context` and `state` tensors. Contexts may have fewer rows:
                R / B neighbouring rows share one.
        """
        mask = ops.cast(inputs["padding_mask"], "bool")
        hidden, cache = self.model.backbone.step(
            inputs["token_ids"], _replace(self.cache, _Given(inputs)), mask
        )
        tensors = _Collect()
        _replace(cache, tensors)
        logits = ops.cast(self.model.head(hidden[:, -1:]), "float32")
        return {"logits": logits[:, 0]} | tensors.new | tensors.states


def _length_axis(x):
    """The axis of positions in keys and values (B, H, S, K) or (B, S, K) of a context, or its mask (B, S)."""
    return max(1, len(x.shape) - 2)


def _kind(x, length_axis=0):
    """The dtype and the shape of an example, whose rows and length may be any."""
    shape = [None if axis in (0, length_axis) else size for axis, size in enumerate(x.shape)]
    return keras.backend.standardize_dtype(x.dtype), shape


def _replace(cache, by):
    """The structure of `cache` with all tensors replaced `by` an object's methods."""
    if isinstance(cache, KeyValueCache | PastCache):
        return by.past(cache)
    if isinstance(cache, PositionCache):
        return by.position(cache)
    if isinstance(cache, ContextCache):
        return ContextCache(*map(by.context, cache))
    if isinstance(cache, tuple | list):
        parts = [_replace(part, by) for part in cache]
        return type(cache)(*parts) if hasattr(cache, "_fields") else type(cache)(parts)
    return by.state(cache)


class _Collect:
    """Names what a cache holds."""

    def __init__(self):
        self.entries, self.new, self.contexts, self.states = [], {}, {}, {}
        self._known = {}  # blocks share the mask of a context

    def past(self, cache):
        if isinstance(cache, KeyValueCache):
            self.entries += [(x.shape[0], x.shape[2]) for x in (cache.key, cache.value)]
        for x in getattr(cache, "new", ()):
            self.new[f"new_{len(self.new):02}"] = x
        return cache

    def position(self, cache):
        return cache

    def context(self, x):
        if id(x) not in self._known:
            self._known[id(x)] = x
            self.contexts[f"context_{len(self.contexts):02}"] = x
        return x

    def state(self, x):
        self.states[f"state_{len(self.states):02}"] = x
        return x


class _Given:
    """Puts the inputs of a step where a cache has its tensors."""

    def __init__(self, inputs):
        self._inputs = inputs
        self._counts = {"past": 0, "context": 0, "state": 0}
        self._known = {}

    def _next(self, kind):
        number = self._counts[kind]
        self._counts[kind] += 1
        return self._inputs[f"{kind}_{number:02}"]

    def past(self, cache):
        visible = ops.cast(self._inputs["visible"], "bool")
        return PastCache(self._next("past"), self._next("past"), visible, self._inputs["index"])

    def position(self, cache):
        index, visible = self._inputs["index"], ops.cast(self._inputs["visible"], "int32")
        return PositionCache(index, index - ops.sum(visible, axis=1))

    def context(self, x):
        if id(x) not in self._known:
            self._known[id(x)] = self._next("context")
        return self._known[id(x)]

    def state(self, x):
        return self._next("state")
