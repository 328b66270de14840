"""`keras-tfm predict`: answers as lines come, as JSON, and with their probabilities."""

import csv
import dataclasses
import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from keras_tfm import tasks
from keras_tfm.asking import ASKED, Asked
from keras_tfm.cli import predict
from keras_tfm.cli.predict import MOST_AT_ONCE, inputs_of, portions
from keras_tfm.cli.standard_input import StandardInput
from keras_tfm.data import BERTTokenizer, DataError
from keras_tfm.data.sources.lines import as_inputs, numbered_lines
from keras_tfm.models import BERT
from keras_tfm.tasks.task import each_task, is_ours
from keras_tfm.training.record import write_record
from tests.tasks.tiny import TINY
from tests.test_cli import run

pytestmark = pytest.mark.usefixtures("loaded_once")

RATED = ("classes", "multi-label")  # whose answers have a confidence
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]


def encoder():
    return BERT.from_size("tiny", **TINY, vocabulary_size=len(PIECES), max_length=16, pooler=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """RUNs, untrained: of labels, of several labels, of numbers, of choices and of tags."""
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
    tagged = [["good", "film", "."], ["bad", "!"]], [["B-X", "I-X", "O"], ["B-Y", "O"]]
    tasks.TokenClassifier.from_backbone(encoder(), tokenizer, tagged, max_length=16).save(folder / "tags")
    (folder / "asked").write_text("good film\n\nbad\n")
    (folder / "awkward").write_text('good, "film"\n\nbad\tfilm\n')
    (folder / "choices").write_text("good\tfilm\tbad\ngood\tfilm\n")
    return folder


def asked(folder, name, capsys, *options, file="asked"):
    """The lines that come, as JSON, and what is said."""
    capsys.readouterr()
    assert run("predict", folder / name, "--data", folder / file, *options) == 0
    output = capsys.readouterr()
    return [json.loads(line or "null") for line in output.out.splitlines()], output.err


def test_answers_as_json(folder, capsys):
    kinds = {"classes": str, "multi-label": list, "regression": float, "vectors": list}
    for name, kind in kinds.items():
        (one, nothing, other), said = asked(folder, name, capsys, "--json", "--batch-size", 1)
        assert nothing == {"place": "line 2", "answer": None}
        assert isinstance(one["answer"], kind) and isinstance(other["answer"], kind)
        assert [one["place"], other["place"]] == ["line 1", "line 3"]
        assert one.keys() - {"place", "answer"} == ({"confidence"} if name in RATED else set())
        assert said.endswith("line 2 gets an empty line: it is blank\n")
    (one, nothing), _ = asked(folder, "choose", capsys, "--json", file="choices")
    assert one["answer"] in (0, 1) and nothing["answer"] is None


@pytest.mark.parametrize("name", ["classes", "multi-label", "choose"])
def test_confidence_is_of_the_probabilities(name, folder, capsys):
    file = "choices" if name == "choose" else "asked"
    (one, *_), _ = asked(folder, name, capsys, "--json", "--probabilities", file=file)
    values = one["probabilities"]
    if name == "multi-label":
        assert one["answer"] == [label for label, value in values.items() if value >= 0.5]
        assert one["confidence"] == pytest.approx(min(max(x, 1 - x) for x in values.values()), rel=1e-5)
    else:
        assert one["confidence"] == max(values.values()) == values[str(one["answer"])]


CASES = [("classes", suffix) for suffix in (".csv", ".tsv", ".jsonl")]
CASES += [(name, ".csv") for name in ("multi-label", "regression", "vectors", "choose", "tags")]


@pytest.mark.parametrize(("name", "suffix"), [*CASES, ("choose", ".jsonl"), ("tags", ".jsonl")])
def test_answers_in_a_table(name, suffix, folder, tmp_path, capsys):
    out, file = tmp_path / f"answers{suffix}", "choices" if name == "choose" else "awkward"
    options = [] if name in ("regression", "vectors", "tags") else ["--probabilities"]
    asked_for = [json.loads(line) for line in _printed(folder, name, file, [*options, "--json"], capsys)]
    assert not _printed(folder, name, file, [*options, "--out", out], capsys)
    rows = _rows(out)
    texts = (folder / file).read_text().splitlines()
    assert [row["place"] for row in rows] == [f"line {number}" for number in range(1, len(texts) + 1)]
    assert [row["input"] for row in rows] == texts
    for row, record in zip(rows, asked_for, strict=True):
        if suffix == ".jsonl":
            assert {**record, "input": row["input"]} == row
        elif record["answer"] is None:
            assert set(row.values()) == {row["place"], row["input"], ""}
        else:
            assert row["answer"] or record["answer"] == []  # of several labels there may be none
            confidences = [float(row[name]) for name in row if name == "confidence"]
            assert confidences == [record[name] for name in record if name == "confidence"]
    if suffix == ".csv" and name == "classes":
        assert list(rows[0]) == ["place", "input", "answer", "confidence", "probability_x", "probability_y"]
        assert float(rows[0]["probability_x"]) == asked_for[0]["probabilities"]["x"]


def test_a_file_is_written_in_portions(folder, tmp_path, monkeypatch):
    (tmp_path / "asked").write_text("good film\n\nbad\n\nfilm\n")
    written = []
    for portion in (8_192, 2):
        monkeypatch.setattr(predict, "PORTION", portion)
        out = tmp_path / f"{portion}.csv"
        assert run("predict", folder / "classes", "--data", tmp_path / "asked", "--out", out) == 0
        written.append([{**row, "confidence": row["confidence"][:5]} for row in _rows(out)])
    assert written[0] == written[1] and len(written[0]) == 5


def _printed(folder, name, file, options, capsys):
    capsys.readouterr()
    assert run("predict", folder / name, "--data", folder / file, *options) == 0
    return capsys.readouterr().out.splitlines()


def _rows(path):
    """The rows of a table, as its users read them."""
    with open(path, newline="") as file:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in file]
        return list(csv.DictReader(file, delimiter="," if path.suffix == ".csv" else "\t"))


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("answers.txt", None, (), "--out: expected a name that ends in .csv, .tsv or .jsonl, got"),
        ("answers", None, (), "--out: expected a name that ends in"),
        ("answers.csv.gz", None, (), "--out: expected a name that ends in"),
        ("answers.csv", "mine", (), "exists already: choose another name, or pass --overwrite"),
        ("answers.csv", None, ("--json",), "not allowed with argument"),
        ("missing/answers.csv", None, (), "missing does not exist"),
    ],
)
def test_what_is_no_table_to_write(name, content, options, message, folder, tmp_path, capsys):
    out = tmp_path / name
    if content:
        out.write_text(content)
    assert run("predict", folder / "classes", "--data", folder / "asked", "--out", out, *options) == 2
    assert message in capsys.readouterr().err
    assert not content or out.read_text() == content


