"""Questions about texts, from files in SQuAD's format (Rajpurkar et al. 2016, 2018)."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from keras_tfm.configs import parse_json
from keras_tfm.data.sources.lines import (
    DataError,
    Inputs,
    Path,
    Paths,
    as_inputs,
    check_text,
    files_of,
    inputs_in,
    numbered_lines,
    tell_left_out,
)
from keras_tfm.data.sources.rows import (
    NAMED,
    ColumnNames,
    Columns,
    Row,
    has_names,
    kind_of,
    one_of_each,
    parse_layout,
    read_all,
    read_rows,
    refuse_layout,
    without_labels,
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
    "…", "question": "…", "answers": [{"text": "…", "answer_start": 0}], "is_impossible": false}]}]}]}, or is
    a list of such paragraphs, or of rows as in a table. A .jsonl or .parquet file, or a data set of TFDS, has
    the columns question, context and answers, {"text": ["…"], "answer_start": [0]}; `columns` gives them
    other names. No answers mean that the context has none. Paths may be patterns. Questions with a mistake,
    for example an answer that is not at its place in the context, are skipped, with a warning that counts
    them and names some.

    Raises:
        DataError: for a mistake elsewhere in a file, and if no question is left; the message names the file
            and the place.

    >>> import json, pathlib
    >>> answers = {"text": ["The sky"], "answer_start": [0]}
    >>> row = {"question": "What is blue?", "context": "The sky is blue.", "answers": answers}
    >>> _ = pathlib.Path("questions.jsonl").write_text(json.dumps(row))
    >>> keras_tfm.data.read_questions("questions.jsonl").answers
    [[Answer(text='The sky', start=0)]]
    """
    chosen = Columns(COLUMNS, known_columns, parse_layout(columns, counts=(3,)))
    files = files_of(paths)
    if files and not any(map(has_names, files)):
        refuse_layout(files[0], chosen.layout, NAMED)
    examples = Questions([], [], [])
    for path in files:
        is_table = has_names(path) and (kind_of(path) != ".json" or columns is not None)
        asked = _of_table(path, chosen) if is_table else _of_squad(path, numbered_lines(path, MAX_BYTES))
        count, problems = 0, dict[str, str]()
        first: DataError | None = None
        for place, read in asked:
            count += 1
            try:
                question, context, answers = read()
            except DataError as error:
                first = first or error
                problems[f"{path}, {place}"] = error.problem.removeprefix(place).lstrip(":. ")
                continue
            examples.questions.append(question)
            examples.contexts.append(context)
            examples.answers.append(answers)
        if count == len(problems):
            raise first or DataError(path, None, "expected questions, the file has none")
        tell_left_out(problems, count, "questions")
    return examples


def read_unanswered(path: Path, columns: ColumnNames = None) -> Inputs:
    """(question, context) to answer, from files in SQuAD's format or tables, whose `columns` are as in
    `read_questions`, or the lines of text files, with a tab between.
    """
    files, chosen = (
        files_of(path),
        without_labels(COLUMNS, 1, one_of_each(["question"], ["context"]), columns),
    )
    if not any(map(has_names, files)):
        refuse_layout(path, chosen.layout, NAMED)
    return inputs_in(files, lambda file: _unanswered(file, chosen))


def _unanswered(file: str, chosen: Columns) -> Inputs:
    is_json = kind_of(file) == ".json"
    if has_names(file) and (not is_json or chosen.layout.columns is not None):
        return (((row.text(0), row.text(1)), row.place) for row in read_rows(file, chosen))
    lines = numbered_lines(file, MAX_BYTES)
    begin = list(itertools.islice(lines, 1))
    whole = itertools.chain(begin, lines)
    if not is_json and (not begin or begin[0][1].lstrip()[:1] != "{"):
        return as_inputs(whole)
    asked = parse_questions(file, whole)
    return ((question_of(file, record, context, place), place) for record, context, place in asked)


def _of_table(path: str, columns: Columns) -> Iterator[tuple[str, Callable]]:
    """The place of each row, and a function that reads its question, context and answers."""
    for row in read_all(path, columns, "questions"):
        yield row.place, lambda row=row: (row.text(0), row.text(1), _answers_of(row))


def _of_squad(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[str, Callable]]:
    """The place of each question in a JSON file, and a function that reads it."""
    for record, context, place in parse_questions(path, lines):

        def read(record=record, above=context, place=place) -> tuple[str, str, list[Answer]]:
            question, context = question_of(path, record, above, place)
            return question, context, _answers(path, record, place, context)

        yield place, read


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


def parse_questions(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[dict, Any, str]]:
    """The record of each question, its context and its place, from a file's numbered lines: SQuAD's articles,
    paragraphs with "qas", or rows with a question and a context each. See `read_questions`.
    """
    for item, place in _items(path, lines):
        if "question" in item:
            yield item, item.get("context"), place
            continue
        paragraphs = [(item, place)] if "qas" in item else _values(path, item, place, "paragraphs")
        for paragraph, where in paragraphs:
            context = _text(path, paragraph, where, "context")
            for record, inner in _values(path, paragraph, where, "qas"):
                yield record, context, inner


def question_of(path: str, record: dict, context: Any, place: str) -> tuple[str, str]:
    """The texts of a question and its context; DataError for anything else."""
    question = _text(path, record, place, "question")
    return question, _text(path, {"context": context}, place, "context")


def _items(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[dict, str]]:
    """The objects in the list "data" of a JSON file, in the list that it is, or in its lines."""
    texts = [text for _, text in lines]
    try:
        content = parse_json("\n".join(texts))
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise DataError(path, error.lineno, f"expected JSON: {error.msg}") from None
        for number, text in enumerate(texts, start=1):
            if text.strip():
                yield _object(path, _parsed(path, number, text), f"line {number}"), f"line {number}"
        return
    except ValueError as error:
        raise DataError(path, None, f"expected JSON: {error}") from None
    if isinstance(content, list):
        content = {"data": content}
    for value, place in _values(path, content, "", "data"):
        yield _object(path, value, place), place


def _parsed(path: str, number: int, text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise DataError(path, number, f"expected JSON: {error}") from None


def _answers(path: str, question: dict, place: str, context: str) -> list[Answer]:
    if question.get("is_impossible", False) is True:
        return []
    if isinstance(answers := question.get("answers"), dict):  # {"text": […], "answer_start": […]}
        lists = [_value(path, answers, f"{place}.answers", key, list) for key in ("text", "answer_start")]
        if len(lists[0]) != len(lists[1]):
            problem = f"expected a start for each of {len(lists[0])} answers, got {len(lists[1])}"
            raise DataError(path, None, f"{place}.answers: {problem}")
        pairs = zip(*lists, strict=True)
        question = {**question, "answers": [{"text": text, "answer_start": start} for text, start in pairs]}
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
    record = _object(path, record, where)
    if key not in record:
        got = ", ".join(record)[:200] or "none"
        raise DataError(path, None, f"{where}: expected a key {key!r}, got {got}")
    if type(record[key]) is not kind:
        got = json.dumps(record[key])[:60]
        raise DataError(path, None, f"{where}: expected {names[kind]} as {key!r}, got {got}")
    return record[key]


def _object(path: str, value: Any, place: str) -> dict:
    if not isinstance(value, dict):
        raise DataError(path, None, f"{place}: expected an object, got {json.dumps(value)[:60]}")
    return value
