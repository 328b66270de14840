"""Attention weights of unchanged models, recorded while they are called."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm import layers
from keras_tfm.layers.attention.tap import is_recorded
from keras_tfm.models import ALBERT, BERT, RecurrentSeq2Seq, Transformer
from keras_tfm.visualize import (
    AttentionHistory,
    AttentionSamples,
    attention_of,
    record_attention,
    with_attention,
)
from tests import contract

IDS = np.array([[1, 2, 3, 4], [5, 6, 7, 0]])
SMALL = {"vocabulary_size": 9, "dim": 8, "num_heads": 2, "intermediate_dim": 6, "num_layers": 2}


def test_a_layer_gives_what_averages_its_values():
    layer = layers.MultiHeadAttention(2, use_bias=False)
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
    layer(x)
    contract.randomise(layer, seed=1)
    with record_attention(layer) as recorded:
        y = layer(x)
    (weights,) = recorded.values()
    _, _, value = layer.projections.project(x)
    np.testing.assert_allclose(layer.merge(np.asarray(weights) @ value), y, atol=1e-6)


def test_every_layer_of_a_model_by_its_path():
    model = BERT.from_size("tiny", **SMALL)
    with record_attention(model) as recorded:
        model({"token_ids": IDS, "padding_mask": IDS > 0})
    assert list(recorded) == ["block_0/attention/branch", "block_1/attention/branch"]
    for weights in recorded.values():
        assert weights.shape == (2, 2, 4, 4)
        np.testing.assert_allclose(np.sum(weights, -1), 1, rtol=1e-6)
        assert (np.asarray(weights)[1, ..., 3] == 0).all()


def test_self_and_cross_attention_of_an_encoder_decoder():
    model = Transformer.from_size("tiny", **SMALL)
    with record_attention(model) as recorded:
        model({"token_ids": IDS, "decoder_token_ids": IDS[:, :3]})
    shapes = {path.partition("/")[2]: weights.shape[2:] for path, weights in recorded.items()}
    assert len(recorded) == 6
    assert shapes["context_attention/branch"] == (3, 4)


def test_a_layer_that_runs_several_times_has_a_list():
    model = ALBERT.from_size("base", embedding_dim=4, **SMALL | {"num_layers": 3})
    with record_attention(model) as recorded:
        model({"token_ids": IDS})
    (weights,) = recorded.values()
    assert [some.shape for some in weights] == [(2, 2, 4, 4)] * 3
    assert np.abs(weights[0] - weights[1]).max() > 0


def test_recurrent_attention_is_of_one_head():
    model = RecurrentSeq2Seq.from_size("tiny", vocabulary_size=9, dim=4, hidden_dim=5)
    with record_attention(model) as recorded:
        model({"token_ids": IDS, "decoder_token_ids": IDS[:, :1]})
    (weights,) = recorded.values()
    weights = weights if isinstance(weights, list) else [weights]
    assert {some.shape for some in weights} == {(2, 1, 1, 4)}


def test_attention_by_blocks_is_computed_as_a_whole():
    by_blocks = layers.BlockwiseAttention(2, block_size=2)
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
    expected = by_blocks(x, causal=True)
    with record_attention(by_blocks) as recorded:
        np.testing.assert_allclose(by_blocks(x, causal=True), expected, atol=1e-6)
    (weights,) = recorded.values()
    assert (np.triu(weights, 1) == 0).all()


def test_others_and_what_comes_after_are_not_recorded():
    one, other = (BERT.from_size("tiny", **SMALL) for _ in range(2))
    with record_attention(one) as recorded:
        other({"token_ids": IDS})
    one({"token_ids": IDS})
    assert recorded == {}


def test_compiled_calls_are_refused():
    model = BERT.from_size("tiny", **SMALL)
    with pytest.raises(RuntimeError, match=r"call `model\(batch\)` itself"), record_attention(model):
        model.predict({"token_ids": IDS}, verbose=0)


def test_a_compiled_model_gives_them_as_an_output():
    model = BERT.from_size("tiny", **SMALL)
    batch = {"token_ids": IDS, "padding_mask": IDS > 0}
    expected = attention_of(model, batch)
    outputs = with_attention(model).predict(batch, batch_size=1, verbose=0)
    assert outputs["attention"].keys() == expected.keys()
    for path, weights in expected.items():
        np.testing.assert_allclose(outputs["attention"][path], weights, atol=1e-6)
    whole = model(batch)["sequence_output"]
    np.testing.assert_allclose(outputs["output"]["sequence_output"], whole, atol=1e-5)


def test_weights_within_a_loop_of_a_compiled_model_are_refused():
    model = RecurrentSeq2Seq.from_size("tiny", vocabulary_size=9, dim=4, hidden_dim=5)
    with pytest.raises(RuntimeError, match="'decoder/attention' attends within a loop"):
        with_attention(model).predict({"token_ids": IDS, "decoder_token_ids": IDS}, verbose=0)


@pytest.mark.slow
def test_a_training_keeps_them_by_epochs():
    x = keras.Input((3, 4))
    model = keras_tfm.Model(x, layers.MultiHeadAttention(2)(x))
    data = np.random.default_rng(0).normal(size=(4, 3, 4)).astype("float32")
    model.compile("sgd", "mse", run_eagerly=False)
    history = AttentionHistory(data[:1], every=2, keep=lambda weights: next(iter(weights.values())))
    model.fit(data, 10 * data, epochs=4, callbacks=[history], verbose=0)
    assert [epoch for epoch, _ in history.epochs] == [0, 2, 4]
    (_, first), *_, (_, last) = history.epochs
    np.testing.assert_allclose(last, next(iter(attention_of(model, data[:1]).values())))
    assert np.abs(first - last).max() > 0
    with pytest.raises(ValueError, match="`every` must be at least 1"):
        AttentionHistory(data, every=0)


def test_a_training_gives_those_of_its_own_steps():
    """What `fit` computes is the same with the samples and without, and the next training is without them."""

    def trained(callbacks):
        keras.utils.set_random_seed(1)
        x = keras.Input((3, 4))
        model = keras_tfm.Model(x, layers.MultiHeadAttention(2, dropout=0.1)(x))
        data = np.random.default_rng(0).normal(size=(10, 3, 4)).astype("float32")
        model.compile("sgd", "mse", jit_compile=False, steps_per_execution=2)
        options = {"batch_size": 2, "shuffle": False, "verbose": 0, "validation_data": (data, data)}
        model.fit(data, 10 * data, epochs=2, callbacks=callbacks, **options)
        return model, data

    sampled = AttentionSamples(every=3, keep=lambda weights: next(iter(weights.values())))
    (model, data), (other, _) = trained([sampled]), trained([])
    for one, same in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, same)
    assert [step for step, _ in sampled.samples] == [0, 3, 6, 9]
    for _, weights in sampled.samples:
        assert weights.shape == (2, 2, 3, 3)
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)  # before dropout
    first, second = (weights for _, weights in sampled.samples[:2])
    assert np.abs(first - second).max() > 1e-3  # other batches, other weights of the layer
    model.fit(data, data, epochs=1, verbose=0)
    assert len(sampled.samples) == 4

    model.compile("sgd", "mse", jit_compile=True)
    with pytest.raises(ValueError, match="jit_compile=False"):
        model.fit(data, data, callbacks=[AttentionSamples()], verbose=0)
    with pytest.raises(ValueError, match="`every` must be at least 1"):
        AttentionSamples(every=0)


@pytest.mark.slow
def test_a_training_that_fails_leaves_no_recording():
    def stop(batch, logs):
        raise KeyboardInterrupt

    x = keras.Input((3, 4))
    model = keras_tfm.Model(x, layers.MultiHeadAttention(2)(x))
    data = np.ones((2, 3, 4), "float32")
    model.compile("sgd", "mse", jit_compile=False)
    samples, interrupt = AttentionSamples(), keras.callbacks.LambdaCallback(on_train_batch_end=stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(data, data, callbacks=[samples, interrupt], verbose=0)
    assert not is_recorded() and len(samples.samples) == 1
    model.fit(data, data, verbose=0)
    assert len(samples.samples) == 1


def test_hidden_states_beside_them():
    """A model's states are outputs like others, of a compiled call too."""
    model = BERT.from_size("tiny", **SMALL)
    states = keras_tfm.Model(model.input, {"states": model.hidden_states["encoder"]})
    outputs = with_attention(states).predict({"token_ids": IDS}, verbose=0)
    assert len(outputs["output"]["states"]) == 3 and len(outputs["attention"]) == 2
    whole = model({"token_ids": IDS})["sequence_output"]
    np.testing.assert_allclose(outputs["output"]["states"][-1], whole, atol=1e-5)


def test_nothing_is_compiled_where_nobody_records():
    """The compiled code is the same text with the tap and without it."""
    model = keras_tfm.Model(x := keras.Input((None, 8)), layers.TransformerBlock(2, 9)(x))

    def program():
        function = tf.function(lambda x: model(x), autograph=False, jit_compile=True)
        text = function.experimental_get_compiler_ir(tf.zeros((1, 3, 8)))(stage="optimized_hlo")
        # What a traced function is called is counted on; where an operation was made is told of each.
        return re.sub(r"_inference_\w+|, metadata=\{[^}]*\}", "", text)

    before = program()
    assert "exponential" in before or "exp" in before
    with_attention(model).predict(np.zeros((1, 3, 8)), verbose=0)
    assert program() == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_tfm.layers.attention.multi_head.tap", lambda *_: None)
        assert program() == before
