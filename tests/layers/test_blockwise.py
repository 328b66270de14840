"""Blockwise attention: the contract, equality with the plain path, gradients too, dropout, memory."""

import math
import re

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from keras_tfm import layers
from keras_tfm.layers.masks import causal_mask, combine_masks
from tests import contract
from tests.contract import Case, floats, mask
from tests.layers import reference
from tests.layers.flat import FlatBlock
from tests.layers.test_attention import DECODING, SELF

Attention = layers.BlockwiseAttention
BLOCKS = {"reference": reference.attention}


def injected():
    """A block whose attentions go by blocks, as every family may have them."""

    def part(branch, **options):
        return layers.Residual(branch, layers.LayerNormalization(), dropout=0.1, **options)

    parts = {
        "attention": part(Attention(2, block_size=2, dropout=0.1), causal=True),
        "context_attention": part(Attention(2, block_size=3)),
        "feedforward": part(layers.FeedForward(9)),
    }
    return FlatBlock(parts)


test_contract = contract.check(
    Case("self", lambda: Attention(2, block_size=2, dropout=0.1), **SELF, **BLOCKS, kind="blockwise"),
    Case("causal", lambda: Attention(2, block_size=3, key_dim=5, value_dim=3, dropout=0.1),
         **DECODING, **BLOCKS),
    Case("rotary", lambda: Attention(2, block_size=2, position=layers.RotaryEmbedding(100.0)),
         **DECODING, **BLOCKS),
    Case("cross", lambda: Attention(2, block_size=4, key_dim=6),
         {"query": floats("T", 6), "value": floats("S", 5), "mask": mask("S")}, **BLOCKS),
    Case("block", injected,
         {"x": floats("T", 6), "context": floats("S", 6), "mask": mask("T"), "context_mask": mask("S")},
         reference=reference.block, causal="T", left_padding="T",
         cache=lambda layer, inputs, length: layer.start(
             len(inputs["x"]), length, inputs["context"], inputs["context_mask"])),
)  # fmt: skip


# Equality with the plain path ------------------------------------------------------------------------


def plain_attention(query, key, value, mask=None, bias=None, scale=None, causal=False):
    if causal:
        causality = causal_mask(query.shape[-2], key.shape[-2])
        mask = combine_masks(mask, causality, rank=len(query.shape))
    return layers.dot_product_attention(query, key, value, mask, bias, scale)


def value_and_gradients(attention, *tensors):
    """The output of `attention(*tensors)`, then the gradient of each tensor for a fixed upstream one."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = attention(*tensors)
        upstream = np.random.default_rng(5).normal(size=y.shape) if y.shape.is_fully_defined() else 1.0
        total = tf.reduce_sum(y * tf.cast(upstream, y.dtype))
    return [y, *tape.gradient(total, tensors)]


@st.composite
def problems(draw):
    """(tensors, options): query, key, value and perhaps a bias; the other arguments of an attention."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch, heads, length, key_length = (draw(st.integers(1, n)) for n in (3, 3, 11, 11))
    rank = draw(st.sampled_from([3, 4, 4]))
    lead = (batch, heads)[: rank - 2]
    widths = [draw(st.integers(1, 5)) for _ in range(2)]
    shapes = [(*lead, length, widths[0]), (*lead, key_length, widths[0]), (*lead, key_length, widths[1])]
    scores = (*lead, length, key_length)
    if draw(st.booleans()):  # a bias that broadcasts where it likes, also of fewer axes
        shape = [draw(st.sampled_from([1, n])) for n in scores]
        shapes.append(tuple(shape[draw(st.integers(0, rank - 2)) :]))
    masks = {
        "none": None,
        "padding": (batch, key_length),
        "rows": (draw(st.sampled_from([1, batch])), length, key_length),
        "heads": (draw(st.sampled_from([1, batch])), draw(st.sampled_from([1, heads])), length, key_length),
    }
    shape = masks[draw(st.sampled_from(list(masks)[:rank]))]
    options = {
        "mask": None if shape is None else rng.random(shape) < 0.6,
        "scale": draw(st.sampled_from([None, 0.3])),
        "causal": draw(st.booleans()),
    }
    return [rng.normal(size=shape) for shape in shapes], options


