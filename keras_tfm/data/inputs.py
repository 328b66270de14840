"""What `keras-tfm predict` reads: lines of text, or files as for training, whose labels are passed over."""

import itertools
import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras_tfm.data.choices import CHOICES
from keras_tfm.data.choices import TEXTS as CHOICE_TEXTS
from keras_tfm.data.choices import known_columns as known_choices
from keras_tfm.data.documents import text_files
from keras_tfm.data.labelled import TEXTS, is_tagged, parse_tagged_words
from keras_tfm.data.labelled import known_columns as known_labelled
from keras_tfm.data.questions import MAX_BYTES, parse_questions
from keras_tfm.data.sources import (
    KNOWN_COLUMNS,
    Columns,
    DataError,
    Row,
    known_pair,
    numbered_lines,
    parse_columns,
    read_pairs,
    read_rows,
)

Found = Callable[[list[str]], tuple[int, ...] | None]


class Inputs(NamedTuple):
    """What a task answers, a list or an array of images, and where each of it stands, "line 3"."""

    examples: Any
    places: list[str]


def read_input_lines(path) -> Inputs:
    """The lines of a text file (plain, .gz or .xz), of all text files in a folder, by name, or of standard
    input for "-".
    """
    files = text_files(os.fspath(path))
    lines = [(file, number, text) for file in files for number, text in numbered_lines(file)]
    several = len(files) > 1
    return Inputs(
        [text for *_, text in lines],
        [f"{file}, line {number}" if several else f"line {number}" for file, number, _ in lines],
    )


def read_sources(path, columns: Sequence[str | int] | None = None) -> Inputs:
    """Sources of pairs: a text file's lines, the first or the known column of a table, or a TFDS's."""
    path = os.fspath(path)
    if path.startswith("tfds:"):
        sources = read_pairs(path, columns).sources
        return Inputs(sources, [f"example {number}" for number in range(1, len(sources) + 1)])
    names = sorted({source for source, _ in KNOWN_COLUMNS})
    return _texts_of(path, ("source", "target"), known_pair, _first_of(names), columns)


def read_unlabelled_texts(path, columns: Sequence[str | int] | None = None, pairs: bool = False) -> Inputs:
    """Texts, or `pairs` of them: a text file's lines, a tab between two, or the columns of a table."""
    names = ("text", "text", "label") if pairs else ("text", "label")
    return _texts_of(path, names, known_labelled, _first_group(names[:-1]), columns)


def read_unlabelled_choices(path, columns: Sequence[str | int] | None = None) -> Inputs:
    """(text, choices), or a text file's lines, a text and its choices with tabs between."""
    if not _is_table(path):
        return read_input_lines(path)
    known = _all_of(_first_of(CHOICE_TEXTS), _first_of(CHOICES))
    inputs = Inputs([], [])
    for row in _rows(path, ("text", "choices", "label"), known_choices, known, columns):
        choices = row.cells[1]
        if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
            row.refuse(f"expected a list of strings as choices, got {json.dumps(choices)[:60]}")
        inputs.examples.append((_text(row, 0), choices))
        inputs.places.append(f"line {row.line}")
    return inputs


def read_unlabelled_words(path, labels: Sequence[str]) -> Inputs:
    """Sentences: a text file's lines, or those in CoNLL columns, which a file has where every line ends in a
    tag, one of `labels` or of their kind.
    """
    path = os.fspath(path)
    lines = list(numbered_lines(path))
    if not is_tagged((text for _, text in lines), labels):
        return Inputs([text for _, text in lines], [f"line {number}" for number, _ in lines])
    words = parse_tagged_words(path, lines).words
    return Inputs(words, [f"sentence {number}" for number in range(1, len(words) + 1)])


def read_unanswered(path) -> Inputs:
    """(question, context) of a file in SQuAD's format, or a text file's lines, a tab between the two."""
    path = os.fspath(path)
    lines = list(numbered_lines(path, MAX_BYTES))
    is_json = re.search(r"\.json(\.gz|\.xz)?$", path.lower()) or (lines and lines[0][1].lstrip()[:1] == "{")
    if not is_json:
        return Inputs([text for _, text in lines], [f"line {number}" for number, _ in lines])
    inputs = Inputs([], [])
    for question, context, _, place in parse_questions(path, lines):
        inputs.examples.append((question, context))
        inputs.places.append(place)
    return inputs


def _texts_of(path, names: tuple[str, ...], known: Found, known_inputs: Found, columns) -> Inputs:
    """A text file's lines, or the cells of a table's rows but for the last of `names`: strings or tuples."""
    if not _is_table(path):
        return read_input_lines(path)
    inputs = Inputs([], [])
    for row in _rows(path, names, known, known_inputs, columns):
        texts = tuple(_text(row, place) for place in range(len(row.cells)))
        inputs.examples.append(texts if len(texts) > 1 else texts[0])
        inputs.places.append(f"line {row.line}")
    return inputs


def _is_table(path) -> bool:
    return re.search(r"\.(tsv|csv|jsonl)(\.gz|\.xz)?$", os.fspath(path).lower()) is not None


def _rows(path, names: tuple[str, ...], known: Found, known_inputs: Found, columns):
    """The rows of a table that has the columns `names`, of which the last, the label, may be missing and is
    left out. `known` finds all of them by their names, `known_inputs` those before the label.
    """
    path, count = os.fspath(path), len(names) - 1
    columns = parse_columns(columns, counts=(count, count + 1))

    def find(cells):
        places = known(cells)
        return places[:count] if places and len(places) > count else known_inputs(cells)

    layouts = [Columns(names, find), Columns(names[:count], find)]
    if columns:
        layouts = [Columns(names[:count], find, columns[:count])]
    for layout in layouts:
        rows = read_rows(path, layout)
        try:
            first = list(itertools.islice(rows, 1))
        except DataError:
            if layout is layouts[-1]:
                raise
            continue
        for row in itertools.chain(first, rows):
            yield row._replace(cells=row.cells[:count])
        return


def _text(row: Row, place: int) -> str:
    """The cell as a text, which may be blank; DataError where it is none."""
    text = row.cells[place]
    return text if isinstance(text, str) and (not text or text.isspace()) else row.text(place)


def _first_of(names: Sequence[str]) -> Found:
    def find(cells):
        return next(((cells.index(name),) for name in names if name in cells), None)

    return find


def _first_group(columns: tuple[str, ...]) -> Found:
    """Finds as many texts as there are `columns`, as known sets name them."""

    def find(cells):
        groups = (names for names in TEXTS if len(names) == len(columns) and set(names) <= set(cells))
        return next((tuple(map(cells.index, names)) for names in groups), None)

    return find


def _all_of(*parts: Found) -> Found:
    def find(cells):
        places = [part(cells) for part in parts]
        return tuple(place for found in places for place in found or ()) if all(places) else None

    return find
