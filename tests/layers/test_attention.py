"""Attention: the contract, heads, and equality with Keras's own on copied weights."""

import json
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm import layers
from keras_tfm.layers.attention.tap import recording
from keras_tfm.visualize import record_attention
from tests import contract
from tests.contract import Case, floats, mask
from tests.layers import reference


def unfused(layer, query, value=None, key=None, **call):
    """What `layer` computes, by a layer whose three projections are three products."""
    heads = layer.projections
    key_units = heads.num_heads * heads.key_width
    value = query if value is None else value
    twin = type(layer).from_config(layer.get_config() | {"name": "unfused"})
    twin.build(query.shape, value.shape, value.shape)
    if heads.is_self_attention:
        parts = [
            np.split(w, [key_units, 2 * key_units], axis=-1) for w in heads.query_key_value.get_weights()
        ]
    else:
        pairs = zip(heads.query.get_weights(), heads.key_value.get_weights(), strict=True)
        parts = [(q, *np.split(kv, [key_units], axis=-1)) for q, kv in pairs]
    own = twin.projections
    for dense, weights in zip((own.query, own.key, own.value), zip(*parts, strict=True), strict=True):
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
    Case("grouped", lambda: Attention(4, num_key_value_heads=2, position=layers.RotaryEmbedding()),
         **DECODING, attends=True),
    Case("windowed", lambda: Attention(2, window=2), **DECODING, attends=True),
)  # fmt: skip


# Equality with keras.layers.MultiHeadAttention on copied weights --------------------------------------------


def keras_twin(layer, query, value):
    """Keras's attention with the weights of `layer`, a built self- or cross-attention."""
    own = layer.projections
    twin = keras.layers.MultiHeadAttention(own.num_heads, own.key_width, own.value_width)
    twin.build(query.shape, value.shape)
    key_units, heads = own.num_heads * own.key_width, own.num_heads
    if own.is_self_attention:
        pieces = [np.split(w, [key_units, 2 * key_units], axis=-1) for w in own.query_key_value.get_weights()]
    else:
        pairs = zip(own.query.get_weights(), own.key_value.get_weights(), strict=True)
        pieces = [(q, *np.split(kv, [key_units], axis=-1)) for q, kv in pairs]
    weights = [
        w.reshape(*w.shape[:-1], heads, -1) for projection in zip(*pieces, strict=True) for w in projection
    ]
    kernel, bias = layer.output_projection.get_weights()
    twin.set_weights([*weights, kernel.reshape(heads, layer.projections.value_width, -1), bias])
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


# Heads --------------------------------------------------------------------------------------------


def built(layer, *shapes, seed=4):
    layer.build(*shapes)
    contract.randomise(layer, seed)
    return layer


def test_one_head_with_an_identity_projection_is_plain_attention():
    layer = built(Attention(1, use_bias=False), (None, None, 4))
    layer.output_projection.kernel.assign(np.eye(4))
    x = np.random.normal(size=(2, 5, 4)).astype("float32")
    query, key, value = np.split(x @ layer.projections.query_key_value.kernel.numpy(), 3, axis=-1)
    np.testing.assert_allclose(layer(x), layers.dot_product_attention(query, key, value), atol=1e-6)


def test_each_truncated_head_attends_by_its_own_columns():
    layer = built(Attention(3, use_bias=False), (None, None, 6))
    layer.output_projection.kernel.assign(np.eye(6))
    x = np.random.normal(size=(2, 5, 6)).astype("float32")
    query, key, value = np.split(x @ layer.projections.query_key_value.kernel.numpy(), 3, axis=-1)
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
    layer.projections.query_key_value.enable_lora(2)
    np.testing.assert_allclose(layer(x), y, atol=1e-6)
    layer = built(Attention(2), (None, None, 32))
    y = layer(x)
    layer.projections.query_key_value.quantize("int8")
    assert "int8" in [weight.dtype for weight in layer.projections.query_key_value.weights]
    np.testing.assert_allclose(layer(x), y, atol=0.03 * np.abs(y).max())


def test_large_scores_do_not_overflow_float16():
    """A product of 64 x 40 x 40 = 102,400 exceeds float16, an eighth of it does not."""
    x = np.full((1, 3, 64), 40.0, "float16")
    np.testing.assert_allclose(layers.attention_weights(x, x), np.full((1, 3, 3), 1 / 3), rtol=1e-3)


# Stages that are replaced ----------------------------------------------------------------------------


class Highest(layers.Layer):
    """Leaves of each row of scores the `count` highest."""

    def __init__(self, count, **kwargs):
        super().__init__(**kwargs)
        self.count = count

    def call(self, scores):
        lowest = ops.top_k(scores, self.count)[0][..., -1:]
        return ops.where(scores >= lowest, scores, -1e30)

    def compute_output_shape(self, shape):
        return shape


