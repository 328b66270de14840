"""Predicting tokens: the head, the model it makes of a backbone, its loss and accuracy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm import layers
from keras_tfm.heads import (
    LanguageModel,
    LanguageModelHead,
    MaskedLMHead,
    TokenCrossEntropy,
    TokenMean,
    token_accuracy,
)
from keras_tfm.models import Transformer
from tests import contract
from tests.contract import Case, floats, ids, mask
from tests.layers import reference
from tests.models import test_transformer as transformer


def decoder_only(tied=False):
    """A causal language model in functional composition."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    padding_mask = keras.Input((None,), dtype="bool", name="padding_mask")
    embedding = layers.TokenAndPositionEmbedding(11, 16, 6, name="embedding")
    x = layers.TransformerDecoder(1, 2, 9, name="decoder")(embedding(token_ids), mask=padding_mask)
    logits = LanguageModelHead(11, embedding if tied else None, name="head")(x)
    return keras_tfm.Model(
        {"token_ids": token_ids, "padding_mask": padding_mask}, logits, name="language_model"
    )


def language_model():
    return LanguageModel(Transformer(transformer.TINY))


PROMISES = {"attends": True, "causal": "T"}


def tables(model):
    return model.head.embedding.token.embeddings, model.backbone.embedding.token.embeddings


test_contract = contract.check(
    Case("head", lambda: LanguageModelHead(7, None, True), {"x": floats("T", 6)}, reference=reference.head),
    Case("bounded", lambda: LanguageModelHead(7, cap=0.5), {"x": floats("T", 6)}),
    Case("tied", language_model, transformer.inputs(11), tied=tables,
         reference=reference.language_model, cache=transformer.cache, **PROMISES),
    Case("decoder_only", decoder_only, {"token_ids": ids("T", 11), "padding_mask": mask("T")}, **PROMISES),
)  # fmt: skip


def test_number_of_weights():
    """Width 256 to 15,000 tokens, with biases: 3,855,000. A tied head has none of its own."""
    head = LanguageModelHead(15_000, use_bias=True)
    head.build((None, None, 256))
    assert head.count_params() == 3_855_000
    assert language_model().count_params() == language_model().backbone.count_params()


@pytest.mark.parametrize("mask_positions", [None, np.array([[4, 0]] * 3)], ids=["everywhere", "at some"])
def test_the_shape_of_masked_logits_is_that_of_their_positions(mask_positions):
    embedding = layers.TokenEmbedding(7, 4)
    embedding.build((None, None))
    inputs = [x for x in (np.ones((3, 5, 4), "float32"), mask_positions) if x is not None]
    head = MaskedLMHead(embedding)
    expected = (3, 5 if mask_positions is None else 2, 7)
    assert head(*inputs).shape == head.compute_output_shape(*(x.shape for x in inputs)) == expected


def test_a_cap_bounds_the_logits_that_the_head_would_give():
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype("float32") * 9
    plain, bounded = LanguageModelHead(7, use_bias=True), LanguageModelHead(7, use_bias=True, cap=2.0)
    plain(x), bounded(x)
    contract.randomise(plain, 0)
    bounded.set_weights(plain.get_weights())
    np.testing.assert_allclose(bounded(x), 2 * np.tanh(plain(x) / 2), rtol=1e-5)


def test_a_tied_head_learns_the_embedding():
    model = language_model()
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(model(transformer.BATCH)[..., 10])  # token 10 is in no input
    gradient = tf.convert_to_tensor(tape.gradient(y, model.backbone.embedding.token.embeddings.value))
    assert np.abs(gradient[10]).max() > 0


def test_a_head_tied_by_hand_is_tied_in_the_file_too(tmp_path):
    model = decoder_only(tied=True)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_layer("head").embedding is loaded.get_layer("embedding")
    token_ids = np.array([[1, 2, 3]])
    np.testing.assert_array_equal(loaded({"token_ids": token_ids}), model({"token_ids": token_ids}))


# Loss ------------------------------------------------------------------------------------------------


def test_a_uniform_model_loses_the_logarithm_of_the_vocabulary():
    for smoothing in (0.0, 0.1):
        loss = TokenCrossEntropy(smoothing)(np.array([[3, 1]]), np.zeros((1, 2, 7), "float32"))
        np.testing.assert_allclose(loss, np.log(7), rtol=1e-6)


