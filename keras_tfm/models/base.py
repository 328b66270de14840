"""The base class of all model families: a configuration, a table of sizes, and blocks that are nodes of the
graph.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from keras_tfm.configs import Config, meant
from keras_tfm.precision import default_policy, layers_follow, quantize_parts, quantized_parts_of
from keras_tfm.registry import register
from keras_tfm.training.model import FunctionalModel

OUTSIDE: dict[str, Any] = {}  # {name: class} of the families that other packages have defined so far


class ConfiguredModel(FunctionalModel):
    """A family's functional model, made from a `config`, with a table of published sizes. Abstract.

    A family sets `config_class` and `sizes`, {name: configuration}, and makes its inputs and outputs in
    `__init__(config)`. `dtype` is the dtype policy of the model and of all its layers.

    `blocks` are {stack: its blocks, the first one first}. `hidden_states` are {stack: [the input of the
    first block, the output of each application of a block]}, and {} of recurrent models: symbolic tensors,
    from which a user can make `keras_tfm.Model(model.input, ...)`.
    """

    config_class: type[Config]
    sizes: dict = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.__module__.partition(".")[0] != "keras_tfm":
            OUTSIDE[cls.__name__] = cls
        layers_follow(register(cls), lambda *_, **__: None)

    def __init__(self, config, inputs, outputs, blocks, hidden_states, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.config = config
        self.stacks = blocks
        self.hidden_states = hidden_states

    @property
    def blocks(self):
        """{stack: its blocks, the first one first}."""
        return self.stacks

    @classmethod
    def from_huggingface(cls, name, dtype=None):
        """The model in a folder with config.json and safetensors files, or of a hub id; a head is left out.

        Raises CheckpointError if the folder does not hold what is expected.
        """
        from keras_tfm.convert import CheckpointError, from_huggingface

        with default_policy(dtype):
            model = from_huggingface(name, with_head=False)
        if not isinstance(model, cls):
            raise CheckpointError(name, "model_type", f"a {cls.__name__}", f"a {type(model).__name__}")
        return model

    def save_huggingface(self, folder, overwrite=False):
        """Write config.json and model.safetensors to a new `folder`, for `transformers` to read."""
        from keras_tfm.convert import save_huggingface

        save_huggingface(self, folder, overwrite)

    @classmethod
    def from_size(cls, size, dtype=None, **changes):
        """A model of a published size with new weights; `changes` replace fields of its configuration.

        Raises ValueError for an unknown size or field, naming the known ones, and for an impossible value.
        """
        make: Callable = cls  # mypy: a family's constructor takes only a configuration
        return make(cls.config_of_size(size, **changes), dtype=dtype)

    @classmethod
    def config_of_size(cls, size, **changes):
        """The configuration of the model that `from_size` makes."""
        if size not in cls.sizes:
            raise ValueError(
                f"{cls.__name__} has no size {size!r}{meant(size, cls.sizes)}; it has {', '.join(cls.sizes)}."
            )
        return cls.config_class.from_json(dataclasses.asdict(cls.sizes[size]) | changes)

    def get_config(self):
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        config = {"config": dataclasses.asdict(self.config), "name": self.name, "dtype": dtype}
        parts = quantized_parts_of(self)
        return config | ({"quantized_parts": parts} if parts else {})

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Rebuild the model from `get_config`'s dictionary."""
        make: Callable = cls
        config_class = cls.config_class
        model = make(config_class.from_json(config["config"]), name=config["name"], dtype=config["dtype"])
        quantize_parts(model, config.get("quantized_parts", {}))
        return model


def states_of(blocks, x, **arguments):
    """The input `x` of the first of `blocks`, and the output of each, when they are applied in a row."""
    states = [x]
    for block in blocks:
        states.append(block(states[-1], **arguments))
    return states


def run_stages(stages, x):
    """Apply the stages of a pyramid, lists of layers, to `x`: (all blocks, hidden states, maps).

    The hidden states are the input of the first block and the output of each block, the maps the output of
    each stage.
    """
    blocks: list = []
    states, maps = [], []
    for layers in stages:
        for layer in layers:
            is_block = getattr(layer, "is_block", False)
            if is_block:
                states += [] if blocks else [x]
                blocks.append(layer)
            x = layer(x)
            states += [x] if is_block else []
        maps.append(x)
    return blocks, states, maps


def growing_rates(rate, count):
    """`count` rates that grow linearly from 0 for the first block to `rate` for the last.

    Stochastic depth uses such rates (Huang et al. 2016, "Deep Networks with Stochastic Depth").
    """
    return [rate * i / max(count - 1, 1) for i in range(count)]


def check_stages(config, *names):
    """Raises ValueError unless the configuration's fields `names` have one number per stage, for at least
    one.
    """
    values = [getattr(config, name) for name in names]
    if not values[0] or len({len(value) for value in values}) > 1:
        *listed, last = (f"`{name}`" for name in names)
        numbers = ", ".join(map(str, values))
        raise ValueError(
            f"{', '.join(listed)} and {last} must have a number for each stage; they are {numbers}."
        )
