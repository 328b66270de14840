"""The base class of all layers of this package: a layer's configuration is its constructor's arguments."""

import dataclasses
import inspect
import types
from collections.abc import Mapping
from typing import Any

import keras

from keras_tfm.layers.rematerialization import recomputed
from keras_tfm.precision import has_own_policy, parts_follow, quantized_parts_of
from keras_tfm.private.keras import shared_number
from keras_tfm.registry import register

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"keras_tfm runs on Keras's TensorFlow backend; Keras is set to {keras.backend.backend()!r}. "
        "Set the environment variable KERAS_BACKEND=tensorflow before importing keras."
    )


# Arguments of keras.layers.Layer. Keras returns them from get_config, but for the last two, which only size a
# Sequential.
OF_KERAS = {*inspect.signature(keras.layers.Layer.__init__).parameters, "input_shape", "input_dim"}


class Layer(keras.layers.Layer):
    """A `keras.layers.Layer` whose configuration is its constructor's arguments.

    A subclass keeps each constructor argument as the attribute of the same name; `get_config` and loading
    follow from that. An argument may itself be a layer (a position, a norm), alone or in a list or dict:
    variants are composed, not switched by flags, and still survive `get_config`, cloning and a `.keras`
    file.

    A layer that becomes an attribute of this one in `__init__` takes over two things: the dtype policy,
    unless it was made with a `dtype`, and the attribute's name, unless it was made with a `name`. Weights are
    saved under these names, so they are the same in every process; a part that `build` makes needs a `name`,
    or ValueError is raised. A part that is built already is not built again: it keeps what it has learnt, and
    several layers may share it. Subclasses are registered with Keras by themselves.

    >>> class Scale(keras_tfm.layers.Layer):
    ...     def __init__(self, factor, **kwargs):
    ...         super().__init__(**kwargs)
    ...         self.factor = factor
    >>> Scale(2.0).get_config()["factor"]
    2.0
    """

    # What `get_config` says of parts whose weights are in fewer bits; `build` quantises these.
    quantized_parts: Mapping[str, Any] = types.MappingProxyType({})

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        parts_follow(register(cls))

    def __new__(cls, *args: Any, **kwargs: Any) -> "Layer":
        layer = super().__new__(cls, *args, **kwargs)
        # Among them are arguments that a class hands on to the one it derives from, which keeps them.
        object.__setattr__(layer, "given", tuple(kwargs))
        return layer

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.has_own_policy = kwargs.get("dtype") is not None
        self.supports_masking = True

    def get_config(self):
        config = super().get_config()
        parameters = inspect.signature(type(self).__init__).parameters
        own = [x for x, kind in parameters.items() if x != "self" and kind.kind is not kind.VAR_KEYWORD]
        for name in (*own, *(x for x in self.given if x not in own and x not in OF_KERAS)):
            config[name] = self._configuration_of(getattr(self, name))
        if parts := quantized_parts_of(self):
            config["quantized_parts"] = parts
        return config

    def _configuration_of(self, value):
        """An argument's value in the form in which `get_config` returns it."""
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, Pattern):
            return value.config
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        if isinstance(value, list | tuple):
            parts = [self._configuration_of(part) for part in value]
            return tuple(parts) if isinstance(value, tuple) else parts
        if isinstance(value, dict):
            return {key: self._configuration_of(part) for key, part in value.items()}
        return _serialized(value, self.dtype_policy)

    @classmethod
    def from_config(cls, config):
        """Rebuild a layer, and the layers among its arguments, from `get_config`'s dictionary."""
        arguments = dict(config)
        parts = arguments.pop("quantized_parts", {})
        layer = cls(**{name: _argument_of(value) for name, value in arguments.items()})
        layer.quantized_parts = parts  # `build` quantises them
        return layer

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """Keras calls this in place of `call` where the layer recomputes its activations for the gradient."""
        return recomputed(self, super().rematerialized_call, layer_call, *args, **kwargs)


class SameShape(Layer):
    """A `Layer` whose output has the shape of its first input. Abstract."""

    def compute_output_shape(self, x_shape, *others, **more):
        return tuple(x_shape)


class WithoutMask(Layer):
    """A `Layer` whose output is no sequence like its first input, whose mask does not fit it. Abstract."""

    def compute_mask(self, x, previous_mask=None):
        return None


def require_sizes(**sizes):
    """Raises ValueError, naming the argument, for a size below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1; it is {size}.")


def copy_of(initializer):
    """A copy of `initializer`, for one weight.

    A Keras initializer object returns the same numbers at every call, so each weight needs a copy. A string
    is returned as it is: Keras makes a new object from it each time. A copy of a seeded initializer keeps
    the seed.
    """
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer


class Pattern:
    """A layer's class and configuration, from which layers like it are made.

    A layer kept in a `Pattern` is not tracked as a sub-layer, so it has no weights of its own in the model.
    """

    def __init__(self, layer):
        self.layer_class = type(layer)
        self.config = _serialized(layer, keras.config.dtype_policy())

    def new(self, name, **changes):
        """A new layer called `name` with this configuration, except for `changes`."""
        return self.layer_class.from_config({**self.config["config"], "name": name, **changes})


def pattern(layer):
    """The `Pattern` of a layer; None and booleans, which stand for a default, are returned as they are."""
    return layer if layer is None or isinstance(layer, bool) else Pattern(layer)


def _serialized(value, default):
    """Keras's configuration of `value`, without what a layer takes over from the layer that it is a part of.

    That is the shape it was built with, and its dtype policy where that is the `default`.
    """
    config = keras.saving.serialize_keras_object(value)
    if isinstance(value, keras.layers.Layer):
        config.pop("build_config", None)  # an argument is built where it is used
        config |= shared_number(value)  # Keras's own entry is lost in a copy of this dictionary
        if not has_own_policy(value, default):
            config["config"].pop("dtype", None)
    return config


def _argument_of(value):
    """The constructor argument that `_configuration_of` turned into `value`."""
    if isinstance(value, list | tuple):
        return type(value)(map(_argument_of, value))
    if not isinstance(value, dict):
        return value
    if "class_name" in value:
        return keras.saving.deserialize_keras_object(value)
    return {key: _argument_of(part) for key, part in value.items()}
