"""Transformer blocks and stacks: the contract, and equality with the same composed of Keras's layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_tfm
from keras_tfm import layers
from keras_tfm.layers.blocks import block_of, residuals
from tests import contract
from tests.contract import Case, floats, mask
from tests.layers import reference
from tests.layers.flat import FlatBlock
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
    Case("pre_norm", lambda: composed("input", key_dim=4, activation="gelu"), **SELF, **BLOCK),
    Case("output_norm", lambda: composed("output", layer_scale=0.5), **SELF, **BLOCK),
    Case("causal", lambda: Block(2, 9, causal=True), **decodes(False), **BLOCK),
    Case("cross", lambda: Block(2, 9, causal=True, cross_attention=True), **decodes(True), **BLOCK,
         kind="block"),
    Case("encoder", lambda: Encoder(2, 2, 9, normalize_first=True), **SELF, **STACK),
    Case("decoder", lambda: Decoder(2, 2, 9, cross_attention=True), **decodes(True), **STACK),
    Case("rms", lambda: composed("input", causal=True, norm=layers.RMSNormalization,
         position=layers.RelativePositionBias(6, 4, bidirectional=False)), **decodes(False), **BLOCK),
    Case("residual", lambda: layers.Residual(layers.FeedForward(9), layers.LayerNormalization(), "input",
         dropout=0.1, stochastic_depth=0.2, layer_scale=0.1,
         output_norm=layers.LayerNormalization()), {"x": floats("T", 6)},
         reference=reference.residual),
)  # fmt: skip


def composed(
    normalize,
    key_dim=None,
    activation="relu",
    position=None,
    norm=layers.LayerNormalization,
    layer_scale=None,
    causal=False,
    width=9,
    num_heads=2,
    cross_attention=False,
):
    """A block of parts."""

    def part(branch, **options):
        return layers.Residual(branch, norm(), normalize, layer_scale=layer_scale, **options)

    attention = layers.MultiHeadAttention(num_heads, key_dim, position=position)
    parts = {
        "attention": part(attention, causal=causal),
        "context_attention": part(layers.MultiHeadAttention(num_heads, key_dim)) if cross_attention else None,
        "feedforward": part(layers.FeedForward(width, activation)),
    }
    return FlatBlock(parts)


def built(layer, *shapes):
    layer.build(*shapes)
    contract.randomise(layer, seed=3)
    return layer


def normal(*shape):
    return np.random.normal(size=shape).astype("float32")


# Composition -----------------------------------------------------------------------------------------


def parts_in_order(*names):
    """A block of these parts, built and with random weights, and tensors for each."""
    keras.utils.set_random_seed(2)
    branches = {
        "attention": lambda: layers.PositionedAttention(layers.MultiHeadAttention(2)),
        "context_attention": lambda: layers.PositionedAttention(layers.MultiHeadAttention(2)),
        "first": lambda: layers.FeedForward(9),
        "feedforward": lambda: layers.FeedForward(9),
    }
    norm = layers.LayerNormalization
    parts = {
        name: layers.Residual(branches[name](), norm(), "input", dropout=0.2, layer_scale=0.5)
        for name in names
    }
    block = layers.Block(parts, name="block")
    block.build((None, None, 6), {"context_attention": {"context": (None, None, 6)}})
    contract.randomise(block, seed=3)
    tensors = {
        "attention": {"mask": np.arange(5) < [[5], [3]], "position": normal(2, 5, 6), "bias": None},
        "context_attention": {
            "context": normal(2, 7, 6),
            "mask": np.arange(7) < [[4], [7]],
            "context_position": normal(1, 7, 6),
        },
    }
    return block, normal(2, 5, 6), {name: tensors[name] for name in names if name in tensors}


ORDERS = [
    ("attention", "context_attention", "feedforward"),
    ("context_attention", "attention", "feedforward"),
    ("first", "attention", "feedforward"),
    ("context_attention", "feedforward"),
]


@pytest.mark.parametrize("names", ORDERS, ids="-".join)
def test_parts_run_in_their_order_each_with_its_own_tensors(names, tmp_path):
    """Eager, compiled, in a functional graph, from a file, and recomputed for the gradient."""
    block, x, tensors = parts_in_order(*names)
    expected = x
    for name in names:
        expected = getattr(block, name)(expected, **tensors.get(name, {}))
    np.testing.assert_array_equal(block(x, **tensors), expected)
    compiled = tf.function(lambda: block(x, **tensors), autograph=False)
    np.testing.assert_allclose(compiled(), expected, atol=1e-6)

    inputs = keras.tree.map_structure(
        lambda a: None if a is None else keras.Input((None, *a.shape[2:]), dtype=a.dtype), (x, tensors),
        none_is_leaf=True,
    )  # fmt: skip
    model = keras_tfm.Model(
        [a for a in keras.tree.flatten(inputs) if a is not None], block(inputs[0], **inputs[1])
    )
    arrays = [a for a in keras.tree.flatten((x, tensors)) if a is not None]
    np.testing.assert_allclose(model(arrays), expected, atol=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert list(loaded.get_layer("block").parts) == list(names)
    assert [w.path for w in loaded.weights] == [w.path for w in model.weights]
    np.testing.assert_allclose(loaded(arrays), expected, atol=1e-6)


@pytest.mark.parametrize("names", ORDERS, ids="-".join)
def test_nested_tensors_have_their_gradient_where_a_block_is_recomputed(names):
    results = []
    for recomputes in (False, True):
        block, x, tensors = parts_in_order(*names)
        if recomputes:
            layers.rematerialize(block)
        floating = [tf.constant(x)]
        nested = {}
        for name, of_part in tensors.items():
            nested[name] = {key: None if a is None else tf.constant(a) for key, a in of_part.items()}
            floating += [a for a in nested[name].values() if a is not None and a.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floating)
            y = block(floating[0], training=True, **nested)
            loss = tf.reduce_sum(y**2)
        results.append([y, *tape.gradient(loss, [*floating, *block.trainable_variables])])
    for plain, again in zip(*results, strict=True):
        np.testing.assert_allclose(again, plain, atol=1e-5)
        assert np.abs(plain).max() > 0


def test_tensors_of_a_part_that_is_not_there_are_refused():
    block, x, tensors = parts_in_order("attention", "feedforward")
    with pytest.raises(ValueError, match="'block' has the parts 'attention', 'feedforward'; it is called"):
        block(x, self_attention=tensors["attention"])


def test_a_bias_is_shared_as_a_tensor():
    """What several blocks add to their scores is one layer's output: its table is there once."""
    bias = layers.RelativePositionBias(6, 4, num_heads=2, name="bias")
    inputs = keras.Input((None, 6))
    x, shared = inputs, bias(inputs)
    for i in range(3):
        x = Block(2, 9, name=f"block_{i}")(x, bias=shared)
    model = keras_tfm.Model(inputs, x)
    contract.randomise(model, seed=3)
    assert sum(weight.name == "table" for weight in model.weights) == 1
    twin = keras.models.clone_model(model)
    assert [w.path for w in twin.weights] == [w.path for w in model.weights]
    x = normal(2, 5, 6)
    expected = x
    for i in range(3):
        table = reference.bucket_bias(bias, 5, 5)[None]
        expected = reference.block(model.get_layer(f"block_{i}"), expected, bias=table)
    np.testing.assert_allclose(model(x), expected, atol=1e-5)


