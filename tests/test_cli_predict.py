"""`keras-tfm predict`: answers as lines come, as JSON, and with their probabilities."""

import io
import json
import os
import re
import subprocess
import sys
import types

import pytest

from keras_tfm import tasks
from keras_tfm.cli import parser, predict
from keras_tfm.cli.predict import INPUTS, StandardInput, arriving
from keras_tfm.data import BERTTokenizer, DataError
from keras_tfm.models import BERT
from keras_tfm.tasks import TASKS
from tests.tasks.tiny import TINY
from tests.test_cli import run

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]


def encoder():
    return BERT.from_size("tiny", **TINY, vocabulary_size=len(PIECES), max_length=16, pooler=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """RUNs, untrained: of labels, of several labels, of numbers and of choices."""
    folder, tokenizer = tmp_path_factory.mktemp("runs"), BERTTokenizer(PIECES)
    kinds = {"classes": ["x", "y"], "multi-label": [["x"], ["x", "y"]], "regression": [0.5, 1.0]}
    for problem, labels in kinds.items():
        examples = ["good film", "bad film"], labels
        task = tasks.TextClassifier.from_backbone(
            encoder(), tokenizer, examples, problem=problem, max_length=16
        )
        task.save(folder / problem)
    chosen = ["good", "bad"], [["film", "good"]] * 2, [0, 1]
    tasks.ChoiceAnswerer.from_backbone(encoder(), tokenizer, chosen, max_length=16).save(folder / "choose")
    tasks.SentenceEncoder(encoder(), tokenizer, tasks.SentenceEncoderConfig(16)).save(folder / "vectors")
    (folder / "asked").write_text("good film\n\nbad\n")
    (folder / "choices").write_text("good\tfilm\tbad\ngood\tfilm\n")
    return folder


def asked(folder, name, capsys, *options, file="asked"):
    """The lines that come, as JSON, and what is said."""
    capsys.readouterr()
    assert run("predict", folder / name, "--input", folder / file, *options) == 0
    output = capsys.readouterr()
    return [json.loads(line or "null") for line in output.out.splitlines()], output.err


def test_answers_as_json(folder, capsys):
    (one, nothing, other), _ = asked(folder, "classes", capsys, "--json")
    assert {one, other} <= {"x", "y"} and nothing is None
    (one, nothing, other), _ = asked(folder, "multi-label", capsys, "--json")
    assert isinstance(one, list) and isinstance(other, list) and nothing is None
    (one, nothing, other), _ = asked(folder, "regression", capsys, "--json")
    assert isinstance(one, float) and isinstance(other, float) and nothing is None
    (one, nothing, _), said = asked(folder, "vectors", capsys, "--json", "--batch-size", 1)
    assert len(one) == 32 and nothing is None and said.endswith("line 2 gets an empty line: it is blank\n")
    answers, _ = asked(folder, "choose", capsys, "--json", file="choices")
    assert answers[0] in (0, 1) and answers[1] is None


def test_probabilities(folder, capsys):
    (one, nothing, other), _ = asked(folder, "classes", capsys, "--probabilities")
    assert one.keys() == other.keys() == {"x", "y"} and nothing is None and abs(sum(one.values()) - 1) < 1e-5
    (one, *_), _ = asked(folder, "multi-label", capsys, "--probabilities", "--json", "--batch-size", 2)
    assert one.keys() == {"x", "y"} and all(0 < value < 1 for value in one.values())
    (one, nothing), said = asked(folder, "choose", capsys, "--probabilities", file="choices")
    assert one.keys() == {"0", "1"} and nothing is None and "line 2 gets an empty line" in said
    for name, message in (
        ("regression", "A regression has no probabilities"),
        ("vectors", "--probabilities: the task 'sentence-vectors' has no such option"),
    ):
        assert run("predict", folder / name, "--input", folder / "asked", "--probabilities") == 2
        output = capsys.readouterr()
        assert message in output.err and not output.out


def test_the_help_names_every_task():
    assert set(TASKS) <= set(re.findall(r"[a-z-]+", INPUTS))


def test_what_is_there_comes_together():
    reader, writer = os.pipe()
    with open(reader, "rb") as file, open(writer, "wb", buffering=0) as pipe:
        stream = StandardInput(file)
        groups = arriving(stream)
        pipe.write("\ufeffone\r\ntwo\nth".encode())
        assert next(groups) == (["one", "two"], ["line 1", "line 2"])
        pipe.write(b"ree\n\nfive")
        assert next(groups) == (["three", ""], ["line 3", "line 4"]) and not stream.has_ended()
        pipe.close()
        assert not stream.has_ended()  # "five" is still to come
        assert list(groups) == [(["five"], ["line 5"])] and stream.has_ended()


def test_a_file_on_standard_input_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "MOST_AT_ONCE", 1_000)
    (tmp_path / "many").write_text("".join(f"{i} {'long ' * 20}\n" for i in range(2_500)))
    with open(tmp_path / "many", "rb") as file:
        groups = list(arriving(StandardInput(file)))
    assert [len(texts) for texts, _ in groups] == [1_000, 1_000, 500]
    assert [text.split()[0] for texts, _ in groups for text in texts] == [str(i) for i in range(2_500)]
    assert not list(arriving(StandardInput(io.BytesIO(b""))))


def test_what_is_no_text_is_refused():
    with pytest.raises(DataError, match=r"^-, line 2: expected UTF-8, got byte 0xff"):
        list(arriving(StandardInput(io.BytesIO(b"a\n\xff\n"))))
    with pytest.raises(DataError, match="line 1: expected text, got a line over"):
        list(arriving(StandardInput(io.BytesIO(bytes(70_000_000)))))


@pytest.mark.slow
def test_each_line_is_answered_before_the_next_comes(folder):
    command = [sys.executable, "-m", "keras_tfm", "predict", str(folder / "classes"), "--quiet"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    for text in ("good film", "", "bad"):
        process.stdin.write(f"{text}\n")
        assert process.stdout.readline().strip() in (("x", "y") if text else ("",))
    answers, said = process.communicate("good\nbad\n", timeout=60)
    assert process.returncode == 0 and len(answers.splitlines()) == 2
    assert said == "line 2 gets an empty line: it is blank\n"


@pytest.mark.parametrize(("options", "comes"), [((), True), (("--seed", "1"), False), (("--whole",), False)])
def test_with_a_seed_all_lines_are_read_first(options, comes):
    """For draws depend on what is answered together, and that would depend on who is quicker."""
    task = types.SimpleNamespace(reads_lines=True, predict=lambda texts, **options: texts)
    arguments = parser().parse_args(["predict", "RUN", *options])
    assert predict.Writer(task, arguments).comes_by_lines == comes


def test_standard_input_has_no_columns(folder, capsys):
    assert run("predict", folder / "classes", "--columns", "a,b") == 2
    assert "--columns: lines of standard input have none" in capsys.readouterr().err
    assert run("predict", folder / "classes", "--header") == 2
    assert "--header: lines of standard input have none" in capsys.readouterr().err
