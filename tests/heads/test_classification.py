"""The classification head and its loss."""

import numpy as np
import pytest

from keras_tfm.heads import ClassificationHead, classification_loss
from tests import contract
from tests.contract import Case, floats

test_contract = contract.check(
    Case("linear", lambda: ClassificationHead(3), {"x": floats(8)}),
    Case("one hidden layer", lambda: ClassificationHead(3, hidden_dim=5, dropout=0.1), {"x": floats(8)}),
)


def test_the_hidden_layer_is_a_tanh():
    head = ClassificationHead(2, hidden_dim=3)
    x = np.random.default_rng(0).normal(size=(4, 5)).astype("float32")
    logits = head(x)
    hidden, hidden_bias, output, output_bias = head.get_weights()
    np.testing.assert_allclose(logits, np.tanh(x @ hidden + hidden_bias) @ output + output_bias, atol=1e-6)


def test_dropout_acts_in_training_alone():
    head = ClassificationHead(2, dropout=0.5)
    x = np.ones((64, 8), "float32")
    assert (np.std(head(x), axis=0) < 1e-5).all()
    assert (np.std(head(x, training=True), axis=0) > 0.1).all()


def test_the_loss_is_the_mean_of_the_cross_entropies():
    logits = np.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]).astype("float32")
    np.testing.assert_allclose(
        classification_loss()(np.array([0, 2]), logits), -(np.log(0.5) + np.log(0.8)) / 2, rtol=1e-6
    )


def test_refusals():
    with pytest.raises(ValueError, match="`num_classes` must be at least 1; it is 0"):
        ClassificationHead(0)
    with pytest.raises(ValueError, match="`hidden_dim` must be at least 1; it is -1"):
        ClassificationHead(2, hidden_dim=-1)
    with pytest.raises(ValueError, match=r"`x` must have the shape \(B, D\); it is \(2, 3, 4\)"):
        ClassificationHead(2)(np.zeros((2, 3, 4), "float32"))
