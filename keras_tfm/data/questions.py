"""Questions about texts, out of files in the format of SQuAD (Rajpurkar et al. 2016, 2018)."""

import json
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from keras_tfm.configs import parse_json
from keras_tfm.data.sources import DataError, check_text, numbered_lines

MAX_BYTES = 1 << 28  # of a line: these files, of up to some hundred megabytes, are often a single one


class Answer(NamedTuple):
    """A part of a context, and the character where it starts there."""

    text: str
    start: int


class Questions(NamedTuple):
    """Three lists of equal length: a question, the text that may answer it, and its right answers there.

    Questions without an answer have none.
    """

    questions: list[str]
    contexts: list[str]
    answers: list[list[Answer]]


def read_questions(paths) -> Questions:
    """Reads one or several JSON files in the format of SQuAD 1.1 or 2.0, plain, .gz or .xz.

    {"data": [{"paragraphs": [{"context": "…", "qas": [{"id": "…", "question": "…", "answers": [{"text": "…",
    "answer_start": 0}], "is_impossible": false}]}]}]}. Raises DataError, naming the file and the place in it,
    for whatever is not as it must be, an answer that its context does not have there among it.
    """
    examples = Questions([], [], [])
    for path in map(os.fspath, [paths] if isinstance(paths, (str, os.PathLike)) else paths):
        before = len(examples.questions)
        for question, context, record, place in parse_questions(path, numbered_lines(path, MAX_BYTES)):
            examples.questions.append(question)
            examples.contexts.append(context)
            examples.answers.append(_answers(path, record, place, context))
        if len(examples.questions) == before:
            raise DataError(path, None, "expected questions, the file has none")
    return examples


def check_answer(context: str, answer: Answer) -> None:
    """Raise ValueError, naming both strings, where the context has not the answer at its start."""
    text, start = answer
    there = context[max(0, start) : max(0, start) + len(text)]
    if start < 0 or there != text or not text:
        raise ValueError(f"expected the answer {text[:60]!r} at character {start}, got {there[:60]!r}")


def parse_questions(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[str, str, dict, str]]:
    """Question, context, the question's record, and where that stands, of a file's numbered lines; see
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
    """The objects in the list `record[key]`, and where each stands in the file."""
    where = f"{place}.{key}" if place else key
    for number, value in enumerate(_value(path, record, place, key, list)):
        yield value, f"{where}[{number}]"


def _text(path: str, record: dict, place: str, key: str) -> str:
    return check_text(_value(path, record, place, key, str), path, None, f"{place}.{key}")


def _value(path: str, record, place: str, key: str, kind: type):
    """`record[key]`, of the class `kind`."""
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
