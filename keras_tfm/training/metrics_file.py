"""RUN/metrics.csv: a row of measures per epoch. This file imports neither Keras nor TensorFlow."""

import csv
import pathlib
from collections.abc import Mapping, Sequence

from keras_tfm.training.folder import Path, new_file


def write_rows(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Write rows, {column: text}, to a CSV file with a header of all columns, completely or not at all."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with new_file(path) as work, open(work, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The complete rows of a `MetricsFile` as [{column: text}]; an empty list if there is no file."""
    try:
        text = pathlib.Path(path).read_text("utf-8")
    except FileNotFoundError:
        return []
    whole = text[: text.rfind("\n") + 1]
    rows = list(csv.DictReader(whole.splitlines()))
    if any(not (row.get("epoch") or "").isdecimal() or None in row or None in row.values() for row in rows):
        raise ValueError(f"{path}: expected a table of metrics by epoch; move the file away.")
    return rows
