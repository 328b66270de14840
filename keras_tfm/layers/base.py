"""The base of every layer here: a constructor's arguments are the layer's configuration."""

import contextlib
import inspect

import keras
from keras import ops

from keras_tfm.layers.masks import key_mask_of

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"keras_tfm runs on Keras's TensorFlow backend; Keras is set to {keras.backend.backend()!r}. "
        "Set the environment variable KERAS_BACKEND=tensorflow before importing keras."
    )


class Layer(keras.layers.Layer):
    """A `keras.layers.Layer` whose configuration is its constructor's arguments.

    One convention serves all: each argument is kept as the attribute of the same name. Arguments
    may be layers themselves (a position, a norm), so what differs enters by composition and still
    survives `get_config`, cloning and a `.keras` file. Subclasses are registered for loading.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        keras.saving.register_keras_serializable(package=cls.__module__.partition(".")[0])(cls)

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def get_config(self):
        config = super().get_config()
        for name, parameter in inspect.signature(type(self).__init__).parameters.items():
            if name == "self" or parameter.kind is parameter.VAR_KEYWORD:
                continue
            value = getattr(self, name)
            is_plain = value is None or isinstance(value, str | int | float | list | tuple)
            config[name] = value if is_plain else keras.saving.serialize_keras_object(value)
            if not is_plain:
                config[name].pop("build_config", None)  # an argument is built where it is used
        return config

    @classmethod
    def from_config(cls, config):
        """Rebuild a layer, and the layers among its arguments, from `get_config`'s dictionary."""
        return cls(
            **{
                name: keras.saving.deserialize_keras_object(value)
                if isinstance(value, dict) and "class_name" in value
                else value
                for name, value in config.items()
            }
        )

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """Keras's, under a `keras.RematScope`, mended where TensorFlow would refuse or spoil it.

        TensorFlow recomputes functions of floating-point tensors alone, given by position and without
        their masks; what is recomputed must draw the same dropout, and nothing within it be recomputed
        once more.
        """
        if self._remat_mode.mode == "activations":
            return layer_call  # they are those of the layers within
        for layer in self._flatten_layers(include_self=False):
            layer._remat_mode = None
        arguments = inspect.signature(layer_call).bind(*args, **kwargs).arguments
        names = [
            name
            for name, x in arguments.items()
            if ops.is_tensor(x) and keras.backend.is_float_dtype(x.dtype)
        ]
        generators = [generator for layer in self._flatten_layers() for generator in layer._seed_generators]
        draws: list = []

        def call(*tensors):
            given = dict(zip(names, tensors, strict=True))
            for name, x in given.items():
                x._keras_mask = key_mask_of(arguments[name])
            with _drawn_once(generators, draws):
                return layer_call(**{**arguments, **given})

        call = super().rematerialized_call(call, *args, **kwargs)
        return lambda *args, **kwargs: call(*(arguments[name] for name in names))


@contextlib.contextmanager
def _drawn_once(generators, draws):
    """What the seed generators draw within: put into `draws` at first, later given again from there."""
    again = iter(draws) if draws else None

    def drawing(draw):
        def draw_once(*args, **kwargs):
            if again is not None:
                return next(again)
            draws.append(draw(*args, **kwargs))
            return draws[-1]

        return draw_once

    own = [vars(generator).get("next") for generator in generators]  # on a replica a draw of its own
    for generator in generators:
        generator.next = drawing(generator.next)
    try:
        yield
    finally:
        for generator, draw in zip(generators, own, strict=True):
            if draw is None:
                del generator.next
            else:
                generator.next = draw


def own(initializer):
    """`initializer` for one more weight: Keras's give the same numbers at every call, a copy its own.

    Strings come back as they are (each use makes a new one), and a copy of a seeded one repeats its seed.
    """
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer


def clone(layer, name=None, **changes):
    """A new layer of the same configuration but for `changes`, with weights of its own, called `name`."""
    config = layer.get_config()
    return type(layer).from_config({**config, "name": name or layer.name, **changes})
