"""Options of the command line, generated from fields of configurations that are annotated with `Option`, and
back.

The annotation of a field decides which texts its option takes, by the same check as in Python.
"""

import argparse
import codecs
import contextlib
import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from keras_tfm.configs import FieldError, Option, Refusal, checked, kinds_of, rules_of

PATHS = ("RUN", "MODEL", "FOLDER", "FILE", "PATH")  # what the text of an option stands for


def add_options(
    group: Any,
    config_class: type,
    defaults: Mapping[str, Any] | None = None,
    with_from: Mapping[str, Any] = types.MappingProxyType({}),
) -> None:
    """Add the options of a configuration to a parser, or to a group of one.

    `defaults`, by field, are shown in the help; they are the class's unless given. An option without a
    default is required. `with_from` are other defaults, of a training with --from. `given` finds what was
    typed.
    """
    defaults = defaults_of(config_class) if defaults is None else defaults
    for name, option in rules_of(config_class, Option):
        how = {} if name in defaults else {"required": True}
        add_option(group, config_class, name, option, defaults.get(name), with_from.get(name), **how)


def add_option(
    group: Any,
    config_class: type,
    name: str,
    option: Option,
    default: Any = None,
    other: Any = None,
    **how: Any,
) -> None:
    """Add the `option` of one field; see `add_options`."""
    kind = kinds_of(config_class)[name]
    dest = {"dest": f"{config_class.__name__}.{name}", "default": argparse.SUPPRESS}
    words = _help(option, default, other).replace("%", "%%")
    group.add_argument(
        flag_of(config_class, name), help=words, **{**dest, **_how(kind, option, default), **how}
    )


def given(arguments: argparse.Namespace, config_class: type) -> dict[str, Any]:
    """{field: value} of the options that were typed."""
    prefix = f"{config_class.__name__}."
    return {
        name.removeprefix(prefix): value for name, value in vars(arguments).items() if name.startswith(prefix)
    }


def flag_of(config_class: type, name: str) -> str:
    """The flag of a field's option."""
    option = dict(rules_of(config_class, Option)).get(name)
    return option.flag if option is not None and option.flag else f"--{name.replace('_', '-')}"


def paths_in(config_class: type, values: Mapping[str, Any]) -> dict[str, str]:
    """{field: value} of the options that name a file or a folder, of those that have a value."""
    are_paths = [name for name, option in rules_of(config_class, Option) if option.metavar in PATHS]
    return {name: values[name] for name in are_paths if values.get(name) is not None}


@contextlib.contextmanager
def in_flags(*config_classes: type):
    """A scope in which the message of a `FieldError` names options instead of fields."""
    try:
        yield
    except FieldError as error:
        flags = {name: flag_of(kind, name) for kind in config_classes for name, _ in rules_of(kind, Option)}
        raise ValueError(error.named(flags)) from None


def defaults_of(config_class: Any) -> dict[str, Any]:
    """{field: default} of the fields that have one."""
    return {
        field.name: field.default
        for field in dataclasses.fields(config_class)
        if field.default is not dataclasses.MISSING
    }


def _help(option: Option, default: Any, with_from: Any) -> str:
    if default is None:
        words = option.default
    elif isinstance(default, bool):
        words = "yes" if default else None
    else:
        words = str(default)
    other = "" if with_from is None else f"; {with_from} with --from"
    return option.help if words is None else f"{option.help} (default: {words}{other})"


def _how(kind: Any, option: Option, default: Any) -> dict[str, Any]:
    """The arguments of argparse for an option, besides its name and help."""
    parts = _parts(kind)
    (first, *others) = parts
    if first is bool and not others:
        return {"action": "store_true" if default is False else argparse.BooleanOptionalAction}
    if typing.get_origin(first) is Literal and not others:
        return {"choices": typing.get_args(first)}
    if not set(parts) <= {int, float, str}:
        raise TypeError(f"An option must be a number, a text, a choice or a switch; it is {kind}.")
    metavar = option.metavar if str in parts else "R" if float in parts else "N"
    return {"type": _parser(kind, parts, option.has_escapes), "metavar": metavar}


def _parts(kind: Any) -> list:
    """The plain types that an annotation allows, without None."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _parts(parts[0])
    if origin in (typing.Union, types.UnionType):
        return [plain for part in parts if part is not type(None) for plain in _parts(part)]
    return [kind]


def _parser(kind: Any, parts: list, has_escapes: bool) -> Callable[[str], Any]:
    """A function from a text to the value of an option."""

    def parse(text: str) -> Any:
        value: Any = text
        for convert in parts:
            with contextlib.suppress(ValueError):
                value = convert(text)
                break
        try:
            return checked(_unescaped(text) if has_escapes else value, kind, "")
        except Refusal as error:
            wrong = f"must be {error.expected}; it is {text[:80] or 'empty'}"
            raise argparse.ArgumentTypeError(wrong) from None

    return parse


def _unescaped(text: str) -> str:
    r"""The text with Python's string escapes, such as \n, replaced."""
    try:
        return codecs.decode(text.encode("latin-1", "backslashreplace"), "unicode_escape")
    except UnicodeDecodeError:
        raise Refusal("", r"a text with Python's escapes, \n or \t", text) from None
