"""Configurations that check their values, and JSON of a limited depth.

A configuration is a frozen dataclass derived from `Config`, whose annotations say what each field may be.
`dim: Size` is an integer of at least 1, `dropout: Rate` a number from 0 to below 1, `pairs: Literal["next",
"none"]` one of two words, and `tuple[str, ...]` strings, which may come as a list from JSON. This file
imports no Keras.
"""

import collections
import dataclasses
import difflib
import json
import math
import operator
import re
import string
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

FORMATTER = string.Formatter()
MAX_DEPTH = 64  # of JSON; tokenizer.json, the deepest file that is read, has about ten levels


def parse_json(text, **options):
    """`json.loads`; raises ValueError also if lists and objects are nested more than `MAX_DEPTH` deep, and if
    an object has a key twice.
    """
    try:
        value = json.loads(text, **{"object_pairs_hook": _unique, **options})
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from None
    is_suspect = text.count("[") + text.count("{") > MAX_DEPTH
    if is_suspect and _is_deeper(value, MAX_DEPTH):
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    return value


def _unique(pairs):
    """The object of these (key, value); ValueError for a key that stands twice."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        ((twice, _),) = collections.Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r:.60} stands twice in an object")
    return entries


def number_in(text):
    """`float(text)`; ValueError also for underscores between digits, which are Python's alone."""
    if "_" in text:
        raise ValueError(f"could not convert string to float: {text!r}")
    return float(text)


def _is_deeper(value, depth):
    level = [value]
    for _ in range(depth):
        level = [
            item
            for holder in level
            if isinstance(holder, dict | list)
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]
    return any(isinstance(item, dict | list) for item in level)


class Option(NamedTuple):
    r"""Makes a field of options an option of the command line.

    Args:
        help: what the option does.
        flag: its name there; by default the field's name with hyphens.
        default: words that describe a default of None.
        has_escapes: whether Python's escapes are understood in the text, such as \\n for the end of a line.
        metavar: what a text stands for in the help.
    """

    help: str
    flag: str | None = None
    default: str | None = None
    has_escapes: bool = False
    metavar: str = "TEXT"


class Between(NamedTuple):
    """Numbers from `least` to `most`; `is_above` excludes `least`, `is_open` excludes `most`."""

    least: float
    most: float = math.inf
    is_open: bool = False
    is_above: bool = False

    def problem(self, number):
        """What `number` should be, in words, or None if it is allowed."""
        if number < self.least or (self.is_above and number == self.least):
            return f"{'above' if self.is_above else 'at least'} {self.least:,}"
        if number > self.most or (self.is_open and number == self.most):
            return f"{'below' if self.is_open else 'at most'} {self.most:,}"
        return None


class Multiple(NamedTuple):
    """Multiples of the number `of`."""

    of: int

    def problem(self, number):
        """What `number` should be, in words, or None if it is allowed."""
        return f"a multiple of {self.of}" if number % self.of else None


class InWeights(NamedTuple):
    """The number of weights, or their shapes, depend on this number; see `refuse_sizes`."""

    is_depth: bool


class Divides(NamedTuple):
    """The number must divide the field `of`, unless the field `key_dim` gives the width of a head."""

    of: str


class InVocabulary(NamedTuple):
    """The number must be below the field `vocabulary_size`."""


Size = Annotated[int, Between(1, 2**31, is_open=True), InWeights(is_depth=False)]  # a width, or a part of one
Heads = Annotated[Size, Divides("dim")]
Depth = Annotated[
    int, Between(1, 10_000), InWeights(is_depth=True)
]  # a number of layers, each with its own weights
Rounds = Annotated[int, Between(1, 256)]  # how often layers with shared weights are applied
Length = Annotated[int, Between(1, 2**20)]
Whole = Annotated[int, Between(0, 2**16)]  # a number that may be 0
TokenId = Annotated[int, Between(0, 2**31, is_open=True), InVocabulary()]
Rate = Annotated[float, Between(0, 1, is_open=True)]
Positive = Annotated[float, Between(0, is_above=True)]

# For options of training and of the command line.
Count = Annotated[int, Between(1, 2**31, is_open=True)]
Natural = Annotated[int, Between(0, 2**31, is_open=True)]
Minutes = Annotated[float, Between(0, 10**6)]


