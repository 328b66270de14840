"""`keras-tfm evaluate`: what it explains on standard error, and the tables and pictures that it writes."""

import csv
import json
import resource

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.cli.explained import class_lines, confusion_lines
from keras_tfm.data import BERTTokenizer
from keras_tfm.models import BERT
from keras_tfm.tasks.baselines import Baselines
from keras_tfm.tasks.judgements import Counts, calibration_error, confusion_of, counts_in, counts_of_sets
from keras_tfm.training.record import write_record
from tests.tasks.tiny import TINY
from tests.test_cli import run

pytestmark = pytest.mark.usefixtures("loaded_once")

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
DATA = {
    "classes": "good film\tx\nbad film\ty\nbad\tx\n",
    "multi-label": "good film\tx\nbad film\tx,y\nbad\ty\n",
    "regression": "good film\t1\nbad film\t0\nbad\t0.5\n",
    "tags": "good B-X\nfilm I-X\n\nbad B-Y\nfilm O\n\nfilm O\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Untrained RUNs, and data for each: of texts with labels, of words with tags, of images."""
    folder, tokenizer = tmp_path_factory.mktemp("runs"), BERTTokenizer(PIECES)
    backbone = {**TINY, "vocabulary_size": len(PIECES), "max_length": 16, "pooler": True}
    kinds = {"classes": ["x", "y"], "multi-label": [["x"], ["y"]], "regression": [0.0, 1.0]}
    for name, labels in kinds.items():
        examples = ["good", "bad"], labels
        encoder = BERT.from_size("tiny", **backbone)
        tasks.TextClassifier.from_backbone(encoder, tokenizer, examples, problem=name, max_length=16).save(
            folder / name
        )
    tagged = [["bad", "film", "bad"], ["bad"]], [["B-X", "I-X", "O"], ["B-Y"]]
    encoder = BERT.from_size("tiny", **backbone)
    tasks.TokenClassifier.from_backbone(encoder, tokenizer, tagged, max_length=16).save(folder / "tags")
    for name, content in DATA.items():
        (folder / f"{name}.{'conll' if name == 'tags' else 'tsv'}").write_text(content)
    sizes = {"image_size": 8, "patch_size": 4}
    tasks.ImageClassifier.from_size("tiny", ["dark", "light"], **sizes).save(folder / "images")
    for number, name in enumerate(("dark/a.png", "light/b.png", "light/c.png")):
        picture = np.full((8, 8, 3), 100 * number, "uint8")
        tf.io.write_file(str(folder / "images.d" / name), tf.io.encode_png(picture))
    return folder


def data_of(folder, name):
    return folder / {"tags": "tags.conll", "images": "images.d"}.get(name, f"{name}.tsv")


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("classes", ".csv"),
        ("classes", ".tsv"),
        ("multi-label", ".jsonl"),
        ("regression", ".csv"),
        ("tags", ".jsonl"),
        ("tags", ".csv"),
        ("images", ".csv"),
    ],
)
def test_the_worst_rows_are_a_table(name, suffix, folder, tmp_path, capsys):
    errors = tmp_path / f"errors{suffix}"
    assert run("evaluate", folder / name, "--data", data_of(folder, name), "--errors", errors) == 0
    output = capsys.readouterr()
    assert output.out.count("\n") == 1 and f"the worst rows are in {errors}" in output.err
    with open(errors, newline="") as file:
        rows = (
            [*map(json.loads, file)]
            if suffix == ".jsonl"
            else list(csv.DictReader(file, delimiter="," if suffix == ".csv" else "\t"))
        )
    losses = [float(row["loss"]) for row in rows]
    assert len(rows) == 3 and losses == sorted(losses, reverse=True)
    assert sorted(int(row["row"]) for row in rows) == [1, 2, 3]
    first = next(row for row in rows if int(row["row"]) == 1)
    inputs = {"tags": ["good", "film"], "images": str(folder / "images.d" / "dark" / "a.png")}
    wanted = inputs.get(name, "good film")
    assert first["input"] in (wanted, json.dumps(wanted))
    loss = json.loads(output.out).get("loss")
    assert loss is None or np.mean(losses) == pytest.approx(loss, abs=1e-4)


def test_classes_and_their_confusions_are_explained(folder, capsys):
    assert run("evaluate", folder / "classes", "--data", folder / "classes.tsv", "--calibration") == 0
    output = capsys.readouterr()
    measures = json.loads(output.out)
    assert 0 <= measures["expected_calibration_error"] <= 1 and list(measures)[-1].startswith("expected")
    lines = output.err.splitlines()
    assert lines[0].split() == ["precision", "recall", "F1", "count"]
    assert [line.split()[0] for line in lines[1:3]] == ["x", "y"]
    assert [line.split()[-1] for line in lines[1:3]] == ["2", "1"]
    matrix = np.array([[int(cell) for cell in line.split()[1:]] for line in lines[4:6]])
    assert matrix.sum(1).tolist() == [2, 1] and np.trace(matrix) / 3 == pytest.approx(
        measures["accuracy"], abs=1e-4
    )
    task = tasks.load(folder / "classes")
    assert run("evaluate", folder / "classes", "--data", folder / "classes.tsv", "--quiet") == 0
    output = capsys.readouterr()
    del measures["expected_calibration_error"]
    assert json.loads(output.out) == measures and not output.err
    assert measures == task.evaluate((["good film", "bad film", "bad"], ["x", "y", "x"]))


