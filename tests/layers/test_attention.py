"""Attention: the contract, values computed by hand, and equality with Keras's own on copied weights."""

import keras
import numpy as np
import pytest
import scipy.linalg
import tensorflow as tf
from keras import ops

from keras_tfm import layers
from tests import contract
from tests.contract import Case, floats, mask
from tests.layers import reference


def unfused(layer, query, value=None, key=None, **call):
    """What `layer` computes, by a layer whose three projections are three products."""
    key_units = layer.num_heads * layer.key_width
    value = query if value is None else value
    twin = type(layer).from_config(layer.get_config() | {"name": "unfused"})
    twin.build(query.shape, value.shape, value.shape)
    if layer.is_self_attention:
        parts = [
            np.split(w, [key_units, 2 * key_units], axis=-1) for w in layer.query_key_value.get_weights()
        ]
    else:
        pairs = zip(layer.query.get_weights(), layer.key_value.get_weights(), strict=True)
        parts = [(q, *np.split(kv, [key_units], axis=-1)) for q, kv in pairs]
    for dense, weights in zip((twin.query, twin.key, twin.value), zip(*parts, strict=True), strict=True):
        dense.set_weights(weights)
    twin.output_projection.set_weights(layer.output_projection.get_weights())
    if layer.position is not None:
        twin.position.set_weights(layer.position.get_weights())
    return twin(query, value, value, **call)


SELF = {"inputs": {"query": floats("T", 8), "mask": mask("T")}}
DECODING = SELF | {
    "call": {"causal": True},
    "causal": "T",
    "left_padding": "T",
    "cache": lambda layer, inputs, max_length: layer.start(len(inputs["query"]), max_length),
}
PROMISES = {"attends": True, "reference": reference.attention, "plain": unfused}
Attention = layers.MultiHeadAttention

test_contract = contract.check(
    Case("self", lambda: Attention(2, dropout=0.1), **SELF, **PROMISES, kind="attention"),
    Case("cross", lambda: Attention(2, key_dim=6, value_dim=5, use_bias=False),
         {"query": floats("T", 6), "value": floats("S", 5), "mask": mask("S")}, **PROMISES),
    Case("separate_key", lambda: Attention(3, dropout=0.1),
         {"query": floats("T", 6), "value": floats("S", 5), "key": floats("S", 4), "mask": mask("S")},
         **PROMISES | {"plain": None}),
    Case("causal", lambda: Attention(2, key_dim=5, value_dim=3, dropout=0.1), **DECODING, **PROMISES),
    Case("rotary", lambda: Attention(2, position=layers.RotaryEmbedding(100.0)), **DECODING, **PROMISES),
    Case("shaw", lambda: Attention(2, position=layers.RelativePositionEmbedding(2)), **DECODING, **PROMISES),
    Case("buckets", lambda: Attention(2, position=layers.RelativePositionBias(6, 4, bidirectional=False)),
         **DECODING, **PROMISES),
    Case("unscaled", lambda: Attention(2, scale=1.0), **DECODING, **PROMISES | {"plain": None}),
)  # fmt: skip


# Equality with keras.layers.MultiHeadAttention on copied weights --------------------------------------------


def keras_twin(layer, query, value):
    """Keras's attention with the weights of `layer`, a built self- or cross-attention."""
    twin = keras.layers.MultiHeadAttention(layer.num_heads, layer.key_width, layer.value_width)
    twin.build(query.shape, value.shape)
    key_units, heads = layer.num_heads * layer.key_width, layer.num_heads
    if layer.is_self_attention:
        pieces = [
            np.split(w, [key_units, 2 * key_units], axis=-1) for w in layer.query_key_value.get_weights()
        ]
    else:
        pairs = zip(layer.query.get_weights(), layer.key_value.get_weights(), strict=True)
        pieces = [(q, *np.split(kv, [key_units], axis=-1)) for q, kv in pairs]
    weights = [
        w.reshape(*w.shape[:-1], heads, -1) for projection in zip(*pieces, strict=True) for w in projection
    ]
    kernel, bias = layer.output_projection.get_weights()
    twin.set_weights([*weights, kernel.reshape(heads, layer.value_width, -1), bias])
    return twin


def some(*shape):
    """A random mask that leaves every row a key (Keras averages what an empty row hides)."""
    return (np.random.random(shape) < 0.6) | (np.arange(shape[-1]) == 0)