class Field(str):
    """The name of a field among the values of a `FieldError`. Of "sizes[2]" the name is "sizes"."""


class FieldError(ValueError):
    """What is wrong with fields, or arguments: a `text` with their names in braces, and its `values` for {}.

    Python names them in backticks, the command line by their options.
    """

    def __init__(self, text: str, *values: Any):
        super().__init__(text, *values)
        self.text, self.values = text, values

    def __str__(self):
        return self.named({})

    def named(self, flags: Mapping[str, str]) -> str:
        """The message, with the names that `flags` has for fields."""

        def name(field):
            return re.sub(r"^\w+", lambda match: flags.get(match[0], f"`{match[0]}`"), field)

        values = [name(value) if isinstance(value, Field) else value for value in self.values]
        names = {field: name(field) for _, field, _, _ in FORMATTER.parse(self.text) if field}
        return FORMATTER.vformat(self.text, values, names)


class Refusal(FieldError):
    """A value that a field may not have: its name, what was `expected`, in words, and what was `got`."""

    def __init__(self, field: str, expected: str, got: Any):
        super().__init__("{} must be {}; it is {}.", Field(field), expected, got)
        self.args = self.field, self.expected, self.got = field, expected, got


class Config:
    """The base of frozen dataclasses whose fields are checked, and converted, according to their
    annotations.

    Raises a ValueError, for one field's value a `Refusal`.
    """

    def __post_init__(self):
        for name, kind in kinds_of(type(self)).items():
            object.__setattr__(self, name, checked(getattr(self, name), kind, name))
        for name, rule in rules_of(type(self), Divides):
            value, whole = getattr(self, name), getattr(self, rule.of)
            if value is not None and getattr(self, "key_dim", None) is None and whole % value:
                of = Field(rule.of)
                raise FieldError("{} must divide {}, {:,}; it is {:,}.", Field(name), of, whole, value)
        for name, _ in rules_of(type(self), InVocabulary):
            value, size = getattr(self, name), getattr(self, "vocabulary_size", math.inf)
            if value >= size:
                raise Refusal(name, f"in the vocabulary of {size:,}", value)

    @classmethod
    def from_json(cls, values):
        """The configuration with these field values. Raises ValueError for unknown and for missing fields
        too.
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"{cls.__name__}: expected an object of fields, got {brief(values)}.")
        kinds = kinds_of(cls)
        if unknown := values.keys() - kinds.keys():
            names = sorted(unknown)
            wrong = ", ".join(names) + meant(names[0], kinds)
            raise ValueError(f"{cls.__name__} has no {wrong}; it has {', '.join(kinds)}.")
        needed = {
            field.name
            for field in dataclasses.fields(typing.cast(Any, cls))
            if field.default is field.default_factory is dataclasses.MISSING
        }
        if missing := needed - values.keys():
            raise ValueError(f"{cls.__name__} needs {', '.join(sorted(missing))}.")
        make: Callable = cls
        return make(**values)


def kinds_of(cls):
    """{field: annotation} of a configuration."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def checked(value, kind, name):
    """`value` converted as the annotation `kind` says; `Refusal` of the field `name` if it is impossible."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        result = checked(value, parts[0], name)
        for rule in (part for part in parts if isinstance(part, Between | Multiple)):
            if problem := rule.problem(result):
                raise Refusal(name, problem, brief(value))
        return result
    if origin in (typing.Union, types.UnionType):
        return _checked_union(value, parts, name)
    if origin is typing.Literal:
        if not any(value is word or (isinstance(word, str) and value == word) for word in parts):
            raise Refusal(name, f"one of {', '.join(map(str, parts))}", brief(value))
        return value
    if isinstance(kind, type) and issubclass(kind, Config):
        return value if isinstance(value, kind) else kind.from_json(value)
    if origin is Sequence:
        return checked(value, types.GenericAlias(tuple, (parts[0], ...)), name)
    if origin is tuple or (isinstance(kind, type) and issubclass(kind, tuple)):
        return _checked_tuple(value, kind, origin, parts, name)
    convert, words = _PLAIN[origin or kind]
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        raise Refusal(name, words, brief(value)) from None


def brief(value):
    """A short text for any `value`."""
    try:
        text = repr(value)
    except RecursionError:
        text = f"a nested {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def meant(name, names, place=""):
    """ " (did you mean …?)", with the one of the `names`, all of a `place`, that `name` resembles; "" if none
    does.
    """
    names = {str(one).lstrip("-"): one for one in names}  # the dashes of a flag make it like any other
    matches = difflib.get_close_matches(str(name).lstrip("-"), names, n=1, cutoff=0.7)
    return f" (did you mean {place}{names[matches[0]]}?)" if matches else ""


def _checked_union(value, kinds, name):
    if value is None and type(None) in kinds:
        return None
    expected, inner = [], []
    for kind in kinds:
        if kind is not type(None):
            try:
                return checked(value, kind, name)
            except ValueError as error:
                if isinstance(error, Refusal) and error.field == name:
                    expected.append(error.expected)
                else:
                    inner.append(error)
    if inner:  # what is wrong with a part of the value says more
        raise inner[0]
    raise Refusal(name, ", or ".join(expected), brief(value))


def _checked_tuple(value, kind, origin, parts, name):
    is_named = origin is None
    if is_named:  # a NamedTuple, whose fields have annotations too
        parts = tuple(typing.get_type_hints(kind, include_extras=True).values())
    is_list = isinstance(value, list | tuple)
    if len(parts) == 2 and parts[1] is Ellipsis:
        if not is_list:
            raise Refusal(name, "a list", brief(value))
        return tuple(checked(item, parts[0], f"{name}[{i}]") for i, item in enumerate(value))
    if not is_list or len(value) != len(parts):
        raise Refusal(name, f"a list of {len(parts)}", brief(value))
    items = [
        checked(item, part, f"{name}[{i}]") for i, (item, part) in enumerate(zip(value, parts, strict=True))
    ]
    return kind(*items) if is_named else tuple(items)


def _whole(value):
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _number(value):
    if isinstance(value, bool | str | bytes) or not math.isfinite(number := float(value)):
        raise TypeError
    return number


def _exactly(kind):
    def convert(value):
        if not isinstance(value, kind):
            raise TypeError
        return value

    return convert


_PLAIN: dict[Any, Any] = {
    int: (_whole, "a whole number"),
    float: (_number, "a number"),
    bool: (_exactly(bool), "true or false"),
    str: (_exactly(str), "a string"),
    dict: (_exactly(dict), "an object"),
}


def refuse_sizes(config, shapes):
    """Raises ValueError if `config` asks for more or wider layers than weights of these `shapes` can have.

    It is called before a model is made: one of absurd size would take all memory, or hours. The rule is that
    a width divides some axis of a weight, and that each layer has at least one weight.
    """
    axes = {axis for shape in shapes for axis in shape}
    for name, kind in kinds_of(type(config)).items():
        for number, rule in _sizes(getattr(config, name), kind):
            if rule.is_depth and number > len(shapes):
                raise ValueError(f"`{name}` is {number:,}, and there are {len(shapes):,} weights.")
            if not rule.is_depth and not any(axis and axis % number == 0 for axis in axes):
                raise ValueError(f"`{name}` is {number:,}, and no weight has such an axis.")
    for part in getattr(config, "parts", ()):  # configurations inside this one
        refuse_sizes(part, shapes)


def _sizes(value, kind):
    """(Number, rule) for each number in `value` for which the annotation `kind` has an `InWeights`."""
    if isinstance(value, tuple):
        for items in (typing.get_args(part) for part in (kind, *_parts(kind)) if _is_tuple(part)):
            if items[-1] is Ellipsis or len(items) == len(value):
                items = items[:1] * len(value) if items[-1] is Ellipsis else items
                for item, part in zip(value, items, strict=True):
                    yield from _sizes(item, part)
                return
    elif value is not None:
        yield from ((value, part) for part in _parts(kind) if isinstance(part, InWeights))


def _is_tuple(kind):
    return typing.get_origin(kind) is tuple


def rules_of(cls, rule_class):
    """(Field, rule) for each rule of the class `rule_class` in the annotations of a configuration."""
    for name, kind in kinds_of(cls).items():
        rule = next((part for part in _parts(kind) if isinstance(part, rule_class)), None)
        if rule is not None:
            yield name, rule


def _parts(kind):
    """All parts of an annotation."""
    for part in typing.get_args(kind):
        yield part
        yield from _parts(part)
