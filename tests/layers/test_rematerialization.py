"""Rematerialised blocks: the same numbers with dropout on, traced, compiled, in `fit`; each block alone."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm import layers
from keras_tfm.models import Transformer
from tests import contract
from tests.layers.flat import FlatBlock

Encoder, Decoder = layers.TransformerEncoder, layers.TransformerDecoder


class CountingFeedForward(layers.FeedForward):
    """Counts its calls."""

    calls = 0

    def call(self, x):
        type(self).calls += 1
        return super().call(x)


def blockwise():
    """A block whose attentions go by blocks."""

    def part(branch, **options):
        rates = {"dropout": 0.3, "stochastic_depth": 0.2}
        return layers.Residual(branch, layers.LayerNormalization(), **rates, **options)

    attention, context_attention = (layers.BlockwiseAttention(2, block_size=2, dropout=0.3) for _ in range(2))
    parts = {
        "attention": part(attention, causal=True),
        "context_attention": part(context_attention),
        "feedforward": part(layers.FeedForward(9)),
    }
    return FlatBlock(parts)


STACKS = {
    "encoder": lambda: Encoder(2, 2, 9, dropout=0.3),
    "decoder": lambda: Decoder(2, 2, 9, dropout=0.3, normalize_first=True, cross_attention=True),
    "blockwise": blockwise,
}


def model_of(stack):
    """Token ids, 0 for padding, through `stack`; Keras carries the masks."""
    ids, source = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    embedding = keras.layers.Embedding(7, 6, mask_zero=True)
    arguments = [embedding(ids), embedding(source)] if stack.context else [embedding(ids)]
    return keras_tfm.Model([ids, source][: len(arguments)], keras.layers.Dense(7)(stack(*arguments)))


def two_models(name):
    """The same model with the same generators, rematerialised and plain."""
    models = []
    for change in (layers.rematerialize, lambda stack: stack):
        keras.utils.set_random_seed(3)
        stack = STACKS[name]()
        stack.context = name != "encoder"
        models.append(model_of(change(stack)))
    contract.randomise(models[0], seed=1)
    models[1].set_weights(models[0].get_weights())
    return models


def batch(model, size=8):
    rng = np.random.default_rng(2)
    return [rng.integers(0, 7, (size, 5)) * (np.arange(5) < 4) for _ in model.inputs]


def seeds(model):
    return [
        generator.state.numpy() for layer in model._flatten_layers() for generator in layer._seed_generators
    ]


@pytest.mark.parametrize("jit_compile", [
    pytest.param(None, id="eager", marks=pytest.mark.slow),
    pytest.param(False, id="traced"),
    pytest.param(True, id="compiled", marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.parametrize(
    "name", [x if x == "decoder" else pytest.param(x, marks=pytest.mark.slow) for x in STACKS]
)
def test_gradients_with_dropout_are_the_plain_ones(name, jit_compile):
    results = []
    for model in two_models(name):
        inputs = [tf.constant(x) for x in batch(model)]
        before = seeds(model)

        def step(model=model, inputs=inputs):
            with tf.GradientTape() as tape:
                y = model(inputs, training=True)
                loss = tf.reduce_mean(y**2)
            return [y, *tape.gradient(loss, [weight.value for weight in model.trainable_weights])]

        if jit_compile is not None:
            step = tf.function(step, jit_compile=jit_compile, autograph=False)
        results.append([tf.convert_to_tensor(x).numpy() for _ in range(2) for x in step()])
        after = seeds(model)
        counts = {int(b[1] - a[1]) for a, b in zip(before, after, strict=True)}
        results[-1].append(np.array(sorted(counts)))
    ours, expected = results
    contract.assert_close(ours, expected)
    assert (ours[0] != ours[len(ours) // 2]).any()  # the second step drops other values


@pytest.mark.slow  # gradients and a fit in a scope are tested always
@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_gives_the_same_weights(jit_compile):
    results = []
    for model in two_models("decoder"):
        model.compile(
            keras.optimizers.SGD(0.1, global_clipnorm=1.0),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=jit_compile,
        )
        inputs = batch(model, 20)
        history = model.fit(inputs, inputs[0], batch_size=8, epochs=2, verbose=0, shuffle=False).history
        results.append([*model.get_weights(), *seeds(model), np.array(history["loss"])])
    contract.assert_close(*results)


def test_each_block_recomputes_once_and_only_to_train():
    CountingFeedForward.calls = 0
    inputs = keras.Input((None, 6))
    x = inputs
    for _ in range(3):
        attention = layers.Residual(layers.MultiHeadAttention(2))
        x = layers.Block({"attention": attention, "feedforward": layers.Residual(CountingFeedForward(9))})(x)
    encoder = layers.rematerialize(keras_tfm.Model(inputs, x))
    x = tf.ones((2, 5, 6))
    for training, calls in ((False, 3), (True, 6)):
        encoder(x)
        CountingFeedForward.calls = 0
        with tf.GradientTape() if training else contextlib.nullcontext() as tape:
            tape and tape.watch(x)
            y = encoder(x, training=training)
        if training:
            assert CountingFeedForward.calls == 3
            tape.gradient(y, x)
        assert CountingFeedForward.calls == calls


def test_the_backward_pass_takes_inputs_of_blocks_and_no_scores():
    """The largest tensor that the traced forward pass hands over: (B, T, D), or (B, H, T, T) without."""
    sizes = []
    for change in (layers.rematerialize, lambda layer: layer):
        encoder, x = change(Encoder(2, 2, 9)), tf.ones((2, 50, 8))
        forward = tf.function(lambda x, encoder=encoder: encoder(x, training=True), autograph=False)
        _, backward = forward.get_concrete_function(x)._delayed_rewrite_functions.forward_backward()
        sizes.append(max(tensor.shape.num_elements() for tensor in backward.graph.inputs))
    assert sizes == [2 * 50 * 8, 2 * 2 * 50 * 50]


def test_a_model_made_in_a_scope_of_keras_trains():
    keras.utils.set_random_seed(3)
    with keras.RematScope("full"):
        model = Transformer.from_size("tiny", vocabulary_size=9, num_layers=1, dim=8, intermediate_dim=16)
    ids = np.random.randint(1, 9, (4, 5))
    calls = [layer._remat_mode for layer in model._flatten_layers() if isinstance(layer, layers.Block)]
    assert calls and all(calls)
    model.compile("sgd", {"decoder_sequence_output": "mse", "encoder_sequence_output": None})
    inputs = {
        "token_ids": ids,
        "padding_mask": ids > 1,
        "decoder_token_ids": ids,
        "decoder_padding_mask": ids > 0,
    }
    history = model.fit(inputs, {"decoder_sequence_output": np.ones((4, 5, 8))}, epochs=2, verbose=0).history
    assert history["loss"][1] < history["loss"][0]


def test_nothing_to_rematerialise_is_refused():
    with pytest.raises(ValueError, match="has no block to rematerialise, such as a TransformerBlock"):
        layers.rematerialize(layers.FeedForward(3))
