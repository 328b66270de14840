"""Ids and whole numbers in JSON, also written as texts or whole floats: 7, 7.0 and "7" are one."""

import re
from collections.abc import Mapping
from typing import Any

Id = int | str
WHOLE = re.compile(r"(0|-?[1-9][0-9]{0,18})(\.0+)?")  # how an integer is written


def as_id(value: Any) -> Id | None:
    """A value of JSON as an id, an integer or a text; None for one that cannot be an id."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def as_number(value: Any) -> int | None:
    """A value of JSON as an integer, also from the text of one; None for others."""
    id = as_id(value)
    if isinstance(id, str):
        match = WHOLE.fullmatch(id)
        return int(match[1]) if match else None
    return id


def known_id(value: Any, known: Mapping[Id, Any]) -> Any:
    """The id among those `known` that a value of JSON stands for, as it is or as 7 does for "7"; None for
    none.
    """
    id = as_id(value)
    if id is None or id in known:
        return id
    other = as_number(id) if isinstance(id, str) else str(id)
    return other if other in known else None
