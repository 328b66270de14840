"""Transformer blocks and stacks: the contract, and equality with the same composed of Keras's layers."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import layers
from tests import contract
from tests.contract import Case, floats, mask
from tests.layers import reference
from tests.layers.test_attention import keras_twin

Block, Encoder, Decoder = layers.TransformerBlock, layers.TransformerEncoder, layers.TransformerDecoder

SELF = {"inputs": {"x": floats("T", 6), "mask": mask("T")}}
CROSS = {
    "inputs": {"x": floats("T", 6), "context": floats("S", 6), "mask": mask("T"), "context_mask": mask("S")}
}


def decodes(cross_attention):
    """The promises of a causal layer without absolute positions."""

    def cache(layer, inputs, max_length):
        context = (inputs["context"], inputs["context_mask"]) if cross_attention else ()
        return layer.start(len(inputs["x"]), max_length, *context)

    return (CROSS if cross_attention else SELF) | {"causal": "T", "left_padding": "T", "cache": cache}


BLOCK = {"attends": True, "reference": reference.block}
STACK = {"attends": True, "reference": reference.stack}

test_contract = contract.check(
    Case("post_norm", lambda: Block(2, 9), **SELF, **BLOCK),
    Case("pre_norm", lambda: Block(2, 9, key_dim=4, activation="gelu", normalize_first=True),
         **SELF, **BLOCK),
    Case("causal", lambda: Block(2, 9, causal=True), **decodes(False), **BLOCK),
    Case("cross", lambda: Block(2, 9, causal=True, cross_attention=True), **decodes(True), **BLOCK,
         kind="block"),
    Case("encoder", lambda: Encoder(2, 2, 9, normalize_first=True), **SELF, **STACK),
    Case("decoder", lambda: Decoder(2, 2, 9, cross_attention=True), **decodes(True), **STACK),
    Case("shared_position", lambda: Decoder(
        2, 2, 9, attention=layers.MultiHeadAttention(2), normalization=layers.RMSNormalization(),
        position=layers.RelativePositionBias(6, 4, bidirectional=False)), **decodes(False), **STACK),
)  # fmt: skip


def rotary_attention():
    return layers.MultiHeadAttention(2, key_dim=4, position=layers.RotaryEmbedding())


def built(layer, *shapes):
    layer.build(*shapes)
    contract.randomise(layer, seed=3)
    return layer


def normal(*shape):
    return np.random.normal(size=shape).astype("float32")


# Composition -----------------------------------------------------------------------------------------


def test_a_shared_position_is_one():
    shared = layers.RelativePositionBias()
    stack = built(Encoder(3, 2, 9, attention=layers.MultiHeadAttention(2), position=shared), (None, None, 6))
    assert all(block.attention.position is shared for block in stack.blocks)
    assert sum(weight.name == "table" for weight in stack.weights) == 1
    twin = Encoder.from_config(stack.get_config())
    assert all(block.attention.position is twin.position for block in twin.blocks)
    assert twin.position is not shared
    with pytest.raises(ValueError, match="A shared `position` needs the `attention`"):
        Encoder(3, 2, 9, position=shared)


@pytest.mark.parametrize("make", [
    lambda x: Encoder(2, 2, 64, feedforward=layers.FeedForward(64))(x),
    lambda x: layers.RecurrentEncoder(16)(x)[0],
    lambda x: layers.LSTMAttentionDecoder(16)(x, x),
], ids=["encoder", "recurrent_encoder", "recurrent_decoder"])  # fmt: skip
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")
def test_patterns_are_no_layers(make):
    """So that Keras's own quantisation, which wants all layers built, works on a model of stacks."""
    inputs = keras.Input((None, 32))
    model = keras.Model(inputs, make(inputs))
    assert all(part.built for part in model._flatten_layers())
    x = normal(2, 5, 32)
    y = model(x)
    model.quantize("int8")
    np.testing.assert_allclose(model(x), y, atol=0.1 * np.abs(y).max())


