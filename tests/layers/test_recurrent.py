"""Additive attention and the recurrent encoder and decoder, against NumPy, Keras and values by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm import layers
from keras_tfm.layers import (
    AdditiveAttention,
    DotAttention,
    LSTMAttentionDecoder,
    NoAttention,
    RecurrentEncoder,
    StaticAlignment,
    TokenEmbedding,
)
from keras_tfm.visualize import record_attention
from tests import contract
from tests.contract import Case, floats, ids, mask, randomise

UNITS = 4


def gru_cell():
    return keras.layers.GRUCell(UNITS, reset_after=False)


# The equations in NumPy, in float64 ---------------------------------------------------------------


def values(*weights):
    return [np.asarray(weight, "float64") for weight in weights]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def attention(layer, query, value, mask=None):
    """v . tanh(W s + U h + b), a softmax over the keys, the mean of the values."""
    w, u, b, v = values(layer.query.kernel, layer.key.kernel, layer.key.bias, layer.scale)
    scores = np.tanh((query @ w)[:, :, None] + (value @ u + b)[:, None]) @ v  # (B, T, S)
    weights = np.exp(scores) * (1 if mask is None else mask[:, None])
    return weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30) @ value


def lstm(cell, x, state):
    """Input, forget, candidate and output gates, in Keras's order."""
    kernel, recurrent_kernel, bias = values(cell.kernel, cell.recurrent_kernel, cell.bias)
    i, f, candidate, o = np.split(x @ kernel + state[0] @ recurrent_kernel + bias, 4, axis=-1)
    memory = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(candidate)
    return sigmoid(o) * np.tanh(memory), memory


def paper_gru(cell, x, state):
    """Equations 2.6 and 2.7: the update gate's kernels are Keras's, negated; no biases."""
    kernel, recurrent_kernel = values(cell.kernel, cell.recurrent_kernel)
    (w_z, w_r, w), (u_z, u_r, u) = np.split(kernel, 3, axis=-1), np.split(recurrent_kernel, 3, axis=-1)
    z = sigmoid(x @ -w_z + state[0] @ -u_z)
    r = sigmoid(x @ w_r + state[0] @ u_r)
    return ((1 - z) * state[0] + z * np.tanh(x @ w + (r * state[0]) @ u),)


def encoder(layer, x, mask):
    """Both directions of one layer, each over the positions that are not padding."""
    both = layer.layers[0]
    outputs, last = [], []
    for direction, times in (
        (both.forward_layer, range(x.shape[1])),
        (both.backward_layer, reversed(range(x.shape[1]))),
    ):
        state, y = (np.zeros((len(x), UNITS)),) * 2, np.zeros((*x.shape[:2], UNITS))
        for t in times:
            new = lstm(direction.cell, x[:, t], state)
            state = tuple(np.where(mask[:, t, None], n, old) for n, old in zip(new, state, strict=True))
            y[:, t] = state[0] * mask[:, t, None]
        outputs.append(y)
        last.extend(state)
    return np.concatenate(outputs, axis=-1), np.concatenate(last, axis=-1)


def decoder(layer, x, context, mask, context_mask, initial_state, step=lstm):
    """c(t) from s(t-1); s(t) from [E y; c]; the output from [s; E y; c]."""
    state, outputs = np.split(initial_state, layer.num_states, axis=-1), []
    y = c = None
    for t in range(x.shape[1]):
        now = attention(layer.context_attention, state[0][:, None], context, context_mask)[:, 0]
        new = step(layer.cells[0], np.concatenate([x[:, t], now], axis=-1), state)
        keep = mask[:, t, None]
        state = [np.where(keep, n, old) for n, old in zip(new, state, strict=True)]
        y, c = (new[0], now) if y is None else (np.where(keep, new[0], y), np.where(keep, now, c))
        outputs.append(np.concatenate([y, x[:, t], c], axis=-1))
    kernel, bias = values(layer.output_projection.kernel, layer.output_projection.bias)
    return np.tanh(np.stack(outputs, axis=1) @ kernel + bias)


# The contract -------------------------------------------------------------------------------------


test_contract = contract.check(
    Case(
        "additive attention",
        lambda: AdditiveAttention(UNITS),
        {"query": floats("T", 6), "value": floats("S", 5), "mask": mask("S")},
        attends=True,
        reference=attention,
    ),
    Case(
        "encoder",
        lambda: RecurrentEncoder(UNITS),
        {"x": floats("S", 6), "mask": mask("S")},
        reference=encoder,
    ),
    Case(
        "decoder",
        lambda: LSTMAttentionDecoder(UNITS),
        {
            "x": floats("T", 6),
            "context": floats("S", 5),
            "mask": mask("T"),
            "context_mask": mask("S"),
            "initial_state": floats(2 * UNITS),
        },
        attends=True,
        causal="T",
        left_padding="T",
        reference=decoder,
        cache=lambda layer, x, max_length: layer.start(
            3, max_length, x["context"], x["context_mask"], x["initial_state"]
        ),
        kind="recurrent",
    ),
    Case("token embedding", lambda: TokenEmbedding(9, 6), {"token_ids": ids("T", 9)}),
)


