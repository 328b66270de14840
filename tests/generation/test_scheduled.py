"""Scheduled sampling: which tokens are the model's own, what they are, and a training that reads them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm.generation import Decoder, EndTokens, ScheduledSampling
from keras_tfm.heads import LanguageModel, TokenCrossEntropy
from keras_tfm.models import RecurrentSeq2Seq, RecurrentSeq2SeqConfig
from keras_tfm.tasks.text.translator_options import Seq2SeqTraining
from keras_tfm.training.changed_steps import ChangedInputs
from tests.contract import randomise

LENGTHS = [6, 3, 5]


class Always:
    """A model that writes token 1 whatever it reads."""

    def start(self, batch_size, max_length, context=None):
        return ops.zeros((batch_size,))

    def step(self, token_ids, cache, padding_mask=None):
        return ops.broadcast_to(1e6 * ops.one_hot([[1]], 3), (*ops.shape(token_ids), 3)), cache


class Greedy:
    """A language model so sure of itself that what is drawn is the likeliest token."""

    def __init__(self, model):
        self.model, self.start = model, model.start

    def step(self, token_ids, cache, padding_mask=None):
        logits, cache = self.model.step(token_ids, cache, padding_mask)
        return 1e6 * logits, cache


def batch(rows=3, length=6):
    mask = tf.sequence_mask(LENGTHS * (rows // 3), length)
    return {
        "token_ids": tf.random.uniform((rows, 5), 2, 11, tf.int32),
        "padding_mask": tf.sequence_mask([5, 2, 4] * (rows // 3)),
        "decoder_token_ids": tf.random.uniform((rows, length), 2, 11, tf.int32) * tf.cast(mask, tf.int32),
        "decoder_padding_mask": mask,
    }


def read(sampling, inputs, step, done):
    return sampling(inputs, tf.constant(step), tf.constant(done))["decoder_token_ids"].numpy()


def test_the_share_of_own_tokens_rises_with_training():
    """Neither the first token nor padding is replaced; the draws are the seed's and the step's."""
    inputs = batch(900)
    tokens, mask = inputs["decoder_token_ids"].numpy(), inputs["decoder_padding_mask"].numpy()
    may_be_own = mask & (np.arange(6) > 0)
    sampling = ScheduledSampling(Always(), 0.6)
    for done in (0.0, 0.5, 1.0):
        got = read(sampling, inputs, 7, done)
        is_own = got == 1
        np.testing.assert_array_equal(got[~is_own], tokens[~is_own])
        assert not is_own[~may_be_own].any()
        np.testing.assert_allclose(is_own[may_be_own].mean(), 0.6 * done, atol=0.03)
    np.testing.assert_array_equal(got, read(sampling, inputs, 7, 1.0))
    for other in (read(sampling, inputs, 8, 1.0), read(ScheduledSampling(Always(), 0.6, 1), inputs, 7, 1.0)):
        agree = (is_own == (other == 1))[may_be_own].mean()
        assert abs(agree - (0.6**2 + 0.4**2)) < 0.03  # as of independent draws


def test_own_tokens_are_those_of_decoding():
    """Where all are its own, the model reads what free running writes; where some are, what follows them."""
    model = LanguageModel(RecurrentSeq2Seq(RecurrentSeq2SeqConfig(11, dim=6, hidden_dim=4)))
    randomise(model, seed=1)
    inputs = batch()
    context = {name: inputs[name] for name in ("token_ids", "padding_mask")}
    run = tf.function(ScheduledSampling(Greedy(model), 1.0), jit_compile=True)
    got = run(inputs, tf.constant(0), tf.constant(1.0))["decoder_token_ids"]
    free = tf.function(Decoder(model, 5))(inputs["decoder_token_ids"][:, :1], context=context)
    for row, length in enumerate(LENGTHS):
        np.testing.assert_array_equal(got[row, :length], free[row, :length])
    half = run(inputs, tf.constant(0), tf.constant(0.5))["decoder_token_ids"].numpy()
    predicted = np.argmax(model({**inputs, "decoder_token_ids": tf.constant(half)}), axis=-1)
    is_own = half != inputs["decoder_token_ids"].numpy()
    assert 0 < is_own.sum() < 11
    np.testing.assert_array_equal(half[:, 1:][is_own[:, 1:]], predicted[:, :-1][is_own[:, 1:]])


@pytest.mark.slow
def test_a_model_learns_from_what_it_wrote():
    """Targets are learnt by heart; the steps and what is done of them are counted, and all is as before."""
    model = LanguageModel(RecurrentSeq2Seq(RecurrentSeq2SeqConfig(11, dim=16, hidden_dim=24, dropout=0.0)))
    model.compile(keras.optimizers.Adam(0.02), TokenCrossEntropy())
    inputs = batch()
    labels = np.random.default_rng(0).integers(3, 11, (3, 6))
    labels[np.arange(3), np.array(LENGTHS) - 1] = 2
    labels *= inputs["decoder_padding_mask"].numpy()
    starts = np.ones((3, 1), int)
    inputs["decoder_token_ids"] = tf.constant(np.append(starts, labels[:, :-1], axis=1), tf.int32)
    weights, seen = (labels > 0).astype("float32"), tf.Variable([0.0, 0.0, 0.0])
    sampling = ScheduledSampling(model, 0.5)

    def change(inputs, step, done):
        changed = sampling(inputs, step, done)
        is_own = changed["decoder_token_ids"] != inputs["decoder_token_ids"]
        any_own = tf.cast(tf.reduce_any(is_own), tf.float32)
        seen.assign([tf.cast(step, tf.float32), done, seen[2] + any_own])
        return changed

    step = model.train_step
    data = tf.data.Dataset.from_tensors((inputs, labels, weights)).repeat(60)
    model.fit(data, epochs=2, shuffle=False, verbose=0, callbacks=[ChangedInputs(change, 150)])
    np.testing.assert_allclose(seen[:2], [119, 119 / 150], rtol=1e-6)
    assert seen[2] > 0 and model.train_step == step
    context = {name: inputs[name] for name in ("token_ids", "padding_mask")}
    decode = tf.function(Decoder(model, 6, stop=EndTokens(2)))
    answers = decode(tf.ones([3, 1], tf.int32), context=context).numpy()
    np.testing.assert_array_equal(answers[:, 1:], labels)


def test_a_share_is_one():
    for share in (-0.1, 1.5):
        with pytest.raises(ValueError, match="`share` must lie in"):
            ScheduledSampling(Always(), share)
        with pytest.raises(ValueError, match="`scheduled_sampling` must"):
            Seq2SeqTraining(scheduled_sampling=share)
