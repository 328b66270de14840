"""`keras-tfm train classify` as it is typed, the verbs on its RUN, and mistakes in one line."""

import json

import numpy as np
import pytest

from keras_tfm import tasks
from tests.test_cli import check_refusal, run

TINY = {"dim": 32, "num_heads": 2, "intermediate_dim": 64, "num_layers": 1}
ROWS = [("a warm and funny film", "good"), ("a dull mess", "bad"), ("i liked it", "good"), ("no", "bad")]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of forty labelled texts, and the fields that make a small model."""
    folder = tmp_path_factory.mktemp("data")
    lines = [f"{text} {i}\t{label}" for i in range(10) for text, label in ROWS]
    (folder / "train.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n", "utf-8")
    (folder / "changes.json").write_text(json.dumps(TINY))
    (folder / "ugly.tsv").write_text("sentence\tlabel\nso plain\tugly\n", "utf-8")
    (folder / "other.csv").write_text(
        "\n".join(["said,felt", *(x.replace("\t", ",") for x in lines)]), "utf-8"
    )
    (folder / "cut.tsv").write_text("sentence\tlabel\nso plain\n", "utf-8")
    (folder / "scores.tsv").write_text("sentence\tscore\nso plain\thigh\n", "utf-8")
    return folder


def train(data, out, *options):
    size = "--size", "tiny", "--config", data / "changes.json", "--vocabulary", 300, "--max-length", 32
    size += "--pooling", "first"  # what transformers has
    return "train", "classify", "--data", data / "train.tsv", "--out", out, *size, "--epochs", 1, *options


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The RUN folder that `train` wrote."""
    out = tmp_path_factory.mktemp("runs") / "texts"
    assert run(*train(data, out, "--layer-decay", 0.9)) == 0
    return out


@pytest.mark.slow
def test_the_verbs_on_a_run(data, trained, tmp_path, capsys):
    capsys.readouterr()
    assert run("evaluate", trained, "--data", data / "train.tsv") == 0
    measures = json.loads(capsys.readouterr().out)
    assert measures["examples"] == 40 and 0 <= measures["accuracy"] <= 1
    assert run("evaluate", trained, "--data", data / "other.csv", "--header") == 0
    assert json.loads(capsys.readouterr().out) == measures
    (tmp_path / "asked").write_text("a dull mess\n\n" + "film " * 80 + "\n", "utf-8")
    assert run("predict", trained, "--data", tmp_path / "asked") == 0
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 3 and set(output.out.split()) <= {"good", "bad"}
    assert "1 of 3 texts exceed 32 tokens" in output.err
    assert run("convert", trained, "--to-huggingface", tmp_path / "folder") == 0
    assert run("convert", tmp_path / "folder", "--out", tmp_path / "back") == 0
    texts = [text for text, _ in ROWS]
    one, other = (
        tasks.load(folder).predict(texts, probabilities=True) for folder in (trained, tmp_path / "back")
    )
    np.testing.assert_allclose(one, other, atol=1e-6)


def interrupt(*_):
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def untrained(data, trained, tmp_path_factory):
    """A RUN whose training was interrupted before an epoch of it had ended."""
    folder = tmp_path_factory.mktemp("untrained") / "run"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("keras_tfm.training.fit.Progress.on_epoch_begin", interrupt)
        task = tasks.load(trained)
        task.fit(task.read_examples([data / "train.tsv"]), run=folder)
    (folder.parent / "asked").write_text("a dull mess\n", "utf-8")
    return folder


NOT_ENDED = "no epoch of its training has ended yet; it has its initial weights\n"


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["predict", "evaluate", "export", "quantize", "convert"])
def test_a_run_that_has_not_ended_an_epoch_says_so(verb, data, untrained, tmp_path, capsys):
    options = {
        "predict": ("--data", untrained.parent / "asked"),
        "evaluate": ("--data", data / "train.tsv"),
        "convert": ("--to-huggingface", tmp_path / "out"),
    }
    assert run(verb, untrained, *options.get(verb, ("--out", tmp_path / "out"))) == 0
    assert f"{untrained}: {NOT_ENDED}" in capsys.readouterr().err
    assert verb != "quantize" or not tasks.load(tmp_path / "out").is_trained


@pytest.mark.slow
def test_a_run_that_has_ended_an_epoch_says_nothing(trained, untrained, capsys):
    assert tasks.load(trained).is_trained
    assert run("predict", trained, "--data", untrained.parent / "asked") == 0
    assert NOT_ENDED not in capsys.readouterr().err


@pytest.mark.slow
def test_one_epoch_is_what_is_asked_for_and_a_resumed_run_keeps_its_precision(data, tmp_path, capsys):
    """Of 40 texts 8 are held out; a pass over the others has more than 3 batches."""
    arguments = train(data, tmp_path / "run", "--batch-tokens", 32, "--epoch-batches", 3)
    assert run(*arguments) == 0
    said = capsys.readouterr().err
    assert "32 examples to train on, 8 examples for validation" in said and "40 examples read" in said
    _, *rows = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[:2] for row in rows] == [["1", "3"]]
    assert run(*arguments, "--resume", "--precision", "mixed_bfloat16") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "these differ: precision (now " in error and "mixed_bfloat16" in error and "then float32)" in error


