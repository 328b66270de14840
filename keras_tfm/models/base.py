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


@dataclasses.dataclass(frozen=True)
class Trace:
    """A model's `blocks` and `hidden_states`, as `ConfiguredModel` has them, recorded while blocks run."""

    blocks: dict[str, list] = dataclasses.field(default_factory=dict)
    hidden_states: dict[str, list] = dataclasses.field(default_factory=dict)

    def run(self, stack, layers, x, **tensors):
        """The output of the `layers` applied in a row to `x`, blocks and others; blocks get the `tensors`.

        Several runs add to one `stack`, which lists a block once, however often it is applied.
        """
        for layer in layers:
            if not getattr(layer, "is_block", False):
                x = layer(x)
                continue
            blocks, states = self.blocks.setdefault(stack, []), self.hidden_states.setdefault(stack, [x])
            x = layer(x, **tensors)
            states.append(x)
            if layer not in blocks:
                blocks.append(layer)
        return x


class ConfiguredModel(FunctionalModel):
    """A family's functional model, made from a `config`, with a table of published sizes. Abstract.

    A family sets `config_class` and `sizes`, {name: configuration}, and makes its inputs, its outputs and the
    `Trace` of its blocks in `__init__(config)`. `dtype` is the dtype policy of the model and of all its
    layers.

    `blocks` are {stack: its blocks, the first one first}: neither stack of an encoder-decoder comes first,
    and the blocks of a pyramid are one stack that runs through its stages. `hidden_states` are {stack: [the
    input of the first block, the output of each application of a block]}, and {} for recurrent models:
    symbolic tensors, from which a user can make `keras_tfm.Model(model.input, ...)`.
    """

    config_class: type[Config]
    sizes: dict = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.__module__.partition(".")[0] != "keras_tfm":
            OUTSIDE[cls.__name__] = cls
        layers_follow(register(cls), lambda *_, **__: None)

    def __init__(self, config, inputs, outputs, trace, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.config = config
        self.stacks = trace.blocks
        self.hidden_states = trace.hidden_states

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

    def with_fresh_weights(self, **changes: Any) -> Any:
        """A model like this one, with fresh weights, in 8 bits where its are; `changes` replace fields of its
        configuration.
        """
        make: Callable = type(self)
        model = make(dataclasses.replace(self.config, **changes), name=self.name, dtype=self.dtype_policy)
        quantize_parts(model, quantized_parts_of(self))
        return model

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


def growing_rates(rate, count):
    """`count` rates that grow linearly from 0 for the first block to `rate` for the last.

    Stochastic depth uses such rates (Huang et al. 2016, "Deep Networks with Stochastic Depth").
    """
    return [rate * i / max(count - 1, 1) for i in range(count)]


def rate_of(config, stage, index):
    """The rate of block `index` of a stage, of `growing_rates` over the blocks of all stages, `depths`."""
    rates = growing_rates(config.stochastic_depth, sum(config.depths))
    return rates[sum(config.depths[:stage]) + index]


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
