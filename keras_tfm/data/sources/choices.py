"""Texts, and several possible continuations or answers of each, from files."""

import json
from typing import NamedTuple

from keras_tfm.data.sources.labelled import LABELS
from keras_tfm.data.sources.lines import Inputs, Path, Paths, check_text
from keras_tfm.data.sources.rows import (
    ColumnNames,
    Columns,
    Row,
    one_of_each,
    parse_layout,
    read_all,
    read_inputs,
    without_labels,
)

TEXTS = ("text", "question", "context", "premise", "sentence")
CHOICES = ("choices", "endings", "options", "answers")
COLUMNS = ("text", "choices", "label")


class Choices(NamedTuple):
    """Three lists of equal length: a text, its choices, and the index of the right one, from 0.

    All texts have the same number of choices.

    >>> examples = keras_tfm.data.Choices(["The sun is"], [["hot", "cold"]], [0])
    >>> examples.choices[0][examples.labels[0]]
    'hot'
    """

    texts: list[str]
    choices: list[list[str]]
    labels: list[int]


def read_choices(paths: Paths, columns: ColumnNames = None) -> Choices:
    """Read texts, their choices and the index of the right one from .jsonl or .parquet files, or data sets of
    TFDS.

    A line of a .jsonl file (plain, .gz or .xz) is {"text": "…", "choices": ["…", "…"], "label": 0}. `columns`
    are the three names, by default known ones. Paths may be patterns.

    Raises:
        DataError: for any mistake, for example a different number of choices than in the first line; the
            message names the file and the line.

    >>> import pathlib
    >>> line = '{"text": "The sun is", "choices": ["hot", "cold"], "label": 0}'
    >>> _ = pathlib.Path("choices.jsonl").write_text(line)
    >>> keras_tfm.data.read_choices("choices.jsonl")
    Choices(texts=['The sun is'], choices=[['hot', 'cold']], labels=[0])
    """
    chosen = Columns(COLUMNS, one_of_each(TEXTS, CHOICES, LABELS), parse_layout(columns, counts=(3,)))
    examples = Choices([], [], [])
    for row in read_all(paths, chosen, "texts with choices"):
        _, choices, label = row.cells
        if not isinstance(choices, list) or len(choices) < 2:
            row.refuse(f"expected a list of two choices or more, got {choices!r:.60}")
        if examples.choices and len(choices) != len(examples.choices[0]):
            row.refuse(f"expected {len(examples.choices[0])} choices, as before, got {len(choices)}")
        number = int(label) if isinstance(label, str) and label.isdecimal() else label
        if type(number) is not int or not 0 <= number < len(choices):
            row.refuse(f"expected a label from 0 to {len(choices) - 1}, got {label!r:.60}")
        examples.texts.append(row.text(0))
        examples.choices.append(
            [check_text(text, row.path, row.number, "choice", row.unit) for text in choices]
        )
        examples.labels.append(number)
    return examples


def read_unlabelled_choices(path: Path, columns: ColumnNames = None) -> Inputs:
    """(text, choices) to answer, from tables, or the lines of text files: a text and its choices, with tabs
    between.
    """

    def example(row: Row) -> tuple[str, list[str]]:
        choices = row.cells[1]
        if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
            row.refuse(f"expected a list of strings as choices, got {json.dumps(choices, default=repr)[:60]}")
        return row.text_or_blank(0), choices

    return read_inputs(path, without_labels(COLUMNS, 1, one_of_each(TEXTS, CHOICES), columns), example)