@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
def test_equals_the_composition_of_keras_layers(normalize_first, activation):
    block = Block(2, 9, key_dim=6, activation=activation, normalize_first=normalize_first, causal=True,
                  cross_attention=True)  # fmt: skip
    x, context = normal(3, 5, 6), normal(3, 7, 6)
    mask, context_mask = np.arange(5) < [[5], [3], [1]], np.arange(7) < [[2], [7], [4]]
    built(block, x.shape, context.shape)
    attention = keras_twin(block.attention, x, x)
    context_attention = keras_twin(block.context_attention, x, context)

    def twin(layer, shape):
        copy = type(layer).from_config(layer.get_config())
        copy.build(shape)
        copy.set_weights(layer.get_weights())
        return copy

    norms = [
        twin(layer, x.shape) for layer in (block.attention_norm, block.context_norm, block.feedforward_norm)
    ]
    hidden, output = (
        twin(block.feedforward.hidden, x.shape),
        twin(block.feedforward.output_projection, (3, 5, 9)),
    )
    sublayers = [
        lambda y: attention(y, y, attention_mask=mask[:, None], use_causal_mask=True),
        lambda y: context_attention(y, context, attention_mask=context_mask[:, None]),
        lambda y: output(hidden(y)),
    ]
    y = x
    for norm, sublayer in zip(norms, sublayers, strict=True):
        y = y + sublayer(norm(y)) if normalize_first else norm(y + sublayer(y))
    np.testing.assert_allclose(block(x, context, mask=mask, context_mask=context_mask), y, atol=2e-5)


def test_a_stack_is_its_blocks_in_a_row():
    x, context = normal(2, 5, 6), normal(2, 7, 6)
    for normalize_first in (False, True):
        decoder = built(
            Decoder(3, 2, 9, normalize_first=normalize_first, cross_attention=True), x.shape, context.shape
        )
        y = x
        for block in decoder.blocks:
            y = block(y, context)
        np.testing.assert_array_equal(decoder(x, context), decoder.norm(y) if normalize_first else y)


def test_parts_are_injected():
    """Each block gets its own layer of the pattern's configuration, as T5 or ViT need other parts."""
    norm = keras.layers.RMSNormalization(epsilon=0.1)
    encoder = Encoder(2, 2, 9, attention=rotary_attention(),
                      feedforward=layers.FeedForward(5, "gelu", use_bias=False),
                      normalization=norm, normalize_first=True)  # fmt: skip
    x = normal(2, 5, 6)
    y = encoder(x)
    first, second = encoder.blocks
    assert first.attention is not second.attention and first.attention_norm is not second.attention_norm
    for block in (first, second):
        assert isinstance(block.attention.position, layers.RotaryEmbedding)
        assert block.feedforward.hidden.units == 5 and block.feedforward.hidden.bias is None
        assert isinstance(block.feedforward_norm, keras.layers.RMSNormalization)
        assert block.feedforward_norm.epsilon == 0.1
    copy = Encoder.from_config(encoder.get_config())
    copy.build(x.shape)
    copy.set_weights(encoder.get_weights())
    np.testing.assert_array_equal(copy(x), y)


# Values computed by hand -----------------------------------------------------------------------------


def test_number_of_weights():
    """A block of width 32 with two full-width heads and a feed-forward width of 32: 10,656."""
    block = built(Block(2, 32, key_dim=32), (None, None, 32))
    counts = [
        block.attention,
        block.feedforward.hidden,
        block.feedforward.output_projection,
        block.attention_norm,
    ]
    assert [layer.count_params() for layer in counts] == [8_416, 1_056, 1_056, 64]
    assert count(block) == 10_656
    assert count(built(Block(2, 32, key_dim=256), (None, None, 256))) == 543_776


