"""Exports of tasks whose examples are several rows: blanks, choices, and questions with long contexts."""

import json

import keras
import numpy as np
import pytest

from keras_tfm import serving
from keras_tfm.data import BERTTokenizer
from keras_tfm.models import BERT
from keras_tfm.tasks import ChoiceAnswerer, MaskedLanguageModel, QuestionAnswerer
from keras_tfm.tasks.text.masked_language_model import MaskedLanguageModelConfig
from tests.export.test_ctranslate2 import shaken
from tests.fresh_process import run_fresh
from tests.tasks.tiny import TINY

FORMATS = ("litert", "onnx", "openvino")
LINES = ["Ada sings in Rome, and Bob   listens.", "Käse [SEP] und Brot, 東京", "who sings? where? what?"]
CONTEXT = " ".join(LINES * 4)
ASKED = [
    ("who sings?", LINES[0]),
    ("where?", CONTEXT),
    ("what? und Käse [MASK]", "  " + CONTEXT + "\n"),
    ("where?", ""),
]


def backbone(tokenizer, **changes):
    keras.utils.set_random_seed(0)
    return BERT.from_size("tiny", **{**TINY, **changes}, vocabulary_size=tokenizer.vocabulary_size)


@pytest.fixture(scope="module")
def tokenizer():
    return BERTTokenizer.train(LINES * 3, 320)


def filler(tokenizer):
    return MaskedLanguageModel(backbone(tokenizer), tokenizer, MaskedLanguageModelConfig(64))


def chooser(tokenizer):
    examples = [LINES[0]] * 2, [["a", "b"]] * 2, [0, 1]
    return ChoiceAnswerer.from_backbone(backbone(tokenizer), tokenizer, examples, max_length=24)


def answerer(tokenizer, **options):
    examples = ["who sings?"], [LINES[0]], [[("Ada", 0)]]
    options = {"max_length": 32, "stride": 10, "max_answer_length": 6, **options}
    return QuestionAnswerer.from_backbone(backbone(tokenizer), tokenizer, examples, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_blanks_are_filled_as_by_the_task(tokenizer, name, tmp_path):
    task = filler(tokenizer)
    shaken(task.model)
    task.export(tmp_path / "served", format=name)
    texts = ["no blank", "[MASK] sings in [MASK]", "a [MASK] " * 40, "[MASK]" * 11 + " Käse", ""]
    served = serving.load(tmp_path / "served")
    assert served(texts)["text"].tolist() == task.predict(texts)
    assert task.predict(texts)[1] != texts[1] and task.predict(texts)[2].endswith("[MASK] ")  # cut


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_choices_are_made_as_by_the_task(tokenizer, name, tmp_path):
    task = chooser(tokenizer)
    shaken(task.model)
    task.export(tmp_path / "served", format=name)
    examples = [(LINES[0], [LINES[1], "b", "where? " * 40]), "Käse\tBrot\tRome", (CONTEXT, ["Ada", CONTEXT])]
    served = serving.load(tmp_path / "served")
    answers = served(examples)
    assert answers["choice"].tolist() == task.predict(examples)
    found = task.predict(examples[1:], probabilities=True)
    np.testing.assert_allclose(answers["probabilities"][1:, :2], found, atol=1e-5)
    assert answers["probabilities"][1:, 2].tolist() == [0, 0] and np.ptp(answers["probabilities"]) > 0.1
    with pytest.raises(ValueError, match="row 1: expected two choices or more, got 1"):
        served([examples[0], ("a", ["b"])])


@pytest.mark.slow
@pytest.mark.parametrize("unanswerable", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_questions_are_answered_as_by_the_task(tokenizer, name, unanswerable, tmp_path):
    task = answerer(tokenizer, unanswerable=unanswerable, null_threshold=-3.0)
    shaken(task.model)
    task.export(tmp_path / "served", format=name)
    served = serving.load(tmp_path / "served")
    answers = served(ASKED)
    expected = task.records(ASKED)
    assert answers["answer"].tolist() == [one["answer"] for one in expected] and any(answers["answer"])
    np.testing.assert_allclose(answers["score"], [one["confidence"] for one in expected], atol=1e-4)
    with pytest.raises(ValueError, match="row 0: expected at most 19 tokens of a question, as 10 of its"):
        served([("where? " * 30, CONTEXT)])


@pytest.mark.parametrize(
    ("make", "name", "examples"),
    [
        (chooser, "choice", [(LINES[0], [LINES[1], "b"]), "Käse\tBrot\tRome"]),
        # Questions in a graph: tests/export/test_endpoints.py.
        pytest.param(answerer, "answer", [*ASKED, "where?\tin Rome"], marks=pytest.mark.slow),
    ],
)
def test_a_saved_model_takes_the_same_examples(tokenizer, make, name, examples, tmp_path):
    task = make(tokenizer)
    shaken(task.model)
    task.export(tmp_path / "served")
    assert serving.load(tmp_path / "served")(examples)[name].tolist() == task.predict(examples)


ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from serving import load
print(json.dumps(load(sys.argv[1])(json.loads(sys.argv[2]))["answer"].tolist()))
"""


@pytest.mark.slow
def test_a_folder_answers_alone(tokenizer, tmp_path):
    task = answerer(tokenizer)
    task.export(tmp_path / "served", format="onnx", quantization="int8")
    blocked = ("tensorflow", "keras", "keras_tfm", "tf2onnx")
    done = run_fresh(ASK, tmp_path / "served", json.dumps(ASKED), blocked=blocked)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == serving.load(tmp_path / "served")(ASKED)["answer"].tolist()