def test_spans_are_explained_by_kind(folder, capsys):
    assert run("evaluate", folder / "tags", "--data", folder / "tags.conll") == 0
    lines = capsys.readouterr().err.splitlines()
    assert {"X", "Y"} <= {line.split()[0] for line in lines[1:4]}
    (header,) = (line.split() for line in lines if line.startswith("truth"))
    assert header[3:] == ["B-X", "B-Y", "I-X", "O"]


@pytest.mark.parametrize("name", ["classes", "tags", "images"])
def test_confusions_are_drawn(name, folder, tmp_path, capsys):
    plot = tmp_path / "confusion.png"
    command = "evaluate", folder / name, "--data", data_of(folder, name), "--plot", plot
    assert run(*command) == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert run(*command) == 2 and "exists already" in capsys.readouterr().err
    assert run(*command, "--overwrite") == 0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "classes",
            ("--errors", "{out}/a.txt"),
            "--errors: expected a name that ends in .csv, .tsv or .jsonl",
        ),
        ("classes", ("--plot", "{out}/a.txt"), "expected a name that ends in .png, .svg or .pdf"),
        ("classes", ("--errors", "{data}", "--overwrite"), "is read by this command"),
    ],
)
def test_what_cannot_be_explained_is_refused(name, options, message, folder, tmp_path, capsys):
    data = data_of(folder, name)
    options = [option.format(out=tmp_path, data=data) for option in options]
    assert run("evaluate", folder / name, "--data", data, *options) == 2
    output = capsys.readouterr()
    assert message in output.err and not output.out and not list(tmp_path.iterdir())
    assert data.read_text() == DATA[name]


@pytest.mark.parametrize(
    ("name", "options"), [("regression", ("--plot", "{out}/a.png")), ("multi-label", ("--calibration",))]
)
def test_what_answers_do_not_give_costs_no_measure(name, options, folder, tmp_path, capsys):
    """That they give none is known when all of them are there."""
    data = data_of(folder, name)
    assert run("evaluate", folder / name, "--data", data) == 0
    expected = capsys.readouterr().out
    options = [option.format(out=tmp_path) for option in options]
    assert run("evaluate", folder / name, "--data", data, *options) == 2
    output = capsys.readouterr()
    assert f"{options[0]}: the task 'classify' gives none here" in output.err
    assert json.loads(output.out) == json.loads(expected) and not list(tmp_path.iterdir())


def test_a_full_disk_costs_no_measure(folder, tmp_path, capsys):
    command = "evaluate", folder / "classes", "--data", data_of(folder, "classes")
    assert run(*command) == 0
    expected = capsys.readouterr().out
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        assert run(*command, "--plot", tmp_path / "confusion.png") == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    output = capsys.readouterr()
    assert "File too large" in output.err
    assert json.loads(output.out) == json.loads(expected) and not list(tmp_path.iterdir())


def test_counts_by_hand():
    matrix = confusion_of([0, 0, 0, 1, 2], [0, 0, 1, 1, 0], 3)
    assert matrix.tolist() == [[2, 1, 0], [0, 1, 0], [1, 0, 0]]
    counts = counts_in(matrix, ["a", "b", "c"])
    assert (
        counts["a"] == Counts(2, 3, 3) and counts["b"] == Counts(1, 2, 1) and counts["c"] == Counts(0, 0, 1)
    )
    a, c = counts["a"], counts["c"]
    assert (a.precision, a.recall, a.f1) == (2 / 3, 2 / 3, 2 / 3) and (c.precision, c.recall, c.f1) == (
        0,
        0,
        0,
    )
    sets = counts_of_sets([{("P", 0, 2), ("L", 3, 4)}, set()], [{("P", 0, 2), ("P", 3, 4)}, {("L", 0, 1)}])
    assert sets == {"L": Counts(0, 1, 1), "P": Counts(1, 2, 1)}


@pytest.mark.parametrize(
    ("confidences", "right", "error"),
    [
        ([1.0, 1.0], [1, 1], 0.0),
        ([1.0, 1.0], [0, 0], 1.0),
        ([0.9, 0.9, 0.5], [1, 0, 1], (0.8 + 0.5) / 3),
        ([], [], 0),
    ],
)
def test_calibration_by_hand(confidences, right, error):
    found = calibration_error(np.array(confidences, float), np.array(right, bool))
    assert found == pytest.approx(error)


def test_many_classes_are_told_in_short():
    labels = [f"class {number}" for number in range(60)]
    matrix = np.diag(np.arange(60)) + 0
    matrix[3, 7], matrix[5, 2] = 9, 4
    lines = list(confusion_lines(labels, matrix))
    assert lines == ["class 3 was taken for class 7 9 times", "class 5 was taken for class 2 4 times"]
    lines = list(class_lines(counts_in(matrix, labels)))
    assert len(lines) == 42 and lines[-1] == "and 20 rarer ones" and lines[1].startswith("class 20")


def test_the_baselines_of_the_training_stand_beside(folder, tmp_path, capsys):
    baselines = Baselines("val_accuracy", "max", {"the commonest class": 2 / 3}, 3)
    task = tasks.TextClassifier.load(folder / "classes")  # one of its own, to be changed
    task.record = {"baselines": baselines.entries()}
    task.save(tmp_path / "run")
    write_record(tmp_path / "run", task.record)
    assert run("evaluate", tmp_path / "run", "--data", data_of(folder, "classes")) == 0
    assert f"in its training, {baselines}" in capsys.readouterr().err
    assert str(baselines).endswith("val_accuracy 0.6667 by the commonest class")
