"""Arguments of timm's constructors and our configurations: one table per family, for both directions."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from keras_tfm.configs import brief
from keras_tfm.convert.family import Entry
from keras_tfm.training.safetensors import CheckpointError

HEAD_ARGUMENTS = ("num_classes", "drop_rate")  # arguments of the classifier, for every backbone


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The correspondence between timm's arguments and the configuration of our `model`.

    Args:
        fields: {timm's argument: our field}, for example {"embed_dim": "dim"}, or an `Entry` if the values
            differ.
        ratios: timm's arguments that give our fields as multiples of another field, the last one:
            {"mlp_ratio": ("intermediate_dim", "dim")}. For several fields it is a list, or one number.
        fixed_entries: {timm's argument: the only value that is supported here}, the default.
        fixed_fields: {our field: the only value that timm supports}.
        default_entries: {timm's argument: its meaning if it is missing}, where our sizes have another value.
        named: timm's arguments that follow from the architecture's name.
        check: `check(config)` raises ValueError for a configuration that timm computes in another way.
    """

    model: Any
    fields: Mapping[str, str | Entry]
    ratios: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    fixed_entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed_fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    default_entries: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"drop_path_rate": 0.0})
    named: tuple[str, ...] = ()
    check: Callable[[Any], None] | None = None

    def config_of(self, arguments):
        """Our configuration. Raises CheckpointError for arguments of a model that is not supported.

        Raises ValueError for values that no configuration may have.
        """
        arguments = {name: x for name, x in arguments.items() if name not in HEAD_ARGUMENTS}
        values = dict(self.fixed_fields)
        for name, value in arguments.items():
            if name in self.fixed_entries:
                if value != self.fixed_entries[name]:
                    raise CheckpointError("timm", name, repr(self.fixed_entries[name]), brief(value))
            elif isinstance(field := self.fields.get(name), Entry):
                values[field.name] = field.read(value, arguments)
            elif field is not None:
                values[field] = value
            elif name not in self.ratios:
                known = ", ".join([*self.fields, *self.ratios, *self.fixed_entries])
                raise CheckpointError("timm", name, f"an argument out of {known}", brief(value))
        for name, (*parts, other) in self.ratios.items():
            if name in arguments:
                self._multiply(values, name, arguments[name], parts, other)
        config = self.model.config_class.from_json(values)
        if self.check:
            self.check(config)
        return config

    def arguments_of(self, config):
        """timm's arguments for our configuration; ValueError for one that timm does not have."""
        for name, value in self.fixed_fields.items():
            if getattr(config, name) != value:
                got = getattr(config, name)
                raise ValueError(f"timm's class computes only `{name}` {value!r}; it is {got!r}.")
        if self.check:
            self.check(config)
        values = {}
        for theirs, ours in self.fields.items():
            values[theirs] = ours.write(config) if isinstance(ours, Entry) else getattr(config, ours)
        for name, (*parts, other) in self.ratios.items():
            found = [ratio_of(getattr(config, field), getattr(config, other)) for field in parts]
            values[name] = found if len(parts) > 1 else found[0]
        return values

    def _multiply(self, values, name, said, parts, other):
        """Set the fields `parts` in `values` to what is `said` times the field `other`."""
        ratios = said if len(parts) > 1 and isinstance(said, list | tuple) else [said] * len(parts)
        wholes = [times(ratio, values.get(other)) for ratio in ratios]
        if None in wholes or len(wholes) != len(parts):
            raise CheckpointError("timm", name, f"a multiple of `{other}`", brief(said))
        for field, whole in zip(parts, wholes, strict=True):
            if values.setdefault(field, whole) != whole:
                raise CheckpointError("timm", name, f"what makes `{field}` {values[field]}", brief(said))


def times(ratio, width):
    """The product, rounded down, item by item for lists; None for values that are not numbers."""
    if isinstance(ratio, list | tuple) and isinstance(width, list | tuple) and len(ratio) == len(width):
        products = [times(*pair) for pair in zip(ratio, width, strict=True)]
        return None if None in products else products
    is_number = type(width) is int and type(ratio) in (int, float) and 0 < ratio < 2**31
    return int(width * ratio) if is_number else None


def ratio_of(whole, width):
    """The ratio with which `width` gives `whole` after multiplying and rounding down, item by item."""
    if isinstance(whole, tuple):
        return [ratio_of(*pair) for pair in zip(whole, width, strict=True)]
    if whole % width == 0:
        return whole // width
    ratio = whole / width
    return ratio if int(width * ratio) == whole else math.nextafter(ratio, math.inf)
