"""The inputs of `keras-tfm predict`: lines of text, or files as for training, whose labels are ignored."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from keras_tfm.data.sources.choices import CHOICES
from keras_tfm.data.sources.choices import TEXTS as CHOICE_TEXTS
from keras_tfm.data.sources.choices import known_columns as known_choices
from keras_tfm.data.sources.conll import is_tagged, parse_sentences
from keras_tfm.data.sources.documents import text_files
from keras_tfm.data.sources.files import KNOWN_COLUMNS, known_pair
from keras_tfm.data.sources.labelled import TEXTS, WORDS, words_of
from keras_tfm.data.sources.labelled import known_columns as known_labelled
from keras_tfm.data.sources.lines import DataError, Path, files_of, numbered_lines
from keras_tfm.data.sources.questions import MAX_BYTES, parse_questions, question_of
from keras_tfm.data.sources.ratings import USERS, identifier
from keras_tfm.data.sources.ratings import known_columns as known_ratings
from keras_tfm.data.sources.rows import (
    ColumnNames,
    Columns,
    Found,
    Row,
    has_names,
    is_table,
    kind_of,
    one_of_each,
    parse_layout,
    read_rows,
)
from keras_tfm.data.sources.word_tables import is_word_table, read_word_table


class Inputs(NamedTuple):
    r"""The examples to answer, a list or an array of images, and the place of each, "line 3" for example.

    >>> import pathlib
    >>> _ = pathlib.Path("texts.txt").write_text("A cat.\nA dog.\n")
    >>> keras_tfm.data.sources.inputs.read_input_lines("texts.txt")
    Inputs(examples=['A cat.', 'A dog.'], places=['line 1', 'line 2'])
    """

    examples: Any
    places: list[str]


def read_input_lines(path: Path) -> Inputs:
    """The lines of a text file (plain, .gz or .xz), of all files of a pattern or folder, or of standard input
    for "-".
    """
    files = [file for found in files_of(path) for file in text_files(found)]
    lines = [(file, f"line {number}", text) for file in files for number, text in numbered_lines(file)]
    return Inputs([text for *_, text in lines], [_place(files, file, line) for file, line, _ in lines])


def read_sources(path, columns: ColumnNames = None) -> Inputs:
    """Sources of pairs: the lines of a text file, or the source column of a table."""
    names = sorted({source for source, _ in KNOWN_COLUMNS})
    return _texts_of(path, ("source", "target"), known_pair, one_of_each(names), columns)


def read_unlabelled_texts(path, columns: ColumnNames = None, pairs: bool = False) -> Inputs:
    """Texts, or `pairs` of them: the lines of a text file, with a tab within a pair, or the columns of a
    table.
    """
    names = ("text", "text", "label") if pairs else ("text", "label")
    return _texts_of(path, names, known_labelled, _first_group(names[:-1]), columns)


def read_users(path, columns: ColumnNames = None) -> Inputs:
    """Ids of users: the lines of a text file, or the user column of a table."""
    files = files_of(path)
    if not all(map(is_table, files)):
        return read_input_lines(path)
    inputs = Inputs([], [])
    for row in _rows(files, ("user", "rating"), known_ratings, one_of_each(USERS), columns):
        inputs.examples.append(identifier(row, 0))
        inputs.places.append(_place(files, row.path, row.place))
    return inputs


def read_unlabelled_choices(path, columns: ColumnNames = None) -> Inputs:
    """(text, choices) from a table, or the lines of a text file: a text and its choices, separated by
    tabs.
    """
    files = files_of(path)
    if not all(map(is_table, files)):
        return read_input_lines(path)
    known = one_of_each(CHOICE_TEXTS, CHOICES)
    inputs = Inputs([], [])
    for row in _rows(files, ("text", "choices", "label"), known_choices, known, columns):
        choices = row.cells[1]
        if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
            row.refuse(f"expected a list of strings as choices, got {json.dumps(choices, default=repr)[:60]}")
        inputs.examples.append((_text(row, 0), choices))
        inputs.places.append(_place(files, row.path, row.place))
    return inputs


def read_unlabelled_words(path, labels: Sequence[str], columns: ColumnNames = None) -> Inputs:
    """Sentences: lines of a text file, sentences in CoNLL columns, or words or lists of words from a table.

    A file is taken for CoNLL columns if `columns` are chosen, of which the second holds tags and is ignored,
    or if every line ends in a tag, one of `labels` or of their kind.
    """
    layout = parse_layout(columns, counts=(1, 2, 3))
    words_alone = dataclasses.replace(layout, columns=layout.columns and layout.columns[:1])
    files, inputs = files_of(path), Inputs([], [])
    found: list
    for file in files:
        if is_word_table(file, layout, always=()):
            found = read_word_table(file, layout, has_tags=False).words
            places = [f"sentence {number}" for number in range(1, len(found) + 1)]
        elif has_names(file):
            rows = list(read_rows(file, Columns(("words",), one_of_each(WORDS), words_alone)))
            found, places = [words_of(row) for row in rows], [row.place for row in rows]
        else:
            lines = list(numbered_lines(file))
            found, places = [text for _, text in lines], [f"line {number}" for number, _ in lines]
            positions = words_alone.positions_in(file)
            if positions or is_tagged(found, labels):
                found = parse_sentences(file, lines, positions and positions * 2).words
                places = [f"sentence {number}" for number in range(1, len(found) + 1)]
        inputs.examples.extend(found)
        inputs.places.extend(_place(files, file, place) for place in places)
    return inputs


def read_unanswered(path: Path) -> Inputs:
    """(question, context) from a file in SQuAD's format or a table, or the lines of a text file, with a tab
    between.
    """
    files, inputs = files_of(path), Inputs([], [])
    for file in files:
        for example, place in _unanswered(file):
            inputs.examples.append(example)
            inputs.places.append(_place(files, file, place))
    return inputs


def _unanswered(file: str) -> Iterator[tuple[Any, str]]:
    is_json = kind_of(file) == ".json"
    if has_names(file) and not is_json:
        known = one_of_each(["question"], ["context"])
        for row in read_rows(file, Columns(("question", "context"), known)):
            yield (row.text(0), row.text(1)), row.place
        return
    lines = list(numbered_lines(file, MAX_BYTES))
    if not is_json and (not lines or lines[0][1].lstrip()[:1] != "{"):
        yield from ((text, f"line {number}") for number, text in lines)
        return
    for record, context, place in parse_questions(file, lines):
        yield question_of(file, record, context, place), place


def _texts_of(path, names: tuple[str, ...], known: Found, known_inputs: Found, columns) -> Inputs:
    """The lines of a text file, or the cells of a table without the label, the last of `names`: strings or
    tuples.
    """
    files = files_of(path)
    if not all(map(is_table, files)):
        return read_input_lines(path)
    inputs = Inputs([], [])
    for row in _rows(files, names, known, known_inputs, columns):
        texts = tuple(_text(row, place) for place in range(len(row.cells)))
        inputs.examples.append(texts if len(texts) > 1 else texts[0])
        inputs.places.append(_place(files, row.path, row.place))
    return inputs


def _place(files: list[str], file: str, place: str) -> str:
    return f"{file}, {place}" if len(files) > 1 else place


def _rows(files, names: tuple[str, ...], known: Found, known_inputs: Found, columns) -> Iterator[Row]:
    """The rows of tables with the columns `names`; the last one, the label, may be missing and is dropped.

    `known` finds all columns by name, `known_inputs` those before the label.
    """
    count = len(names) - 1
    layout = parse_layout(columns, counts=(count, count + 1))

    def find(cells):
        places = known(cells)
        return places[:count] if places and len(places) > count else known_inputs(cells)

    shapes = [Columns(names, find, layout), Columns(names[:count], find, layout)]
    if layout.columns:
        layout = dataclasses.replace(layout, columns=layout.columns[:count])
        shapes = [Columns(names[:count], find, layout)]
    for file in files:
        for shape in shapes:
            rows = read_rows(file, shape)
            try:
                first = list(itertools.islice(rows, 1))
            except DataError:
                if shape is shapes[-1]:
                    raise
                continue
            for row in itertools.chain(first, rows):
                yield row._replace(cells=row.cells[:count])
            break


def _text(row: Row, place: int) -> str:
    """The cell as a text, which may be blank; DataError for anything else."""
    text = row.cells[place]
    return text if isinstance(text, str) and (not text or text.isspace()) else row.text(place)


def _first_group(columns: tuple[str, ...]) -> Found:
    """A function that finds as many text columns as there are `columns`, under names of known data sets."""

    def find(cells):
        groups = (names for names in TEXTS if len(names) == len(columns) and set(names) <= set(cells))
        return next((tuple(map(cells.index, names)) for names in groups), None)

    return find