@pytest.mark.parametrize("make", [
    lambda x: Encoder(2, 2, 64)(x),
    lambda x: layers.RecurrentEncoder(16)(x)[0],
    lambda x: layers.LSTMAttentionDecoder(16)(x, x),
], ids=["encoder", "recurrent_encoder", "recurrent_decoder"])  # fmt: skip
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")
def test_all_layers_are_built(make):
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
    block = Block(2, 9, activation=activation, normalize_first=normalize_first, causal=True,
                  cross_attention=True)  # fmt: skip
    x, context = normal(3, 5, 6), normal(3, 7, 6)
    mask, context_mask = np.arange(5) < [[5], [3], [1]], np.arange(7) < [[2], [7], [4]]
    built(block, x.shape, context.shape)
    attention = keras_twin(block.attention.branch, x, x)
    context_attention = keras_twin(block.context_attention.branch, x, context)

    def twin(layer, shape):
        copy = type(layer).from_config(layer.get_config())
        copy.build(shape)
        copy.set_weights(layer.get_weights())
        return copy

    parts = block.attention, block.context_attention, block.feedforward
    norms = [twin(part.norm, x.shape) for part in parts]
    feedforward = block.feedforward.branch
    hidden, output = twin(feedforward.hidden, x.shape), twin(feedforward.output_projection, (3, 5, 9))
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


