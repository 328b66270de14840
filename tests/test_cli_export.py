"""`keras-tfm export --format`: what is written, said and refused."""

import json
import sys

import pytest

from keras_tfm import serving
from keras_tfm.tasks import TextClassifier, TextGenerator
from tests.tasks.tiny import TINY
from tests.test_cli import run

TEXTS = ["a good film", "a bad film"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The RUN of a classifier with fresh weights."""
    task = TextClassifier.from_examples((TEXTS * 4, ["+", "-"] * 4), "tiny", 300, changes=TINY, max_length=16)
    folder = tmp_path_factory.mktemp("runs") / "films"
    task.save(folder)
    return task, folder


def test_a_format_in_eight_bits(trained, tmp_path, capsys):
    task, folder = trained
    out = tmp_path / "served"
    assert run("export", folder, "--out", out, "--format", "onnx", "--quantization", "int8") == 0
    output = capsys.readouterr()
    assert not output.out and f"the export (onnx) is in {out}" in output.err
    assert "onnx: int8, root mean square of" in output.err
    assert json.loads((out / "serving.json").read_text())["task"] == "classify"
    assert serving.load(out)(TEXTS)["label"].tolist() == task.predict(TEXTS)
    assert run("export", folder, "--out", out, "--format", "onnx") == 2
    assert "pass --overwrite" in capsys.readouterr().err


def test_mistakes_are_one_line(trained, tmp_path, capsys, monkeypatch):
    _, folder = trained
    texts = ["to be or not to be"] * 4
    TextGenerator.from_texts(texts, tokenizer="characters", **TINY, max_length=16).save(tmp_path / "text")
    for given, options, message in (
        (folder, ("--format", "tarball"), "`format` must be one of saved_model, litert, onnx, openvino"),
        (folder, ("--quantization", "int8"), "`quantization` needs a format of its own"),
        (
            tmp_path / "text",
            ("--format", "onnx", "--top-k", "3"),
            "without --top-k: it must be None; it is 3",
        ),
        (folder, ("--format", "ctranslate2"), "holds tasks that answer texts by texts; 'classify' does not"),
        (tmp_path / "text", ("--format", "ctranslate2", "--beam", "2"), "must be True, it is False"),
    ):
        assert run("export", given, "--out", tmp_path / "served", *options) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if message in line]
        assert line.startswith("keras-tfm")
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert run("export", folder, "--out", tmp_path / "served", "--format", "openvino") == 2
    assert 'pip install "keras-tfm[openvino]"' in capsys.readouterr().err
    assert not (tmp_path / "served").exists()