# Values and identities ----------------------------------------------------------------------------


def test_weights_by_hand():
    key = np.array([[[0.0], [0.5], [7.0]]], "float32")
    weights = layers.additive_attention_weights(
        np.zeros((1, 1, 1), "float32"), key, np.array([2.0], "float32"), np.array([[True, True, False]])
    )
    high = np.exp(2 * np.tanh(0.5))
    np.testing.assert_allclose(weights, [[[1 / (1 + high), high / (1 + high), 0]]], rtol=1e-6)


def test_attention_equals_keras_on_projected_inputs():
    ours, theirs = AdditiveAttention(UNITS), keras.layers.AdditiveAttention()
    query, value = np.random.normal(size=(2, 3, 6)), np.random.normal(size=(2, 5, 7))
    mask = np.arange(5) < [[5], [2]]
    ours(query, value)
    randomise(ours, seed=1)
    projected, key = ours.query(query), ours.key(value)
    theirs.build([projected.shape, value.shape, key.shape])
    theirs.scale.assign(ours.scale)
    expected = theirs([projected, ops.cast(value, "float32"), key], mask=[None, ops.convert_to_tensor(mask)])
    np.testing.assert_allclose(ours(query, value, mask), expected, atol=1e-6)


def test_two_projections_are_one_layer_over_both_inputs():
    layer = AdditiveAttention(UNITS)
    query, value = np.random.normal(size=(1, 1, 6)), np.random.normal(size=(1, 1, 7))
    layer(query, value)
    randomise(layer, seed=1)
    kernel = np.concatenate([layer.query.kernel, layer.key.kernel])
    one = np.concatenate([query, value], axis=-1) @ kernel + layer.key.bias.numpy()
    np.testing.assert_allclose(layer.query(query) + layer.key(value), one, atol=1e-6)


def test_the_size_of_attention_does_not_depend_on_lengths():
    layer = AdditiveAttention(UNITS)
    for length in (3, 50):
        layer(np.zeros((1, 2, 6)), np.zeros((1, length, 7)))
    assert layer.count_params() == 6 * UNITS + 7 * UNITS + UNITS + UNITS


def test_a_sharp_score_returns_one_state():
    layer = AdditiveAttention(1)
    value = np.random.normal(size=(1, 5, 2)).astype("float32")
    layer(np.zeros((1, 1, 2)), value)
    layer.query.kernel.assign(np.zeros((2, 1)))
    layer.key.kernel.assign([[1.0], [0.0]])
    layer.scale.assign([1e6])
    np.testing.assert_array_equal(layer(np.zeros((1, 1, 2)), value)[0, 0], value[0, value[0, :, 0].argmax()])


def dot_attention(layer, query, value, mask=None):
    """softmax(s W . h) over the states, and their mean."""
    (w,) = values(layer.query.kernel)
    weights = np.exp((query @ w) @ value.transpose(0, 2, 1)) * mask[:, None]
    return weights / weights.sum(-1, keepdims=True) @ value


def static_attention(layer, positions, value, mask):
    """softmax of the table's row at each position, over what `mask` allows."""
    weights = np.exp(np.asarray(layer.table)[positions, : value.shape[1]]) * mask[:, None]
    return weights / weights.sum(-1, keepdims=True) @ value


@pytest.mark.parametrize("step", [lstm, paper_gru])
@pytest.mark.parametrize("kind", ["additive", pytest.param("dot", marks=pytest.mark.slow)])
def test_decoders_equal_the_equations_step_by_step(step, kind, monkeypatch):
    """Both cells and both scores that depend on the state."""
    cell = keras.layers.GRUCell(UNITS, reset_after=False, use_bias=False) if step is paper_gru else None
    layer = LSTMAttentionDecoder(UNITS, cell=cell, attention=DotAttention() if kind == "dot" else None)
    rng = np.random.default_rng(1)
    inputs = {
        "x": rng.normal(size=(2, 3, 6)),
        "context": rng.normal(size=(2, 5, 7)),
        "mask": np.array([[True, True, True], [True, True, False]]),
        "context_mask": np.arange(5) < [[5], [3]],
        "initial_state": rng.normal(size=(2, layer.state_dim)),
    }
    layer(**inputs)
    randomise(layer, seed=1)
    if kind == "dot":
        monkeypatch.setitem(globals(), "attention", dot_attention)
    np.testing.assert_allclose(layer(**inputs), decoder(layer, **inputs, step=step), atol=1e-6)


