"""The names in transformers of a family's configuration entries, weights and heads: one `Family` each."""

import dataclasses
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_tfm.configs import brief, kinds_of
from keras_tfm.convert.keymap import Row
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
MAX_LABELS = 100_000
PROBLEMS = ("single_label_classification", "multi_label_classification", "regression")
TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


def their_activation(name):
    """Their name of our activation `name`; ValueError if they have none."""
    if name not in THEIR_ACTIVATIONS:
        known = ", ".join(THEIR_ACTIVATIONS)
        raise ValueError(f"transformers has no name for the activation {name!r}, only for {known}.")
    return THEIR_ACTIVATIONS[name]


def files_of(backbone):
    """The names of files that may convert our `backbone`: that of its module, and that of its class."""
    return type(backbone).__module__.rpartition(".")[2], type(backbone).__name__.lower()


def nothing(_):
    """A function for no additional entries or tensors."""
    return {}


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry with another value than our field; `read(value, entries)` and `write(config)` convert it."""

    name: str
    read: Callable
    write: Callable


@dataclasses.dataclass(frozen=True)
class Option:
    """An argument of a head that their configuration contains.

    `read(entries)` returns it, and `write(value)` the entries for it, which may be none.
    """

    read: Callable
    write: Callable = nothing


def rate(*names, default=0.1, written=True):
    """A dropout rate: the first existing entry of `names`; the first name is written."""

    def read(entries):
        return next((entries[name] for name in names if entries.get(name) is not None), default)

    return Option(read, lambda value: {names[0]: value} if written else {})


@dataclasses.dataclass(frozen=True)
class Head:
    """An architecture with a head: `model(backbone, **arguments)`.

    Args:
        model: our class.
        rows: the table of the weights that the head adds to the backbone.
        arguments: for `model`; a function is called with our configuration.
        options: {argument: Option} for arguments that their configuration contains.
        missing_parts: the parts of the backbone (see `Family.parts`) that this architecture does not have; it
            needs all others.
        refused_parts: those of `missing_parts` that our head would read; a backbone with one of them has
            another architecture.
        prefix: what precedes the backbone's keys, where that is not the family's prefix.
    """

    model: Any
    rows: list[Row]
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Option] = dataclasses.field(default_factory=dict)
    missing_parts: tuple[str, ...] = ()
    refused_parts: tuple[str, ...] = ()
    prefix: str = ""

    def arguments_for(self, config):
        """The arguments for a backbone of `config`."""
        return {name: x(config) if callable(x) else x for name, x in self.arguments.items()}

    def read_options(self, entries):
        """The arguments in the `entries` of their configuration."""
        return {name: option.read(entries) for name, option in self.options.items()}

    def write_options(self, model):
        """Their entries for the options of `model`."""
        written: dict = {}
        for name, option in self.options.items():
            written |= option.write(getattr(model, name))
        return written


@dataclasses.dataclass(frozen=True)
class Family:
    """The conversion of one family of checkpoints.

    Keys are those of the backbone by itself; in a model with a head `prefix` precedes them. `rows` and
    `copies` may also be functions of our configuration.

    Args:
        fields: {our field: their entry}, or an `Entry` if the values differ.
        default_entries: {their entry: its meaning if it is missing}, where that is not our field's default.
        derived_entries: {their entry: function of our configuration} for entries that follow from it.
        fixed_entries: {their entry: the only value that is supported here}.
        fixed_fields: {our field: the only value that they support}.
        nested_entries: the names of entries that are dictionaries; `fields` call the entries inside
            "name.entry".
        equal_entries: {entry: other entry} for entries that must have the same value.
        rows: the table of weights.
        copies: {key: the key whose tensor it repeats}.
        parts: {our field: prefix of keys} for parts that a checkpoint may not have.
        renamed_keys: {old part of a key: its present name}.
        default_tensors: `default_tensors(tensors)` gives what stands for tensors that a file may not have.
        buffers: patterns of keys that are not weights.
        buffers_of: `buffers_of(tensors)` gives the buffers that are written beside the weights.
    """

    model_type: str
    backbone: str  # its architecture
    model: Any
    prefix: str
    fields: Mapping[str, str | Entry]
    rows: Any
    heads: Mapping[str, Head]
    default_entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    derived_entries: Mapping[str, Callable] = dataclasses.field(default_factory=dict)
    fixed_entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    fixed_fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    nested_entries: tuple[str, ...] = ()
    equal_entries: Mapping[str, str] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    copies: Any = dataclasses.field(default_factory=dict)
    renamed_keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_tensors: Callable = nothing
    buffers: tuple[str, ...] = ()
    buffers_of: Callable = nothing

    def computes(self, config):
        """Whether they have a model for this configuration of ours."""
        return all(getattr(config, name) == value for name, value in self.fixed_fields.items())

    def of(self, config):
        """The family with its tables for one configuration."""
        made = {name: getattr(self, name) for name in ("rows", "copies")}
        return dataclasses.replace(self, **{n: x(config) if callable(x) else x for n, x in made.items()})

    def prefix_with(self, head):
        """What precedes the backbone's keys in a model with `head` (or None)."""
        return (head.prefix or self.prefix) if head else ""

    def prefix_in(self, tensors):
        """What precedes the backbone's keys in `tensors`."""
        known = [self.prefix, *(head.prefix for head in self.heads.values() if head.prefix)]
        return next((prefix for prefix in known if any(key.startswith(prefix) for key in tensors)), "")

    def rows_with(self, head, prefix):
        """The table for the backbone under `prefix` and `head` (or None)."""
        rows = [
            dataclasses.replace(row, theirs=tuple(prefix + key for key in row.theirs)) for row in self.rows
        ]
        return rows + (head.rows if head else [])

    def read_config(self, entries, path):
        """Our configuration for their entries; CheckpointError for malformed or unsupported ones."""
        entries = self._flat(entries, path)
        check_entries(entries, path)
        for name, other in self.equal_entries.items():
            if name in entries and other in entries and entries[name] != entries[other]:
                raise CheckpointError(path, name, f"{other}, {brief(entries[other])}", brief(entries[name]))
        for name, value in self.fixed_entries.items():
            if entries.get(name, value) != value:
                raise CheckpointError(path, name, repr(value), brief(entries[name]))
        entries = {**self.default_entries, **entries}
        values: dict = dict(self.fixed_fields)
        kinds = kinds_of(self.model.config_class)
        defaults = {field.name: field.default for field in dataclasses.fields(self.model.config_class)}
        for ours, theirs in self.fields.items():
            name = theirs.name if isinstance(theirs, Entry) else theirs
            if name in entries:
                value = _read(theirs, entries, path) if isinstance(theirs, Entry) else entries[name]
                if isinstance(value, list) and _takes_lists(kinds[ours]):
                    values[ours] = tuple(value)  # the configuration checks its items
                elif isinstance(value, dict) and kinds[ours] is dict:
                    values[ours] = value  # the configuration checks its items
                elif value is None and type(None) in typing.get_args(kinds[ours]):
                    values[ours] = None
                else:
                    values[ours] = _value(value, ours, defaults[ours], path, name)
        try:
            return self.model.config_class(**values)
        except ValueError as error:
            expected = f"a configuration of {self.model.__name__}"
            raise CheckpointError(path, None, expected, str(error).rstrip(".")) from None

    def write_config(self, config):
        """Their entries for our configuration; ValueError if they have none for it."""
        for name, value in self.fixed_fields.items():
            if getattr(config, name) != value:
                got = getattr(config, name)
                raise ValueError(f"{self.backbone} computes only `{name}` {value!r}; it is {got!r}.")
        values: dict = {}
        for ours, theirs in self.fields.items():
            if isinstance(theirs, Entry):
                values[theirs.name] = theirs.write(config)
            elif ours == "activation":
                values[theirs] = their_activation(config.activation)
            else:
                values[theirs] = getattr(config, ours)
        values |= {name: function(config) for name, function in self.derived_entries.items()}
        values |= {name: values[other] for name, other in self.equal_entries.items()}
        values |= self.fixed_entries
        entries: dict = {"model_type": self.model_type, **{name: {} for name in self.nested_entries}}
        for name, value in values.items():
            outer, _, inner = name.rpartition(".")
            (entries[outer] if outer else entries)[inner] = value
        return entries

    def _flat(self, entries, path):
        """`entries` together with the "name.entry" entries of the `nested` ones."""
        flat = dict(entries)
        for name in self.nested_entries:
            inner = flat.pop(name, None) or {}
            if not isinstance(inner, dict):
                raise CheckpointError(path, name, "entries by name", brief(inner))
            flat |= {f"{name}.{key}": value for key, value in inner.items()}
        return flat

    def with_originals(self, tensors, rows, prefix):
        """`tensors` with those that others repeat, where a file holds a copy alone that no row reads."""
        read = {key for row in rows for key in row.theirs}
        originals: dict = {}
        for key, original in self.copies.items():
            if key in tensors and key not in read:
                originals.setdefault(original.format(prefix=prefix), tensors[key])
        return originals | tensors

    def without_parts(self, config, head, tensors, prefix):
        """`config` without the parts that the checkpoint or the architecture `head` does not have."""
        present = {
            field: not (head and field in head.missing_parts)
            and any(key.startswith(prefix + part) for key in tensors)
            for field, part in self.parts.items()
        }
        return dataclasses.replace(config, **present)

    def check_unread(self, tensors, read, prefix, path, with_head):
        """Raise CheckpointError for tensors that the table does not read."""
        heads = {key for head in self.heads.values() for row in head.rows for key in row.theirs}
        # A row for blocks covers all keys with the same first name.
        patterns = [*(prefix + part for part in self.parts.values()), *(x.partition("{")[0] for x in heads)]
        for key in sorted(tensors.keys() - read):
            original = self.copies.get(key, "").format(prefix=prefix)
            if original and (with_head or key not in heads):
                if not np.array_equal(tensors[key], tensors.get(original, tensors[key])):
                    raise CheckpointError(
                        path, key, f"a copy of {original}, to which it is tied", "other values"
                    )
            elif not (
                any(key.startswith(pattern) for pattern in patterns)
                or any(re.fullmatch(pattern, key.removeprefix(prefix)) for pattern in self.buffers)
            ):
                raise CheckpointError(path, key, "no such weight", f"one of shape {tensors[key].shape}")


