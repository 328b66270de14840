"""Tables that commands write row by row: .csv, .tsv or .jsonl files, which appear when they are whole."""

import base64
import contextlib
import csv
import json
import os
import pathlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

SEPARATORS = {".csv": ",", ".tsv": "\t", ".jsonl": None}
END = "\r\n"
Write = Callable[[Mapping[str, Any]], None]


def check_suffix(path: str, flag: str) -> None:
    """Raise ValueError unless the name of the table at `path`, which `flag` names, says its kind."""
    if _suffix(path) not in SEPARATORS:
        raise ValueError(f"{flag}: expected a name that ends in .csv, .tsv or .jsonl, got {path}")


def holds_values(path: str) -> bool:
    """Whether the cells of the table are JSON values, not texts."""
    return SEPARATORS[_suffix(path)] is None


@contextlib.contextmanager
def new_table(path: str, columns: Sequence[str]) -> Iterator[Write]:
    """Provide a function that writes a row, {column: value}, to the table at `path`.

    Cells of .csv and .tsv with separators, quotes or ends of lines stand in quotes; None is an empty one,
    lists and objects are JSON. The file is renamed to `path` if the block ends without an error.
    """
    from keras_tfm.training.folder import new_file

    separator = SEPARATORS[_suffix(path)]
    with new_file(path) as work, open(work, "w", encoding="utf-8", errors="replace", newline="") as file:
        if separator is None:
            yield lambda row: print(as_json(row), file=file)
            return
        # Its own ends of lines, \r\n, let the writer put cells with either of both in quotes.
        lines = types.SimpleNamespace(write=lambda row: file.write(f"{row.removesuffix(END)}\n"))
        writer = csv.DictWriter(lines, columns, restval="", delimiter=separator, lineterminator=END)
        writer.writeheader()
        yield lambda row: writer.writerow({name: _cell(value) for name, value in row.items()})


def as_json(value: Any) -> str:
    """A value as one line of JSON; arrays become lists, bytes base64."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return os.fspath(value) if isinstance(value, os.PathLike) else value.tolist()


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:.6g}" if isinstance(value, float) else as_json(value)


def _suffix(path: str) -> str:
    return pathlib.Path(path).suffix.lower()
