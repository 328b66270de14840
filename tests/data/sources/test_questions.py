"""Questions out of SQuAD's files, and what is refused, by its place in them."""

import copy
import gzip
import json
import lzma

import pytest

from keras_tfm.data import Answer, DataError, read_questions
from keras_tfm.data.sources.questions import read_unanswered
from tests.data.sources.parts import parts

CONTEXT = "Zoë met Bob\nin Łódź. 😀 Bob slept."
ANSWERED = {"id": "q1", "question": "Who slept?", "answers": [{"text": "Bob", "answer_start": 23}]}
UNANSWERED = {
    "id": "q2", "question": "Why?", "is_impossible": True, "answers": [],
    "plausible_answers": [{"text": "Bob", "answer_start": 0}],
}  # fmt: skip
FILE = {"version": "v2.0", "data": [{"paragraphs": [{"context": CONTEXT, "qas": [ANSWERED, UNANSWERED]}]}]}
EXPECTED = (["Who slept?", "Why?"], [CONTEXT] * 2, [[Answer("Bob", 23)], []])


def written(folder, content, name="squad.json"):
    path = folder / name
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, "utf-8")
    return path


def test_questions_of_files(tmp_path):
    path = written(tmp_path, FILE)
    assert CONTEXT[23:26] == "Bob" and read_questions(path) == EXPECTED
    data = json.dumps(FILE, indent=2, ensure_ascii=False).encode()
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(data))
    (tmp_path / "a.json.xz").write_bytes(lzma.compress(data))
    both = read_questions([tmp_path / "a.json.gz", str(tmp_path / "a.json.xz")])
    assert both == tuple(column * 2 for column in EXPECTED)


PARAGRAPH = ("data", 0, "paragraphs", 0)
QUESTION = (*PARAGRAPH, "qas", 0)
ANSWER = (*QUESTION, "answers", 0)
PLACE = "data[0].paragraphs[0]"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("data",), None, "the file: expected a key 'data', got version"),
        (("data",), {}, "the file: expected a list as 'data', got {}"),
        (("data",), [], "expected questions, the file has none"),
        (("data", 0), 7, "data[0]: expected an object, got 7"),
        ((*PARAGRAPH, "context"), None, f"{PLACE}: expected a key 'context', got qas"),
        ((*PARAGRAPH, "context"), " \n", f"expected a text, the {PLACE}.context is empty"),
        ((*PARAGRAPH, "context"), "\ud800", "expected Unicode text, got half of a surrogate pair"),
        ((*PARAGRAPH, "qas"), None, f"{PLACE}: expected a key 'qas', got context"),
    ],
)
def test_bad_files_are_named_by_their_place(path, value, message, tmp_path):
    with pytest.raises(DataError) as error:
        read_questions(written(tmp_path, changed(FILE, path, value)))
    assert message in str(error.value) and str(error.value).startswith(str(tmp_path / "squad.json"))
    assert "\n" not in str(error.value)


def changed(content, path, value):
    """A copy of the content with another value at a place, or without it for None."""
    content = record = copy.deepcopy(content)
    for key in path[:-1]:
        record = record[key]
    if value is None:
        del record[path[-1]]
    else:
        record[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((*QUESTION, "question"), 5, f"{PLACE}.qas[0]: expected a string as 'question', got 5"),
        ((*QUESTION, "question"), "", f"expected a text, the {PLACE}.qas[0].question is empty"),
        ((*QUESTION, "answers"), None, f"{PLACE}.qas[0]: expected a key 'answers', got id, question"),
        ((*ANSWER, "answer_start"), True, "answers[0]: expected a whole number as 'answer_start', got true"),
        ((*ANSWER, "answer_start"), 22, "id 'q1': expected the answer 'Bob' at character 22, got ' Bo'"),
        ((*ANSWER, "answer_start"), -3, "id 'q1': expected the answer 'Bob' at character -3, got 'Zoë'"),
        ((*ANSWER, "answer_start"), 999, "id 'q1': expected the answer 'Bob' at character 999, got ''"),
        ((*ANSWER, "text"), "", "id 'q1': expected the answer '' at character 23, got ''"),
    ],
)
def test_a_bad_question_is_skipped_and_counted(path, value, message, tmp_path, caplog):
    file = written(tmp_path, changed(FILE, path, value))
    assert read_questions(file) == tuple(column[1:] for column in EXPECTED)
    (told,) = caplog.messages
    assert told.startswith(f"1 of 2 questions are skipped: {file}, {PLACE}.qas[0] (") and "\n" not in told
    assert message.removeprefix(f"{PLACE}.qas[0]: ").removeprefix("id 'q1': ") in told.replace("\\n", "")
    alone = changed(changed(FILE, path, value), (*PARAGRAPH, "qas", 1), None)
    with pytest.raises(DataError) as error:  # none is left
        read_questions(written(tmp_path, alone))
    assert message in str(error.value)


ROWS = [
    {
        "id": "q1",
        "question": "Who slept?",
        "context": CONTEXT,
        "answers": {"text": ["Bob"], "answer_start": [23]},
    },
    {"id": "q2", "question": "Why?", "context": CONTEXT, "answers": {"text": [], "answer_start": []}},
]


@pytest.mark.parametrize(
    "content",
    [
        ROWS,
        {"version": "1", "data": ROWS},
        "\n".join(map(json.dumps, ROWS)) + "\n\n",
        FILE["data"],
        FILE["data"][0]["paragraphs"],
        changed(FILE, (*PARAGRAPH, "qas", 1, "is_impossible"), None),
        [ROWS[0] | {"answers": ANSWERED["answers"]}, ROWS[1] | {"answers": []}],
    ],
    ids=["list", "data", "lines", "articles", "paragraphs", "no answers", "flat"],
)
def test_json_of_other_forms(tmp_path, content):
    path = written(tmp_path, content)
    assert read_questions(path) == EXPECTED
    assert parts(read_unanswered(path))[0] == list(zip(*EXPECTED[:2], strict=True))


def test_a_bad_row_is_skipped_and_counted(tmp_path, caplog):
    bad = [
        ROWS[0] | {"context": 5},
        ROWS[0] | {"question": " "},
        ROWS[0] | {"answers": {"text": ["Bob"], "answer_start": []}},
    ]
    for name, text in (
        ("a.json", json.dumps([*bad, *ROWS])),
        ("a.jsonl", "\n".join(map(json.dumps, bad + ROWS))),
    ):
        caplog.clear()
        assert read_questions(written(tmp_path, text, name)) == EXPECTED
        assert caplog.messages[0].startswith("3 of 5 questions are skipped: ")
    named = [{"q": x["question"], "c": x["context"], "a": x["answers"]} for x in ROWS]
    assert read_questions(written(tmp_path, named), ["q", "c", "a"]) == EXPECTED


def test_files_that_are_no_json(tmp_path):
    with pytest.raises(DataError, match=r"squad.json, line 2: expected JSON: Expecting value"):
        read_questions(written(tmp_path, '{"data":\n}'))
    with pytest.raises(DataError, match="nested more than 64 deep"):
        read_questions(written(tmp_path, "[" * 100_000))
    with pytest.raises(DataError, match=r"none\.json: cannot be read: No such file"):
        read_questions(tmp_path / "none.json")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(json.dumps(FILE).encode())[:-9])
    with pytest.raises(DataError, match="expected a whole compressed file"):
        read_questions(tmp_path / "cut.json.gz")