def check_entries(entries, path):
    """Raise CheckpointError for values of common entries that no family supports."""
    for name, value in entries.items():
        if name.rpartition(".")[2] in TOKEN_IDS and value is not None:
            ids = value if isinstance(value, list) else [value]
            if not all(type(x) is int and 0 <= x < 2**31 for x in ids):
                raise CheckpointError(path, name, "the id of a token", brief(value))
        elif "drop" in name and value is not None and not isinstance(value, bool):
            rates = value if isinstance(value, list) else [value]  # one for each stage
            if not all(isinstance(rate, int | float) and 0 <= rate < 1 for rate in rates):
                raise CheckpointError(path, name, "a rate in [0, 1)", brief(value))
        elif name == "problem_type" and value not in (None, *PROBLEMS):
            raise CheckpointError(path, name, f"one of {', '.join(PROBLEMS)}", brief(value))
        elif name == "id2label" and value is not None:
            labels = value if isinstance(value, dict) else {}
            if labels.keys() != {str(i) for i in range(len(labels))} or not labels:
                raise CheckpointError(path, name, 'labels by their numbers "0", "1", ...', brief(value))
            if not all(isinstance(label, str) for label in labels.values()):
                raise CheckpointError(path, name, "names of labels", brief(value))


def number_of_labels(entries):
    """The number of a classifier's labels, from `id2label` or `num_labels`; 2 if both are missing."""
    labels = entries.get("id2label")
    count = len(labels) if isinstance(labels, dict) else entries.get("num_labels", 2)
    if type(count) is not int or not 0 < count <= MAX_LABELS:
        raise CheckpointError("config.json", "num_labels", f"1 to {MAX_LABELS}", brief(count))
    return count