@hypothesis.given(problems(), st.integers(3, 12), st.sampled_from(["float32", "float64"]))
def test_equals_the_plain_path(problem, block_size, dtype):
    arrays, options = problem
    tensors = [tf.constant(x, dtype) for x in arrays]

    def by_blocks(query, key, value, bias=None):
        return layers.blockwise_attention(query, key, value, bias=bias, block_size=block_size, **options)

    def plain(query, key, value, bias=None):
        return plain_attention(query, key, value, bias=bias, **options)

    tolerance = 1e-5 if dtype == "float32" else 1e-12
    contract.assert_close(
        value_and_gradients(by_blocks, *tensors), value_and_gradients(plain, *tensors), tolerance
    )


@pytest.mark.parametrize(
    ("causal", "jit_compile"),
    [
        pytest.param(False, False, marks=pytest.mark.slow),
        pytest.param(True, False, marks=pytest.mark.slow),
        (True, True),
        pytest.param(False, True, marks=pytest.mark.slow),
    ],
)
def test_one_trace_of_unknown_shapes_serves_all_lengths(jit_compile, causal):
    """Batch size, both lengths, what the mask and the bias broadcast: nothing is known but the widths."""
    traces = []

    def by_blocks(query, key, value, bias, mask):
        traces.append(None)
        with tf.GradientTape() as tape:
            tape.watch([query, key, value, bias])
            y = layers.blockwise_attention(query, key, value, mask, bias, causal=causal, block_size=4)
            total = tf.reduce_sum(y * y)
        return [y, *tape.gradient(total, [query, key, value, bias])]

    unknown = [tf.TensorSpec((None, 2, None, 3))] * 3 + [
        tf.TensorSpec([None] * 4),
        tf.TensorSpec([None] * 4, tf.bool),
    ]
    traced = tf.function(by_blocks, input_signature=unknown, jit_compile=jit_compile, autograph=False)
    for batch, length, key_length, bias_shape, mask_shape in [
        (2, 9, 6, (1, 2, 9, 6), (2, 1, 1, 6)),
        (1, 4, 11, (1, 1, 4, 1), (1, 2, 4, 11)),
        (3, 1, 1, (3, 1, 1, 1), (1, 1, 1, 1)),
        (0, 5, 5, (1, 1, 1, 5), (1, 1, 5, 5)),
    ]:  # fmt: skip
        rng = np.random.default_rng(length)
        tensors = [
            tf.constant(rng.normal(size=shape), "float32")
            for shape in ((batch, 2, length, 3), *[(batch, 2, key_length, 3)] * 2, bias_shape)
        ]
        allowed = tf.constant(rng.random(mask_shape) < 0.6)
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = plain_attention(*tensors[:3], allowed, tensors[3], causal=causal)
            total = tf.reduce_sum(y * y)
        contract.assert_close(traced(*tensors, allowed), [y, *tape.gradient(total, tensors)])
    assert len(traces) == 1


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("dtype", "bound"), [("float16", 4e-3), pytest.param("bfloat16", 4e-2, marks=pytest.mark.slow)]
)
def test_half_precision_is_near_the_exact(dtype, bound, jit_compile):
    tensors = [tf.cast(np.random.normal(size=(2, 2, 9, 4)), dtype) for _ in range(3)]

    @tf.function(jit_compile=jit_compile, autograph=False)
    def by_blocks(*tensors):
        return value_and_gradients(
            lambda *x: layers.blockwise_attention(*x, causal=True, block_size=4), *tensors
        )

    expected = value_and_gradients(
        lambda *x: plain_attention(*x, causal=True), *(tf.cast(x, "float64") for x in tensors)
    )
    for half, exact in zip(by_blocks(*tensors), expected, strict=True):
        assert half.dtype == dtype
        assert np.abs(tf.cast(half, "float64") - exact).max() <= bound * max(1, np.abs(exact).max())


