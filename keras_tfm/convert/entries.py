"""How configurations of other libraries say ours: one table of entries per family, for both directions.

The entries are config.json's in transformers' folders, and the arguments of a class in timm's. `Family`
(family.py) and `TimmFamily` (timm.py) add the tensors, and what is special to each kind of folder.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from keras_tfm.configs import Refusal, brief, checked, kinds_of, refuse_sizes
from keras_tfm.convert import keymap
from keras_tfm.private.keras import initialize
from keras_tfm.training.safetensors import CheckpointError

ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "gelu_quick",
}
THEIR_ACTIVATIONS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}


def their_activation(name):
    """Their name of our activation `name`; ValueError if they have none."""
    if name not in THEIR_ACTIVATIONS:
        known = ", ".join(THEIR_ACTIVATIONS)
        raise ValueError(f"transformers has no name for the activation {name!r}, only for {known}.")
    return THEIR_ACTIVATIONS[name]


def our_activation(name, value):
    """Our name of their activation `value`; CheckpointError, naming their entry, if we have none."""
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise CheckpointError("config.json", name, f"one of {', '.join(ACTIVATIONS)}", brief(value))
    return ACTIVATIONS[value]


def nothing(_):
    """A function for no additional entries or tensors."""
    return {}


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry with another value than our field; `read(value, entries)` and `write(config)` convert it."""

    name: str
    read: Callable
    write: Callable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entries:
    """The entries and the fields of our configurations that say the same.

    Args:
        model: our class.
        rows: the table of weights, or a function of our configuration that returns it.
        fields: {our field: their entry}, or an `Entry` if the values differ. Several entries that all have
            the field's value are a tuple: the last one that a folder has is read.
        default_entries: {their entry: its meaning if it is missing}, where that is not our field's default.
        derived_entries: {their entry: function of our configuration} for entries that follow from it.
        fixed_entries: {their entry: the only value that is supported here}.
        fixed_fields: {our field: the only value that they support}.
        check: `check(config)` raises ValueError for a configuration that they compute in another way.
    """

    model: Any
    rows: Any
    fields: Mapping[str, str | tuple[str, ...] | Entry]
    default_entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    derived_entries: Mapping[str, Callable] = dataclasses.field(default_factory=dict)
    fixed_entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed_fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    check: Callable = nothing

    @property
    def their_class(self):
        """What computes their models, for messages."""
        raise NotImplementedError

    def rows_of(self, config):
        """The table of weights for one configuration."""
        return self.rows(config) if callable(self.rows) else self.rows

    def computes(self, config):
        """Whether they have a model for this configuration of ours."""
        return all(getattr(config, name) == value for name, value in self.fixed_fields.items())

    def read_config(self, entries, path):
        """Our configuration for their entries; CheckpointError for malformed or unsupported ones."""
        for name, value in self.fixed_entries.items():
            if entries.get(name, value) != value:
                raise CheckpointError(path, name, repr(value), brief(entries[name]))
        entries = {**self.default_entries, **entries}
        values = dict(self.fixed_fields)
        for field, theirs in self.fields.items():
            names = names_of(theirs)
            if present := [name for name in entries if name in names]:
                values[field] = self._field(field, theirs, present[-1], entries, path)
        try:
            config = self.model.config_class.from_json(values)
            self.check(config)
        except ValueError as error:
            raise self.refusal(error, path) from None
        return config

    def write_config(self, config):
        """Their entries for our configuration, except fixed ones; ValueError if they have none for it."""
        for name, value in self.fixed_fields.items():
            if getattr(config, name) != value:
                got = getattr(config, name)
                raise ValueError(f"{self.their_class} computes only `{name}` {value!r}; it is {got!r}.")
        self.check(config)
        entries: dict = {}
        for field, theirs in self.fields.items():
            if isinstance(theirs, Entry):
                value = theirs.write(config)
            else:
                value = getattr(config, field)
                value = their_activation(value) if field == "activation" else value
            entries |= dict.fromkeys(names_of(theirs), value)
        return entries | {name: function(config) for name, function in self.derived_entries.items()}

    def read_model(self, make, config, tensors, rows, path, file):
        """(The model of `make(config)` with the weights of `tensors` by `rows`, the keys that were read).

        Raises CheckpointError for what `path`, their configuration, and `file`, their weights, say wrongly;
        before memory is allocated if weights are too few, or of other shapes.
        """
        try:
            refuse_sizes(config, [tensor.shape for tensor in tensors.values()])
            with keymap.checked_by(tensors, rows, file) as made:
                model = make(config)
        except CheckpointError:
            raise
        except (ValueError, TypeError, KeyError) as error:  # for sizes, and entries that only a head reads
            raise self.refusal(error, path) from None
        read = keymap.load(model, tensors, rows, file)
        initialize(made)  # what no tensor is for: the states of random generators
        return model, read

    def refusal(self, error, path):
        """The CheckpointError for an `error` about the configuration as a whole."""
        expected = f"a configuration of {self.model.__name__}"
        return CheckpointError(path, None, expected, str(error).rstrip("."))

    def _field(self, field, theirs, name, entries, path):
        """The value of our `field` in their entry `name`; CheckpointError if it may not have it."""
        value, kind = entries[name], kinds_of(self.model.config_class)[field]
        try:
            if isinstance(theirs, Entry):
                value = theirs.read(value, entries)
            if field == "activation":
                value = our_activation(name, value)
            return checked(value, kind, name)
        except CheckpointError as error:  # of a configuration inside of this one, or what `read` refuses
            raise CheckpointError(path, error.key, error.expected, error.got) from None
        except Refusal as error:
            raise CheckpointError(path, name, error.expected, error.got) from None
        except (TypeError, ValueError, KeyError, AttributeError):
            raise CheckpointError(path, name, "a value of its kind", brief(entries[name])) from None


def names_of(theirs):
    """The names of the entries for one field in `Entries.fields`."""
    theirs = theirs.name if isinstance(theirs, Entry) else theirs
    return (theirs,) if isinstance(theirs, str) else theirs


def ratios(entry, fields, width, their_width):
    """{our field: `Entry`} for `fields` that their `entry` gives as multiples of our field `width`.

    Their entry for that is `their_width`. For several fields theirs is a list, or one number.

    >>> table = keras_tfm.convert.entries.ratios("mlp_ratio", ["intermediate_dim"], "dim", "embed_dim")
    >>> table["intermediate_dim"].read(4.0, {"embed_dim": 32})
    128
    """

    def reader(number):
        def read(ratio, entries):
            each = ratio if len(fields) > 1 and isinstance(ratio, list | tuple) else [ratio] * len(fields)
            return multiple(entry, each[number] if len(each) == len(fields) else each, their_width, entries)

        return read

    def write(config):
        each = [ratio_of(getattr(config, field), getattr(config, width)) for field in fields]
        return each if len(fields) > 1 else each[0]

    return {field: Entry(entry, reader(number), write) for number, field in enumerate(fields)}


def multiple(entry, ratio, width, entries):
    """The `ratio` in an `entry` times the entry `width`; CheckpointError for what is no number."""
    whole = times(ratio, entries.get(width))
    if whole is None:
        raise CheckpointError("config.json", entry, f"a multiple of `{width}`", brief(ratio))
    return whole


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
