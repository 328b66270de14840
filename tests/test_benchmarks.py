"""The benchmarks' table, what each takes, the device, and the runner of all; nothing is measured here."""

import json
import os
import pathlib
import re
import sys

import pytest

from tests.fresh_process import run_fresh

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="benchmarks/ is not part of the wheel")
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - {"__init__", "all", "rounds", "first_day_data"})
HELP = """
import contextlib, importlib, io, json
root, *names = sys.argv[1:]
sys.path.insert(0, root)
texts = {}
for name in names:
    sys.argv, output = [name, "--help"], io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        importlib.import_module(f"benchmarks.{name}").main()
    texts[name] = output.getvalue()
print(json.dumps(texts))
"""

PEER = """
import argparse
from benchmarks.rounds import parse, serve
parser = argparse.ArgumentParser()
parser.add_argument("--worker")
if parse(parser).worker == "theirs":
    import a_package_that_is_absent
serve(lambda: 8)
"""


def flags(text):
    """The options that occur in a text."""
    return set(re.findall(r"(?<!\w)--[a-z][a-z-]*", text))


def test_the_table_has_every_benchmark():
    from benchmarks.all import RUNS

    table = FOLDER.joinpath("README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.py\) \|.*`python -m benchmarks\.(\w+)", table, re.MULTILINE)
    assert rows == [(name,) * 3 for name in NAMES]
    assert sorted({name.split()[0] for name in RUNS}) == NAMES


def test_each_says_what_it_takes_without_tensorflow():
    from benchmarks.all import RUNS

    result = run_fresh(HELP, FOLDER.parent, *NAMES, "all", blocked=("tensorflow", "keras", "torch"))
    assert result.returncode == 0, result.stderr
    texts = json.loads(result.stdout)
    for line in FOLDER.joinpath("README.md").read_text("utf-8").splitlines():
        for name, options in re.findall(r"`python -m benchmarks\.(\w+)([^`]*)`", line):
            assert flags(options) | {"--device"} <= flags(texts[name]), name
    for name, options in RUNS.items():
        assert flags(options) <= flags(texts[name.split()[0]]), name
    assert {"--only", "--again", "--device"} <= flags(texts["all"])


def test_a_gpu_that_is_not_there_is_refused_in_a_line(monkeypatch, capsys):
    import argparse

    from benchmarks.rounds import DEVICE, parse

    monkeypatch.setenv(DEVICE, "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setattr(sys, "argv", ["a", "--device", "gpu"])
    reasons = {True: "no GPU is visible", False: "this benchmark computes on CPUs alone"}
    for has_gpu_part, reason in reasons.items():
        with pytest.raises(SystemExit, match="2"):
            parse(argparse.ArgumentParser("benchmarks.a"), has_gpu_part)
        assert capsys.readouterr().err == f"benchmarks.a: error: --device gpu: {reason}\n"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert parse(argparse.ArgumentParser("benchmarks.a")).device == "gpu"
    monkeypatch.setattr(sys, "argv", ["a"])
    assert parse(argparse.ArgumentParser("benchmarks.a")).device == os.environ[DEVICE] == "cpu"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"


def test_a_peer_that_is_not_installed_is_left_out(monkeypatch, tmp_path, capsys):
    from benchmarks import all as runner
    from benchmarks.rounds import RECORD, compare

    (tmp_path / "peer.py").write_text(PEER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(FOLDER.parent), *sys.path]))
    monkeypatch.setenv(RECORD, str(tmp_path / "found"))
    assert compare("a step", "peer", ["ours", "theirs"], 2, 1, warmup=1).keys() == {"ours"}
    reason = "left out: a_package_that_is_absent is not installed"
    assert f"theirs is {reason}\n" in capsys.readouterr().out
    results = [json.loads(line) for line in (tmp_path / "found").read_text("utf-8").splitlines()]
    (tmp_path / "decode.json").write_text(json.dumps({"seconds": 3, "results": results}))
    assert f"| decode | a step | theirs | {reason} |  |  |" in runner.table(tmp_path, {}, "cpu")


def test_a_run_that_fails_is_named_and_the_others_go_on(monkeypatch, tmp_path, capsys):
    from benchmarks import all as runner
    from benchmarks.rounds import DEVICE, RECORD, record

    monkeypatch.chdir(FOLDER.parent)
    monkeypatch.setenv(DEVICE, "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    monkeypatch.setattr(runner, "RUNS", {"decode": "--wrong", "vit input": "--help"})
    monkeypatch.setattr(sys, "argv", ["all", "--folder", str(tmp_path)])
    assert runner.main() is True
    table = (tmp_path / "TABLE.md").read_text("utf-8")
    assert re.search(r"\| decode \| failed \| \|.*exit code 2: .*--wrong", table)
    assert re.search(r"\| vit input \| the run itself \| \| \d+ s \| \| \|", table)
    assert "tensorflow 2" in table
    kept = tmp_path / "vit-input.json"
    before = kept.stat().st_mtime_ns
    monkeypatch.setattr(runner, "RUNS", {"vit input": "--wrong"})
    assert runner.main() is False and kept.stat().st_mtime_ns == before  # its results are kept

    monkeypatch.setenv(RECORD, str(tmp_path / "found"))
    record("a step", "torch", 1234.5, "tokens/s", [1.0, 3.0, 2.0], "ours / this")
    kept.write_text(json.dumps({"seconds": 3, "results": [json.loads((tmp_path / "found").read_text())]}))
    expected = "| vit input | a step | torch | 1,234 tokens/s | 2 (1 to 3) | ours / this |"
    assert expected in runner.table(tmp_path, {}, "cpu")
    assert capsys.readouterr().out.startswith("decode ... exit code 2")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ctranslate2", "onnx"])
def test_exports_write_what_the_model_writes(monkeypatch, name):
    pytest.importorskip({"onnx": "onnxruntime"}.get(name, name))
    import keras

    from benchmarks import generate
    from keras_tfm.heads import LanguageModel
    from keras_tfm.models import GPT2

    keras.utils.set_random_seed(0)
    model = LanguageModel(GPT2.from_size("tiny", vocabulary_size=generate.VOCABULARY, max_length=1024))
    monkeypatch.setattr(generate, "make_model", lambda: model)
    written = generate.run_keras_tfm(2, 1)()[:, generate.PROMPT :]
    assert written.shape == (2, generate.NEW)
    parts = generate.run_export(2, 1, name, None)()
    assert [list(row) for part in parts for row in part] == written.tolist()


@pytest.mark.slow
def test_a_detector_of_the_benchmark_answers(tmp_path):
    from benchmarks import all as runner
    from benchmarks import detect
    from keras_tfm.data import read_objects

    runner.make_pictures(tmp_path / "boxes.jsonl")
    data = read_objects(tmp_path / "boxes.jsonl", (64, 64, 3))
    answers, words = detect.run_keras_tfm(data, data, 0.05)
    assert len(answers) == runner.PICTURES and "weights" in words