def test_gradients_are_the_slopes():
    """Central differences in float64, of a random weighting of the outputs."""
    shapes = (1, 2, 5, 3), (1, 2, 5, 3), (1, 2, 5, 3), (1, 1, 5, 5)
    tensors = [np.random.normal(size=shape) for shape in shapes]
    weighting = np.random.normal(size=(1, 2, 5, 3))

    @tf.function(autograph=False)
    def value(query, key, value, bias):
        y = layers.blockwise_attention(
            query, key, value, bias=bias, causal=True, dropout=0.3, seed=tf.constant([1, 2]), block_size=2
        )
        return tf.reduce_sum(y * weighting)

    constants = [tf.constant(x) for x in tensors]
    with tf.GradientTape() as tape:
        tape.watch(constants)
        total = value(*constants)
    for place, gradient in enumerate(tape.gradient(total, constants)):
        slopes = np.zeros(shapes[place])
        for index in np.ndindex(*shapes[place]):
            for step in (1e-5, -1e-5):
                moved = [x.copy() for x in tensors]
                moved[place][index] += step
                slopes[index] += value(*map(tf.constant, moved)) / (2 * step)
        np.testing.assert_allclose(gradient, slopes, atol=1e-8)


# Rows that attend to nothing, scores at the limits --------------------------------------------------


def test_a_row_with_nothing_to_attend_to_is_zero_and_has_no_gradient():
    query, key, value = (tf.constant(np.random.normal(size=(1, 2, 6, 3)), "float32") for _ in range(3))
    allowed = np.ones((1, 6, 6), bool)
    allowed[0, 3] = allowed[0, :, 4] = False
    y, *gradients = value_and_gradients(
        lambda *x: layers.blockwise_attention(*x, allowed, block_size=2), query, key, value
    )
    assert (y[:, :, 3].numpy() == 0).all() and (gradients[0][:, :, 3].numpy() == 0).all()
    assert all((gradient[:, :, 4].numpy() == 0).all() for gradient in gradients[1:])
    for x in (y, *gradients):
        assert np.isfinite(x).all() and (x.numpy() != 0).any()
    nowhere = value_and_gradients(
        lambda *x: layers.blockwise_attention(*x, np.zeros((1, 6), bool), block_size=4), query, key, value
    )
    for x in nowhere:
        np.testing.assert_array_equal(x, tf.zeros_like(x))


@pytest.mark.parametrize("low", [-1e9, -np.inf, np.finfo("float32").min])
def test_a_bias_may_hide_keys_and_whole_rows(low):
    arrays = [np.random.normal(size=(1, 2, 5, 3)) for _ in range(3)]
    bias = np.where(np.random.random((1, 1, 5, 5)) < 0.5, 0.0, low)
    bias[:, :, 2] = low
    tensors = [tf.constant(x, "float32") for x in (*arrays, bias)]
    contract.assert_close(
        value_and_gradients(lambda *x: layers.blockwise_attention(*x[:3], bias=x[3], block_size=2), *tensors),
        value_and_gradients(lambda *x: plain_attention(*x[:3], bias=x[3]), *tensors),
    )


def test_large_scores_do_not_overflow_float16():
    x = tf.fill((1, 3, 64), tf.constant(40.0, "float16"))
    np.testing.assert_allclose(layers.blockwise_attention(x, x, x, block_size=2), x, rtol=1e-3)


# Dropout --------------------------------------------------------------------------------------------


