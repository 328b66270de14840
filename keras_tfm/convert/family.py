"""A family of transformers: the names of its configuration's entries, of its weights and of its heads."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.convert.entries import Entries, nothing
from keras_tfm.convert.keymap import Row, linear
from keras_tfm.heads import Classifier
from keras_tfm.training.safetensors import CheckpointError

MAX_LABELS = 100_000
PROBLEMS = ("single_label_classification", "multi_label_classification", "regression")
TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


def files_of(backbone):
    """The names of files that may convert our `backbone`: its module's name and its class's name."""
    return type(backbone).__module__.rpartition(".")[2], type(backbone).__name__.lower()


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
        refused_parts: the `missing_parts` that our head would read; a backbone with one of them has another
            architecture.
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family(Entries):
    """The conversion of one family of checkpoints.

    Keys name the weights of the backbone by itself; in a model with a head `prefix` precedes them. The fields
    of `Entries` say the configuration, these the files:

    Args:
        model_type, backbone: the names of the family and of the architecture without a head.
        nested_entries: the names of entries that are dictionaries; `fields` call the entries inside
            "name.entry".
        winning_entries: {nested entry: an older entry that replaces it where a folder has one}.
        equal_entries: {entry: other entry} for entries of one value; `default_entries` has both.
        heads: {architecture: its `Head`}.
        copies: {key: the key whose tensor it repeats}, or a function of our configuration that returns it.
        parts: {our field: prefix of keys} for parts that a checkpoint may not have.
        outer_keys: how keys begin that `prefix` never precedes.
        renamed_keys: {old part of a key: its present name}.
        default_tensors: `default_tensors(tensors)` gives what stands for tensors that a file may not have.
        buffers: patterns of keys that are not weights.
        buffers_of: `buffers_of(tensors)` gives the buffers that are written beside the weights.
        derived_tensors: `derived_tensors(config)` gives the tensors that follow from our configuration, by
            the backbone's keys.
    """

    model_type: str
    backbone: str
    prefix: str
    heads: Mapping[str, Head]
    nested_entries: tuple[str, ...] = ()
    winning_entries: Mapping[str, str] = dataclasses.field(default_factory=dict)
    equal_entries: Mapping[str, str] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    outer_keys: tuple[str, ...] = ()
    copies: Any = dataclasses.field(default_factory=dict)
    renamed_keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_tensors: Callable = nothing
    buffers: tuple[str, ...] = ()
    buffers_of: Callable = nothing
    derived_tensors: Callable = nothing

    @property
    def their_class(self):
        return self.backbone

    def of(self, config):
        """The family with its tables for one configuration."""
        copies = self.copies(config) if callable(self.copies) else self.copies
        return dataclasses.replace(self, rows=self.rows_of(config), copies=copies)

    def prefix_with(self, head):
        """What precedes the backbone's keys in a model with `head` (or None)."""
        return (head.prefix or self.prefix) if head else ""

    def prefix_in(self, tensors):
        """What precedes the backbone's keys in `tensors`."""
        known = [self.prefix, *(head.prefix for head in self.heads.values() if head.prefix)]
        return next((prefix for prefix in known if any(key.startswith(prefix) for key in tensors)), "")

    def key_in(self, prefix, key):
        """The backbone's `key`, or the beginning of one, under `prefix`."""
        return key if self.outer_keys and key.startswith(self.outer_keys) else prefix + key

    def rows_with(self, head, prefix):
        """The table for the backbone under `prefix` and `head` (or None)."""
        rows = [
            dataclasses.replace(row, theirs=tuple(self.key_in(prefix, key) for key in row.theirs))
            for row in self.rows
        ]
        return rows + (head.rows if head else [])

    def read_config(self, entries, path):
        """Our configuration for their entries; CheckpointError for malformed or unsupported ones."""
        entries = self._flat(entries, path)
        check_entries(entries, path)
        meant = {**self.default_entries, **entries}
        for name, other in self.equal_entries.items():
            if meant[name] != meant[other]:
                raise CheckpointError(path, name, f"{other}, {brief(meant[other])}", brief(meant[name]))
        return super().read_config(entries, path)

    def write_config(self, config):
        """Their entries for our configuration; ValueError if they have none for it."""
        values = super().write_config(config)
        values |= {name: values[other] for name, other in self.equal_entries.items()}
        entries: dict = {"model_type": self.model_type, **{name: {} for name in self.nested_entries}}
        for name, value in (values | self.fixed_entries).items():
            outer, _, inner = name.rpartition(".")
            (entries[outer] if outer else entries)[inner] = value
        return entries

    def _flat(self, entries, path):
        """`entries` together with the "name.entry" entries of the `nested` ones."""
        flat = dict(entries)
        for name in self.nested_entries:
            inner = flat.pop(name, None) or {}
            if (winning := flat.get(self.winning_entries.get(name))) is not None:
                inner = winning
            if not isinstance(inner, dict):
                raise CheckpointError(path, name, "entries by name", brief(inner))
            flat |= {f"{name}.{key}": value for key, value in inner.items()}
        return flat

    def with_originals(self, tensors, rows, prefix):
        """`tensors` with the originals of copies, where a file holds only a copy, which no row reads."""
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
            and any(key.startswith(self.key_in(prefix, part)) for key in tensors)
            for field, part in self.parts.items()
        }
        return dataclasses.replace(config, **present)

    def check_unread(self, tensors, read, prefix, path, with_head):
        """Raise CheckpointError for tensors that the table does not read."""
        heads = {key for head in self.heads.values() for row in head.rows for key in row.theirs}
        # A row for blocks covers all keys with the same first name.
        parts = (self.key_in(prefix, part) for part in self.parts.values())
        patterns = [*parts, *(x.partition("{")[0] for x in heads)]
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


def class_head(key="classifier", **parts):
    """The `Head` of a `Classifier` of one layer, called `key`; `parts` are further arguments of `Head`."""
    return Head(
        Classifier, linear("head/output", key), {"hidden_dim": None}, {"num_classes": LABELS}, **parts
    )