MASKS = {
    "none": lambda b, t, s: {},
    "padding": lambda b, t, s: {"mask": some(b, s)},
    "rows": lambda b, t, s: {"mask": some(b, t, s)},
    "causal": lambda b, t, s: {"causal": True},
    "padding_causal": lambda b, t, s: {"mask": some(b, s), "causal": True},
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("value_shape", [None, (3, 7, 6)], ids=["self", "cross"])
@pytest.mark.parametrize(
    "widths", [{}, {"key_dim": 8}, {"key_dim": 5, "value_dim": 3}], ids=["truncated", "full", "own"]
)
def test_equals_keras(widths, value_shape, kind):
    layer = Attention(4, **widths)
    query = np.random.normal(size=(3, 5, 8)).astype("float32")
    value = query if value_shape is None else np.random.normal(size=value_shape).astype("float32")
    layer.build(query.shape, value_shape)
    contract.randomise(layer, seed=4)
    twin = keras_twin(layer, query, value)
    call = MASKS[kind](3, 5, value.shape[1])
    other = None if value_shape is None else value
    mask = call.get("mask")
    theirs = twin(
        query,
        value,
        attention_mask=mask if mask is None or mask.ndim == 3 else mask[:, None],
        use_causal_mask=call.get("causal", False),
    )
    ours = layer(query, other, **call)
    reference.assert_as_exact(ours, theirs, reference.attention(layer, query, other, **call))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("scale", [None, 0.3])
def test_pure_function_equals_keras_ops(scale):
    query, key, value = (np.random.normal(size=(2, 3, n, 5)).astype("float32") for n in (4, 6, 6))
    bias = np.random.normal(size=(1, 3, 4, 6)).astype("float32")
    ours = layers.dot_product_attention(query, key, value, bias=bias, scale=scale)
    theirs = ops.dot_product_attention(
        *(x.swapaxes(1, 2) for x in (query, key, value)), bias=bias, scale=scale
    )
    np.testing.assert_allclose(ours, ops.swapaxes(theirs, 1, 2), atol=1e-6)


# Values computed by hand --------------------------------------------------------------------------


def softmax_of(scores, mask=None):
    """`attention_weights` of given scores, in float64: the queries are the scores, the keys unit vectors."""
    scores = np.asarray(scores, "float64")
    return ops.convert_to_numpy(
        layers.attention_weights(scores[None], np.eye(scores.shape[-1])[None], mask, scale=1.0)
    )[0]


def test_scale_brings_the_scores_variance_from_the_width_to_one():
    """q . k of unit-variance vectors has variance K; log w0 - log w1 is a difference of two such scores."""
    for width in (4, 64, 512):
        query, key = (np.random.default_rng(n).normal(size=(6000, n, width)) for n in (1, 2))
        for scale, variance in ((None, 1), (1.0, width)):
            log = np.log(ops.convert_to_numpy(layers.attention_weights(query, key, scale=scale))[:, 0])
            np.testing.assert_allclose(np.var(log[:, 0] - log[:, 1]) / 2, variance, rtol=0.06)


def test_scale_keeps_the_softmax_from_its_peak():
    """Entropy 0.735 and greatest weight 0.745 without the scale, 4.81 and 0.050 with it, of ln 200 = 5.30."""
    query, key = np.random.default_rng(0).normal(size=(2, 1, 200, 64))
    for scale, entropy, greatest in ((1.0, 0.735, 0.745), (None, 4.81, 0.050)):
        weights = ops.convert_to_numpy(layers.attention_weights(query, key, scale=scale))
        np.testing.assert_allclose(
            -np.mean(np.sum(weights * np.log(weights + 1e-300), -1)), entropy, rtol=0.1
        )
        np.testing.assert_allclose(weights.max(-1).mean(), greatest, rtol=0.1)


def test_equals_a_double_loop():
    query, key, value = np.random.default_rng(3).normal(size=(3, 1, 4, 5))
    expected = np.zeros((4, 5))
    for i in range(4):
        exponents = [np.exp(query[0, i] @ key[0, j] / np.sqrt(5)) for j in range(4)]
        for j in range(4):
            expected[i] += exponents[j] / sum(exponents) * value[0, j]
    np.testing.assert_allclose(layers.dot_product_attention(query, key, value)[0], expected, rtol=1e-12)


def test_look_up_of_colours():
    """Orange, half red and half yellow, is (255, 127.5, 0)."""
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [0, 0, 0], [255, 255, 255.0]])[
        None
    ]
    names = 30 * np.eye(6)[None]
    yellow, orange = 30 * np.eye(6)[3], 30 * (np.eye(6)[0] + np.eye(6)[3])
    found = layers.dot_product_attention(np.stack([yellow, orange])[None], names, colours)
    np.testing.assert_allclose(found[0], [[255, 255, 0], [255, 127.5, 0]], atol=1e-12)


