"""`keras-tfm train masked-lm` as it is typed, the verbs on its RUN, and mistakes in one line."""

import json

import pytest

from keras_tfm.tasks import MaskedLanguageModel
from tests.test_cli import check_refusal, run

LINES = ["The bank of the river was very green. It was a day in May.", "Bob deposited the check in the bank."]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of twenty documents, and the fields that make a small model."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "text").mkdir()
    for name in "ab":
        documents = [f"{LINES[i % 2]} Number {i}.\n{LINES[1 - i % 2]}" for i in range(10)]
        (folder / "text" / f"{name}.txt").write_text("\n\n".join(documents), "utf-8")
    changes = '{"dim": 32, "num_heads": 2, "intermediate_dim": 64, "num_layers": 1}'
    (folder / "changes.json").write_text(changes)
    (folder / "single").mkdir()
    (folder / "single" / "one.txt").write_text("The only document.")
    return folder


def train(data, out, *options):
    size = "--size", "tiny", "--config", data / "changes.json", "--vocabulary", 300, "--max-length", 32
    return "train", "masked-lm", "--data", data / "text", "--out", out, *size, "--epochs", 1, *options


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The RUN folder that `train` wrote."""
    out = tmp_path_factory.mktemp("runs") / "bert"
    assert run(*train(data, out)) == 0
    return out


@pytest.mark.slow
def test_evaluate_predict_export_and_resume(data, trained, tmp_path, capsys):
    assert run("evaluate", trained, "--data", data / "text" / "a.txt") == 0
    measures = json.loads(capsys.readouterr().out)
    assert measures["documents"] == 10 and 0 <= measures["nsp_accuracy"] <= 1
    (tmp_path / "asked").write_text("the [MASK] was\n\n" + "bank " * 80 + "[MASK]\n", "utf-8")
    assert run("predict", trained, "--data", tmp_path / "asked") == 0
    output = capsys.readouterr()
    first, second, third = output.out.splitlines()
    assert first.startswith("the ") and "[MASK]" not in first and not second and third.endswith("[MASK]")
    assert "1 of 3 texts exceed 32 tokens" in output.err
    assert run("export", trained, "--out", tmp_path / "served") == 0
    assert (tmp_path / "served" / "saved_model.pb").is_file()
    assert run(*train(data, trained, "--resume"), "--epochs", 2) == 0
    assert "epoch 2/2" in capsys.readouterr().err


@pytest.mark.slow  # a classifier's is tested always
def test_from_a_folder_of_hugging_faces(data, trained, tmp_path, capsys):
    MaskedLanguageModel.load(trained).save_huggingface(tmp_path / "folder")
    arguments = "train", "masked-lm", "--data", data / "text", "--epochs", 1
    assert run(*arguments, "--from", tmp_path / "folder", "--out", tmp_path / "run") == 0
    assert "of the bank" in MaskedLanguageModel.load(tmp_path / "run").predict(["of the bank"])[0]
    (tmp_path / "folder" / "tokenizer.json").unlink()
    assert run(*arguments, "--from", tmp_path / "folder", "--out", tmp_path / "other") == 2
    assert "expected tokenizer.json or one of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--size", "huge"), "no size 'huge'"),
        (("--pairs", "both"), "invalid choice: 'both'"),
        (("--max-length", "4"), "argument --max-length: must be at least 8; it is 4"),
        (("--vocabulary", "20"), "--vocabulary must be at least 300; it is 20"),
        (("--tokenizer", "{data}"), "expected tokenizer.json or vocab.txt, got neither"),
        (("--data", "{data}/text/a.txt", "{data}/missing"), "missing: cannot be read"),
        (("--data", "{data}"), "expected text files, .txt, .txt.gz, .txt.xz; the folder has none"),
        (("--from", "{data}"), "a folder of Hugging Face's or a hub id; {data} has no config.json"),
        (("--data", "{data}/changes.json"), "changes.json: expected a JSON array of objects"),
        (("--data", "{data}/single/one.txt"), "At least 2 examples are needed"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_run(options, message, data, tmp_path, capsys):
    options = [option.format(data=data) for option in options]
    arguments = train(data, tmp_path / "run", *options)
    if "--from" in options:  # which brings its model
        arguments = "train", "masked-lm", "--data", data / "text", "--out", tmp_path / "run", *options
    check_refusal(arguments, message.format(data=data), capsys)


@pytest.mark.slow
def test_resume_refuses_another_model(data, trained, capsys):
    assert run(*train(data, trained, "--resume"), "--pairs", "order", "--size", "base") == 2
    error = capsys.readouterr().err
    assert "--pairs (now order, then next)" in error and "num_layers" not in error  # --config says 1, as then
    assert run(*train(data, trained, "--resume"), "--drawings", 1, "--epochs", 3) == 2
    assert "num_drawings (now 1, then None)" in capsys.readouterr().err
