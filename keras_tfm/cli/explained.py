"""`evaluate` in words, as a table and as a picture: which classes, which of them for which, which rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_tfm.cli.tables import Write

MOST_CLASSES = 40  # lines of a table of classes, the classes with most examples first
MOST_COLUMNS = 12  # classes whose whole matrix is printed; of more, the pairs that are mistaken most often
MOST_PAIRS = 10
MOST_ERRORS = 1_000  # rows of --errors


def class_lines(counts: Mapping[str, Any]) -> Iterator[str]:
    """A table of the precision, recall, F1 and number of each class or kind of span."""
    most = sorted(counts, key=lambda name: -counts[name].true)[:MOST_CLASSES]
    names = [name for name in counts if name in most]
    cells = [
        [name, *(f"{value:.4f}" for value in (count.precision, count.recall, count.f1)), f"{count.true:,}"]
        for name, count in ((name, counts[name]) for name in names)
    ]
    yield from aligned([["", "precision", "recall", "F1", "count"], *cells])
    if len(counts) > len(names):
        yield f"and {len(counts) - len(names):,} rarer ones"


def confusion_lines(labels: Sequence[str], matrix: np.ndarray) -> Iterator[str]:
    """A confusion matrix or, of many classes, the commonest mistakes."""
    if len(labels) <= MOST_COLUMNS:
        rows = ([name, *map(str, row)] for name, row in zip(labels, matrix, strict=True))
        yield from aligned([["truth \\ answer", *labels], *rows])
        return
    wrong = matrix * ~np.eye(len(labels), dtype=bool)
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    for row, column in zip(*np.unravel_index(order, matrix.shape), strict=True):
        if wrong[row, column]:
            yield f"{labels[row]} was taken for {labels[column]} {wrong[row, column]:,} times"


def aligned(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Cells in columns, the first one from the left."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [first.ljust(widths[0])] + [x.rjust(w) for x, w in zip(others, widths[1:], strict=True)]
        yield "  ".join(cells).rstrip()


ERROR_COLUMNS = ("row", "input", "truth", "answer", "confidence", "loss")


def write_errors(write: Write, inputs: Any, judgements: Any) -> None:
    """Write the rows with the largest losses, the worst first; `row` counts the examples from 1."""
    confidences = judgements.confidences
    has_confidences = confidences is not None and len(confidences) == len(judgements.losses)
    for row in np.argsort(-judgements.losses, kind="stable")[:MOST_ERRORS]:
        confidence = {"confidence": float(confidences[row])} if has_confidences else {}
        write(
            {
                "row": int(row) + 1,
                "input": input_at(inputs, row),
                "truth": judgements.truth[row],
                "answer": judgements.answers[row],
                **confidence,
                "loss": float(judgements.losses[row]),
            }
        )


def input_at(inputs: Any, row: int) -> Any:
    """An example's input: a text, or the name of an image's file; None for an array."""
    if hasattr(inputs, "place"):
        return inputs.place(row)
    return None if hasattr(inputs, "dtype") else inputs[row]
