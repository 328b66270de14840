"""Questions out of SQuAD's files, and what is refused, by its place in them."""

import copy
import gzip
import json
import lzma

import pytest

from keras_tfm.data import Answer, DataError, read_questions

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
        ((*QUESTION, "question"), 5, f"{PLACE}.qas[0]: expected a string as 'question', got 5"),
        ((*QUESTION, "question"), "", f"expected a text, the {PLACE}.qas[0].question is empty"),
        ((*QUESTION, "answers"), [], f"{PLACE}.qas[0]: expected answers, or is_impossible true, got none"),
        ((*ANSWER, "answer_start"), True, "answers[0]: expected a whole number as 'answer_start', got true"),
        ((*ANSWER, "answer_start"), 22, "id 'q1': expected the answer 'Bob' at character 22, got ' Bo'"),
        ((*ANSWER, "answer_start"), -3, "id 'q1': expected the answer 'Bob' at character -3, got 'Zoë'"),
        ((*ANSWER, "answer_start"), 999, "id 'q1': expected the answer 'Bob' at character 999, got ''"),
        ((*ANSWER, "text"), "", "id 'q1': expected the answer '' at character 23, got ''"),
    ],
)
def test_bad_questions_are_named_by_their_place(path, value, message, tmp_path):
    content = copy.deepcopy(FILE)
    record = content
    for key in path[:-1]:
        record = record[key]
    if value is None:
        del record[path[-1]]
    else:
        record[path[-1]] = value
    with pytest.raises(DataError) as error:
        read_questions(written(tmp_path, content))
    assert message in str(error.value) and str(error.value).startswith(str(tmp_path / "squad.json"))
    assert "\n" not in str(error.value)


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
