"""Contrastive learning: the contract, logits of pairs, both losses by NumPy, the limit of the scale."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import Model
from keras_tfm.heads import Contrastive, ContrastiveHead, SigmoidContrast, SoftmaxContrast
from keras_tfm.models import CLIP, SigLIP
from tests import contract
from tests.contract import Case
from tests.models import test_clip, test_siglip

test_contract = contract.check(
    Case("CLIP's", lambda: Contrastive(CLIP(test_clip.SMALL)), test_clip.INPUTS, attends=True,
         compares=True),
    Case("SigLIP's", lambda: Contrastive(SigLIP(test_siglip.SMALL), 1.0, -2.0), test_siglip.INPUTS,
         attends=True, compares=True),
)  # fmt: skip


def draw(batch_size=3):
    rng = np.random.default_rng(0)
    return rng.random((batch_size, 4, 6, 1), "float32"), rng.integers(0, 11, (batch_size, 5))


@functools.cache
def scorer(make, scale, bias):
    """A model, and the same in one graph for any numbers of images and texts."""
    model = Contrastive(make(), scale, bias)
    contract.randomise(model.backbone, seed=0)
    signature = {"images": tf.TensorSpec((None, 4, 6, 1)), "token_ids": tf.TensorSpec((None, 5), "int32")}
    return model, tf.function(model, input_signature=[signature], autograph=False)


def clip():
    return CLIP(test_clip.SMALL)


def siglip():
    return SigLIP(test_siglip.SMALL)


@pytest.mark.parametrize(("make", "scale", "bias"), [(clip, 0.5, None), (siglip, 0.7, -3.0)])
@pytest.mark.parametrize(("num_images", "num_texts"), [(3, 3), (3, 5), (5, 1), (1, 2)])
def test_logits_are_scaled_cosines_of_any_numbers_of_images_and_texts(
    make, scale, bias, num_images, num_texts
):
    model, traced = scorer(make, scale, bias)
    inputs = {"images": draw(num_images)[0], "token_ids": draw(num_texts)[1].astype("int32")}
    outputs = model.backbone(inputs)
    cosines = np.asarray(outputs["image_embeddings"]) @ np.asarray(outputs["text_embeddings"]).T
    assert cosines.shape == (num_images, num_texts)
    expected = np.exp(scale) * cosines + (bias or 0)
    np.testing.assert_allclose(model(inputs), expected, atol=1e-5)
    np.testing.assert_allclose(traced(inputs), expected, atol=1e-5)
    if num_images == num_texts:
        pairs = np.asarray(model.learner()(inputs))
        np.testing.assert_allclose(pairs[:, 0] @ pairs[:, 1].T, expected, atol=1e-5)


def test_logits_are_no_pairs_to_learn_from():
    model = Contrastive(CLIP(test_clip.SMALL))
    model.compile("sgd", SoftmaxContrast())
    images, token_ids = draw()
    with pytest.raises(ValueError, match=r"vectors, \(B, 2, E\), it was given .*`learner\(\)`"):
        model.train_on_batch({"images": images, "token_ids": token_ids}, np.zeros(3))


def test_the_losses_by_their_formulas():
    rng = np.random.default_rng(0)
    pairs = rng.normal(size=(5, 2, 4)).astype("float32")
    logits = pairs[:, 0].astype("float64") @ pairs[:, 1].T

    def cross_entropy(logits):
        return np.mean(np.log(np.exp(logits).sum(1)) - np.diag(logits))

    expected = (cross_entropy(logits) + cross_entropy(logits.T)) / 2
    np.testing.assert_allclose(SoftmaxContrast()(np.zeros(5), pairs), expected, rtol=1e-5)
    signs = 2 * np.eye(5) - 1
    expected = -np.log(1 / (1 + np.exp(-signs * logits))).sum() / 5
    np.testing.assert_allclose(SigmoidContrast()(np.zeros(5), pairs), expected, rtol=1e-5)


@pytest.mark.parametrize("loss", [SoftmaxContrast(), SigmoidContrast()], ids=["softmax", "sigmoid"])
def test_large_logits_give_finite_losses_and_gradients(loss):
    pairs = tf.Variable(np.random.default_rng(0).normal(size=(4, 2, 8)).astype("float32") * 100)
    with tf.GradientTape() as tape:
        value = loss(np.zeros(4), pairs)
    assert np.isfinite(value) and np.isfinite(tape.gradient(value, pairs)).all()


def test_the_scale_stays_below_100_where_there_is_no_bias():
    vectors = keras.Input((4,))
    for bias in (None, -1.0):
        head = ContrastiveHead(6.0, bias)
        model = Model(vectors, keras.ops.stack(head(vectors, vectors), axis=1))
        model.compile("sgd", SoftmaxContrast())
        model.train_on_batch(np.eye(4), np.zeros(4))
        assert (np.exp(head.scale) <= 100 * (1 + 1e-6)) == (bias is None)