def test_losses_sum_to_the_sequences_log_probability():
    """p(x) is the product of p(x_t | x_<t)."""
    model = language_model()
    contract.randomise(model, seed=2)
    labels = np.array([[7, 8, 2], [2, 4, 4]])
    logits = model(transformer.BATCH).numpy().astype("float64")
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = [np.log(np.prod([probabilities[b, t, labels[b, t]] for t in range(3)])) for b in range(2)]
    losses = TokenCrossEntropy(reduction="none")(labels, logits)
    np.testing.assert_allclose(-np.sum(losses, axis=-1), expected, rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss_equals_keras(smoothing):
    logits, labels = np.random.normal(0, 3, (2, 5, 7)).astype("float32"), np.random.randint(0, 7, (2, 5))
    theirs = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing, reduction="none"
    )
    expected = theirs(keras.ops.one_hot(labels, 7), logits)
    ours = TokenCrossEntropy(smoothing, reduction="none")
    np.testing.assert_allclose(ours(labels, logits), expected, rtol=1e-5)
    assert TokenCrossEntropy.from_config(ours.get_config()).label_smoothing == smoothing


def test_loss_is_the_mean_over_counted_tokens():
    logits, labels = np.random.normal(size=(2, 3, 7)).astype("float32"), np.random.randint(0, 7, (2, 3))
    weights = np.array([[1, 1, 0], [1, 0, 0]], "float32")
    each = TokenCrossEntropy(reduction="none")(labels, logits).numpy()
    np.testing.assert_allclose(
        TokenCrossEntropy()(labels, logits, weights), (each * weights).sum() / 3, rtol=1e-6
    )


def test_half_precision_logits_lose_as_much():
    logits, labels = np.random.normal(0, 9, (2, 5, 700)).astype("float16"), np.random.randint(0, 700, (2, 5))
    loss = TokenCrossEntropy(reduction="none")(labels, logits)
    assert loss.dtype == "float32"
    np.testing.assert_allclose(
        loss, TokenCrossEntropy(reduction="none")(labels, logits.astype("float64")), rtol=1e-4
    )


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_gradient_is_the_formulas(label_smoothing):
    """Softmax less the expected distribution, as TensorFlow's own cross-entropy has it."""
    logits = tf.constant(np.random.normal(0, 9, (2, 5, 70)), "float32")
    labels, upstream = np.random.randint(0, 70, (2, 5)), tf.random.normal((2, 5))
    gradients = []
    expected = (1 - label_smoothing) * tf.one_hot(labels, 70) + label_smoothing / 70
    for function in (
        lambda: TokenCrossEntropy(label_smoothing, reduction="none")(labels, logits),
        lambda: tf.nn.softmax_cross_entropy_with_logits(expected, logits),
    ):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = function()
        gradients.append(tape.gradient(loss, logits, upstream))
    np.testing.assert_allclose(*gradients, atol=1e-6)


def test_accuracy():
    logits = np.array([[[1, 3, 2], [5, 1, 1], [0, 0, 4.0]]])
    np.testing.assert_array_equal(token_accuracy(np.array([[1, 2, 2]]), logits), [[1, 0, 1]])


def test_a_mean_of_tokens_counts_each_token_once_whatever_the_length_of_its_row():
    rng = np.random.default_rng(0)
    metric, right, count = TokenMean(token_accuracy), 0.0, 0.0
    for length in (2, 9):
        labels, logits = rng.integers(3, size=(4, length)), rng.normal(size=(4, length, 3))
        weights = rng.uniform(size=(4, length)) * (rng.random((4, length)) < 0.7)
        metric.update_state(labels, logits, weights)
        right += np.sum(weights * (logits.argmax(-1) == labels))
        count += np.sum(weights)
    np.testing.assert_allclose(metric.result(), right / count, rtol=1e-5)
    again = TokenMean.from_config(metric.get_config())
    again.update_state(labels, logits)
    np.testing.assert_allclose(again.result(), np.mean(logits.argmax(-1) == labels), rtol=1e-5)


def test_impossible_smoothing_is_refused():
    with pytest.raises(ValueError, match=r"`label_smoothing` must lie in \[0, 1\); it is 1"):
        TokenCrossEntropy(1)
