"""Where tensorflow-text cannot be imported, texts are read by the tokenizers' own libraries."""

import random

import keras_tfm
from tests.fresh_process import run_fresh

COMMANDS = """
from keras_tfm.cli import main
folder = sys.argv[1]
def run(*arguments):
    try:
        main(list(arguments))
    except SystemExit as error:
        print("exit", error.code, flush=True)
texts, trained = f"{folder}/texts.tsv", f"{folder}/run"
run("train", "classify", "--data", texts, "--out", trained, "--epochs", "1", "--quiet")
run("predict", trained, "--data", texts, "--out", f"{folder}/answers.csv")
run("evaluate", trained, "--data", texts)
run("export", trained, "--out", f"{folder}/onnx", "--format", "onnx")
run("export", trained, "--out", f"{folder}/saved_model")
"""


def test_a_classifier_is_trained_asked_and_exported(tmp_path):
    draw, words = random.Random(0), {"good": ["fine", "nice", "lovely"], "bad": ["awful", "poor", "sad"]}
    labels = draw.choices(list(words), k=60)
    rows = [f"{' '.join(draw.choices(words[label], k=4))}\t{label}\n" for label in labels]
    (tmp_path / "texts.tsv").write_text("".join(rows), "utf-8")
    process = run_fresh(COMMANDS, tmp_path, blocked=["tensorflow_text"])
    assert process.stdout.count("exit") == 1, process.stderr  # the SavedModel's
    assert "\nexit 2" in process.stdout
    (refused,) = (line for line in process.stderr.splitlines() if "error:" in line)
    assert "expected tensorflow-text" in refused
    assert "pip install tensorflow-text" in refused
    assert "accuracy" in process.stdout
    assert len((tmp_path / "answers.csv").read_text("utf-8").splitlines()) == 61
    assert (tmp_path / "onnx" / "serving.json").is_file()
    assert not (tmp_path / "saved_model").exists()


ANSWERS = """
from keras_tfm import serving
try:
    serving.load(sys.argv[1])
except ImportError as error:
    print(error)
"""


def test_a_saved_model_of_texts_says_what_is_missing(tmp_path):
    classifier = keras_tfm.tasks.TextClassifier.from_examples((["a", "b"], ["x", "y"]), vocabulary_size=300)
    classifier.export(tmp_path / "saved_model")
    process = run_fresh(ANSWERS, tmp_path / "saved_model", blocked=["tensorflow_text"])
    assert "pip install tensorflow-text" in process.stdout, process.stderr
