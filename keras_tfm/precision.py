"""Passes a layer's dtype policy on to its sub-layers, which are created without a dtype of their own, and
keeps the policies of sub-layers that were quantised afterwards. Names sub-layers by the attributes that hold
them.

It also keeps sub-layers of different layers apart while Keras loads a file: see `private.keras.making`.
"""

import contextlib
import functools
import inspect
import re

import keras

from keras_tfm.private.keras import (
    built_parts_kept,
    deleting_without_collections,
    layers_in,
    making,
    parts_of,
    to_snake_case,
)


@contextlib.contextmanager
def default_policy(policy):
    """Within this context, layers made without a dtype get the dtype policy `policy`; None changes
    nothing.
    """
    if policy is None:
        yield
        return
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(keras.dtype_policies.get(policy))
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def parts_follow(cls):
    """A class decorator that gives a layer's policy to the sub-layers that it is given, or makes in
    `__init__` or `build`, and names the sub-layers of `__init__`.

    A sub-layer keeps its policy if it was made with a dtype, or if it has weights already, such as an
    embedding that a head shares.
    """
    if "__init__" in vars(cls):
        cls.__init__ = _then_hand_on(cls.__init__)
    if "build" in vars(cls):
        cls.build = _under_own_policy(cls.build)
    return cls


def layers_follow(cls, default):
    """A class decorator for models: the argument `dtype` is the policy of the model and of the layers it
    makes.

    Without the argument, `default`, a function of the other arguments, gives the policy; None stands for
    Keras's own.
    """
    if "__init__" in vars(cls):
        cls.__init__ = _under_given_policy(cls.__init__, default)
    return cls


def has_own_policy(layer, default):
    """Whether `layer` was made with a dtype, where `default` was the policy of layers made without.

    Keras's own layers do not record it: they count as made with a dtype if their policy is not the default.
    """
    return getattr(layer, "has_own_policy", layer.dtype_policy != default)


def has_automatic_name(layer):
    """Whether the layer's name is Keras's default: its class's name in snake case, and perhaps a number."""
    return bool(re.fullmatch(to_snake_case(type(layer).__name__) + r"(_\d+)?", layer.name))


def quantized_parts_of(layer):
    """{path: how it was quantised} of the layers inside `layer` whose weights have fewer bits than their
    policy says, as JSON values for its configuration: the constructor would make these parts in floats.
    """
    return {
        _path_in(layer, part): {
            "mode": part.quantization_mode,
            "config": keras.saving.serialize_keras_object(getattr(part, "quantization_config", None)),
        }
        for part in layers_in(layer, include_self=False)
        if getattr(part, "quantization_mode", None) is not None
    }


def quantize_parts(layer, parts):
    """Quantise those layers inside `layer` that `quantized_parts_of` found, unless they are already; their
    weights are read afterwards.
    """
    if not parts:
        return
    with deleting_without_collections():
        for part in layers_in(layer, include_self=False):
            how = parts.get(_path_in(layer, part)) if part.built and hasattr(part, "quantize") else None
            if how is not None and part.quantization_mode is None:
                config = keras.saving.deserialize_keras_object(how["config"])
                part.quantize(how["mode"], config=config)


def _path_in(layer, part):
    """The path of a layer inside `layer`, under whatever name that is a part of others."""
    return (part.path or part.name).removeprefix(f"{layer.path}/")


def _under_given_policy(init, default):
    @_stands_for(init)
    def init_under_given_policy(self, *args, dtype=None, **kwargs):
        is_outermost = (
            type(self).__init__ is init_under_given_policy
        )  # a parent's __init__ runs inside its child's
        if dtype is None and is_outermost:
            dtype = default(*args, **kwargs)
        with default_policy(dtype), making():
            init(self, *args, **kwargs)

    return init_under_given_policy


def _stands_for(function):
    """`functools.wraps` for an `__init__` that keeps its signature, since Keras does not look through
    wrappers.
    """

    def decorator(wrapper):
        vars(wrapper)["__signature__"] = inspect.signature(function)
        return functools.wraps(function)(wrapper)

    return decorator


def _then_hand_on(init):
    @_stands_for(init)
    def init_and_hand_on(self, *args, **kwargs):
        with making():
            init(self, *args, **kwargs)
        for name, part in _parts_with_automatic_names(self):
            if not part.built:
                part.name = name
        _hand_on(self, keras.config.dtype_policy())

    return init_and_hand_on


def _under_own_policy(build):
    @functools.wraps(build)
    def build_under_own_policy(self, *args, **kwargs):
        before = {id(part) for part in vars(self).values()}
        with default_policy(self.dtype_policy), built_parts_kept(self):
            build(self, *args, **kwargs)
        for name, part in _parts_with_automatic_names(self):
            if id(part) not in before and part.name != name:
                raise ValueError(
                    f"`build` of {type(self).__name__} makes the part `{name}` with the automatic name "
                    f"{part.name!r}, under which weights would be saved; make it with name={name!r}."
                )
        quantize_parts(self, self.quantized_parts)

    return build_under_own_policy


def _parts_with_automatic_names(layer):
    """[(attribute, part)] of the parts that `layer` holds as attributes."""
    parts = [(name, x) for name, x in vars(layer).items() if isinstance(x, keras.layers.Layer)]
    return [(name, part) for name, part in parts if has_automatic_name(part)]


def _hand_on(layer, default):
    """Give the policy of `layer` to its sub-layers that were made without a dtype, and from them to theirs.

    `default` was the policy of layers made without one.
    """
    policy = layer.dtype_policy
    for part in parts_of(layer):
        held = part.dtype_policy
        if held != policy and not has_own_policy(part, default) and not part.weights:
            part.dtype_policy = policy
            _hand_on(part, held)