def test_a_table_is_whole_or_not_there(folder, tmp_path, capsys):
    (tmp_path / "broken").write_bytes(b"good\nbad\n\xff\n")
    out = tmp_path / "answers.csv"
    assert run("predict", folder / "classes", "--data", tmp_path / "broken", "--out", out, "--quiet") == 2
    assert "expected UTF-8" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]
    assert run("predict", folder / "classes", "--data", out, "--out", out) == 2
    out.write_text("good\n")
    for options in ((), ("--overwrite",)):
        assert run("predict", folder / "classes", "--data", out, "--out", out, *options) == 2
        assert "is read by this command" in capsys.readouterr().err
    assert out.read_text() == "good\n"


def test_probabilities(folder, capsys):
    (one, nothing, other), _ = asked(folder, "classes", capsys, "--probabilities")
    assert one.keys() == other.keys() == {"x", "y"} and nothing is None and abs(sum(one.values()) - 1) < 1e-5
    (one, *_), _ = asked(folder, "multi-label", capsys, "--probabilities", "--batch-size", 2)
    assert one.keys() == {"x", "y"} and all(0 < value < 1 for value in one.values())
    (one, nothing), said = asked(folder, "choose", capsys, "--probabilities", file="choices")
    assert one.keys() == {"0", "1"} and nothing is None and "line 2 gets an empty line" in said
    for name, message in (
        ("regression", "A regression has no probabilities"),
        ("vectors", "--probabilities: the task 'sentence-vectors' has no such option"),
    ):
        assert run("predict", folder / name, "--data", folder / "asked", "--probabilities") == 2
        output = capsys.readouterr()
        assert message in output.err and not output.out


def test_the_table_is_what_the_tasks_declare():
    ours = {
        task.name: Asked(
            ASKED[task.name].place,
            task.asking,
            task.input_files,
            getattr(task, "help", ""),
            task.writes_texts,
        )
        for task in each_task()
        if is_ours(task)
    }
    assert ours == ASKED and set(ASKED) <= set(re.findall(r"[a-z-]+", inputs_of(ASKED)))


def test_predict_has_the_options_that_a_task_declares():
    """With the defaults of its method, which `records` shares."""
    for task in each_task():
        for method in (task.predict, task.records):
            takes = inspect.signature(method).parameters
            if method is task.predict or "options" not in takes:
                asked = dataclasses.asdict(task.asking)
                assert asked == {name: takes[name].default for name in asked}, task.name