@pytest.mark.parametrize("scale", [None, 1.0])
def test_look_up_of_numbers(scale):
    key = np.array([[10, 0, 0], [0, 10, 0], [0, 0, 10], [0, 0, 10.0]])[None]
    value = np.array([[1, 0, 1], [10, 0, 2], [100, 5, 0], [1000, 6, 0.0]])[None]
    query = np.array([[0, 10, 0], [0, 0, 10], [10, 10, 0.0]])[None]
    found = ops.convert_to_numpy(layers.dot_product_attention(query, key, value, scale=scale))[0]
    np.testing.assert_allclose(found, [[10, 0, 2], [550, 5.5, 0], [5.5, 0, 1.5]], rtol=0, atol=1e-20)


def test_two_near_keys_take_nearly_all():
    """A query near two keys, as "cool" is near "Transformers" and "model": their values make the output."""
    near = [0, 6]
    value, key = np.random.normal(size=(2, 1, 12, 4)) * np.array([1, 0.1])[:, None, None, None]
    key[0, near] = [[3, 1, 0, 0], [3, -1, 0, 0]]
    query = np.array([[[4, 0, 0, 0.0]]])
    weights = ops.convert_to_numpy(layers.attention_weights(query, key))[0, 0]
    assert weights[near].sum() > 0.95
    error = np.abs(layers.dot_product_attention(query, key, value)[0, 0] - weights[near] @ value[0, near])
    assert (error <= (1 - weights[near].sum()) * np.abs(value).max() + 1e-12).all()


def test_equal_scores_give_the_mean():
    value = np.random.normal(size=(1, 5, 3))
    y = layers.dot_product_attention(np.zeros((1, 5, 2)), np.random.normal(size=(1, 5, 2)), value)
    np.testing.assert_allclose(y[0], np.broadcast_to(value.mean(1), (5, 3)), atol=1e-15)


SCORES = np.array([[0.5, 0.2, 0.1], [0.1, 0.6, 0.2], [0.1, 0.2, 0.3]])


def test_look_ahead_mask():
    weights = softmax_of(SCORES, layers.causal_mask(3, 3))
    np.testing.assert_allclose(weights, [[1, 0, 0], [0.3775, 0.6225, 0], [0.3006, 0.3322, 0.3672]], atol=5e-5)


def test_mask_is_added_before_the_softmax_not_multiplied():
    """Scores times a 0/1 mask would give [.452, .274, .274]; weights times one would sum to .415 and .706."""
    triangle = np.tri(3)
    np.testing.assert_allclose(softmax_of(SCORES * triangle)[0], [0.452, 0.274, 0.274], atol=5e-4)
    np.testing.assert_allclose((softmax_of(SCORES) * triangle).sum(-1)[:2], [0.415, 0.706], atol=6e-4)
    right = softmax_of(SCORES, layers.causal_mask(3, 3))
    np.testing.assert_allclose(right, softmax_of(SCORES + np.where(triangle, 0, -1e30)), atol=1e-15)
    np.testing.assert_allclose(right.sum(-1), 1)


def test_no_future_score_moves_an_earlier_row():
    changed = SCORES.copy()
    changed[0, 2] = 5
    assert softmax_of(changed)[0, 0] < 0.1
    for scores in (SCORES, changed):
        np.testing.assert_array_equal(softmax_of(scores, layers.causal_mask(3, 3))[0], [1, 0, 0])


def test_parameter_free_attention():
    x = np.random.normal(size=(1, 4, 3))
    scores = x[0] @ x[0].T
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True) @ x[0]
    np.testing.assert_allclose(layers.parameter_free_attention(x)[0], expected, rtol=1e-12)
    hidden = layers.parameter_free_attention(x, mask=np.array([[1, 1, 1, 0]]))
    np.testing.assert_allclose(hidden[:, :3], layers.parameter_free_attention(x[:, :3]), rtol=1e-12)


