"""Texts with labels, words with tags: out of files."""

import math
import os
from collections.abc import Sequence
from typing import NamedTuple

from keras_tfm.data.sources import Columns, DataError, Row, numbered_lines, parse_columns, read_rows

LABELS = ("label", "labels", "class", "category", "sentiment", "score", "target", "gold_label")
# Texts that stand beside a label, as known sets name them.
TEXTS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text1", "text2"),
    ("question", "sentence"), ("question", "passage"), ("text_a", "text_b"), ("first", "second"),
    ("sentence",), ("text",), ("review",), ("comment",),
)  # fmt: skip
PROBLEMS = ("classes", "multi-label", "regression")


class LabelledTexts(NamedTuple):
    """Two lists of equal length: a text, or a tuple of two, and its label.

    A label is a string, a list of strings where several hold at once, or a number.
    """

    texts: list
    labels: list


class TaggedWords(NamedTuple):
    """Two lists of equal length: the words of a sentence, and as many tags."""

    words: list[list[str]]
    tags: list[list[str]]


def read_labelled_texts(
    paths, columns: Sequence[str | int] | None = None, problem: str = "classes"
) -> LabelledTexts:
    """Reads one or several .tsv (unquoted), .csv or .jsonl files, plain, .gz or .xz, of texts, or pairs of
    texts, and their labels. `columns` chooses text and label, or text, text and label, by name or by position
    from 0; a first row is a header when `columns` are names or when it holds known ones. `problem` says what
    a label is: "classes", "multi-label" (names parted by commas, or a list) or "regression" (a number).
    Raises DataError, naming file and line, for whatever is not as it must be.
    """
    if problem not in PROBLEMS:
        raise ValueError(f"problem: expected one of {', '.join(PROBLEMS)}, got {problem!r}")
    columns = parse_columns(columns, counts=(2, 3))
    examples = LabelledTexts([], [])
    for path in map(os.fspath, [paths] if isinstance(paths, (str, os.PathLike)) else paths):
        before = len(examples.texts)
        for row in _rows(path, columns):
            texts = tuple(map(row.text, range(len(row.cells) - 1)))
            examples.texts.append(texts if len(texts) == 2 else texts[0])
            examples.labels.append(_label(row, len(texts), problem))
        if len(examples.texts) == before:
            raise DataError(path, None, "expected labelled texts, the file is empty")
    if len({type(text) for text in examples.texts}) > 1:
        raise ValueError("paths: expected either texts or pairs of texts in all files, got both")
    return examples


def _rows(path, columns):
    names = ("text", "text", "label") if columns and len(columns) == 3 else ("text", "label")
    return read_rows(path, Columns(names, _known, columns))


def _known(cells: list[str]) -> tuple[int, ...] | None:
    label = next((name for name in LABELS if name in cells), None)
    texts = next((names for names in TEXTS if set(names) <= set(cells)), None)
    return None if label is None or texts is None else tuple(map(cells.index, (*texts, label)))


def _label(row: Row, place: int, problem: str):
    value = row.cells[place]
    if problem == "multi-label":
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            row.refuse(f"expected names of labels, got {value!r:.60}")
        return [name.strip() for name in names if name.strip()]
    if (
        isinstance(value, bool | list | dict)
        or value is None
        or (isinstance(value, str) and not value.strip())
    ):
        row.refuse(f"expected a label, got {value!r:.60}")
    if problem == "classes":
        return str(value).strip()
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        row.refuse(f"expected a number as the label, got {value!r:.60}")
    return number


def read_tagged_words(paths) -> TaggedWords:
    """Reads CoNLL columns: a word and its tag a line, the first and the last of at least two columns, parted
    by tabs or, without any, by spaces; blank lines between sentences; -DOCSTART- lines are passed over.
    Raises DataError where a line has another number of columns than the first, and for empty files.
    """
    examples = TaggedWords([], [])
    for path in map(os.fspath, [paths] if isinstance(paths, (str, os.PathLike)) else paths):
        before, width = len(examples.words), None
        words: list[str] = []
        tags: list[str] = []
        for number, line in numbered_lines(path):
            line = line.replace("\ufeff", "").strip()  # files put together hold marks of byte order within
            cells = [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
            if not cells:
                _end_sentence(examples, words, tags)
                words, tags = [], []
            elif cells[0] != "-DOCSTART-":
                width = width or len(cells)
                if len(cells) != width or width < 2:
                    expected = width if width > 1 else "two or more"
                    raise DataError(path, number, f"expected {expected} columns, got {len(cells)}")
                words.append(cells[0])
                tags.append(cells[-1])
        _end_sentence(examples, words, tags)
        if len(examples.words) == before:
            raise DataError(path, None, "expected tagged words, the file has none")
    return examples


def _end_sentence(examples, words, tags):
    if words:
        examples.words.append(words)
        examples.tags.append(tags)