@pytest.mark.parametrize(
    ("attention", "cell"),
    [
        (DotAttention(), keras.layers.GRUCell(UNITS)),
        pytest.param(StaticAlignment(3, 5), keras.layers.LSTMCell(UNITS), marks=pytest.mark.slow),
        pytest.param(NoAttention(), keras.layers.SimpleRNNCell(UNITS), marks=pytest.mark.slow),
    ],
)
def test_the_loop_equals_steps_and_its_gradients_those_of_steps(attention, cell):
    """Kernels whose gradients are taken behind the loop get what one step after another gives them."""
    layer = LSTMAttentionDecoder(UNITS, 2, cell, attention)
    x, context = tf.random.normal((2, 3, 6)), tf.random.normal((2, 5, 7))
    layer(x, context)
    randomise(layer, seed=1)
    context_mask = tf.sequence_mask([5, 3])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, context])
        y = layer(x, context, context_mask=context_mask)
        loss = tf.reduce_sum(y**2)
        cache, loss_of_steps = layer.start(2, 3, context, context_mask), 0.0
        for t in range(3):
            now, cache = layer.step(x[:, t : t + 1], cache)
            loss_of_steps += tf.reduce_sum(now**2)
    np.testing.assert_allclose(loss_of_steps, loss, rtol=1e-5)
    sources = [*(weight.value for weight in layer.trainable_weights), x, context]
    by_loop, by_steps = (
        tape.gradient(y, sources, unconnected_gradients="zero") for y in (loss, loss_of_steps)
    )
    for own, stepwise in zip(by_loop, by_steps, strict=True):
        np.testing.assert_allclose(own, stepwise, rtol=1e-4, atol=1e-5)


def test_a_static_alignment_is_a_table():
    """The same weights for every input and state, rows sum to 1; nothing beyond the table."""
    layer = LSTMAttentionDecoder(UNITS, attention=StaticAlignment(3, 5))
    x, context = np.random.normal(size=(2, 3, 6)), np.random.normal(size=(2, 5, 7)).astype("float32")
    layer(x, context)
    randomise(layer, seed=1)
    with record_attention(layer) as weights:
        layer(x, context)
        (first,) = weights.values()
    with record_attention(layer) as weights:
        layer(2 * x, context[::-1])
        (second,) = weights.values()
    table = np.asarray(layer.context_attention.table)
    expected = np.exp(table) / np.exp(table).sum(-1, keepdims=True)
    for row in (*first, *second):
        np.testing.assert_allclose(row[0], expected, atol=1e-6)
    mask = np.arange(5) < [[5], [2]]
    positions = np.array([[0, 1, 2], [0, 1, 2]])
    got = layer.context_attention(np.zeros((2, 3, UNITS)), context, mask)
    np.testing.assert_allclose(got, static_attention(layer.context_attention, positions, context, mask), 1e-5)
    with pytest.raises(ValueError, match="at most `max_source_length` = 5 positions; it has 6"):
        layer(x, np.zeros((2, 6, 7)))
    beyond = tf.function(lambda x: layer(x, context), jit_compile=True)(np.zeros((2, 4, 6), "float32"))
    assert np.isfinite(beyond[:, :3]).all() and np.isnan(beyond[:, 3]).all()


def test_dot_products_equal_keras_on_projected_queries():
    """`keras.layers.Attention`, the sizes brought together by W."""
    ours = DotAttention()
    query, value = np.random.normal(size=(2, 3, 6)), np.random.normal(size=(2, 5, 7))
    ours(query, value)
    mask = ops.convert_to_tensor(np.arange(5) < [[5], [2]])
    theirs = keras.layers.Attention()([ours.query(query), ops.cast(value, "float32")], mask=[None, mask])
    np.testing.assert_allclose(ours(query, value, mask), theirs, atol=1e-6)


def test_a_deep_decoder_may_attend_by_dot_product():
    layer = LSTMAttentionDecoder(UNITS, 2, gru_cell(), layers.MultiHeadAttention(1))
    x, context = np.random.normal(size=(2, 3, 6)), np.random.normal(size=(2, 5, 7))
    context_mask = np.arange(5) < [[5], [2]]
    y = layer(x, context, context_mask=context_mask)
    assert layer.state_dim == 2 * UNITS
    cache = layer.start(2, 3, ops.cast(context, "float32"), context_mask)
    for t in range(3):
        now, cache = layer.step(ops.cast(x[:, t : t + 1], "float32"), cache)
        np.testing.assert_allclose(now, y[:, t : t + 1], atol=1e-6)
    context[1, 2:] = 1e3  # hidden, so nothing changes
    np.testing.assert_allclose(layer(x, context, context_mask=context_mask), y, atol=1e-6)


