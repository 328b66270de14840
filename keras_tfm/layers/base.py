"""The base of every layer here: a constructor's arguments are the layer's configuration."""

import dataclasses
import inspect
import re

import keras

from keras_tfm.layers.rematerialization import recomputed
from keras_tfm.precision import has_own_policy, parts_follow
from keras_tfm.private.keras import to_snake_case
from keras_tfm.registry import register

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"keras_tfm runs on Keras's TensorFlow backend; Keras is set to {keras.backend.backend()!r}. "
        "Set the environment variable KERAS_BACKEND=tensorflow before importing keras."
    )


class Layer(keras.layers.Layer):
    """A `keras.layers.Layer` whose configuration is its constructor's arguments.

    One convention serves all: each argument is kept as the attribute of the same name. Arguments
    may be layers themselves (a position, a norm), alone or in lists and dicts, so what differs enters by
    composition and still survives `get_config`, cloning and a `.keras` file. Layers that are made for
    this one, or given to it, have its dtype policy, unless they were made with a dtype of their own, and are
    called by the attribute that holds them, unless they were made with a name: weights are kept by paths.
    Subclasses are registered for loading.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        parts_follow(register(cls))

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.has_own_policy = kwargs.get("dtype") is not None
        self.supports_masking = True

    def __setattr__(self, name, value):
        if isinstance(value, keras.layers.Layer) and not value.built and has_automatic_name(value):
            value.name = name
        super().__setattr__(name, value)

    def get_config(self):
        config = super().get_config()
        for name, parameter in inspect.signature(type(self).__init__).parameters.items():
            if name != "self" and parameter.kind is not parameter.VAR_KEYWORD:
                config[name] = self._configuration_of(getattr(self, name))
        return config

    def _configuration_of(self, value):
        """An argument as `get_config` keeps it."""
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
        return cls(**{name: _argument_of(value) for name, value in config.items()})

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """What Keras calls in place of `call` for a layer that recomputes."""
        return recomputed(self, super().rematerialized_call, layer_call, *args, **kwargs)


def has_automatic_name(layer):
    """Whether Keras named `layer`, by its class and a number, because nobody else did."""
    return bool(re.fullmatch(to_snake_case(type(layer).__name__) + r"(_\d+)?", layer.name))


def own(initializer):
    """`initializer` for one more weight: Keras's give the same numbers at every call, a copy its own.

    Strings come back as they are (each use makes a new one), and a copy of a seeded one repeats its seed.
    """
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer


class Pattern:
    """A layer's class and configuration, to make layers like it: it is itself no part of anything."""

    def __init__(self, layer):
        self.layer_class = type(layer)
        self.config = _serialized(layer, keras.config.dtype_policy())

    def new(self, name, **changes):
        """A layer of this configuration but for `changes`, with weights of its own, called `name`."""
        return self.layer_class.from_config({**self.config["config"], "name": name, **changes})


def pattern(layer):
    """The `Pattern` of a layer; None and booleans, which stand for a default, as they are."""
    return layer if layer is None or isinstance(layer, bool) else Pattern(layer)


def _serialized(value, default):
    """What Keras keeps of `value`; of a layer neither where it was built, nor the dtype policy `default`.

    Unless it was made with a dtype, it has the policy of the layer that it becomes a part of.
    """
    config = keras.saving.serialize_keras_object(value)
    if isinstance(value, keras.layers.Layer):
        config.pop("build_config", None)  # an argument is built where it is used
        if not has_own_policy(value, default):
            config["config"].pop("dtype", None)
    return config


def _argument_of(value):
    """The argument that `get_config` kept as `value`."""
    if isinstance(value, list | tuple):
        return type(value)(map(_argument_of, value))
    if not isinstance(value, dict):
        return value
    if "class_name" in value:
        return keras.saving.deserialize_keras_object(value)
    return {key: _argument_of(part) for key, part in value.items()}
