"""Arguments of timm's constructors and our configurations: one table a family, read both ways."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from keras_tfm.configs import brief
from keras_tfm.training.safetensors import CheckpointError

HEAD_ARGUMENTS = ("num_classes", "drop_rate")  # of a classifier, whatever its backbone


@dataclasses.dataclass(frozen=True)
class Arguments:
    """How timm's arguments say a configuration of our `model`.

    `fields` are ours by theirs, {"embed_dim": "dim"} for example. `ratios` are theirs that say one of our
    fields as a multiple of another, {"mlp_ratio": ("intermediate_dim", "dim")}. `fixed` are theirs of which
    we compute one value alone, their default, `only` fields of ours of which they do.
    """

    model: Any
    fields: Mapping[str, str]
    ratios: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    only: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def config_of(self, arguments):
        """Our configuration; CheckpointError for arguments that mean a model we do not compute.

        ValueError for values that no configuration has.
        """
        arguments = {name: x for name, x in arguments.items() if name not in HEAD_ARGUMENTS}
        values = dict(self.only)
        for name, value in arguments.items():
            if name in self.fixed:
                if value != self.fixed[name]:
                    raise CheckpointError("timm", name, repr(self.fixed[name]), brief(value))
            elif name in self.fields:
                values[self.fields[name]] = value
            elif name not in self.ratios:
                known = ", ".join([*self.fields, *self.ratios, *self.fixed])
                raise CheckpointError("timm", name, f"an argument out of {known}", brief(value))
        for name, (field, other) in self.ratios.items():
            if name in arguments:
                ratio, width = arguments[name], values.get(other)
                if type(width) is not int or type(ratio) not in (int, float) or not 0 < ratio < 2**31:
                    raise CheckpointError("timm", name, f"a multiple of `{other}`", brief(ratio))
                values[field] = int(width * ratio)
        return self.model.config_class.from_json(values)

    def arguments_of(self, config):
        """Their arguments for our configuration; ValueError for one that they do not compute."""
        for name, value in self.only.items():
            if getattr(config, name) != value:
                got = getattr(config, name)
                raise ValueError(f"timm's class computes only `{name}` {value!r}; it is {got!r}.")
        values = {theirs: getattr(config, ours) for theirs, ours in self.fields.items()}
        for name, (field, other) in self.ratios.items():
            values[name] = ratio_of(getattr(config, field), getattr(config, other))
        return values


def ratio_of(whole, width):
    """The number by which `width` gives `whole` when it is multiplied and rounded down."""
    ratio = whole / width
    return ratio if int(width * ratio) == whole else math.nextafter(ratio, math.inf)