def test_bilinear_attention():
    x, matrix, value = (
        np.random.normal(size=(1, 4, 3)),
        np.random.normal(size=(3, 3)),
        np.random.normal(size=(1, 4, 2)),
    )
    scores = np.array([[x[0, i] @ matrix @ x[0, j] for j in range(4)] for i in range(4)])
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(layers.bilinear_attention(x, matrix)[0], weights @ x[0], rtol=1e-12)
    np.testing.assert_allclose(layers.bilinear_attention(x, matrix, value)[0], weights @ value[0], rtol=1e-12)
    identity = layers.bilinear_attention(x, np.eye(3))
    np.testing.assert_array_equal(identity, layers.parameter_free_attention(x))


def test_values_are_a_linear_map_of_the_average():
    x, matrix, kernel = (
        np.random.normal(size=(1, 4, 3)),
        np.random.normal(size=(3, 3)),
        np.random.normal(size=(3, 5)),
    )
    averaged = ops.convert_to_numpy(layers.bilinear_attention(x, matrix))
    np.testing.assert_allclose(
        layers.bilinear_attention(x, matrix, x @ kernel), averaged @ kernel, rtol=1e-12
    )


def test_factors_of_the_bilinear_form():
    """P = L O gives q = Lᵀ x and k = O x: xᵀ P y = q . k; so does P = W_Q W_Kᵀ, of rank K at most."""
    x, matrix = np.random.normal(size=(1, 6, 5)), np.random.normal(size=(5, 5))
    upper, orthogonal = scipy.linalg.rq(matrix[::-1])  # rows upside down make R Q an L O
    lower, orthogonal = upper[::-1, ::-1], orthogonal[::-1]
    assert (np.triu(lower, 1) == 0).all()
    np.testing.assert_allclose(lower @ orthogonal, matrix, atol=1e-12)
    query, key = x @ lower, x @ orthogonal.T
    expected = layers.bilinear_attention(x, matrix)
    np.testing.assert_allclose(layers.dot_product_attention(query, key, x, scale=1.0), expected, atol=1e-12)
    to_query, to_key = np.random.normal(size=(2, 5, 2))
    expected = layers.bilinear_attention(x, to_query @ to_key.T)
    np.testing.assert_allclose(
        layers.dot_product_attention(x @ to_query, x @ to_key, x, scale=1.0), expected, atol=1e-12
    )


# Heads --------------------------------------------------------------------------------------------


def built(layer, *shapes, seed=4):
    layer.build(*shapes)
    contract.randomise(layer, seed)
    return layer


def test_one_head_with_an_identity_projection_is_plain_attention():
    layer = built(Attention(1, use_bias=False), (None, None, 4))
    layer.output_projection.kernel.assign(np.eye(4))
    x = np.random.normal(size=(2, 5, 4)).astype("float32")
    query, key, value = np.split(x @ layer.query_key_value.kernel.numpy(), 3, axis=-1)
    np.testing.assert_allclose(layer(x), layers.dot_product_attention(query, key, value), atol=1e-6)


def test_each_truncated_head_attends_by_its_own_columns():
    layer = built(Attention(3, use_bias=False), (None, None, 6))
    layer.output_projection.kernel.assign(np.eye(6))
    x = np.random.normal(size=(2, 5, 6)).astype("float32")
    query, key, value = np.split(x @ layer.query_key_value.kernel.numpy(), 3, axis=-1)
    for head in range(3):
        own = slice(2 * head, 2 * head + 2)
        expected = layers.dot_product_attention(query[..., own], key[..., own], value[..., own])
        np.testing.assert_allclose(layer(x)[..., own], expected, atol=1e-6)


def test_number_of_weights():
    """Truncated heads: the same whatever their number. Full-width heads: 8,416 for two of 32."""
    for num_heads in (1, 2, 4, 8, 16):
        assert built(Attention(num_heads), (None, None, 512)).count_params() == 1_050_624
    assert built(Attention(2, key_dim=32), (None, None, 32)).count_params() == 8_416


def test_one_layer_takes_any_length():
    layer = built(Attention(2), (None, None, 6))
    for length in (1, 5, 9):
        assert layer(np.ones((2, length, 6), "float32")).shape == (2, length, 6)


def test_without_positions_order_is_invisible():
    layer = built(Attention(2), (None, None, 6))
    x, order = np.random.normal(size=(1, 5, 6)).astype("float32"), [3, 0, 4, 1, 2]
    np.testing.assert_allclose(layer(x[:, order]), ops.convert_to_numpy(layer(x))[:, order], atol=1e-6)
    placed = ops.convert_to_numpy(layers.SinePositionEncoding()(x))
    shuffled = layers.SinePositionEncoding()(x[:, order])
    assert np.abs(layer(shuffled) - ops.convert_to_numpy(layer(placed))[:, order]).max() > 1e-2