@pytest.mark.slow
def test_training_from_the_encoder_of_others(data, trained, tmp_path, capsys):
    assert run("convert", trained, "--to-huggingface", tmp_path / "folder") == 0
    common = ("train", "classify", "--data", data / "train.tsv", "--epochs", 1, "--freeze", 1)
    assert run(*common, "--from", tmp_path / "folder", "--out", tmp_path / "a") == 0
    assert run(*common, "--from", trained, "--out", tmp_path / "b") == 0
    assert run(*common, "--from", trained, "--out", tmp_path / "c", "--pooling", "max") == 0
    assert tasks.load(tmp_path / "c").model.pooling == "max"
    assert run(*common, "--resume", "--out", tmp_path / "c", "--pooling", "first") == 2
    assert "--pooling (now first, then max)" in capsys.readouterr().err
    (before,) = (w for w in tasks.load(trained).model.weights if w.path == "embedding/token/embeddings")
    for out in ("a", "b", "c"):
        (after,) = (w for w in tasks.load(tmp_path / out).model.weights if w.path == before.path)
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--valid", "{data}/ugly.tsv"), "'ugly' unseen in training; known are bad, good"),
        (("--data", "{data}/other.csv"), "line 1: expected an example, but 'felt' is the label of no other"),
        (("--data", "{data}/cut.tsv"), "cut.tsv, line 2: expected 2 columns, got 1"),
        (
            ("--data", "{data}/scores.tsv", "--problem", "regression"),
            "line 2: expected a number as the label",
        ),
        (("--columns", "words,label"), "expected a column named 'words', got sentence, label"),
        (("--columns", "sentence"), "--columns: expected two, A,B or three, A,B,C; got sentence"),
        (("--size", "huge"), "no size 'huge'"),
        (("--layer-decay", "2"), "argument --layer-decay: must be at most 1; it is 2"),
        (("--freeze", "9"), "--freeze must lie in [0, 1]; it is 9"),
        (("--lora", "100000"), "--lora must be 1 to 32, the smaller side of the largest kernel in the bl"),
        (("--from", "{data}"), "a folder of Hugging Face's or a hub id; {data} has no config.json"),
        (("--max-length", "1000"), "--max-length must be at most the model's, 512; it is 1000"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_run(options, message, data, tmp_path, capsys):
    options = [option.format(data=data) for option in options]
    arguments = train(data, tmp_path / "run", *options)
    if "--from" in options:  # which brings its model
        arguments = "train", "classify", "--data", data / "train.tsv", "--out", tmp_path / "run", *options
    check_refusal(arguments, message.format(data=data), capsys)


@pytest.mark.slow
def test_a_vocabulary_that_does_not_match_the_embedding(data, trained, tmp_path, capsys):
    assert run("convert", trained, "--to-huggingface", tmp_path / "folder") == 0
    path = tmp_path / "folder" / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    content["model"]["vocab"]["unheard"] = len(content["model"]["vocab"])
    path.write_text(json.dumps(content), "utf-8")
    capsys.readouterr()
    arguments = "train", "classify", "--data", data / "train.tsv", "--out", tmp_path / "run"
    assert run(*arguments, "--from", tmp_path / "folder") == 2
    error = capsys.readouterr().err
    assert "The vocabulary does not match the embedding" in error and "Traceback" not in error


@pytest.mark.slow  # what is a task's own is tested in tests/tasks
def test_words_are_tagged(data, trained, tmp_path, capsys):
    """From the encoder of another task's RUN, whose pooler is left out."""
    sentences = ["Ada B-PER\nslept O\n", "nobody O\nmet O\nBob B-PER\n"]
    (tmp_path / "train.conll").write_text("\n".join(sentences * 10), "utf-8")
    (tmp_path / "cut.conll").write_text("Ada B-PER\nslept\n", "utf-8")
    (tmp_path / "unseen.conll").write_text("Ada B-ORG\n", "utf-8")
    common = ("train", "tag", "--data", tmp_path / "train.conll", "--out", tmp_path / "tags", "--epochs", 1)
    assert run(*common, "--from", trained) == 0
    capsys.readouterr()
    assert run("evaluate", tmp_path / "tags", "--data", tmp_path / "train.conll") == 0
    assert json.loads(capsys.readouterr().out).keys() == {
        "accuracy",
        "precision",
        "recall",
        "f1",
        "sentences",
    }
    (tmp_path / "asked").write_text("Ada met Bob\n\n", "utf-8")
    assert run("predict", tmp_path / "tags", "--data", tmp_path / "asked") == 0
    tags, nothing = capsys.readouterr().out.splitlines()
    assert len(tags.split()) == 3 and set(tags.split()) <= {"O", "B-PER"} and not nothing
    for name, message in (
        ("cut", "cut.conll, line 2: expected 2 columns, got 1"),
        ("unseen", "'B-ORG' unseen in training; known are B-PER, O"),
    ):
        assert run("evaluate", tmp_path / "tags", "--data", tmp_path / f"{name}.conll") == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


CONTEXT = "Ada Lovelace met Bob in Paris. Bob slept by the river in London."


def squad(path, *asked):
    """Writes questions about CONTEXT with their answers, none for an empty one."""
    questions = [
        {"id": str(number), "question": question, "is_impossible": not answer,
         "answers": [{"text": answer, "answer_start": CONTEXT.find(answer)}] if answer else []}
        for number, (question, answer) in enumerate(asked)
    ]  # fmt: skip
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": questions}]}]}), "utf-8")
    return path


@pytest.mark.slow
def test_questions_are_answered(data, trained, tmp_path, capsys):
    """From the encoder of another task's RUN, in windows."""
    asked = [("Who met Bob?", "Ada Lovelace"), ("Where slept Bob?", "by the river"), ("Why?", "")]
    train = squad(tmp_path / "train.json", *asked * 10)
    common = ("train", "answer", "--data", train, "--epochs", 1, "--max-length", 24)
    assert run(*common, "--from", trained, "--out", tmp_path / "a", "--stride", 6) == 0
    config = tasks.load(tmp_path / "a").config
    assert (config.max_length, config.stride, config.unanswerable) == (24, 6, True)
    capsys.readouterr()
    assert run("evaluate", tmp_path / "a", "--data", train) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"exact_match", "f1", "questions"}
    (tmp_path / "asked").write_text(f"Who met Bob?\t{CONTEXT}\nWhy?\tBob\n", "utf-8")
    assert run("predict", tmp_path / "a", "--data", tmp_path / "asked") == 0
    answers = capsys.readouterr().out.split("\n")
    assert len(answers) == 3 and answers[0] in CONTEXT and answers[1] in "Bob"
    assert run("export", tmp_path / "a", "--out", tmp_path / "served") == 0
    assert (tmp_path / "served" / "saved_model.pb").exists()
    wrong = squad(tmp_path / "wrong.json", ("Who?", "Charles"))
    (tmp_path / "asked").write_text("Who met Bob?\n" + "who " * 40 + f"\tBob\nWhy?\t{CONTEXT}\n", "utf-8")
    assert run("predict", tmp_path / "a", "--data", tmp_path / "asked") == 0
    output = capsys.readouterr()
    assert output.out.startswith("\n\n") and output.out.count("\n") == 3
    assert "line 1 gets an empty line: expected a question and a context" in output.err
    assert "line 2 gets an empty line: expected at most 15 tokens" in output.err
    for arguments, message in (
        (("evaluate", tmp_path / "a", "--data", wrong), "qas[0], id '0': expected the answer 'Charles' at"),
        (("evaluate", tmp_path / "a", "--data", train, "--columns", "a,b"), "--columns: expected three"),
        ((*common, "--out", tmp_path / "a", "--resume", "--stride", 7), "--stride (now 7, then 6)"),
        ((*common, "--out", tmp_path / "b", "--stride", 20), "--stride must lie in 1 to 12; it is 20"),
    ):
        capsys.readouterr()
        assert run(*arguments) == 2
        assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow  # what is a task's own is tested in tests/tasks