def test_parts_survive_their_configuration():
    block = composed("input", key_dim=4, activation="gelu", position=layers.RotaryEmbedding(), causal=True)
    x = normal(2, 5, 6)
    y = block(x)
    copy = FlatBlock.from_config(block.get_config())
    copy.build(x.shape)
    copy.set_weights(block.get_weights())
    np.testing.assert_array_equal(copy(x), y)
    assert [w.path.split("/", 1)[1] for w in copy.weights] == [w.path.split("/", 1)[1] for w in block.weights]


def test_a_block_of_branches_leaves_out_what_is_none():
    branches = {"attention": layers.MultiHeadAttention(2), "feedforward": layers.FeedForward(8)}
    block = block_of(residuals(0.1), "block", True, **branches, context_attention=None)
    assert block.name == "block" and list(block.parts) == ["attention", "feedforward"]
    assert [part.causal for part in block.parts.values()] == [True, False]
    assert [part.branch for part in block.parts.values()] == list(branches.values())


def test_parts_without_a_name_have_that_of_their_place():
    """Else a number would stand in their weights' paths, another one in each process."""
    parts = {
        "attention": layers.Residual(layers.MultiHeadAttention(2, name="self")),
        "feedforward": layers.Residual(layers.FeedForward(9), keras.layers.LayerNormalization()),
    }
    block = layers.Block(parts, name="block")
    block.build((None, None, 6))
    paths = [weight.path for weight in block.weights]
    assert paths[0] == "block/attention/self/projections/query_key_value/kernel"
    assert paths[-2:] == ["block/feedforward/norm/gamma", "block/feedforward/norm/beta"]


@pytest.mark.parametrize("rate", [0.3, 0.9])
def test_stochastic_depth_leaves_out_whole_examples(rate):
    residual = built(layers.Residual(layers.FeedForward(9), stochastic_depth=rate), (None, None, 6))
    x = normal(400, 5, 6)
    added = ops.convert_to_numpy(residual(x, training=True)) - x
    branch = ops.convert_to_numpy(residual.branch(x)) / (1 - rate)
    kept = np.abs(added).max((1, 2)) > 0
    np.testing.assert_allclose(added, branch * kept[:, None, None], atol=1e-5)
    assert abs(kept.mean() - (1 - rate)) < 5 * (rate * (1 - rate) / 400) ** 0.5


# Values computed by hand -----------------------------------------------------------------------------


def test_number_of_weights():
    """A block of width 32 with two full-width heads and a feed-forward width of 32: 10,656."""
    block = built(composed("sum", key_dim=32, width=32), (None, None, 32))
    feedforward = block.feedforward.branch
    counts = [
        block.attention.branch,
        feedforward.hidden,
        feedforward.output_projection,
        block.attention.norm,
    ]
    assert [layer.count_params() for layer in counts] == [8_416, 1_056, 1_056, 64]
    assert count(block) == 10_656
    assert count(built(composed("sum", key_dim=256, width=32), (None, None, 256))) == 543_776


def test_number_of_weights_of_the_stacks():
    """Width 256, eight full-width heads, feed-forward width 2,048."""
    shape = (None, None, 256)
    sizes = {"num_heads": 8, "key_dim": 256, "width": 2048}
    assert count(built(composed("sum", **sizes), shape)) == 3_155_456
    assert count(built(composed("sum", **sizes, cross_attention=True), shape, shape)) == 5_259_520
    assert count(built(Encoder(3, 2, 9), (None, None, 6))) == 3 * count(
        built(Encoder(1, 2, 9), (None, None, 6))
    )