def test_cross_attention_is_indifferent_to_the_contexts_order():
    layer = built(Attention(2), (None, None, 6), (None, None, 4))
    query, context = (
        np.random.normal(size=(1, 3, 6)).astype("float32"),
        np.random.normal(size=(1, 5, 4)).astype("float32"),
    )
    hidden, order = np.array([[1, 1, 0, 1, 0]]), [3, 0, 4, 1, 2]
    expected = layer(query, context, mask=hidden)
    np.testing.assert_allclose(layer(query, context[:, order], mask=hidden[:, order]), expected, atol=1e-6)


def test_every_output_depends_on_every_input():
    layer = built(Attention(2), (None, None, 4))
    x = tf.constant(np.random.normal(size=(1, 5, 4)), tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(layer(x), -1)
    assert (np.abs(tape.jacobian(y, x)[0, :, 0]).max(-1) > 1e-6).all()


def test_attention_is_not_linear():
    layer = built(Attention(2, use_bias=False), (None, None, 4))
    x = np.random.normal(size=(1, 5, 4)).astype("float32")
    assert np.abs(layer(2 * x) - 2 * layer(x)).max() > 1e-2


def test_multiplications_are_those_of_the_formula():
    """2 T² D for scores and averages, 4 T D² for the projections: 23,040,000 and 2,457,600 at 600 x 32."""
    length, width = 600, 32
    layer = built(Attention(2), (None, None, width))
    graph = (
        tf.function(layer.call, autograph=False)
        .get_concrete_function(tf.TensorSpec((1, length, width)))
        .graph
    )
    counts = {"MatMul": 0, "Einsum": 0, "BatchMatMulV2": 0}
    for operation in graph.get_operations():
        if operation.type in counts:
            inner, outer = operation.inputs[0].shape[-1], operation.outputs[0].shape.num_elements()
            counts[operation.type] += inner * outer
    assert counts["MatMul"] == 4 * length * width**2 == 2_457_600
    assert counts["Einsum"] + counts["BatchMatMulV2"] == 2 * length**2 * width == 23_040_000


def test_projections_quantize_and_take_low_rank_updates():
    x = np.random.normal(size=(2, 5, 32)).astype("float32")
    layer = built(Attention(2), (None, None, 32))
    y = layer(x)
    layer.query_key_value.enable_lora(2)
    np.testing.assert_allclose(layer(x), y, atol=1e-6)
    layer = built(Attention(2), (None, None, 32))
    y = layer(x)
    layer.query_key_value.quantize("int8")
    assert "int8" in [weight.dtype for weight in layer.query_key_value.weights]
    np.testing.assert_allclose(layer(x), y, atol=0.03 * np.abs(y).max())


def test_large_scores_do_not_overflow_float16():
    """A product of 64 x 40 x 40 = 102,400 exceeds float16, an eighth of it does not."""
    x = np.full((1, 3, 64), 40.0, "float16")
    np.testing.assert_allclose(layers.attention_weights(x, x), np.full((1, 3, 3), 1 / 3), rtol=1e-3)


# Errors -------------------------------------------------------------------------------------------


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="`num_heads` must be at least 1; it is 0"):
        Attention(0)
    with pytest.raises(ValueError, match="`key_dim` must be at least 1, or None; it is 0"):
        Attention(2, key_dim=0)
    with pytest.raises(ValueError, match=r"`num_heads` must divide the queries' width 6.*it is 4"):
        Attention(4).build((None, None, 6))


def test_a_layer_is_called_the_way_it_was_built():
    x = np.ones((1, 2, 4), "float32")
    layer, crossing = Attention(2), Attention(2)
    layer(x), crossing(x, x)
    with pytest.raises(ValueError, match="was built for self-attention"):
        layer(x, x)
    with pytest.raises(ValueError, match="was built for two inputs"):
        crossing(x)


# Gradients of the fused products' parts -----------------------------------------------------------


def test_of_the_fused_bias_only_the_keys_part_has_no_gradient():
    layer = built(Attention(2), (None, None, 4))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(layer(np.random.normal(size=(2, 5, 4))) ** 2)
    query, key, value = np.split(tape.gradient(y, layer.query_key_value.bias.value), 3)
    assert np.abs(key).max() < 1e-5 < min(np.abs(query).max(), np.abs(value).max())