def test_choices_are_made(trained, tmp_path, capsys):
    """From the encoder of another task's RUN."""
    lines = [
        {"text": "a warm", "choices": ["film", "mess"], "label": 0},
        {"text": "no", "choices": ["i", "funny"], "label": 1},
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, lines * 10)), "utf-8")
    common = ("train", "choose", "--data", tmp_path / "train.jsonl", "--epochs", 1, "--from", trained)
    assert run(*common, "--out", tmp_path / "a") == 0
    capsys.readouterr()
    assert run("evaluate", tmp_path / "a", "--data", tmp_path / "train.jsonl") == 0
    assert json.loads(capsys.readouterr().out).keys() == {"accuracy", "loss", "examples"}
    (tmp_path / "asked").write_text("a warm\tfilm\tmess\nno\ti\tfunny\n", "utf-8")
    assert run("predict", tmp_path / "a", "--data", tmp_path / "asked") == 0
    assert set(capsys.readouterr().out.split()) <= {"0", "1"}
    (tmp_path / "asked").write_text("a warm\tfilm\tmess\nno\ti\n", "utf-8")
    assert run("predict", tmp_path / "a", "--data", tmp_path / "asked") == 0
    output = capsys.readouterr()
    assert output.out.split("\n")[0] in ("0", "1") and output.out.endswith("\n\n")
    assert "line 2 gets an empty line: expected two choices or more, got 1" in output.err
