"""Weights of classes in the loss: in training batches alone, times the weights that mask; and refused."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import LabelledTexts, TaggedWords
from keras_tfm.tasks import ImageClassifier, TextClassifier, TokenClassifier
from keras_tfm.tasks.class_weights import class_weights
from keras_tfm.tasks.images.image_classifier import ImageTraining
from keras_tfm.tasks.text.question_answerer import QuestionAnswerer
from keras_tfm.training.options import ClassTraining
from tests.tasks.tiny import TINY

TEXTS = LabelledTexts(["good film", "fine film", "nice film", "bad film"], ["pos", "pos", "pos", "neg"])
WORDS = TaggedWords([["Ada", "wrote", "it"], ["Ada"]], [["PER", "O", "O"], ["O"]])
PIXELS = np.zeros((4, 8, 8, 3), "uint8"), np.array(["dog", "cat", "dog", "dog"])


def made(kind):
    """A tiny task, its examples, and its labels by name."""
    if kind == "classify-images":
        sizes = {"num_layers": 1, "dim": 32, "num_heads": 2, "image_size": 8, "patch_size": 4}
        return ImageClassifier.from_size("tiny", ["cat", "dog"], **sizes), PIXELS, ["cat", "dog"]
    task_class, examples = (TextClassifier, TEXTS) if kind == "classify" else (TokenClassifier, WORDS)
    options = {"vocabulary_size": 300, "changes": TINY, "family": "bert", "max_length": 16}
    task = task_class.from_examples(examples, "tiny", **options)
    return task, examples, task.config.labels


@pytest.mark.parametrize("kind", ["classify", "tag", "classify-images"])
def test_training_batches_weigh_their_classes(kind):
    task, examples, names = made(kind)
    checked = task.check_examples(examples)
    expected = {"balanced": (2.0, 2 / 3), json.dumps(dict(zip(names, (5, 0.5), strict=True))): (5, 0.5)}
    if kind == "tag":  # O three times, PER once
        expected = {"balanced": (2 / 3, 2.0), '{"PER": 3}': (1, 3)}
    for chosen, weights in expected.items():
        usual = task.training.settled(4)
        training = dataclasses.replace(usual, class_weight=chosen)
        plain = list(task.batches(checked, usual).dataset())
        weighted = list(task.batches(checked, training).dataset())
        assert len(plain) == len(weighted)
        for (_, labels, *masks), (_, same, found) in zip(plain, weighted, strict=True):
            np.testing.assert_array_equal(same, labels)
            is_soft = labels.dtype == tf.float32  # smoothed labels, the largest share on the class
            classes = np.argmax(labels, axis=-1) if is_soft else labels
            mask = masks[0] if masks else np.ones(classes.shape)
            np.testing.assert_allclose(found, mask * np.array(weights, "float32")[classes], rtol=1e-6)
        for batch in task.batches(checked, training, is_validation=True).dataset():
            assert len(batch) == 2 or set(np.unique(batch[2])) <= {0.0, 1.0}
        _, _, endless = next(iter(task.batches(checked, training).epochs()))
        np.testing.assert_array_equal(np.unique(endless), np.unique(weighted[0][2]))


def test_the_loss_is_the_weighted_mean():
    """As torch's CrossEntropyLoss(weight=...), the total is divided by the weights of the labels."""
    task, *_ = made("classify")
    loss = task.objective(task.training)["loss"]
    labels, logits = np.array([0, 1, 1]), np.array([[1.0, 0.0], [0.0, 0.5], [2.0, 1.0]])
    each = keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True).numpy()
    weights = np.array([5.0, 0.5, 0.5])
    np.testing.assert_allclose(loss(labels, logits, weights), (weights * each).sum() / weights.sum(), 1e-6)


def test_balanced_gives_each_class_that_occurs_the_same_share():
    training = ClassTraining(class_weight="balanced")
    np.testing.assert_allclose(class_weights(training, np.array([0, 2, 2, 2]), "abc"), [2, 1, 2 / 3])
    assert class_weights(ClassTraining(), np.array([0]), "a") is None


@pytest.mark.parametrize("kind", [ClassTraining, ImageTraining])
@pytest.mark.parametrize(
    "value",
    [
        *("even", "[1]", '{"a": "b"}', '{"a": -1}', '{"a": 0}', '{"a": NaN}', "{"),
        *({}, {"a": "b"}, {"a": -1.0}, {"a": float("nan")}, {"a": object()}, {"a": np.ones(2)}, {"a": True}),
    ],
)
def test_other_weights_are_refused(kind, value):
    with pytest.raises(ValueError, match="`class_weight` must be balanced, or a JSON object of numbers"):
        kind(class_weight=value)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [({"a": 2.0}, {"a": 2.0}), ({"a": np.float32(0.5), "é": 3}, {"a": 0.5, "é": 3}), ({1: 2}, {"1": 2})],
)
def test_weights_may_be_a_dictionary(weights, expected):
    """A record of the training holds them as the command line's text."""
    training = dataclasses.replace(TextClassifier.training, class_weight=weights)
    assert training.class_weights() == expected
    assert dataclasses.replace(training, class_weight=training.class_weight) == training


@pytest.mark.parametrize("other", [{"mixup": 0.2}, {"cutmix": 1.0}])
def test_weights_need_labels_of_one_class(other):
    with pytest.raises(ValueError, match=f"leave out `{next(iter(other))}`"):
        ImageTraining(class_weight="balanced", **other)


def test_weights_of_unknown_classes_and_of_other_problems_are_refused():
    with pytest.raises(ValueError, match="must name classes of the task, a, b; it names 'c'"):
        class_weights(ClassTraining(class_weight='{"c": 2}'), np.array([0]), ["a", "b"])
    assert not hasattr(QuestionAnswerer.training, "class_weight")
    assert TextClassifier.labels_in(TEXTS) == {"neg", "pos"}
    assert ImageClassifier.labels_in(PIXELS) == {"cat", "dog"}
    examples = LabelledTexts(TEXTS.texts, [["a"], ["b"], [], ["a"]])
    task = TextClassifier.from_examples(
        examples, "tiny", vocabulary_size=300, changes=TINY, problem="multi-label", max_length=16
    )
    training = dataclasses.replace(task.training, class_weight="balanced")
    with pytest.raises(ValueError, match="one class a text; the problem is multi-label"):
        task.batches(task.check_examples(examples), training)
