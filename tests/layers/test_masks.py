"""The rules for masks and biases, one by one."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_tfm import layers

B, H, T, S, D = 2, 2, 3, 4, 6
PADDING = np.array([[1, 1, 1, 0], [1, 0, 1, 0]], bool)  # (B, S)


def heads(seed=0):
    """query (B, H, T, D), key and value (B, H, S, D)."""
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=(B, H, n, D)).astype("float32") for n in (T, S, S))


def attended(mask):
    """Which of (B, H, T, S) weigh anything under `mask`."""
    query, key, _ = heads()
    return ops.convert_to_numpy(layers.attention_weights(query, key, mask)) > 0


# Ranks and dtypes ---------------------------------------------------------------------------------


def test_rank_2_hides_padding_keys():
    np.testing.assert_array_equal(attended(PADDING), np.broadcast_to(PADDING[:, None, None], (B, H, T, S)))


@pytest.mark.parametrize("shape", [(B, T, S), (1, T, S)])
def test_rank_3_is_a_row_of_keys_for_each_query(shape):
    mask = np.random.random(shape) < 0.5
    np.testing.assert_array_equal(attended(mask), np.broadcast_to(mask[:, None], (B, H, T, S)))


@pytest.mark.parametrize("shape", [(B, H, T, S), (1, H, T, S), (B, 1, T, S), (1, 1, T, S)])
def test_rank_4_is_taken_as_it_is(shape):
    mask = np.random.random(shape) < 0.5
    np.testing.assert_array_equal(attended(mask), np.broadcast_to(mask, (B, H, T, S)))


def test_rank_3_attention_takes_masks_of_rank_2_and_3():
    query, key, value = (x[:, 0] for x in heads())
    mask = np.broadcast_to(PADDING[:, None], (B, T, S))
    expected = layers.dot_product_attention(query, key, value, mask)
    np.testing.assert_array_equal(layers.dot_product_attention(query, key, value, PADDING), expected)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integer_masks_are_cast(dtype):
    np.testing.assert_array_equal(attended(PADDING.astype(dtype)), attended(PADDING))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_float_masks_are_refused_by_name(dtype):
    with pytest.raises(ValueError, match=f"`mask` must be boolean.*{dtype}"):
        layers.combine_masks(PADDING.astype(dtype))
    with pytest.raises(ValueError, match="`context_mask` must be boolean"):
        layers.combine_masks(PADDING.astype(dtype), name="context_mask")


@pytest.mark.parametrize("shape", [(S,), (1, 1, 1, T, S)])
def test_other_ranks_are_refused_by_name(shape):
    with pytest.raises(ValueError, match=r"`mask` must have the shape \(B, S\).*it is \("):
        layers.combine_masks(np.ones(shape, bool))


def test_a_rank_4_mask_does_not_fit_rank_3_attention():
    with pytest.raises(ValueError, match=r"`mask` must have the shape \(B, S\), \(B or 1, T, S\); it is"):
        layers.combine_masks(np.ones((B, H, T, S), bool), rank=3)


@pytest.mark.parametrize(
    ("layer", "arguments", "name"),
    [
        (layers.MultiHeadAttention(2), {}, "mask"),
        (layers.TransformerBlock(2, 8), {}, "mask"),
        (layers.TransformerBlock(2, 8, cross_attention=True), {"context": (B, S, D)}, "mask"),
        (layers.TransformerBlock(2, 8, cross_attention=True), {"context": (B, S, D)}, "context_mask"),
        (layers.TransformerDecoder(1, 2, 8, cross_attention=True), {"context": (B, S, D)}, "context_mask"),
    ],
)
def test_layers_refuse_float_masks_by_name(layer, arguments, name):
    tensors = {key: np.ones(shape, "float32") for key, shape in arguments.items()}
    length = S if name == "context_mask" else T
    with pytest.raises(ValueError, match=f"`{name}` must be boolean"):
        layer(np.ones((B, T, D), "float32"), **tensors, **{name: np.ones((B, length), "float32")})


# Combination --------------------------------------------------------------------------------------


def test_masks_are_anded_whatever_their_rank():
    three, four = np.random.random((1, T, S)) < 0.7, np.random.random((B, H, T, S)) < 0.7
    combined = layers.combine_masks(PADDING, None, three, four)
    np.testing.assert_array_equal(combined, PADDING[:, None, None] & three[:, None] & four)
    assert layers.combine_masks(None, None) is None


def test_causal_mask_is_lower_triangular_from_its_offset():
    np.testing.assert_array_equal(layers.causal_mask(4, 4)[0], np.tri(4, dtype=bool))
    np.testing.assert_array_equal(layers.causal_mask(2, 5, offset=3)[0], np.tri(5, dtype=bool)[3:])


@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 4),
    rank=st.sampled_from([2, 3, 4]),
    ones=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 2**31),
)
def test_masked_softmax_of_any_shape(sizes, rank, ones, seed):
    """Rows sum to 1 over what they see, weigh exactly 0 elsewhere, and are zero where they see nothing."""
    batch, num_heads, queries, keys = sizes
    rng = np.random.default_rng(seed)
    shape = {2: (batch, keys), 3: (batch, queries, keys), 4: (batch, num_heads, queries, keys)}[rank]
    if rank > 2:
        shape = (1 if ones[0] else shape[0], *shape[1:])
    if rank == 4:
        shape = (shape[0], 1 if ones[1] else shape[1], *shape[2:])
    mask = rng.random(shape) < 0.6
    scores = rng.normal(0, 20, sizes)
    weights = ops.convert_to_numpy(
        layers.masked_softmax(ops.convert_to_tensor(scores), layers.combine_masks(mask))
    )
    full = {2: lambda m: m[:, None, None], 3: lambda m: m[:, None], 4: lambda m: m}[rank](mask)
    full = np.broadcast_to(full, sizes)
    exponents = np.where(full, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    sums = exponents.sum(-1, keepdims=True)
    assert weights.dtype == "float64"
    assert (weights[~full] == 0).all()
    np.testing.assert_allclose(
        weights, np.divide(exponents, sums, where=sums > 0, out=np.zeros(sizes)), rtol=1e-12
    )


@pytest.mark.parametrize("rank", range(1, 8))
def test_masked_softmax_has_any_number_of_axes(rank):
    scores = np.random.normal(size=(2,) * (rank - 1) + (5,)).astype("float32")
    weights = ops.convert_to_numpy(layers.masked_softmax(ops.convert_to_tensor(scores)))
    exponents = np.exp(scores)
    np.testing.assert_allclose(weights, exponents / exponents.sum(-1, keepdims=True), rtol=1e-5)


# Rows with nothing to attend to -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_an_empty_row_is_zero_in_every_precision(dtype):
    query, key, value = (ops.cast(x, dtype) for x in heads())
    mask = PADDING * np.array([[True], [False]])
    y = layers.dot_product_attention(query, key, value, mask)
    assert keras.backend.standardize_dtype(y.dtype) == dtype
    assert (ops.convert_to_numpy(ops.cast(y[1], "float32")) == 0).all()
    assert np.isfinite(ops.convert_to_numpy(ops.cast(y, "float32"))).all()


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize(
    "position", [None, layers.RotaryEmbedding, layers.RelativePositionEmbedding, layers.RelativePositionBias]
)
def test_an_empty_row_of_a_layer_is_its_output_bias(policy, position):
    keras.config.set_dtype_policy(policy)
    attention = layers.MultiHeadAttention(2, key_dim=4, position=position and position())
    x = np.random.normal(size=(B, S, D)).astype("float32")
    attention.build(x.shape)
    attention.output_projection.bias.assign(np.arange(D))
    y = ops.cast(attention(x, mask=PADDING * np.array([[True], [False]])), "float32")
    assert np.isfinite(ops.convert_to_numpy(y)).all()
    np.testing.assert_array_equal(y[1], np.broadcast_to(np.arange(D), (S, D)))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_an_empty_row_has_zero_gradients(jit_compile):
    @tf.function(jit_compile=jit_compile)
    def gradients(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            y = tf.reduce_sum(
                layers.dot_product_attention(query, key, value, PADDING * [[True], [False]]) ** 2
            )
        return tape.gradient(y, [query, key, value])

    for gradient in gradients(*map(tf.constant, heads())):
        assert np.isfinite(gradient).all()
        assert (gradient[1].numpy() == 0).all() and np.abs(gradient[0]).max() > 0


def test_one_key_is_no_reason_to_warn():
    weights = layers.masked_softmax(ops.ones((B, T, 1)), np.array([[[True]], [[False]]]))
    np.testing.assert_array_equal(weights, np.broadcast_to([[[1]], [[0]]], (B, T, 1)))


# Biases -------------------------------------------------------------------------------------------


def test_a_bias_is_added_to_the_scaled_scores():
    query, key, _ = heads()
    bias = np.random.normal(size=(1, H, T, S))
    scores = np.einsum("bhtk,bhsk->bhts", query, key) / np.sqrt(D) + bias
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(layers.attention_weights(query, key, bias=bias), expected, rtol=1e-5)


def test_a_bias_cannot_unhide_a_masked_key():
    query, key, _ = heads()
    for amount in (1e4, 3e38, np.inf):
        bias = np.where(PADDING, -amount, 0)[:, None, None].astype("float32")
        weights = ops.convert_to_numpy(layers.attention_weights(query, key, PADDING, bias))
        assert (weights[~np.broadcast_to(PADDING[:, None, None], weights.shape)] == 0).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_large_bias_does_not_overflow_in_half_precision(dtype):
    query, key, _ = (ops.cast(x, dtype) for x in heads())
    bias = np.where(PADDING, 0, -1e9).astype("float32")[:, None, None] * np.ones((1, 1, T, 1), "float32")
    bias[0, :, 0] = -1e9
    weights = ops.convert_to_numpy(layers.attention_weights(query, key, bias=bias))
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-3)


def test_mask_and_bias_hide_alike():
    query, key, value = heads()
    bias = np.where(PADDING, 0, -np.inf)[:, None, None].astype("float32")
    expected = layers.dot_product_attention(query, key, value, PADDING)
    np.testing.assert_allclose(
        layers.dot_product_attention(query, key, value, bias=bias), expected, rtol=1e-6
    )


# Masks that Keras carries -------------------------------------------------------------------------


TOKENS = np.array([[3, 1, 2, 0], [5, 0, 0, 0]])
OTHER = np.array([[1, 2, 0], [4, 4, 4]])


@pytest.fixture
def carrying():
    return keras.layers.Embedding(7, D, mask_zero=True)


def eager(make, *token_ids):
    return ops.convert_to_numpy(make(*token_ids))


def functional(make, *token_ids):
    inputs = [keras.Input((None,), dtype="int32") for _ in token_ids]
    return ops.convert_to_numpy(keras.Model(inputs, make(*inputs))(list(token_ids)))


@pytest.mark.parametrize("call", [eager, functional])
def test_self_attention_obeys_a_carried_mask(call, carrying):
    attention = layers.MultiHeadAttention(2)
    explicit = lambda ids: attention(plain(carrying(ids)), mask=ids != 0)  # noqa: E731
    expected = eager(explicit, TOKENS)
    np.testing.assert_allclose(call(lambda ids: attention(carrying(ids)), TOKENS), expected, atol=1e-6)
    assert np.abs(eager(lambda ids: attention(plain(carrying(ids))), TOKENS) - expected).max() > 1e-3


@pytest.mark.parametrize("call", [eager, functional])
def test_an_explicit_mask_is_anded_with_the_carried_one(call, carrying):
    attention = layers.MultiHeadAttention(2)
    mask = np.tril(np.ones((1, S, S), bool))
    expected = attention(plain(carrying(TOKENS)), mask=mask & (TOKENS != 0)[:, None])
    np.testing.assert_allclose(
        call(lambda ids: attention(carrying(ids), mask=mask), TOKENS), expected, atol=1e-6
    )
    np.testing.assert_allclose(
        call(lambda ids: attention(carrying(ids), causal=True), TOKENS), expected, atol=1e-6
    )


@pytest.mark.parametrize("call", [eager, functional])
def test_cross_attention_obeys_the_values_mask_not_the_queries(call, carrying):
    attention = layers.MultiHeadAttention(2)
    expected = attention(plain(carrying(OTHER)), plain(carrying(TOKENS)), mask=TOKENS != 0)
    actual = call(lambda ids, context: attention(carrying(ids), carrying(context)), OTHER, TOKENS)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("call", [eager, functional])
def test_attention_with_a_key_of_its_own_obeys_the_keys_mask(call, carrying):
    attention = layers.MultiHeadAttention(2)
    context, key = plain(carrying(TOKENS)), TOKENS[::-1].copy()
    expected = attention(plain(carrying(OTHER)), context, plain(carrying(key)), mask=key != 0)
    actual = call(
        lambda ids, value, key: attention(carrying(ids), plain(carrying(value)), carrying(key)),
        OTHER,
        TOKENS,
        key,
    )
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("call", [eager, functional])
@pytest.mark.parametrize("make", [
    lambda: layers.TransformerBlock(2, 8, causal=True, cross_attention=True),
    lambda: layers.TransformerDecoder(2, 2, 8, cross_attention=True),
])  # fmt: skip
def test_decoders_obey_both_carried_masks(call, make, carrying):
    decoder = make()
    expected = decoder(
        plain(carrying(OTHER)), plain(carrying(TOKENS)), mask=OTHER != 0, context_mask=TOKENS != 0
    )
    actual = call(lambda ids, context: decoder(carrying(ids), carrying(context)), OTHER, TOKENS)
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    stepped, _ = decoder.step(carrying(OTHER), decoder.start(len(OTHER), OTHER.shape[1], carrying(TOKENS)))
    np.testing.assert_allclose(stepped, expected, atol=1e-6)


@pytest.mark.parametrize("call", [eager, functional])
def test_a_block_of_lower_precision_keeps_a_carried_mask(call, carrying):
    block = layers.TransformerBlock(2, 8, dtype="mixed_bfloat16")
    expected = block(plain(carrying(TOKENS)), mask=TOKENS != 0)
    found = call(lambda ids: ops.cast(block(carrying(ids)), "float32"), TOKENS)
    np.testing.assert_allclose(found, ops.cast(expected, "float32"), atol=1e-2)
    unmasked = ops.cast(block(plain(carrying(TOKENS))), "float32")
    assert np.abs(found - ops.convert_to_numpy(unmasked)).max() > 2e-2


@pytest.mark.parametrize("call", [eager, functional])
def test_every_block_of_an_encoder_obeys_a_carried_mask(call, carrying):
    encoder = layers.TransformerEncoder(3, 2, 8)
    expected = encoder(plain(carrying(TOKENS)), mask=TOKENS != 0)
    np.testing.assert_allclose(call(lambda ids: encoder(carrying(ids)), TOKENS), expected, atol=1e-6)


def test_a_carried_mask_goes_on_with_the_queries(carrying):
    x = carrying(keras.Input((None,)))
    for layer in (
        layers.MultiHeadAttention(2),
        layers.TransformerBlock(2, 8),
        layers.TransformerEncoder(1, 2, 8),
    ):
        assert keras.src.backend.get_keras_mask(layer(x)) is not None


def plain(x):
    """`x` without the mask that it carries."""
    return ops.copy(x) if hasattr(ops, "copy") else x + 0


# Causality and padding together -------------------------------------------------------------------


def test_causal_and_padding():
    x = np.random.normal(size=(B, S, D)).astype("float32")
    attention = layers.MultiHeadAttention(2)
    expected = attention(x, mask=np.tril(np.ones((S, S), bool)) & PADDING[:, None])
    np.testing.assert_allclose(attention(x, mask=PADDING, causal=True), expected, atol=1e-6)


def test_causal_cross_attention_counts_from_the_first_key():
    query, context = np.random.normal(size=(B, T, D)), np.random.normal(size=(B, S, D))
    attention = layers.MultiHeadAttention(2)
    expected = attention(query, context, mask=np.tri(T, S, dtype=bool)[None])
    np.testing.assert_allclose(attention(query, context, causal=True), expected, atol=1e-6)


def test_a_mean_counts_what_the_mask_shows_and_is_0_of_nothing():
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype("float32")
    mask = np.array([[1, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0]], bool)
    expected = np.stack([x[0, :3].mean(0), x[1, [0, 2]].mean(0), np.zeros(5)])
    np.testing.assert_allclose(layers.masked_mean(x, mask), expected, atol=1e-6)
    assert layers.masked_mean(ops.cast(x, "bfloat16"), mask).dtype == "float32"
