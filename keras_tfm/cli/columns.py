"""How a table is laid out: --columns A,B, names or numbers from 0, --header, --no-header and --quoted.

This file imports no TensorFlow, since the parser needs it.
"""

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from keras_tfm.cli.generated import add_options, given
from keras_tfm.configs import Config, Option


@dataclasses.dataclass(frozen=True)
class TableOptions(Config):
    """The fields of a `data.Layout` but for its columns."""

    header: Annotated[
        bool | None,
        Option(
            "the first row of a .tsv or .csv file holds names of columns",
            default="yes, if they are known names such as text, label",
        ),
    ] = None
    quoted: Annotated[
        bool, Option("cells of a .tsv file may stand in quotes, as they may in a .csv file")
    ] = False


def add_table_options(group: Any) -> None:
    """Add --header, --no-header and --quoted."""
    add_options(group, TableOptions)


def layout_of(text: str | None, options: argparse.Namespace | Mapping[str, Any]) -> Any:
    """The columns in --columns, as names or numbers; a `Layout` of them if `options`, as typed or {field:
    value}, say more.
    """
    columns = None if text is None else [int(name) if name.isdecimal() else name for name in text.split(",")]
    more = given(options, TableOptions) if isinstance(options, argparse.Namespace) else options
    if not more:
        return columns
    from keras_tfm.data.sources.rows import Layout

    return Layout(columns, **more)


def columns_of(task: Any, options: argparse.Namespace, file: str, may_lack_label: bool = False) -> str | None:
    """--columns as typed or, where nothing is said of the header, the names of columns that the training of
    the `task` was given, if the table `file` has them; its last one, the label, may be missing.
    """
    trained = task.record.get("command", {}).get("columns")
    layout = given(options, TableOptions)
    if options.columns is not None or "header" in layout or not trained or file == "-":
        return options.columns
    from keras_tfm.data.sources.lines import DataError, files_of
    from keras_tfm.data.sources.rows import Layout, names_in_first_row, refuse_separator

    names = trained.split(",")
    kinds = [names, names[:-1]] if may_lack_label and len(names) > 1 else [names]

    def chosen_in(row: list[str]) -> list[str] | None:
        return next((some for some in kinds if {*row}.issuperset(some)), None)

    try:
        path = files_of(file)[0]
        row = names_in_first_row(path, Layout(**layout))
    except DataError:  # the task says what is wrong with the file, if it does not read it in another way
        return None
    if chosen := chosen_in(row):
        return ",".join(chosen)
    refuse_separator(path, 1, row, chosen_in)
    return None


def check_columns(task: Any, text: str | None, counts: tuple[int, ...] | None = None) -> None:
    """Raise ValueError if --columns names more or fewer columns than a task takes."""
    counts = task.columns if counts is None else counts
    if text is not None and text.count(",") + 1 not in counts:
        words = {1: "one, A", 2: "two, A,B", 3: "three, A,B,C"}
        expected = " or ".join(words.get(count, f"{count} of them") for count in counts)
        raise ValueError(f"--columns: expected {expected}; got {text}")
