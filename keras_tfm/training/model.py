"""`keras_tfm.Model`, the `keras.Model` that every model here derives from."""

import dataclasses
from collections.abc import Callable

import keras
from keras import ops

from keras_tfm.configs import Config
from keras_tfm.precision import default_policy, layers_follow
from keras_tfm.private.keras import Functional, functional_init_arguments
from keras_tfm.registry import register
from keras_tfm.training.exact import ExactTrainer


class Model(ExactTrainer, keras.Model):
    """A `keras.Model`, functional (`Model(inputs, outputs)`) or subclassed, in any order.

    Keras rewrites the bases of a class at its first functional use, which would spoil `Model` for
    those who subclass it later; here a functional model is of a class of its own instead.
    """

    def __new__(cls, *args, **kwargs):
        if cls is Model and functional_init_arguments(args, kwargs):
            cls = FunctionalModel
        return super().__new__(cls)

    def __init__(self, *args, **kwargs):
        if functional_init_arguments(args, kwargs) and not isinstance(self, Functional):
            _derive_from_functional(type(self))
        super().__init__(*args, **kwargs)

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """As it is: in a `keras.RematScope` its layers recompute, each for itself."""
        return layer_call


@register
class FunctionalModel(Model, Functional):
    """A `Model` made of `inputs` and `outputs`.

    A batch is a dict by input name, or the bare array of a single input; what it leaves out is
    filled: a `...padding_mask` with ones, `...segment_ids` with zeros, `mask_positions` with all of them.
    Unknown names raise.
    """

    def __call__(self, inputs, *args, **kwargs):
        return super().__call__(self._complete(inputs), *args, **kwargs)

    def _complete(self, inputs):
        expected = self._inputs_struct
        if not isinstance(expected, dict):
            return inputs
        if len(expected) == 1 and not isinstance(inputs, dict | list | tuple):
            return dict.fromkeys(expected, inputs)
        if not isinstance(inputs, dict):
            return inputs
        unknown = sorted(set(inputs) - set(expected))
        if unknown:
            raise ValueError(f"{self.name!r} takes {', '.join(expected)}; it was given {', '.join(unknown)}.")
        # Token ids first: an error names them, not the mask that cannot be made without.
        missing = sorted(expected.keys() - inputs.keys(), key=lambda name: ("token_ids" not in name, name))
        if not missing:
            return inputs
        inputs = {name: x if is_symbolic(x) else ops.convert_to_tensor(x) for name, x in inputs.items()}
        return inputs | {name: self._fill(name, inputs) for name in missing}

    def _fill(self, name, inputs):
        """What stands for the input `name` that was left out of `inputs`."""
        for suffix, fill in (
            ("padding_mask", ops.ones_like),
            ("segment_ids", ops.zeros_like),
            ("mask_positions", every_position),
        ):
            token_ids = inputs.get(name.removesuffix(suffix) + "token_ids")
            if name.endswith(suffix) and token_ids is not None:
                return ops.cast(fill(token_ids), self._inputs_struct[name].dtype)
        raise ValueError(f"{self.name!r} needs {name!r}; it was given {', '.join(inputs) or 'nothing'}.")


def every_position(token_ids):
    """0 .. T-1 for each row of (B, T)."""
    return ops.cumsum(ops.ones_like(token_ids), axis=1) - 1


def is_symbolic(x):
    """Whether `x` stands for a tensor in a functional model that is being made."""
    return isinstance(x, keras.KerasTensor)


def _derive_from_functional(cls):
    """Replace `Model` by `FunctionalModel` among the ancestors of a user's class."""
    for ancestor in cls.__mro__:
        if Model in ancestor.__bases__ and ancestor is not FunctionalModel:
            ancestor.__bases__ = tuple(
                FunctionalModel if base is Model else base for base in ancestor.__bases__
            )


class ConfiguredModel(FunctionalModel):
    """A family's functional model: a `config` derived from `Config`, and a table of published sizes.

    A family sets `config_class` and `sizes`, {name: config}, and builds its inputs and outputs in
    `__init__(config)`. A `dtype` is the policy of the model and of all its layers.
    """

    config_class: type[Config]
    sizes: dict = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        layers_follow(register(cls), lambda *_, **__: None)

    def __init__(self, config, inputs, outputs, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.config = config

    @classmethod
    def from_huggingface(cls, name, dtype=None):
        """The model in a folder of config.json and safetensors, or of a hub id; a head is left behind.

        Raises CheckpointError where something in it is not as it must be.
        """
        from keras_tfm.convert import CheckpointError, from_huggingface

        with default_policy(dtype):
            model = from_huggingface(name, with_head=False)
        if not isinstance(model, cls):
            raise CheckpointError(name, "model_type", f"a {cls.__name__}", f"a {type(model).__name__}")
        return model

    def save_huggingface(self, folder, overwrite=False):
        """Write config.json and model.safetensors to a new `folder`, as `transformers` reads them."""
        from keras_tfm.convert import save_huggingface

        save_huggingface(self, folder, overwrite)

    @classmethod
    def from_size(cls, size, dtype=None, **changes):
        """The model of a published size, with fields of its configuration changed.

        Raises ValueError, naming the known ones, for another size or field, and for a value that is none.
        """
        make: Callable = cls  # a family's constructor takes its configuration, not inputs and outputs
        return make(cls.config_of_size(size, **changes), dtype=dtype)

    @classmethod
    def config_of_size(cls, size, **changes):
        """The configuration of `from_size`'s model."""
        if size not in cls.sizes:
            raise ValueError(f"{cls.__name__} has no size {size!r}; it has {', '.join(cls.sizes)}.")
        return cls.config_class.from_json(dataclasses.asdict(cls.sizes[size]) | changes)

    def get_config(self):
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        return {"config": dataclasses.asdict(self.config), "name": self.name, "dtype": dtype}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Rebuild the model from `get_config`'s dictionary."""
        make: Callable = cls
        config_class = cls.config_class
        return make(config_class.from_json(config["config"]), name=config["name"], dtype=config["dtype"])
