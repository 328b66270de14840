"""Where tensorflow-text cannot be imported, texts are read by the tokenizers' own libraries."""

import json
import random

import pytest

import keras_tfm
from tests.fresh_process import run_fresh
from tests.tasks.tiny import TINY

COMMANDS = """
from keras_tfm.cli import main
folder = sys.argv[1]
def run(*arguments):
    try:
        main(list(arguments))
    except SystemExit as error:
        print("exit", error.code, flush=True)
texts, trained = f"{folder}/texts.tsv", f"{folder}/run"
run("train", "classify", "--data", texts, "--out", trained, "--epochs", "1", "--quiet",
    "--config", f"{folder}/changes.json")
run("predict", trained, "--data", texts, "--out", f"{folder}/answers.csv")
run("evaluate", trained, "--data", texts)
run("export", trained, "--out", f"{folder}/onnx", "--format", "onnx")
run("export", trained, "--out", f"{folder}/saved_model")
from keras_tfm import serving
try:
    serving.load(f"{folder}/served")
except ImportError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """(The process of COMMANDS, its folder): one for both tests, since it imports TensorFlow anew."""
    folder = tmp_path_factory.mktemp("alone")
    classifier = keras_tfm.tasks.TextClassifier.from_examples(
        (["a", "b"], ["x", "y"]), vocabulary_size=300, changes=TINY
    )
    classifier.export(folder / "served")  # here, where the package is
    draw, words = random.Random(0), {"good": ["fine", "nice", "lovely"], "bad": ["awful", "poor", "sad"]}
    labels = draw.choices(list(words), k=60)
    rows = [f"{' '.join(draw.choices(words[label], k=4))}\t{label}\n" for label in labels]
    (folder / "texts.tsv").write_text("".join(rows), "utf-8")
    (folder / "changes.json").write_text(json.dumps(TINY), "utf-8")
    return run_fresh(COMMANDS, folder, blocked=["tensorflow_text"]), folder


def test_a_classifier_is_trained_asked_and_exported(alone):
    process, folder = alone
    assert process.stdout.count("exit") == 1, process.stderr  # the SavedModel's
    assert "\nexit 2" in process.stdout
    (refused,) = (line for line in process.stderr.splitlines() if "error:" in line)
    assert "expected tensorflow-text" in refused
    assert "pip install tensorflow-text" in refused
    assert "accuracy" in process.stdout
    assert len((folder / "answers.csv").read_text("utf-8").splitlines()) == 61
    assert (folder / "onnx" / "serving.json").is_file()
    assert not (folder / "saved_model").exists()


def test_a_saved_model_of_texts_says_what_is_missing(alone):
    assert "where tensorflow-text is missing (pip install tensorflow-text)" in alone[0].stdout
