"""What `predict` keeps of a RUN's function: the same answers, sound and private folders alone, within a
bound.
"""

import io
import json
import os
import re
import shutil
import sys

import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.cli import kept_answers, main
from keras_tfm.training.safetensors import UNTRAINED, read_tensors
from keras_tfm.training.weights import write_tensors
from tests.fresh_process import run_fresh
from tests.recorded.record import RUNS
from tests.test_cli import run

LINES = {
    "classify": "the cat sat\n\na dog\n",
    "tag": "Ada lives in Rome .\nthe dog\n",
    "choose": "the cat\tsat\tran\nthe dog\tran\tsat\tate\n",
    "answer": "who sat ?\tthe cat sat on the mat .\n",
    "masked-lm": "the [MASK] sat on the [MASK] .\nno blank\n",
}


@pytest.fixture
def home(monkeypatch, tmp_path):
    """An empty cache folder, and nothing that is read before what is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KERAS_TFM_GRAPH_CACHE")
    return tmp_path / "cache" / "keras_tfm" / "answers"


@pytest.fixture
def folder(tmp_path):
    """A RUN that classifies lines."""
    return shutil.copytree(RUNS / "classify", tmp_path / "run")


@pytest.fixture
def ask(monkeypatch, capsys):
    """A function that predicts for lines of standard input: (what is printed, whether a model was made)."""
    loads = []
    load = tasks.load
    monkeypatch.setattr(tasks, "load", lambda *arguments: loads.append(arguments) or load(*arguments))

    def ask(folder, text=LINES["classify"], *options):
        loads.clear()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        main(["predict", str(folder), *options])
        return capsys.readouterr().out, bool(loads)

    return ask


@pytest.mark.parametrize("name", LINES)
def test_answers_are_those_of_the_model(name, home, ask):
    text = LINES[name]
    expected, is_made = ask(RUNS / name, text, "--no-cache")
    assert is_made and not home.exists()
    assert ask(RUNS / name, text) == (expected, True)
    (kept,) = home.iterdir()
    assert {"graph.pb", "serving.json"} <= {path.name for path in kept.iterdir()}
    assert ask(RUNS / name, text) == (expected, False)
    assert ask(RUNS / name, text, "--batch-size", "1") == (expected, False)
    assert len(expected.strip()) > 0 and list(home.iterdir()) == [kept]


def test_neither_keras_nor_a_model_is_imported(home, folder, ask):
    expected, _ = ask(folder)
    code = """
