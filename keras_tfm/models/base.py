"""The base of all families: a configuration, a table of sizes, blocks that are nodes of the graph."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import keras

from keras_tfm.configs import Config
from keras_tfm.precision import default_policy, layers_follow
from keras_tfm.registry import register
from keras_tfm.training.model import FunctionalModel


class Backbone(Protocol):
    """What heads and conversion rely on in a model: what goes in, what comes out, its parts."""

    config: Config
    embedding: Any  # a `TokenEmbedding`, by whose table hidden states become logits; not where images go in
    input: dict
    output: dict
    blocks: dict[str, list]
    hidden_states: dict[str, list]


class Decodes(Protocol):
    """What the decoding loop relies on in a model."""

    def start(self, batch_size, max_length, context=None):
        """A cache, any nest of tensors of fixed shapes, for decoding up to `max_length` tokens."""

    def step(self, token_ids, cache, padding_mask=None):
        """(Output (B, T, .), cache) at the next T tokens (B, T)."""


class ConfiguredModel(FunctionalModel):
    """A family's functional model: a `config` derived from `Config`, and a table of published sizes.

    A family sets `config_class` and `sizes`, {name: config}, and builds its inputs and outputs in
    `__init__(config)`. A `dtype` is the policy of the model and of all its layers. Its blocks are nodes of
    the graph: `blocks` are {stack: its blocks, the lowest first}, `hidden_states` {stack: [what goes into
    the first block, what comes out of each]}, outputs for a `keras_tfm.Model(model.input, ...)` of a user's
    own.
    """

    config_class: type[Config]
    sizes: dict = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        layers_follow(register(cls), lambda *_, **__: None)

    def __init__(self, config, inputs, outputs, blocks, hidden_states, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.config = config
        self.stacks = blocks
        self.hidden_states = hidden_states

    @property
    def blocks(self):
        """{stack: its blocks, the lowest first}."""
        return self.stacks

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


def states_of(blocks, x, **arguments):
    """What goes into the first of `blocks`, `x`, and what comes out of each, one after the other."""
    states = [x]
    for block in blocks:
        states.append(block(states[-1], **arguments))
    return states


def run_stages(stages, x):
    """What a pyramid's `stages`, lists of layers, make of `x`: (all blocks, hidden states, maps).

    The hidden states are what goes into the first block and what comes out of each, the maps what comes out
    of each stage.
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
    """`count` rates that grow evenly from 0, the first block's, to `rate`, the last one's.

    Stochastic depth grows so with the depth (Huang et al. 2016, "Deep Networks with Stochastic Depth").
    """
    return [rate * i / max(count - 1, 1) for i in range(count)]


def check_stages(config, *names):
    """ValueError unless the fields `names` of a configuration have a number each for one stage or more."""
    values = [getattr(config, name) for name in names]
    if not values[0] or len({len(value) for value in values}) > 1:
        *listed, last = (f"`{name}`" for name in names)
        numbers = ", ".join(map(str, values))
        raise ValueError(
            f"{', '.join(listed)} and {last} must have a number for each stage; they are {numbers}."
        )