def test_number_of_weights_of_the_stacks():
    """Width 256, eight full-width heads, feed-forward width 2,048."""
    shape = (None, None, 256)
    encoder, decoder = (
        Encoder(1, 8, 2048, key_dim=256),
        Decoder(1, 8, 2048, key_dim=256, cross_attention=True),
    )
    assert count(built(encoder, shape)) == 3_155_456
    assert count(built(decoder, shape, shape)) == 5_259_520
    assert count(built(Encoder(3, 2, 9), (None, None, 6))) == 3 * count(
        built(Encoder(1, 2, 9), (None, None, 6))
    )


def count(layer):
    return sum(weight.numpy().size for weight in layer.trainable_weights)


def test_a_normalised_row_has_the_scale_and_shift_of_the_norm():
    """Post-norm leaves rows of mean b and standard deviation g: 0.5 and 2."""
    block = built(Block(2, 9), (None, None, 64))
    block.feedforward_norm.set_weights([np.full(64, 2.0), np.full(64, 0.5)])
    y = ops.convert_to_numpy(block(normal(2, 5, 64)))
    np.testing.assert_allclose(y.mean(-1), 0.5, atol=1e-5)
    np.testing.assert_allclose(y.std(-1), 2, rtol=1e-4)


def test_a_norm_sees_one_position_alone():
    norm = built(Block(2, 9), (None, None, 6)).attention_norm
    x, other = normal(2, 5, 6), normal(2, 5, 6)
    other[0, 0] = x[0, 0]
    np.testing.assert_array_equal(norm(x)[0, 0], norm(other)[0, 0])
    assert norm.count_params() == 12


def test_sublayers_of_zero_leave_a_pre_norm_block_the_identity():
    block = built(Block(2, 9, normalize_first=True, cross_attention=True), (None, None, 6), (None, None, 6))
    for dense in (block.attention.output_projection, block.context_attention.output_projection,
                  block.feedforward.output_projection):  # fmt: skip
        dense.set_weights([np.zeros(w.shape) for w in dense.weights])
    x = normal(2, 5, 6)
    np.testing.assert_array_equal(block(x, normal(2, 7, 6)), x)


def test_the_queries_of_cross_attention_are_the_normalised_sums_of_the_same_block():
    block = built(Block(2, 9, causal=True, cross_attention=True), (None, None, 6), (None, None, 6))
    x, context = normal(2, 5, 6), normal(2, 7, 6)
    queries = block.attention_norm(x + block.attention(x, causal=True))
    summed = block.context_norm(queries + block.context_attention(queries, context))
    expected = block.feedforward_norm(summed + block.feedforward(summed))
    np.testing.assert_allclose(block(x, context), expected, atol=1e-6)


# Incremental decoding ----------------------------------------------------------------------------------


@pytest.mark.parametrize("factory", [
    lambda: Decoder(2, 2, 9, normalize_first=True),
    lambda: Decoder(1, 2, 9, attention=rotary_attention()),
    lambda: Decoder(1, 2, 9, attention=layers.MultiHeadAttention(
        2, position=layers.RelativePositionEmbedding(2))),
])  # fmt: skip
def test_a_left_padded_prompt_decodes_as_the_bare_one(factory):
    decoder = built(factory(), (None, None, 6))
    x, sizes = normal(3, 7, 6), [3, 5, 4]
    expected = [decoder(x[row : row + 1, 7 - size - 2 :])[0, -2:] for row, size in enumerate(sizes)]
    mask = np.arange(5) >= 5 - np.array(sizes)[:, None]
    _, cache = decoder.step(x[:, :5], decoder.start(3, 9), mask=mask)
    for t in (5, 6):
        y, cache = decoder.step(x[:, t : t + 1], cache)
        np.testing.assert_allclose(y[:, 0], [e[t - 5] for e in expected], atol=1e-5)


# Errors ------------------------------------------------------------------------------------------------


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match=r"`dropout` must lie in \[0, 1\); it is 1.0"):
        Block(2, 9, dropout=1.0)
    with pytest.raises(ValueError, match="`num_layers` must be at least 1; it is 0"):
        Encoder(0, 2, 9)
    with pytest.raises(ValueError, match="has cross-attention: call it with a `context`"):
        Block(2, 9, cross_attention=True)(normal(2, 5, 6))