def arriving(stream, size=MOST_AT_ONCE):
    """The texts and the places of lines that arrive together."""
    lines = as_inputs(numbered_lines("-", standard_input=stream))
    return (tuple(map(list, zip(*part, strict=True))) for part in portions(lines, size, stream.has_line))


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


def test_a_file_on_standard_input_is_read_in_parts(tmp_path):
    (tmp_path / "many").write_text("".join(f"{i} {'long ' * 20}\n" for i in range(2_500)))
    with open(tmp_path / "many", "rb") as file:
        groups = list(arriving(StandardInput(file), 1_000))
    assert [len(texts) for texts, _ in groups] == [1_000, 1_000, 500]
    assert [text.split()[0] for texts, _ in groups for text in texts] == [str(i) for i in range(2_500)]
    assert not list(arriving(StandardInput(io.BytesIO(b""))))


def test_what_is_no_text_is_refused():
    with pytest.raises(DataError, match=r"^-, line 2: expected UTF-8, got byte 0xff"):
        list(arriving(StandardInput(io.BytesIO(b"a\n\xff\n"))))
    with pytest.raises(DataError, match="line 1: expected text, got a line over"):
        list(arriving(StandardInput(io.BytesIO(bytes(70_000_000)))))


@pytest.mark.parametrize("options", [[], ["--json"], ["--out"]])
def test_a_line_of_other_bytes_gets_no_answer(options, folder, tmp_path, capsys, monkeypatch):
    """A program that keeps the input open goes on."""
    (tmp_path / "asked").write_bytes(b"good film\nbad \xfffilm\nbad\n")
    options = [*options, tmp_path / "answers.csv"] if "--out" in options else options
    with open(tmp_path / "asked", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert run("predict", folder / "classes", *options) == 0
    output = capsys.readouterr()
    reason = "line 2 gets an empty (line|row): expected UTF-8, got byte 0xff at position 4, which is ÿ"
    assert re.search(reason, output.err)
    if "--out" in options:
        assert [bool(row["answer"]) for row in _rows(tmp_path / "answers.csv")] == [True, False, True]
    else:
        one, nothing, other = output.out.splitlines()
        assert nothing in ("", '{"place": "line 2", "answer": null}') and one and other


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


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    """The RUN of an untrained generator of characters."""
    folder = tmp_path_factory.mktemp("generator") / "run"
    sizes = {"dim": 16, "num_heads": 2, "intermediate_dim": 16, "num_layers": 1}
    texts = ["a b c d e f"] * 4
    tasks.TextGenerator.from_texts(texts, "tiny", tokenizer="characters", max_length=16, **sizes).save(folder)
    return folder


class Pipe:
    """A stream that gives its content in parts, whatever is asked."""

    def __init__(self, content, size):
        self.parts = [content[at : at + size] for at in range(0, len(content), size)]

    def fileno(self):
        raise io.UnsupportedOperation

    def read1(self, most):
        return self.parts.pop(0) if self.parts else b""


def test_with_a_seed_it_does_not_matter_how_lines_come(generator, tmp_path, capsys, monkeypatch):
    """Draws depend on what is answered together, and on the number of the row."""
    content, options = "a b\n\nc\nd e\nf\na\n" * 2, ("--temperature", 2, "--max-new-tokens", 8)
    (tmp_path / "lines").write_text(content)

    def printed(seed, size, *file):
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", type("Stream", (), {"buffer": Pipe(content.encode(), size)}))
        assert run("predict", generator, *options, "--seed", seed, *file) == 0
        return capsys.readouterr().out.splitlines()

    monkeypatch.setattr(predict, "PORTION", 4)
    from_file = printed(1, 1, "--data", tmp_path / "lines")
    assert from_file == printed(1, 3) == printed(1, 1_000) and len(from_file) == 12
    assert from_file != printed(2, 3)
    assert from_file[:4] == _asked_of_python(generator, content.splitlines()[:4], 1)
    assert from_file[4:8] == _asked_of_python(generator, content.splitlines()[4:8], 5)


def _asked_of_python(generator, lines, seed):
    """What the generator answers to lines of which blank ones get none."""
    asked = [line for line in lines if line]
    answers = iter(tasks.load(generator).generate(asked, max_new_tokens=8, temperature=2.0, seed=seed))
    return [next(answers).replace("\n", " ") if line else "" for line in lines]


def test_what_comes_before_a_bad_row_is_answered(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(predict, "PORTION", 4)
    (tmp_path / "rows.csv").write_text("text,label\n" + "good film,x\n" * 6 + "bad,x,y\nfilm,y\n")
    out = tmp_path / "answers.csv"
    for options in ((), ("--out", out)):
        assert run("predict", folder / "classes", "--data", tmp_path / "rows.csv", *options) == 2
        output = capsys.readouterr()
        assert output.err.endswith("rows.csv, line 8: expected 2 columns, got 3\n")
        assert len(output.out.splitlines()) == (0 if options else 6) and not out.exists()


def test_the_columns_of_the_training_are_those_of_tables_with_their_names(folder, tmp_path, capsys):
    shutil.copytree(folder / "classes", tmp_path / "run")
    write_record(tmp_path / "run", {"command": {"columns": "said,felt"}})
    tables = {
        "both": "number,said,felt\n1,good film,x\n2,bad,y\n",
        "no label": "number,said\n1,good film\n2,bad\n",
        "neither": "said\ngood film\n",
        "more": "said,quoted\ngood film,bad\n",
    }
    for name, table in tables.items():
        (tmp_path / f"{name}.csv").write_text(table)

    def answers(name, *options):
        assert run("predict", tmp_path / "run", "--data", tmp_path / f"{name}.csv", *options, "--json") == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert answers("both") == answers("both", "--columns", "said,felt") == answers("no label")
    assert [len(answers(name)) for name in tables] == [2, 2, 1, 1]
    assert len(answers("more", "--columns", "1")) == 2  # as is said
    assert len(answers("no label", "--no-header", "--columns", "1")) == 3
    assert run("evaluate", tmp_path / "run", "--data", tmp_path / "both.csv") == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 2


def test_a_table_without_the_names_of_the_training_is_answered_with_a_warning(folder, tmp_path, capsys):
    """A first row of other names looks like an example, as rows of a table without a header do."""
    shutil.copytree(folder / "classes", tmp_path / "run")
    write_record(tmp_path / "run", {"command": {"columns": "said,felt"}})
    table, other = tmp_path / "a.csv", tmp_path / "a.jsonl"
    table.write_text("remark,topic\ngood film,x\nbad,y\n")
    other.write_text('{"remark": "good film", "topic": "x"}\n')

    def asked(file, *options):
        assert run("predict", tmp_path / "run", "--data", file, *options) == 0
        output = capsys.readouterr()
        return len(output.out.splitlines()), output.err

    rows, said = asked(table)
    assert rows == 3 and "a.csv: the training read said, the first row has remark, topic" in said
    assert "read as an example" in said and "--columns" in said and "--no-header" in said
    assert [asked(table, *how) for how in (["--header"], ["--columns", "remark"])] == [(2, "")] * 2
    assert asked(table, "--no-header") == (3, "")
    rows, said = asked(other)
    assert rows == 1 and "a.jsonl: the training read said, the columns are remark, topic" in said
    assert "as an example" not in said and asked(other, "--columns", "remark") == (1, "")


def test_positions_and_quotes_of_the_training_are_those_of_tables_like_its_own(folder, tmp_path, capsys):
    shutil.copytree(folder / "classes", tmp_path / "run")
    tables = {
        "rows.tsv": 'x\t"good film"\ny\t"bad"\n',
        "texts.tsv": '"good film"\n"bad"\n',  # which lacks the label
        "named.jsonl": '{"text": "good film"}\n{"text": "bad"}\n',
        "lines.txt": "good film\nbad\n",
    }
    for name, table in tables.items():
        (tmp_path / name).write_text(table)

    def answers(name, *options):
        assert run("predict", tmp_path / "run", "--data", tmp_path / name, *options, "--probabilities") == 0
        return capsys.readouterr().out

    expected = answers("lines.txt")
    assert expected == answers("rows.tsv", "--columns", "1,0", "--quoted") != answers("rows.tsv")
    write_record(tmp_path / "run", {"command": {"columns": "1,0", "layout": {"quoted": True}}})
    assert {answers(name) for name in tables} == {expected}
    assert run("evaluate", tmp_path / "run", "--data", tmp_path / "rows.tsv") == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 2


def test_a_header_of_the_training_is_one_in_tables_like_its_own(folder, tmp_path, capsys):
    shutil.copytree(folder / "classes", tmp_path / "run")
    tables = {
        "a.csv": "remark,mood\ngood film,x\nbad,y\n",
        "a.tsv": "remark\ngood film\nbad\n",
        "a.jsonl": '{"text": "good film"}\n{"text": "bad"}\n',
        "a.txt": "good film\nbad\n",
        "known.csv": "text,label\ngood film,x\nbad,y\n",
    }
    for name, table in tables.items():
        (tmp_path / name).write_text(table)

    def answers(name, *options):
        assert run("predict", tmp_path / "run", "--data", tmp_path / name, *options) == 0
        output = capsys.readouterr()
        return len(output.out.splitlines()), output.err

    for columns in (None, "0,1"):
        write_record(tmp_path / "run", {"command": {"columns": columns, "layout": {"header": True}}})
        assert {answers(name) for name in tables} == {(2, "")}
        assert answers("a.csv", "--no-header", "--columns", "0") == (3, "")
        assert run("evaluate", tmp_path / "run", "--data", tmp_path / "a.csv") == 0
        assert json.loads(capsys.readouterr().out)["examples"] == 2
    write_record(tmp_path / "run", {"command": {"layout": {"header": False}}})
    assert [answers(name) for name in ("a.csv", "known.csv")] == [(3, "")] * 2
    write_record(tmp_path / "run", {"command": {"columns": "said,felt", "layout": {"header": True}}})
    rows, said = answers("a.csv")
    assert rows == 2 and "a.csv: the training read said, the first row has remark, mood" in said
    assert "are read, else the first" in said and "as an example" not in said


def test_tables_hold_what_stands_in_texts(folder, tmp_path):
    texts = ["a\rb", "a\nb", 'a "b", c', "a\tb", "plain"]
    (tmp_path / "asked.jsonl").write_text("".join(f"{json.dumps({'text': text})}\n" for text in texts))
    for name in ("a.csv", "a.tsv"):
        options = "--data", tmp_path / "asked.jsonl", "--out", tmp_path / name
        assert run("predict", folder / "classes", *options) == 0
        assert b"\r\n" not in (tmp_path / name).read_bytes()
        assert [row["input"] for row in _rows(tmp_path / name)] == texts


@pytest.mark.parametrize("options", ["--columns text", "--columns 0", "--quoted", "--no-header"])
def test_a_text_file_has_no_columns(options, folder, tmp_path, capsys):
    (tmp_path / "lines.txt").write_text("good film\tx\n")
    assert run("predict", folder / "classes", "--data", tmp_path / "lines.txt", *options.split()) == 2
    output = capsys.readouterr()
    assert f"lines.txt: {options.split()[0]}: expected a .tsv" in output.err and not output.out


@pytest.mark.parametrize(
    ("trained", "header"), [(None, "text;label"), (None, "Label ; Text"), ("said,felt", "said;felt"),
                            ("said,felt", "number;said")]
)  # fmt: skip
def test_another_separator_is_noticed_before_the_first_answer(trained, header, folder, tmp_path, capsys):
    shutil.copytree(folder / "classes", tmp_path / "run")
    write_record(tmp_path / "run", {"command": {"columns": trained}})
    (tmp_path / "a.csv").write_text(f"{header}\n" + "good film;x\n" * 20 + "good, or bad;y\n")
    assert run("predict", tmp_path / "run", "--data", tmp_path / "a.csv") == 2
    output = capsys.readouterr()
    expected = f"a.csv, line 1: expected ',' between the cells of a .csv file, got ';' in {header!r}"
    assert f"{expected}: write the table with ','" in output.err and not output.out
    (tmp_path / "b.csv").write_text(f"{header}\ngood film;x\n")
    assert run("predict", tmp_path / "run", "--data", tmp_path / "b.csv", "--no-header") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2  # as is said


def test_a_likely_separator_is_named_beside_the_answers(folder, tmp_path, capsys):
    (tmp_path / "a.csv").write_text("remark;topic\n" + "good film;x\n" * 20)
    assert run("predict", folder / "classes", "--data", tmp_path / "a.csv") == 0
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 21
    (line,) = output.err.splitlines()
    assert "a.csv: every row is one cell, which is read whole, with as many ';' as the others" in line


def test_no_more_is_read_than_is_answered():
    taken = []
    for number, portion in enumerate(portions(map(lambda x: taken.append(x) or x, range(10)), 4)):
        assert portion == list(range(10))[4 * number : 4 * number + 4] and len(taken) <= 4 * number + 4
    assert len(taken) == 10


def test_standard_input_has_no_columns(folder, capsys):
    assert run("predict", folder / "classes", "--columns", "a,b") == 2
    assert "--columns: lines of standard input have none" in capsys.readouterr().err
    assert run("predict", folder / "classes", "--header") == 2
    assert "--header: lines of standard input have none" in capsys.readouterr().err
