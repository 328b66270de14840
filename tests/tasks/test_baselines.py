"""What simple rules score beside a training, and the line on a training that does not learn."""

import dataclasses
import json
import logging
import re

import keras
import numpy as np
import pytest

from keras_tfm.tasks import Forecaster, ImageClassifier, Recommender, TextClassifier
from keras_tfm.tasks.baselines import COMMONEST, LAST_VALUE, MEAN, TF_IDF, Baselines, of_classes, of_words
from keras_tfm.training.diagnosis import GUIDE, Reached, flat_loss, jump, one_class, stopped_early
from tests.tasks.tiny import TINY

TEXTS = ["a good film", "a bad film", "a good book", "a bad book"] * 6
LABELS = ["+", "-"] * 12


def test_the_commonest_class_and_the_words():
    known, asked = np.array([0, 1, 1, 2]), np.array([1, 1, 0, 2, 1])
    assert of_classes(known, asked) == {COMMONEST: 0.6}
    signs = np.arange(24) % 2
    assert of_words(TEXTS, signs, TEXTS[:4], signs[:4], seed=0) == {TF_IDF: 1.0}


@pytest.mark.parametrize(
    ("texts", "classes"),
    [
        (["a film"] * 4, [1, 1, 1, 1]),  # a single class
        (["a film"] * 300, range(300)),  # too many
        (["?", "!", ".", ","], [0, 1, 0, 1]),  # no words
    ],
)
def test_what_words_cannot_tell_has_no_such_baseline(texts, classes):
    classes = np.array(classes)
    assert of_words(texts, classes, texts[:2], classes[:2], seed=0) == {}


@pytest.mark.parametrize("most", [("MOST_PRODUCTS", 16), ("MOST_CHARACTERS", 60)])
def test_many_texts_are_sampled(most, monkeypatch):
    monkeypatch.setattr(f"keras_tfm.tasks.baselines.{most[0]}", most[1])
    signs = np.arange(24) % 2
    assert of_words([*TEXTS, *TEXTS], np.tile(signs, 2), TEXTS, signs, seed=0)[TF_IDF] > 0.7


ACCURACY = Baselines("val_accuracy", "max", {COMMONEST: 0.4, TF_IDF: 0.9}, 100)
ERROR = Baselines("val_loss", "min", {MEAN: 1.0, LAST_VALUE: 0.5}, 100)


@pytest.mark.parametrize(
    ("baselines", "values", "key"),
    [
        (ACCURACY, [0.3, 0.4, 0.2], "no better than the baseline"),
        (ACCURACY, [float(np.float32(0.4))], "no better than the baseline"),  # a tie but for rounding
        (ACCURACY, [0.5, 0.8], "a simple rule is better"),
        (ACCURACY, [0.5, 0.9], None),
        (ERROR, [1.2, 1.0], "no better than the baseline"),
        (ERROR, [1.2, 0.6], "a simple rule is better"),
        (ERROR, [float("nan"), 0.4], None),
        (dataclasses.replace(ERROR, count=19), [1.2, 1.0], None),  # too few to say
        (ERROR, [], None),
    ],
)
def test_a_training_is_compared_with_the_rules(baselines, values, key):
    remark = baselines.remark({baselines.metric: values})
    assert (remark and remark.key) == key
    if remark is not None:
        assert baselines.metric in str(remark) and str(remark).endswith(f'(guide "{GUIDE}", {key!r})')


@pytest.mark.parametrize(
    ("reached", "said"),
    [
        (None, None),
        (Reached(30, 30, 10), None),
        (Reached(12, 30, 3), "step 12 of the 30 of its first epoch"),
        (Reached(60, 30, 90), r"step 60, within the 90 of its warm-up: .* \(--warm-up 6\)"),
    ],
)
def test_a_training_that_stopped_early_says_so(reached, said):
    remark = stopped_early(reached)
    assert remark is None if said is None else remark.key == "stopped early"
    assert said is None or re.search(said, remark.text)


@pytest.mark.parametrize(("minutes", "said"), [(None, True), (9.0, False)])
def test_a_time_limit_ends_the_warm_up_in_its_own_way(caplog, minutes, said):
    task = TextClassifier.from_examples((TEXTS, LABELS), "tiny", 300, changes=TINY)
    options = {"epochs": 1, "schedule": "constant", "warmup_steps": 90, "jit": False}
    task.fit((TEXTS, LABELS), (TEXTS, LABELS), minutes=minutes, **options)
    assert ("within the 90 of its warm-up" in caplog.text) == said


