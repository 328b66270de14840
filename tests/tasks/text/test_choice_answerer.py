"""Choosing among texts whole: read, learnt, kept, exported, given away, and what is refused."""

import keras
import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.data import BERTTokenizer, Choices, DataError, read_choices
from keras_tfm.models import BERT
from keras_tfm.tasks import ChoiceAnswerer, ChoiceAnswererConfig
from keras_tfm.training.options import FineTuning
from tests.fresh_process import ask
from tests.tasks.tiny import TINY

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "one",
    "two",
    "three",
    "plus",
    "is",
    "four",
    "six",
    "##s",
]
EXAMPLES = Choices(
    ["one plus one", "one plus two", "two plus two", "three plus three"],
    [["two", "three", "is is six"], ["one", "four", "three"], ["six", "four", "two"], ["six", "twos", "one"]],
    [0, 2, 1, 0],
)


def make(**options):
    keras.utils.set_random_seed(0)
    bert = BERT.from_size("tiny", **TINY, vocabulary_size=len(PIECES), max_length=32)
    options = {"max_length": 16, "head": {"dropout": 0.0}, **options}
    return ChoiceAnswerer.from_backbone(bert, BERTTokenizer(PIECES), EXAMPLES, **options)


@pytest.fixture(scope="module")
def learnt():
    """A task that has learnt EXAMPLES by heart."""
    task = make()
    many = [column * 40 for column in EXAMPLES]  # an epoch costs more than its steps
    task.fit(many, EXAMPLES, epochs=5, batch_tokens=300, learning_rate=5e-3, weight_decay=0.0)
    return task


def test_a_batch_holds_the_choices_side_by_side():
    task = make()
    ((inputs, labels, weights),) = task.batches(
        EXAMPLES, FineTuning(batch_tokens=200), is_validation=True
    ).dataset()
    first = EXAMPLES.labels.index(2)
    row = labels.numpy().tolist().index(2)
    assert inputs["token_ids"].shape[:2] == inputs["segment_ids"].shape[:2] == (4, 3)
    assert weights.numpy().tolist() == [1] * 4
    ((expected, _),) = task.answerer.read_all([(EXAMPLES.texts[first], EXAMPLES.choices[first])])
    for ids, mask, choice in zip(
        inputs["token_ids"][row], inputs["padding_mask"][row], expected, strict=True
    ):
        assert ids.numpy()[mask].tolist() == choice.ids
    with_rest = [column * 5 for column in EXAMPLES]
    for inputs, labels, weights in task.batches(
        Choices(*with_rest), FineTuning(batch_tokens=150), is_validation=True
    ).dataset():
        assert inputs["token_ids"].shape[0] == labels.shape[0] == weights.shape[0]
        assert np.prod(inputs["token_ids"].shape) <= 150


ASKED = list(zip(EXAMPLES.texts, EXAMPLES.choices, strict=True))


def test_the_commonest_place_stands_beside_a_training(learnt):
    rules = learnt.baselines(EXAMPLES, EXAMPLES, seed=0).entries()
    assert rules == {"metric": "val_accuracy", "the commonest class": 0.5}
    assert learnt.some_answers(EXAMPLES) == EXAMPLES.labels


def test_choices_are_learnt(learnt):
    assert learnt.predict(ASKED) == EXAMPLES.labels and learnt.predict([]) == []
    assert learnt.predict(["\t".join([text, *choices]) for text, choices in ASKED]) == EXAMPLES.labels
    measures = learnt.evaluate(EXAMPLES)
    assert measures["accuracy"] == 1 and measures["loss"] < 0.3 and measures["examples"] == 4
    chances = learnt.predict(ASKED, probabilities=True, batch_size=3)
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-5)
    fewer = [(text, choices[:2]) for text, choices in ASKED]
    assert learnt.predict(fewer, probabilities=True).shape == (4, 2)


@pytest.mark.slow  # a classifier's, which is tested always
def test_the_saved_model_answers_alone(learnt, tmp_path):
    chances = learnt.predict(ASKED, probabilities=True)
    learnt.export(tmp_path / "served")
    served = ask(tmp_path / "served", text=EXAMPLES.texts, choices=EXAMPLES.choices)
    assert served["choice"].tolist() == EXAMPLES.labels
    np.testing.assert_allclose(served["probabilities"], chances, atol=1e-5)


def test_kept_and_given_away(learnt, tmp_path):
    chances = learnt.predict(ASKED, probabilities=True)
    learnt.save(tmp_path / "task")
    np.testing.assert_array_equal(tasks.load(tmp_path / "task").predict(ASKED, probabilities=True), chances)
    learnt.save_huggingface(tmp_path / "folder")
    given = tasks.from_huggingface(tmp_path / "folder")
    assert type(given) is ChoiceAnswerer
    np.testing.assert_allclose(given.predict(ASKED, probabilities=True), chances, atol=1e-6)


def test_bad_input():
    task = make()
    several = [("one", ["one", "two"]), ("one", ["one", "two", "six"])]
    assert task.predict(several) == [task.predict([one])[0] for one in several]
    with pytest.raises(ValueError, match=r"`probabilities` need the same number .* got \[2, 3\]"):
        task.predict(several, probabilities=True)
    with pytest.raises(ValueError, match="row 0: expected two choices or more, got 1"):
        task.predict(["one\ttwo"])
    with pytest.raises(ValueError, match="example 1: expected a label from 0 to 1, got 2"):
        task.evaluate((["one"], [["one", "two"]], [2]))
    with pytest.raises(ValueError, match="`max_length` must be at least 8; it is 7"):
        ChoiceAnswererConfig(max_length=7)


def test_choices_of_files(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "question": "a", "endings": ["b", "c"], "label": 1}\n', "utf-8")
    assert read_choices(path) == (["a"], [["b", "c"]], [1])
    path.write_text('{"x": "a", "y": ["b", "c"], "z": 0}\n', "utf-8")
    assert read_choices([path], ["x", "y", "z"]) == (["a"], [["b", "c"]], [0])
    good = '{"text": "a", "choices": ["b", "c"], "label": 1}\n'
    for line, message in (
        ('{"text": "a", "choices": ["b"], "label": 0}', "expected a list of two choices or more, got .'b'."),
        ('{"text": "a", "choices": "bc", "label": 0}', "expected a list of two choices or more, got 'bc'"),
        ('{"text": "a", "choices": ["b", "c", "d"], "label": 0}', "expected 2 choices, as before, got 3"),
        ('{"text": "a", "choices": ["b", "c"], "label": 2}', "expected a label from 0 to 1, got 2"),
        ('{"text": "a", "choices": ["b", "c"], "label": true}', "expected a label from 0 to 1, got True"),
        ('{"text": "a", "choices": ["b", " "], "label": 1}', "expected a text, the choice is empty"),
        ('{"text": "", "choices": ["b", "c"], "label": 1}', "expected a text, the 'text' is empty"),
        ('{"text": "a", "choices": ["b", "c"]}', "expected a key 'label'"),
    ):
        path.write_text(good + line, "utf-8")
        with pytest.raises(DataError, match=f"a.jsonl, line 2: {message}"):
            read_choices(path)
    path.write_text("", "utf-8")
    with pytest.raises(DataError, match="expected texts with choices, the file is empty"):
        read_choices(path)
