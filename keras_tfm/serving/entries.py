"""What serving.json says, checked before it is used: the annotations of what the entries are handed to say
what they may be. A parameter without an annotation is no entry.
"""

import collections.abc
import inspect
import math
import types
import typing

from . import plugins
from .files import NAME

HIGHEST = 2**31  # of ids, sizes and lengths


def checked(folder, make, entries, where):
    """`entries`, the arguments of `make` by name; ValueError, naming one, if it is not what `make` takes."""
    place = f"{folder / NAME}: {where}"
    if not isinstance(entries, dict):
        raise ValueError(f"{place}: expected an object, got {entries!r:.60}")
    known = parameters_of(make)
    for name in entries:
        if name not in known:
            raise ValueError(f"{place}: expected {', '.join(known) or 'no entries'}, got {name!r:.60}")
    for name, parameter in known.items():
        if name in entries:
            check(folder, f"{where}.{name}", entries[name], parameter.annotation)
        elif parameter.default is parameter.empty:
            raise ValueError(f"{place}.{name}: expected {words_of(parameter.annotation)}, got none")
    return entries


def check(folder, where, value, kind):
    """Raise ValueError unless an entry is of a `kind`, an annotation."""
    if not fits(value, kind):
        raise ValueError(f"{folder / NAME}: {where}: expected {words_of(kind)}, got {value!a:.60}")


def chosen(folder, kinds, entries, where, plugin_kind=None):
    """(The one of `kinds` that `entries` names by its "kind", the other entries, checked).

    A kind that is not among them may be an installed plugin's of the `plugin_kind`, "reader" or
    "answer".
    """
    if not isinstance(entries, dict):
        raise ValueError(f"{folder / NAME}: {where}: expected an object, got {entries!r:.60}")
    kind = entries.get("kind")
    plugin = None
    if plugin_kind is not None and isinstance(kind, str) and kind not in kinds:
        plugin = plugins.find(plugin_kind, kind)
    if plugin is None:
        check(folder, f"{where}.kind", kind, typing.Literal[tuple(kinds)])
    make = kinds[kind] if plugin is None else plugin.load()
    others = {name: value for name, value in entries.items() if name != "kind"}
    return make, checked(folder, make, others, where)


def parameters_of(make):
    """{name: parameter} of those parameters of a class or function that are entries."""
    makers = [make]
    if inspect.isclass(make) and not hasattr(make, "_fields"):
        makers = [vars(kind)["__init__"] for kind in make.__mro__ if "__init__" in vars(kind)]
    found: dict[str, inspect.Parameter] = {}
    for maker in makers:
        parameters = inspect.signature(maker).parameters.values()
        found |= {p.name: p for p in parameters if p.annotation is not p.empty and p.name not in found}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break  # which hands nothing on to its base class
    return found


def fits(value, kind):
    """Whether a value of JSON, or one that will be, is of a kind."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is typing.Literal:
        return isinstance(value, str) and value in parts
    if origin is dict:
        return isinstance(value, dict) and all(fits(item, parts[1]) for item in value.values())
    if origin is tuple:
        is_row = isinstance(value, list | tuple) and len(value) == len(parts)
        return is_row and all(map(fits, value, parts))
    if origin in (list, collections.abc.Sequence):
        return isinstance(value, list | tuple) and all(fits(item, parts[0]) for item in value)
    if kind is int:
        return type(value) is int and 0 <= value < HIGHEST
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    if kind is str:
        return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)
    return kind is typing.Any or (value is None if kind is types.NoneType else type(value) is kind)


def words_of(kind):
    """A kind in words."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(words_of, parts))
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin is tuple:
        return f"a list of {len(parts)}, each {words_of(parts[0])}"
    if origin in (list, collections.abc.Sequence):
        return f"a list, each {words_of(parts[0])}"
    plain = {int: "a natural number", float: "a number", str: "a text", bool: "true or false"}
    return {**plain, types.NoneType: "null"}.get(kind, "an object")