@pytest.mark.parametrize(
    ("losses", "is_flat"),
    [([1.0, 0.999, 0.995], True), ([1.0, 0.9, 1.1], False), ([1.0, 1.0], False), ([1.0, 9.0, 9.0], True)],
)
def test_a_flat_loss_is_seen(losses, is_flat):
    remark = flat_loss({"loss": losses})
    assert (remark is not None) == is_flat and (not is_flat or "in 3 epochs" in remark.text)


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([0.08, 0.04, 16.4, 0.05], "rose from 0.04 to 16.4 in epoch 3"),
        ([1.0, 2.1], "rose from 1 to 2.1 in epoch 2"),
        ([0.7, 0.1, 1.3], None),
        ([-1.0, 3.0], None),
        ([1.0, float("inf")], None),
        ([5.0], None),
    ],
)
def test_a_jump_of_the_loss_is_seen(losses, said):
    remark = jump({"loss": losses})
    assert (remark is None) if said is None else said in remark.text


class Shaken(keras.callbacks.Callback):
    """Makes the weights a hundred times as large before the second epoch, as a bad step would."""

    def on_epoch_begin(self, epoch, logs=None):
        for weight in self.model.trainable_weights if epoch == 1 else []:
            weight.assign(100 * weight)


def test_a_jump_is_said_after_the_training(caplog):
    task = TextClassifier.from_examples((TEXTS, LABELS), "tiny", 300, changes=TINY)
    options = {"epochs": 2, "schedule": "constant", "warmup_steps": 1, "jit": False}
    task.fit((TEXTS, LABELS), (TEXTS, LABELS), callbacks=[Shaken()], **options)
    assert task.record["remark"]["key"] == "the loss jumped" and "--clip-norm" in caplog.text


def test_one_class_is_seen():
    assert "answers 'a' to all of 20" in str(one_class(["a"] * 20))
    assert one_class(["a"] * 19) is None and one_class(["a", "b"] * 20) is None and one_class(None) is None


@pytest.mark.parametrize(
    ("make", "examples", "validation", "expected"),
    [
        (
            lambda x: TextClassifier.from_examples(x, "tiny", 300, changes=TINY),
            (TEXTS, LABELS),
            (["a good day", "bad", "bad", "bad"], ["+", "-", "-", "-"]),
            ("val_accuracy", {COMMONEST: 0.25, TF_IDF: 1.0}),
        ),
        (
            lambda x: TextClassifier.from_examples(x, "tiny", 300, changes=TINY, problem="regression"),
            (TEXTS, [1.0, 3.0] * 12),
            (TEXTS[:2], [1.0, 5.0]),
            ("val_loss", {MEAN: 5.0}),
        ),
        (
            lambda x: ImageClassifier.from_size("tiny", ["a", "b"], image_size=8, patch_size=4),
            (np.zeros((4, 8, 8, 3), "uint8"), np.array([0, 1, 1, 1])),
            (np.zeros((4, 8, 8, 3), "uint8"), np.array([0, 1, 1, 0])),
            ("val_accuracy", {COMMONEST: 0.5}),
        ),
        (
            lambda x: Forecaster.from_series(x, window=2),
            np.array([1.0, -1.0] * 4),
            np.array([1.0, -1.0] * 2),
            ("val_loss", {MEAN: 1.0, LAST_VALUE: 4.0}),
        ),
        (
            lambda x: Recommender.from_ratings(x, dim=2),
            (["a", "a", "b"], ["x", "y", "x"], [1.0, 3.0, 2.0]),
            (["b"], ["y"], [5.0]),
            ("val_rmse", {MEAN: 3.0}),
        ),
    ],
    ids=["texts", "numbers", "images", "series", "ratings"],
)
def test_the_rules_of_the_tasks(make, examples, validation, expected):
    task = make(examples)
    baselines = task.baselines(task.check_examples(examples), task.check_examples(validation), seed=0)
    metric, rules = expected
    assert baselines.metric == metric and baselines.rules == pytest.approx(rules)


def test_a_run_keeps_its_baseline_and_says_that_it_learnt_nothing(tmp_path, caplog):
    keras.utils.set_random_seed(0)
    examples = [f"{text} {i}" for i, text in enumerate(TEXTS)], ["+", "+", "-", "+"] * 6
    task = TextClassifier.from_examples(examples, "tiny", 300, changes=TINY)
    with caplog.at_level(logging.INFO):
        task.fit(examples, examples, epochs=1, learning_rate=1e-9, run=tmp_path / "run")
    record = json.loads((tmp_path / "run" / "training.json").read_text())
    assert record["baselines"]["metric"] == "val_accuracy" and record["baselines"][COMMONEST] == 0.75
    assert record["remark"]["key"] in ("one class", "no better than the baseline")
    assert f"by {COMMONEST}" in caplog.text and record["remark"]["text"] in caplog.text