def test_the_first_state_is_zero_unless_given():
    layer = LSTMAttentionDecoder(UNITS)
    x, context = np.random.normal(size=(2, 3, 6)), np.random.normal(size=(2, 5, 7))
    np.testing.assert_array_equal(
        layer(x, context), layer(x, context, initial_state=np.zeros((2, 2 * UNITS)))
    )


def test_every_step_depends_on_state_token_and_context():
    layer = LSTMAttentionDecoder(UNITS)
    inputs = [tf.random.normal((2, 3, 6)), tf.random.normal((2, 5, 7)), tf.random.normal((2, 2 * UNITS))]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = layer(inputs[0], inputs[1], initial_state=inputs[2])[:, -1]
    for gradient in tape.gradient(y, inputs):
        assert np.isfinite(gradient).all() and np.abs(gradient).max() > 1e-6


@pytest.mark.slow
def test_gradients_under_xla_equal_those_without():
    layer = LSTMAttentionDecoder(UNITS)
    x, context = tf.random.normal((2, 3, 6)), tf.random.normal((2, 5, 7))
    layer(x, context)

    def gradients(x, context):
        with tf.GradientTape() as tape:
            loss = ops.sum(layer(x, context, mask=ops.ones((2, ops.shape(x)[1]), "bool")) ** 2)
        return tape.gradient(loss, [weight.value for weight in layer.trainable_weights])

    signature = [tf.TensorSpec((None, None, 6)), tf.TensorSpec((None, None, 7))]
    for with_xla, without in zip(
        tf.function(gradients, signature, jit_compile=True)(x, context),
        tf.function(gradients, signature)(x, context),
        strict=True,
    ):
        np.testing.assert_allclose(with_xla, without, atol=1e-5)


def test_encoder_equals_keras_bidirectional_lstm():
    layer, theirs = RecurrentEncoder(UNITS), keras.layers.Bidirectional(keras.layers.LSTM(UNITS))
    x = np.random.normal(size=(2, 5, 6))
    states, last = layer(x)
    theirs.build(x.shape)
    theirs.set_weights(layer.get_weights())
    h_out = theirs(x)  # equation 2.1: the last forward and the first backward state
    np.testing.assert_allclose(layer.summary(last), h_out, atol=1e-6)
    np.testing.assert_allclose(states[:, -1, :UNITS], h_out[:, :UNITS], atol=1e-6)
    np.testing.assert_allclose(states[:, 0, UNITS:], h_out[:, UNITS:], atol=1e-6)


def test_lstm_gates_saturated_copy_the_memory():
    cell = keras.layers.LSTMCell(32)
    cell.build((None, 32))
    assert cell.count_params() == 8_320
    cell.bias.assign(np.repeat([-1e4, 1e4, 0, 0], 32))  # the input gate closed, the forget gate open
    memory = np.random.normal(size=(2, 32)).astype("float32")
    _, (_, new) = cell(np.random.normal(size=(2, 32)), [np.random.normal(size=(2, 32)), memory])
    np.testing.assert_array_equal(new, memory)


def test_ids_outside_the_vocabulary_are_nan_under_xla():
    layer = TokenEmbedding(5, 2)
    x = tf.function(lambda token_ids: layer(token_ids), jit_compile=True)(tf.constant([[4, 5, -1]]))
    np.testing.assert_array_equal(np.isnan(x[0, :, 0]), [False, True, True])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdditiveAttention(0), "`units`"),
        (lambda: RecurrentEncoder(UNITS, 0), "`num_layers`"),
        (lambda: LSTMAttentionDecoder(5, cell=gru_cell()), "`cell`.* 5; it has 4"),
        (lambda: RecurrentEncoder(UNITS, cell=keras.layers.LSTMCell(UNITS, dropout=0.1)), "dropout"),
        (lambda: TokenEmbedding(0, 4), "`vocabulary_size`"),
        (lambda: TokenEmbedding(4, 4)(tf.constant([[1.9]])), "integers"),
        (lambda: RecurrentEncoder(UNITS)(np.zeros((2, 3, 4)), np.ones((2, 3, 3), bool)), r"`mask`.*\(B, T\)"),
        (
            lambda: LSTMAttentionDecoder(UNITS)(
                np.zeros((2, 3, 4)), np.zeros((2, 5, 4)), context_mask=np.ones((2, 5))
            ),
            "`context_mask`.*boolean",
        ),
    ],
)
def test_errors_name_the_argument(make, message):
    with pytest.raises(ValueError, match=message):
        make()