def dropped_weights(query, key, rate, seed, block_size, **options):
    """The weights (B, H, T, S) as dropout leaves them: the values are unit vectors."""
    units = tf.broadcast_to(tf.eye(key.shape[2]), (*key.shape[:3], key.shape[2]))
    return layers.blockwise_attention(
        query, key, units, dropout=rate, seed=tf.constant(seed), block_size=block_size, **options
    )


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_gradient_drops_what_the_output_dropped(jit_compile):
    tensors = [tf.constant(np.random.normal(size=(2, 2, 9, 4)), "float32") for _ in range(3)]
    keep = tf.cast(dropped_weights(*tensors[:2], 0.4, [3, 4], 4) > 0, "float32")
    assert 0.4 < np.mean(keep) < 0.8

    @tf.function(jit_compile=jit_compile, autograph=False)
    def by_blocks(*tensors):
        return value_and_gradients(
            lambda *x: layers.blockwise_attention(*x, dropout=0.4, seed=tf.constant([3, 4]), block_size=4),
            *tensors,
        )

    def explicit(query, key, value):
        return layers.attention_weights(query, key) * keep / 0.6 @ value

    contract.assert_close(by_blocks(*tensors), value_and_gradients(explicit, *tensors))


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_share_and_independence_of_what_is_dropped(rate):
    query = key = tf.zeros((2, 2, 256, 4))
    count = 2 * 2 * 256 * 256
    weights = dropped_weights(query, key, rate, [1, 2], 64).numpy()
    np.testing.assert_allclose(weights[weights > 0], 1 / 256 / (1 - rate), rtol=1e-5)
    kept = weights > 0
    assert abs(kept.mean() - (1 - rate)) <= 4 * math.sqrt(rate * (1 - rate) / count)
    blocks = kept.reshape(2, 2, 4, 64, 4, 64).swapaxes(3, 4).reshape(4, 16, -1)  # (B H, blocks, elements)
    alike = np.corrcoef(blocks.reshape(64, -1)) - np.eye(64)
    assert np.abs(alike).max() < 5.5 / math.sqrt(blocks.shape[-1])
    for other in ([1, 3], [2, 2]):
        again = dropped_weights(query, key, rate, other, 64).numpy() > 0
        assert abs(np.corrcoef(kept.ravel(), again.ravel())[0, 1]) < 4 / math.sqrt(count)


def test_a_layer_draws_anew_at_each_call_and_only_in_training():
    layer, x = Attention(2, block_size=4, dropout=0.5), np.random.normal(size=(1, 9, 8)).astype("float32")
    once, again = (layer(x, training=True).numpy() for _ in range(2))
    assert (once != again).any()
    plain = layers.MultiHeadAttention(2, dropout=0.5)
    plain.build(x.shape)
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(layer(x), plain(x), atol=1e-6)


# Memory ---------------------------------------------------------------------------------------------


def largest_tensor(attention, length):
    """How many elements the largest tensor of the compiled training program has."""
    x = [tf.zeros((1, 2, length, 8))] * 3

    @tf.function(jit_compile=True, autograph=False)
    def train(*tensors):
        return value_and_gradients(attention, *tensors)[1:]

    program = train.experimental_get_compiler_ir(*x)(stage="optimized_hlo")
    shapes = re.findall(r"\b(?:f|s|u|pred|bf)\d*\[([\d,]+)\]", program)
    return max(math.prod(map(int, shape.split(","))) for shape in shapes)


@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.slow), True])
def test_no_tensor_grows_with_the_square_of_the_length(causal):
    def by_blocks(*tensors):
        return layers.blockwise_attention(*tensors, causal=causal, block_size=64)

    def plain(*tensors):
        return plain_attention(*tensors, causal=causal)

    assert [largest_tensor(by_blocks, length) for length in (512, 1024)] == [2 * 8 * 512, 2 * 8 * 1024]
    assert [largest_tensor(plain, length) for length in (512, 1024)] == [2 * 512**2, 2 * 1024**2]


# Errors ---------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused():
    x = tf.zeros((1, 3, 4))
    with pytest.raises(ValueError, match="`block_size` must be at least 1; it is 0"):
        layers.blockwise_attention(x, x, x, block_size=0)
    with pytest.raises(ValueError, match=r"`dropout` of 0\.1 needs a `seed`"):
        layers.blockwise_attention(x, x, x, dropout=0.1)
    with pytest.raises(ValueError, match="`mask` must be boolean"):
        layers.blockwise_attention(x, x, x, mask=tf.zeros((1, 3)))
    with pytest.raises(ValueError, match="`block_size` must be at least 1; it is 0"):
        Attention(2, block_size=0)
    for position in (layers.RelativePositionEmbedding(), layers.RelativePositionBias()):
        with pytest.raises(ValueError, match=f"{type(position).__name__}, which needs all scores at once"):
            Attention(2, block_size=4, position=position)
    with pytest.raises(ValueError, match="`on_scores` and `on_weights` must be None"):
        Attention(2, block_size=4, on_scores=layers.TopK(3))