def first_of(value, _):
    """The first of several ids, or the only one."""
    return next(iter(value), None) if isinstance(value, list) else value


def labels_of(count):
    """Entries that name `count` labels as `transformers` does by default."""
    names = [f"LABEL_{i}" for i in range(count)]
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


LABELS = Option(number_of_labels, labels_of)


def _takes_lists(kind):
    """Whether a field of this annotation may hold several values."""
    return tuple in (typing.get_origin(part) for part in (kind, *typing.get_args(kind)))


def _read(entry, entries, path):
    """The value of our field for `entry`; CheckpointError if it has another type."""
    try:
        return entry.read(entries[entry.name], entries)
    except CheckpointError as error:  # raised for a configuration inside of this one
        raise CheckpointError(path, error.key, error.expected, error.got) from None
    except (TypeError, ValueError, KeyError, AttributeError):
        got = brief(entries[entry.name])
        raise CheckpointError(path, entry.name, "a value of its kind", got) from None


def _value(value, ours, default, path, theirs):
    """`value` in the type of our field, which follows from its `default`."""
    if ours == "activation":
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise CheckpointError(path, theirs, f"one of {', '.join(ACTIVATIONS)}", brief(value))
        return ACTIVATIONS[value]
    kinds = (int, float) if isinstance(default, float) else int if default is None else type(default)
    is_number = default is None or (isinstance(default, int | float) and not isinstance(default, bool))
    if not isinstance(value, kinds) or (is_number and (isinstance(value, bool) or not 0 <= value < 2**31)):
        raise CheckpointError(path, theirs, f"a value like {default!r}", brief(value))
    return float(value) if isinstance(default, float) else value
