"""The classification head and its loss."""

import numpy as np
import pytest

from keras_tfm.heads import ClassificationHead, Classifier, classification_loss
from keras_tfm.models import BERT, ViT
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


def test_a_mean_is_that_of_the_tokens_and_not_of_padding():
    backbone = BERT.from_size("tiny", vocabulary_size=20, max_length=8, dim=8, num_heads=2, hidden_dim=16)
    model = Classifier(backbone, 3, pooling="mean")
    token_ids = np.arange(1, 7)[None].repeat(2, 0)
    padding_mask = np.array([[True] * 6, [True] * 4 + [False] * 2])
    batch = {"token_ids": token_ids, "padding_mask": padding_mask, "segment_ids": np.zeros_like(token_ids)}
    hidden = np.asarray(backbone(batch)["sequence_output"])
    means = np.stack([hidden[0].mean(0), hidden[1, :4].mean(0)])
    np.testing.assert_allclose(model(batch), model.head(means), atol=1e-6)
    again = Classifier.from_config(model.get_config())
    assert again.pooling == "mean" and again.count_params() == model.count_params()


def test_a_mean_without_a_mask_is_of_all():
    backbone = ViT.from_size("tiny", image_size=8, num_layers=1)
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    model = Classifier(backbone, 3, pooling="mean")
    means = np.asarray(backbone(images)["sequence_output"]).mean(1)
    np.testing.assert_allclose(model(images), model.head(means), atol=1e-6)
    with pytest.raises(ValueError, match="`pooling` must be one of first, mean; it is 'max'"):
        Classifier(backbone, 3, pooling="max")


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
