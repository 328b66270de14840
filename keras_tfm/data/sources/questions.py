"""Questions about texts, from files in SQuAD's format (Rajpurkar et al. 2016, 2018)."""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from keras_tfm.configs import parse_json
from keras_tfm.data.sources.lines import DataError, Paths, check_text, files_of, numbered_lines
from keras_tfm.data.sources.rows import (
    ColumnNames,
    Columns,
    Row,
    has_names,
    kind_of,
    parse_layout,
    read_all,
    refuse_columns_of_text,
)

COLUMNS = ("question", "context", "answers")
MAX_BYTES = 1 << 28  # longest line: such files, of up to some hundred megabytes, are often one line


class Answer(NamedTuple):
    """A part of a context, and the index of its first character there.

    >>> answer = keras_tfm.data.Answer("blue", start=11)
    >>> "The sky is blue."[answer.start :]
    'blue.'
    """

    text: str
    start: int


class Questions(NamedTuple):
    """Three lists of equal length: a question, the text that may answer it, and its right answers in that
    text.

    The list of answers is empty for a question without an answer.

    >>> answer = keras_tfm.data.Answer("The sky", start=0)
    >>> data = keras_tfm.data.Questions(["What is blue?"], ["The sky is blue."], [[answer]])
    >>> data.answers[0][0].text
    'The sky'
    """

    questions: list[str]
    contexts: list[str]
    answers: list[list[Answer]]


def read_questions(paths: Paths, columns: ColumnNames = None) -> Questions:
    """Read questions, contexts and answers from JSON files in the format of SQuAD 1.1 or 2.0, or from tables.

    A JSON file (plain, .gz or .xz) has the form {"data": [{"paragraphs": [{"context": "…", "qas": [{"id":
    "…", "question": "…", "answers": [{"text": "…", "answer_start": 0}], "is_impossible": false}]}]}]}. A
    .jsonl or .parquet file, or a data set of TFDS, has the columns question, context and answers, {"text":
    ["…"], "answer_start": [0]} with empty lists for no answer; `columns` gives them other names. Paths may be
    patterns.

    Raises:
        DataError: for any mistake in a file, for example an answer that is not at its place in the context;
            the message names the file and the place.

    >>> import json, pathlib
    >>> answers = {"text": ["The sky"], "answer_start": [0]}
    >>> row = {"question": "What is blue?", "context": "The sky is blue.", "answers": answers}
    >>> _ = pathlib.Path("questions.jsonl").write_text(json.dumps(row))
    >>> keras_tfm.data.read_questions("questions.jsonl").answers
    [[Answer(text='The sky', start=0)]]
    """
    chosen = Columns(COLUMNS, known_columns, parse_layout(columns, counts=(3,)))
    refuse_columns_of_text(paths, columns)
    examples = Questions([], [], [])
    for path in files_of(paths):
        before = len(examples.questions)
        is_table = has_names(path) and kind_of(path) != ".json"
        for row in read_all(path, chosen, "questions") if is_table else ():
            examples.questions.append(row.text(0))
            examples.contexts.append(row.text(1))
            examples.answers.append(_answers_of(row))
        lines = () if is_table else numbered_lines(path, MAX_BYTES)
        for question, context, record, place in parse_questions(path, lines) if lines else ():
            examples.questions.append(question)
            examples.contexts.append(context)
            examples.answers.append(_answers(path, record, place, context))
        if len(examples.questions) == before:
            raise DataError(path, None, "expected questions, the file has none")
    return examples


def known_columns(cells: list[str]) -> tuple[int, ...] | None:
    """The positions of question, context and answers among a table's columns; None if it lacks one."""
    return tuple(map(cells.index, COLUMNS)) if set(COLUMNS) <= set(cells) else None


def _answers_of(row: Row) -> list[Answer]:
    """The answers in a table's row, given as lists of texts and starts, or as a list of objects with both."""
    value, context = row.cells[2], row.cells[1]
    if isinstance(value, list) and all(isinstance(x, dict) for x in value):
        value = {key: [x.get(key) for x in value] for key in ("text", "answer_start")}
    texts, starts = (value.get(key) if isinstance(value, dict) else None for key in ("text", "answer_start"))
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        row.refuse(f'expected answers as {{"text": […], "answer_start": […]}}, got {row.cells[2]!r:.60}')
    answers = [Answer(*both) for both in zip(texts, starts, strict=True)]
    for text, start in answers:
        if type(start) is not int or not isinstance(text, str):
            row.refuse(f"expected a text and a whole number as an answer, got {text!r:.40} and {start!r:.20}")
        try:
            check_answer(context, Answer(text, start))
        except ValueError as error:
            row.refuse(str(error))
    return answers


def check_answer(context: str, answer: Answer) -> None:
    """Raise ValueError, quoting both strings, unless the context has the answer at its start."""
    text, start = answer
    there = context[max(0, start) : max(0, start) + len(text)]
    if start < 0 or there != text or not text:
        raise ValueError(f"expected the answer {text[:60]!r} at character {start}, got {there[:60]!r}")


def parse_questions(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str, dict, str]]:
    """Question, context, the question's record and its place, from a file's numbered lines; see
    `read_questions`.
    """
    for paragraph, place in _paragraphs(path, lines):
        context = _text(path, paragraph, place, "context")
        for record, where in _values(path, paragraph, place, "qas"):
            yield _text(path, record, where, "question"), context, record, where


def _paragraphs(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[dict, str]]:
    try:
        content = parse_json("\n".join(text for _, text in lines))
    except json.JSONDecodeError as error:
        raise DataError(path, error.lineno, f"expected JSON: {error.msg}") from None
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(path, None, f"expected JSON: {error}") from None
    for article, place in _values(path, content, "", "data"):
        yield from _values(path, article, place, "paragraphs")


def _answers(path: str, question: dict, place: str, context: str) -> list[Answer]:
    if question.get("is_impossible", False) is True:
        return []
    answers = []
    for answer, where in _values(path, question, place, "answers"):
        text, start = (
            _value(path, answer, where, key, kind) for key, kind in (("text", str), ("answer_start", int))
        )
        answers.append(Answer(text, start))
        try:
            check_answer(context, answers[-1])
        except ValueError as error:
            raise DataError(path, None, f"{place}, id {question.get('id')!r}: {error}") from None
    if not answers:
        raise DataError(path, None, f"{place}: expected answers, or is_impossible true, got none")
    return answers


def _values(path: str, record: dict, place: str, key: str) -> Iterator[tuple[dict, str]]:
    """The objects in the list `record[key]`, and the place of each in the file."""
    where = f"{place}.{key}" if place else key
    for number, value in enumerate(_value(path, record, place, key, list)):
        yield value, f"{where}[{number}]"


def _text(path: str, record: dict, place: str, key: str) -> str:
    return check_text(_value(path, record, place, key, str), path, None, f"{place}.{key}")


def _value(path: str, record, place: str, key: str, kind: type):
    """`record[key]`, which must be of the class `kind`."""
    names = {str: "a string", int: "a whole number", list: "a list"}
    where = place or "the file"
    if not isinstance(record, dict):
        raise DataError(path, None, f"{where}: expected an object, got {json.dumps(record)[:60]}")
    if key not in record:
        got = ", ".join(record)[:200] or "none"
        raise DataError(path, None, f"{where}: expected a key {key!r}, got {got}")
    if type(record[key]) is not kind:
        got = json.dumps(record[key])[:60]
        raise DataError(path, None, f"{where}: expected {names[kind]} as {key!r}, got {got}")
    return record[key]