class Mixed(layers.Layer):
    """New heads of weights, each a sum of the old ones."""

    def build(self, shape):
        self.matrix = self.add_weight((shape[1], shape[1]), "glorot_uniform", name="matrix")
        self.built = True

    def call(self, weights):
        return ops.einsum("bhts,hg->bgts", weights, self.matrix)

    def compute_output_shape(self, shape):
        return shape


def test_layers_on_scores_and_weights_and_an_output_of_ones_own():
    """Against the stages written out: k-nearest scores, mixed heads, an output of another width."""
    layer = layers.Attention(
        layers.HeadProjections(2, 3, 5),
        scale=0.5,
        on_scores=Highest(2),
        on_weights=Mixed(),
        output_layer=keras.layers.Dense(4, "tanh"),
    )
    x = np.random.normal(size=(3, 6, 8)).astype("float32")
    built(layer, x.shape)
    query, key, value = (np.asarray(heads) for heads in layer.projections.project(x))
    scores = query @ np.swapaxes(key, -1, -2) * 0.5
    scores[scores < np.sort(scores)[..., -2:-1]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = np.einsum("bhts,hg->bgts", weights, layer.on_weights.matrix.numpy())
    heads = np.moveaxis(mixed @ value, 1, 2).reshape(3, 6, 10)
    expected = np.tanh(reference.dense(layer.output_layer, heads))
    with record_attention(layer) as recorded:
        y = layer(x)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(*recorded.values(), mixed, atol=1e-5)  # what averages the values
    assert layer.compute_output_shape((None, 6, 8)) == (None, 6, 4)
    copy = type(layer).from_config(layer.get_config())
    built(copy, x.shape)
    copy.set_weights(layer.get_weights())
    np.testing.assert_array_equal(copy(x), y)


@pytest.mark.parametrize("parts", [("query", "value"), ("key",), ()])
def test_parts_have_biases_of_their_own(parts):
    layer = built(layers.HeadProjections(2, use_bias=parts), (None, None, 6))
    x = np.random.normal(size=(2, 3, 6)).astype("float32")
    biases = {weight.name: weight.numpy() for weight in layer.weights if weight.name != "kernel"}
    assert sorted(biases) == sorted(f"{part}_bias" for part in parts)
    kernels = np.split(layer.query_key_value.kernel.numpy(), 3, axis=-1)
    for part, kernel, heads in zip(("query", "key", "value"), kernels, layer.project(x), strict=True):
        expected = reference.split_heads(x @ kernel + biases.get(f"{part}_bias", 0), 2)
        np.testing.assert_allclose(heads, expected, atol=1e-5)


@pytest.mark.parametrize("context", [(), ((None, None, 5),)], ids=["self", "cross"])
def test_with_the_names_of_no_projections_the_output_has_a_bias(context):
    layer = Attention(2, use_bias=(), kernel_initializer="ones")
    layer.build((None, None, 6), *context)
    assert [weight.path for weight in layer.weights if "bias" in weight.name] == [f"{layer.name}/output/bias"]
    np.testing.assert_array_equal(layer.output_projection.kernel, np.ones((6, 6)))
    copy = Attention.from_config(json.loads(json.dumps(layer.get_config())))
    copy.build((None, None, 6), *context)
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in layer.weights]


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_cross", [False, True])
@pytest.mark.parametrize("shared", [1, 2, 3])
def test_grouped_heads_are_heads_with_equal_keys_and_values(shared, is_cross):
    """Grouped attention equals a plain one whose keys and values are repeated for each head of a group."""
    rng = np.random.default_rng(shared)
    inputs = [rng.normal(size=(2, 5, 12)).astype("float32")]
    inputs += [rng.normal(size=(2, 7, 12)).astype("float32")] if is_cross else []
    grouped, plain = Attention(6, key_dim=3, value_dim=2, num_key_value_heads=shared), Attention(6, 3, 2)
    for layer in (grouped, plain):
        layer(*inputs)
    contract.randomise(grouped, seed=1)

    def repeated(weight, widths, heads):
        parts = np.split(weight, np.cumsum([h * w for h, w in zip(heads, widths, strict=True)])[:-1], axis=-1)
        parts = [part.reshape(*part.shape[:-1], h, -1) for part, h in zip(parts, heads, strict=True)]
        parts = [np.repeat(part, 6 // part.shape[-2], axis=-2) for part in parts]
        return np.concatenate([part.reshape(*part.shape[:-2], -1) for part in parts], axis=-1)

    ours, theirs = grouped.projections, plain.projections
    if is_cross:
        theirs.query.set_weights(ours.query.get_weights())
        pairs = [(ours.key_value, theirs.key_value, (3, 2), (shared, shared))]
    else:
        pairs = [(ours.query_key_value, theirs.query_key_value, (3, 3, 2), (6, shared, shared))]
    for source, target, widths, heads in pairs:
        target.set_weights([repeated(weight, widths, heads) for weight in source.get_weights()])
    plain.output_projection.set_weights(grouped.output_projection.get_weights())
    np.testing.assert_allclose(grouped(*inputs), plain(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{"window": 2}, {"num_key_value_heads": 1}])
@pytest.mark.parametrize("kind", [layers.BlockwiseAttention, layers.CrossCovarianceAttention])
def test_a_layer_that_attends_in_its_own_way_takes_neither(kind, options):
    with pytest.raises(ValueError, match=f"A {kind.__name__} attends in its own way: `window` and"):
        kind(2, **options)


def test_the_recorded_keys_are_those_of_each_head():
    """Also where heads share them: softmax(queries keysᵀ scale) are the weights, in a call and a step."""
    layer = Attention(6, num_key_value_heads=2)
    x = np.random.default_rng(0).normal(size=(2, 5, 12)).astype("float32")
    layer(x)
    contract.randomise(layer, seed=1)
    products, weights = [], []
    with (
        recording(lambda _, value: products.append(value), "products"),
        recording(lambda _, value: weights.append(value)),
    ):
        layer(x, causal=True)
        layer.step(x, layer.start(2, 5))
    assert len(products) == len(weights) == 2
    for (query, key, scale), recorded in zip(products, weights, strict=True):
        scores = scale * ops.matmul(query, ops.swapaxes(ops.reshape(key, (2, 6, 5, 2)), 2, 3))
        expected = ops.softmax(ops.where(np.tri(5, dtype=bool), scores, -1e9))
        np.testing.assert_allclose(recorded, expected, atol=1e-6)


def test_what_another_thread_computes_is_not_recorded():
    layer, x, weights = Attention(2), np.ones((1, 3, 4), "float32"), []
    layer(x)
    with recording(lambda *_: weights.append(threading.get_ident())):
        other = threading.Thread(target=layer, args=(x,))
        other.start()
        other.join()
        layer(x)
    assert weights == [threading.get_ident()]


def test_a_window_is_for_causal_attention():
    layer, x = Attention(2, window=3), np.random.default_rng(0).normal(size=(1, 8, 4)).astype("float32")
    with pytest.raises(ValueError, match="has a `window`, which is for causal attention alone"):
        layer(x)
    seen = np.tril(np.ones((1, 8, 8), bool)) & ~np.tril(np.ones((1, 8, 8), bool), -3)
    plain = Attention(2)
    plain.build(x.shape)
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(layer(x, causal=True), plain(x, mask=seen), rtol=1e-5, atol=1e-6)


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="`num_heads` must be at least 1; it is 0"):
        Attention(0)
    with pytest.raises(ValueError, match="`key_dim` must be at least 1, or None; it is 0"):
        Attention(2, key_dim=0)
    with pytest.raises(
        ValueError, match="`use_bias` must be a boolean, or some of the names query, key, value"
    ):
        layers.HeadProjections(2, use_bias=("queries",))
    with pytest.raises(ValueError, match="must be a boolean in cross-attention"):
        layers.HeadProjections(2, use_bias=("query",)).build((None, None, 6), (None, None, 6))
    with pytest.raises(ValueError, match=r"`num_heads` must divide the queries' width, 6.*it is 4"):
        Attention(4).build((None, None, 6))


def test_a_layer_is_called_the_way_it_was_built():
    x = np.ones((1, 2, 4), "float32")
    layer, crossing = Attention(2), Attention(2)
    layer(x), crossing(x, x)
    with pytest.raises(ValueError, match="was built for self-attention"):
        layer(x, x)
    with pytest.raises(ValueError, match="was built for cross-attention"):
        crossing(x)
    with pytest.raises(
        ValueError, match=r"`layer\(x, context\)`; it is called for .*`layer\(x, context, key\)`"
    ):
        crossing(x, x, x)
    with_keys = Attention(2)
    with_keys(x, x, x)
    with pytest.raises(
        ValueError, match=r"`layer\(x, context, key\)`; it is called for .*`layer\(x, context\)`"
    ):
        with_keys(x, x)
    with pytest.raises(ValueError, match="was built for self-attention"):
        layer.start_context(x)


# Gradients of the fused products' parts -----------------------------------------------------------


def test_of_the_fused_bias_only_the_keys_part_has_no_gradient():
    layer = built(Attention(2), (None, None, 4))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(layer(np.random.normal(size=(2, 5, 4))) ** 2)
    query, key, value = np.split(tape.gradient(y, layer.projections.query_key_value.bias.value), 3)
    assert np.abs(key).max() < 1e-5 < min(np.abs(query).max(), np.abs(value).max())
