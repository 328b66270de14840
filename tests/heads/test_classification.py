"""The classification head and its loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm.heads import ClassificationHead, Classifier, classification_loss
from keras_tfm.layers import (
    Block,
    FeedForward,
    LayerNormalization,
    MultiHeadAttention,
    Residual,
    TokenAndPositionEmbedding,
    TokenEmbedding,
)
from keras_tfm.models import BERT, ViT
from tests import contract
from tests.contract import Case, floats, ids, mask


def one_block(embedding, dim, intermediate_dim):
    """A classifier of texts: an embedding, one block with two heads of full width, the maximum, a sigmoid's
    logit.
    """
    inputs = {
        "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask"),
    }
    attention = Residual(MultiHeadAttention(2, dim), LayerNormalization(), dropout=0.1)
    feedforward = Residual(FeedForward(intermediate_dim), LayerNormalization(), dropout=0.1)
    block = Block({"attention": attention, "feedforward": feedforward}, name="block_0")
    x = block(embedding(inputs["token_ids"]), attention={"mask": inputs["padding_mask"]})
    return Classifier(keras_tfm.Model(inputs, {"sequence_output": x}), 1, dropout=0.5, pooling="max")


def tiny():
    return one_block(TokenAndPositionEmbedding(11, 16, 8, name="embedding"), dim=8, intermediate_dim=6)


test_contract = contract.check(
    Case("linear", lambda: ClassificationHead(3), {"x": floats(8)}),
    Case("one hidden layer", lambda: ClassificationHead(3, hidden_dim=5, dropout=0.1), {"x": floats(8)}),
    Case("max", tiny, {"token_ids": ids("T", 11), "padding_mask": mask("T")}, attends=True),
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
    backbone = BERT.from_size(
        "tiny", vocabulary_size=20, max_length=8, dim=8, num_heads=2, intermediate_dim=16
    )
    model = Classifier(backbone, 3, pooling="mean")
    token_ids = np.arange(1, 7)[None].repeat(2, 0)
    padding_mask = np.array([[True] * 6, [True] * 4 + [False] * 2])
    batch = {"token_ids": token_ids, "padding_mask": padding_mask, "segment_ids": np.zeros_like(token_ids)}
    hidden = np.asarray(backbone(batch)["sequence_output"])
    means = np.stack([hidden[0].mean(0), hidden[1, :4].mean(0)])
    np.testing.assert_allclose(model(batch), model.head(means), atol=1e-6)
    again = Classifier.from_config(model.get_config())
    assert again.pooling == "mean" and again.count_params() == model.count_params()


def test_padding_never_is_the_maximum():
    """Where all features of the tokens are below the padding's, and where there is padding alone."""
    model = tiny()
    contract.randomise(model, seed=0)
    token_ids = np.arange(1, 7)[None].repeat(3, 0)
    padding_mask = np.array([[True] * 6, [True] * 4 + [False] * 2, [False] * 6])
    batch = {"token_ids": token_ids, "padding_mask": padding_mask}
    hidden = np.asarray(model.backbone(batch)["sequence_output"])
    assert (hidden[1, 4:].max(0) > hidden[1, :4].max(0)).any()
    highest = np.stack([hidden[0].max(0), hidden[1, :4].max(0), np.zeros(8)])
    np.testing.assert_allclose(model(batch), model.head(highest), atol=1e-6)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(batch) ** 2)
    gradients = tape.gradient(loss, [weight.value for weight in model.trainable_weights])
    assert all(np.isfinite(np.asarray(tf.convert_to_tensor(gradient))).all() for gradient in gradients)


@pytest.mark.parametrize(
    ("embedding", "dim", "count"),
    [
        (lambda: TokenAndPositionEmbedding(20_000, 600, 256), 256, 5_817_633),
        (lambda: TokenEmbedding(20_000, 32), 32, 650_689),
    ],
    ids=["256 wide, with positions", "32 wide, without"],
)
def test_number_of_weights_of_the_classifier_of_reviews(embedding, dim, count):
    assert one_block(embedding(), dim, intermediate_dim=32).count_params() == count


def test_the_maximum_finds_a_word_wherever_it_stands():
    keras.utils.set_random_seed(0)
    token_ids = np.random.default_rng(0).integers(2, 11, (256, 12))
    labels = np.arange(256) % 2
    token_ids[np.arange(256), np.arange(256) % 12] = np.where(labels, 1, token_ids[:, 0])
    model = tiny()
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, jit_compile=False)
    history = model.fit({"token_ids": token_ids}, labels[:, None], epochs=12, verbose=0)
    assert history.history["loss"][-1] < 0.2


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_without_a_mask_all_are_pooled(pooling):
    backbone = ViT.from_size("tiny", image_size=8, num_layers=1)
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    model = Classifier(backbone, 3, pooling=pooling)
    pooled = getattr(np.asarray(backbone(images)["sequence_output"]), pooling)(1)
    np.testing.assert_allclose(model(images), model.head(pooled), atol=1e-6)
    with pytest.raises(ValueError, match="`pooling` must be one of first, mean, max; it is 'sum'"):
        Classifier(backbone, 3, pooling="sum")


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
