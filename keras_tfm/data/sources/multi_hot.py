"""Labels as columns of 0 and 1, one column for each label, beside a column of texts."""

import dataclasses
import logging
from typing import Any

from keras_tfm.data.sources.rows import Columns, Layout, read_rows

LOG = logging.getLogger(__name__)
NOT_LABELS = ("", "id", "index", "idx", "unnamed: 0")  # columns that count rows, where 0 and 1 say nothing
VALUES = {"0": False, "0.0": False, "1": True, "1.0": True}


def read_multi_hot(
    path: str, names: list[str], text: int, layout: Layout
) -> tuple[list[str], list[list[str]]] | None:
    """The texts in column number `text` of a table with the columns `names`, and for each the names of the
    columns that hold 1. Labels are the columns in which all cells are 0 or 1; None if there is none.
    DataError as in `read_rows`.
    """
    layout = dataclasses.replace(layout, columns=names)
    rows = list(read_rows(path, Columns(tuple(names), lambda cells: None, layout)))
    places = [
        place
        for place, name in enumerate(names)
        if place != text
        and name.lower() not in NOT_LABELS
        and all(_value(x.cells[place]) is not None for x in rows)
    ]
    if not rows or not places:
        return None
    rest = [name for place, name in enumerate(names) if place not in (text, *places)]
    if rest := [name for name in rest if name.lower() not in NOT_LABELS]:
        labels = ", ".join(names[place] for place in places)
        LOG.warning(
            "%s: the labels are %s; not read are %s, which hold more than 0 and 1",
            path,
            labels,
            ", ".join(rest),
        )
    return [row.text(text) for row in rows], [
        [names[place] for place in places if _value(row.cells[place])] for row in rows
    ]


def _value(cell: Any) -> bool | None:
    """Whether a cell holds 1; None if it holds neither 0 nor 1."""
    return VALUES.get(str(int(cell) if isinstance(cell, bool) else cell).strip())