import sys
from keras_tfm.cli import main
main(["predict", sys.argv[1]])
ours = [name for name in sys.modules if name.startswith(("keras_tfm.models.", "keras_tfm.layers"))]
assert not ours, ours
"""
    (folder / "lines").write_text(LINES["classify"], "utf-8")
    with open(folder / "lines", "rb") as lines:
        saved = os.dup(0)
        os.dup2(lines.fileno(), 0)
        try:
            process = run_fresh(code, folder, blocked=("keras", "tensorflow_text", "safetensors"))
        finally:
            os.dup2(saved, 0)
            os.close(saved)
    assert (process.returncode, process.stdout) == (0, expected), process.stderr


@pytest.mark.parametrize(
    "options",
    [["--json"], ["--probabilities"], ["--whole"], ["--columns", "text"], ["--data", "lines.txt"]],
    ids=" ".join,
)
def test_other_questions_are_asked_of_the_model(options, home, folder, ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("the cat sat\n", "utf-8")
    if options == ["--columns", "text"]:  # lines of standard input have none
        assert run("predict", folder, *options) == 2
    else:
        assert ask(folder, "the cat sat\n", *options)[1]
    assert not home.exists()


def test_new_weights_answer_at_once(home, folder, ask):
    """A training of the same model may go on; only what is not as it was is left to the model."""
    path = folder / "model.safetensors"
    tensors, _ = read_tensors(path)
    (bias,) = [name for name, x in tensors.items() if name.endswith("bias") and x.shape == (2,)]
    ask(folder)
    for label, biases in (("x", [100, 0]), ("y", [0, 100])):
        write_tensors({**tensors, bias: np.array(biases, "float32")}, path)
        assert ask(folder) == (f"{label}\n\n{label}\n", False)


def test_an_untrained_run_is_said_to_be_so(home, folder, ask, caplog):
    path = folder / "model.safetensors"
    write_tensors(read_tensors(path)[0], path, UNTRAINED)
    for is_made in (True, False):
        caplog.clear()
        assert ask(folder)[1] == is_made
        assert "no epoch of its training has ended yet" in caplog.text


@pytest.mark.parametrize("name", ["graph.pb", "serving.json", "tokenizer.json"])
@pytest.mark.parametrize("how", ["cut", "empty", "missing"])
def test_a_damaged_folder_is_made_anew(name, how, home, folder, ask):
    expected, _ = ask(folder)
    (kept,) = home.iterdir()
    content = (kept / name).read_bytes()
    if how == "missing":
        (kept / name).unlink()
    else:
        (kept / name).write_bytes(content[: len(content) // 2 if how == "cut" else 0])
    assert ask(folder) == (expected, True)
    assert ask(folder) == (expected, False)


def test_what_is_wrong_with_a_run_is_said_by_whoever_loads_it(home, folder, ask, capsys, monkeypatch):
    ask(folder)
    (tokenizer,) = folder.glob("tokenizer*")
    text = tokenizer.read_text("utf-8")
    tokenizer.write_text(text + "\n", "utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n")))
    assert run("predict", folder) == 2
    assert "expected the file that was saved with these weights" in capsys.readouterr().err
    tokenizer.write_text(text, "utf-8")
    tensors, _ = read_tensors(folder / "model.safetensors")
    name = next(name for name in tensors if tensors[name].ndim == 2)
    write_tensors({**tensors, name: tensors[name] * float("nan")}, folder / "model.safetensors")
    assert run("predict", folder) == 2
    assert re.search("expected finite values, got some that are not", capsys.readouterr().err)


def test_nothing_is_kept_where_it_is_turned_off_or_cannot_be(home, folder, ask, monkeypatch):
    with monkeypatch.context() as changed:
        changed.setenv("KERAS_TFM_GRAPH_CACHE", "0")
        ask(folder)
    assert not home.exists()
    home.mkdir(parents=True, mode=0o700)
    home.chmod(0o777)  # anybody could put a graph there
    ask(folder)
    assert not list(home.iterdir())
    home.chmod(0o700)
    ask(folder)
    (kept,) = home.iterdir()
    kept.chmod(0o777)
    assert ask(folder)[1] and ask(folder)[1]
    kept.chmod(0o700)
    assert not ask(folder)[1]
    assert home.stat().st_mode & 0o777 == kept.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("KERAS_TFM_GRAPH_CACHE", "yes")
    with pytest.raises(ValueError, match="KERAS_TFM_GRAPH_CACHE must be 0 or 1; it is 'yes'"):
        kept_answers.place_of(folder)


def test_each_configuration_version_and_setting_has_its_own(home, folder, monkeypatch):
    places = {kept_answers.place_of(folder)}
    monkeypatch.setenv("KERAS_TFM_JIT", "1")
    places.add(kept_answers.place_of(folder))
    monkeypatch.setattr(kept_answers.importlib.metadata, "version", lambda name: "0")
    places.add(kept_answers.place_of(folder))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["config"]["max_length"] -= 1
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    places.add(kept_answers.place_of(folder))
    assert len(places) == 4 and None not in places
    (folder / "config.json").write_text(json.dumps({**config, "plugins": {"numpy": "0"}}), "utf-8")
    assert kept_answers.place_of(folder) is None


def test_what_waited_longest_goes_first(home, monkeypatch):
    home.mkdir(parents=True)
    for number, name in enumerate("abcd"):
        (home / name).mkdir()
        (home / name / "graph.pb").write_bytes(bytes(10))
        os.utime(home / name, (10 - number, 10 - number))
    monkeypatch.setattr(kept_answers, "LIMIT", 25)
    kept_answers._remove_oldest(home)
    assert sorted(path.name for path in home.iterdir()) == ["a", "b"]