def count(layer):
    return sum(weight.numpy().size for weight in layer.trainable_weights)


def test_a_normalised_row_has_the_scale_and_shift_of_the_norm():
    """Post-norm leaves rows of mean b and standard deviation g: 0.5 and 2."""
    block = built(Block(2, 9), (None, None, 64))
    block.feedforward.norm.set_weights([np.full(64, 2.0), np.full(64, 0.5)])
    y = ops.convert_to_numpy(block(normal(2, 5, 64)))
    np.testing.assert_allclose(y.mean(-1), 0.5, atol=1e-5)
    np.testing.assert_allclose(y.std(-1), 2, rtol=1e-4)


def test_a_norm_sees_one_position_alone():
    norm = built(Block(2, 9), (None, None, 6)).attention.norm
    x, other = normal(2, 5, 6), normal(2, 5, 6)
    other[0, 0] = x[0, 0]
    np.testing.assert_array_equal(norm(x)[0, 0], norm(other)[0, 0])
    assert norm.count_params() == 12


def test_sublayers_of_zero_leave_a_pre_norm_block_the_identity():
    block = built(Block(2, 9, normalize_first=True, cross_attention=True), (None, None, 6), (None, None, 6))
    for part in (block.attention, block.context_attention, block.feedforward):
        dense = part.branch.output_projection
        dense.set_weights([np.zeros(w.shape) for w in dense.weights])
    x = normal(2, 5, 6)
    np.testing.assert_array_equal(block(x, normal(2, 7, 6)), x)


def test_the_queries_of_cross_attention_are_the_normalised_sums_of_the_same_block():
    block = built(Block(2, 9, causal=True, cross_attention=True), (None, None, 6), (None, None, 6))
    x, context = normal(2, 5, 6), normal(2, 7, 6)
    attention, context_attention, feedforward = block.attention, block.context_attention, block.feedforward
    queries = attention.norm(x + attention.branch(x, causal=True))
    summed = context_attention.norm(queries + context_attention.branch(queries, context))
    expected = feedforward.norm(summed + feedforward.branch(summed))
    np.testing.assert_allclose(block(x, context), expected, atol=1e-6)


# Incremental decoding ----------------------------------------------------------------------------------


@pytest.mark.parametrize("factory", [
    lambda: Decoder(2, 2, 9, normalize_first=True),
    lambda: composed("sum", key_dim=4, position=layers.RotaryEmbedding(), causal=True),
    lambda: composed("sum", position=layers.RelativePositionEmbedding(2), causal=True),
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
        layers.Residual(layers.FeedForward(9), dropout=1.0)
    with pytest.raises(ValueError, match="`normalize` must be one of input, sum, output; it is 'first'"):
        layers.Residual(layers.FeedForward(9), normalize="first")
    with pytest.raises(ValueError, match="`num_layers` must be at least 1; it is 0"):
        Encoder(0, 2, 9)
    with pytest.raises(ValueError, match="has cross-attention: call it with a `context`"):
        Block(2, 9, cross_attention=True)(normal(2, 5, 6))


def test_layers_may_share_a_part(tmp_path):
    """Its weights are one set, in files too; a part that was trained elsewhere keeps what it has learnt."""
    branch, norm = layers.FeedForward(5), layers.LayerNormalization()
    trained = branch(np.ones((1, 3, 4)), training=False), branch.get_weights()
    x = keras.Input((3, 4))
    first, second = (layers.Residual(branch, norm, name=name) for name in ("first", "second"))
    model = keras_tfm.Model(x, second(first(x)))
    assert len(model.weights) == len(branch.weights) + len(norm.weights)
    for theirs, weight in zip(trained[1], branch.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, theirs)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    ours, theirs = (loaded.get_layer(name).branch for name in ("first", "second"))
    assert ours is theirs
    inputs = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    np.testing.assert_array_equal(loaded(inputs), model(inputs))
    np.testing.assert_array_equal(branch(np.ones((1, 3, 4))), trained[0])
