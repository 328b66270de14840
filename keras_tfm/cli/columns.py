"""How a table is laid out: --columns A,B, names or numbers from 0, --header, --no-header and --quoted.

This file imports no TensorFlow, since the parser needs it.
"""

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from keras_tfm.cli.console import warn
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


def table_flag(options: argparse.Namespace) -> str | None:
    """The first option of a table's that was typed, as its flag."""
    if options.columns is not None:
        return "--columns"
    layout = layout_of(None, options)
    return layout and layout.flag


def as_trained(task: Any, options: argparse.Namespace, file: str, may_lack_label: bool = False) -> None:
    """Complete `options` by what the training of the `task` was told of its tables, where nothing else is
    said: whether a .tsv or .csv file has a header, and a .tsv file quotes; and its columns, if the table
    `file` has them, whose last one, the label, may be missing, else with a warning.
    """
    from keras_tfm.data.sources.lines import DataError, files_of
    from keras_tfm.data.sources.rows import Layout, has_names, kind_of, names_in_first_row, refuse_separator
    from keras_tfm.tasks.task import Task

    command = task.record.get("command", {})
    if file == "-" or (may_lack_label and type(task).read_inputs is Task.read_inputs):  # which reads lines
        return
    layout, names = given(options, TableOptions), (command.get("columns") or "").split(",")
    is_told = options.columns is not None or "header" in layout
    try:
        path = files_of(file)[0]
        if not layout and (kind := kind_of(path)) in (".tsv", ".csv"):
            kept = command.get("layout", {})
            layout = {name: kept[name] for name in kept if name == "header" or kind == ".tsv"}
            for name, value in layout.items():
                setattr(options, f"{TableOptions.__name__}.{name}", value)
        if is_told or not names[0]:
            return
        row = names_in_first_row(path, Layout(**layout))
    except DataError:  # the task says what is wrong with the file, if it does not read it in another way
        return
    if all(map(str.isdecimal, names)):
        if not has_names(path) and len(row) > max(map(int, names)):
            options.columns = command["columns"]
        return
    kinds = [names, names[:-1]] if may_lack_label and len(names) > 1 else [names]

    def chosen_in(row: list[str]) -> list[str] | None:
        return next((some for some in kinds if {*row}.issuperset(some)), None)

    if chosen := chosen_in(row):
        options.columns = ",".join(chosen)
        return
    refuse_separator(path, 1, row, chosen_in)
    if has_names(path):
        got, how = "the columns are", "known ones such as text are read, else the first; or pass --columns"
    elif layout.get("header"):
        got, how = "the first row has", "known names such as text are read, else the first; or pass --columns"
    else:
        got, how = "the first row has", "it is read as an example unless these are known names such as text"
        how += "; pass --columns, --header or --no-header"
    if row:
        warn(f"{path}: the training read {', '.join(kinds[-1])}, {got} {', '.join(row)[:200]}: {how}")


def check_columns(task: Any, text: str | None, counts: tuple[int, ...] | None = None) -> None:
    """Raise ValueError if --columns names more or fewer columns than a task takes."""
    counts = task.columns if counts is None else counts
    if text is not None and text.count(",") + 1 not in counts:
        words = {1: "one, A", 2: "two, A,B", 3: "three, A,B,C"}
        expected = " or ".join(words.get(count, f"{count} of them") for count in counts)
        raise ValueError(f"--columns: expected {expected}; got {text}")
