"""Positions: encodings added to the input, and positions inside attention."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm import layers
from tests import contract
from tests.contract import Case, floats
from tests.layers import reference
from tests.layers.flat import FlatBlock

test_contract = contract.check(
    Case(
        "sine",
        lambda: layers.SinePositionEncoding(100.0),
        {"x": floats("T", 6)},
        reference=reference.sine_positions,
    ),
    Case("table", lambda: layers.SineTable(100.0), {"x": floats(5, 6)}, reference=reference.sine_positions),
    Case(
        "learned",
        lambda: layers.PositionEmbedding(9),
        {"x": floats("T", 6)},
        reference=reference.learned_positions,
    ),
)


def encoding(positions, dim):
    """The sinusoids of `positions`: (T, D)."""
    x = np.zeros((1, len(positions), dim), "float32")
    return ops.convert_to_numpy(layers.SinePositionEncoding()(x, positions=np.asarray(positions)))[0]


def frequencies(dim):
    return 10_000.0 ** (-2 * np.arange(dim // 2) / dim)


# Sinusoids ----------------------------------------------------------------------------------------


def test_values_by_hand():
    np.testing.assert_array_equal(encoding([0], 8)[0], [0, 1, 0, 1, 0, 1, 0, 1])
    np.testing.assert_allclose(encoding([0, 1], 4)[1], [0.84147, 0.54030, 0.0099998, 0.99995], rtol=1e-5)


def test_frequencies_start_at_one():
    """[1, .1, .01, .001] for 8 components; the second is .750 for 64 and .965 for 512."""
    np.testing.assert_allclose(np.arcsin(encoding([0, 1], 8)[1, ::2]), [1, 0.1, 0.01, 0.001], rtol=1e-4)
    for dim, second in ((64, 0.750), (512, 0.965)):
        np.testing.assert_allclose(np.arcsin(encoding([0, 1], dim)[1, 2]), second, atol=5e-4)


def test_norm_and_products_depend_on_distance_alone():
    table = encoding(np.arange(60), 8)
    np.testing.assert_allclose((table**2).sum(-1), 4, rtol=1e-6)
    np.testing.assert_allclose([table[t] @ table[t + 3] for t in (0, 7, 50)], 1.96489, rtol=1e-5)
    distances = np.linalg.norm(table[5:] - table[:-5], axis=-1)
    np.testing.assert_allclose(distances, distances[0], rtol=1e-5)


def test_rows_are_distinct_and_bounded():
    table = encoding(np.arange(2048), 8)
    assert len(np.unique(table, axis=0)) == 2048
    assert np.abs(table).max() <= 1


def test_a_shift_is_a_linear_map():
    """p(t + n) = T(n) p(t), T a diagonal of blocks that turn each (sin, cos) pair by omega n."""
    dim, shift = 8, 11
    matrix = np.zeros((dim, dim))
    for k, omega in enumerate(frequencies(dim)):
        cosine, sine = np.cos(omega * shift), np.sin(omega * shift)
        matrix[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = [[cosine, sine], [-sine, cosine]]
    table = encoding(np.arange(40), dim)
    np.testing.assert_allclose(table[:-shift] @ matrix.T, table[shift:], atol=1e-5)


def test_every_pair_is_a_clock_hand_of_length_one():
    """Each (sin, cos) pair lies on a circle of radius 1 around the embedding, and turns by -omega a step."""
    embedding = np.random.normal(size=(1, 1, 6)).astype("float32")
    turned = layers.SinePositionEncoding()(np.broadcast_to(embedding, (1, 30, 6))) - embedding
    hands = ops.convert_to_numpy(turned)[0].reshape(30, 3, 2)
    np.testing.assert_allclose(np.linalg.norm(hands, axis=-1), 1, rtol=1e-5)
    angles = np.unwrap(np.arctan2(hands[..., 1], hands[..., 0]), axis=0)
    np.testing.assert_allclose(np.diff(angles, axis=0), np.broadcast_to(-frequencies(6), (29, 3)), atol=1e-4)


def test_positions_may_be_given_per_row():
    x = np.random.normal(size=(2, 3, 4)).astype("float32")
    positions = np.array([[0, 1, 2], [7, 0, 5]])
    for layer in (layers.SinePositionEncoding(), layers.PositionEmbedding(8)):
        y = ops.convert_to_numpy(layer(x, positions=positions))
        for row in range(2):
            np.testing.assert_allclose(y[row], layer(x, positions=positions[row])[row], atol=1e-6)


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match=r"width D must be even.*it is 5"):
        layers.SinePositionEncoding()(np.zeros((1, 2, 5), "float32"))
    with pytest.raises(ValueError, match="`key_dim`, must be even to rotate pairs; it is 3"):
        layers.MultiHeadAttention(2, position=layers.RotaryEmbedding())(np.zeros((1, 2, 6), "float32"))


# Learned positions --------------------------------------------------------------------------------


def test_a_longer_sequence_is_refused():
    layer = layers.PositionEmbedding(4)
    with pytest.raises(ValueError, match="at most `max_length` = 4 positions; it has 5"):
        layer(np.zeros((1, 5, 2), "float32"))
    with pytest.raises(ValueError, match="`max_length` must be at least 1; it is 0"):
        layers.PositionEmbedding(0)


def test_a_position_outside_the_table_is_never_clamped():
    """Where the length is unknown the call cannot refuse: XLA gives NaN, the rest is right."""
    layer = layers.PositionEmbedding(4)
    layer.build((None, None, 2))
    call = tf.function(layer.call, autograph=False, jit_compile=True)
    y = call(tf.zeros((1, 3, 2)), positions=tf.constant([3, 4, -1]))[0]
    np.testing.assert_allclose(y[0], layer.embedding.embeddings[3])
    assert np.isnan(y[1:]).all()


# Positions inside attention -----------------------------------------------------------------------


def attention(position, dim=8, **arguments):
    layer = layers.MultiHeadAttention(2, position=position, **arguments)
    layer.build((None, None, dim))
    contract.randomise(layer, seed=3)
    return layer


def test_rotation_leaves_scores_that_depend_on_distance_alone():
    rotary = layers.RotaryEmbedding(100.0)
    query, key = np.random.normal(size=(2, 1, 1, 1, 8)).astype("float32")
    scores = []
    for t, s in ((0, 3), (7, 10), (50, 53), (0, 4)):
        turned, _ = rotary.rotate(query, query, np.array([t]))
        _, other = rotary.rotate(key, key, key_positions=np.array([s]))
        scores.append(float(ops.sum(turned * other)))
    np.testing.assert_allclose(scores[:3], scores[0], rtol=1e-4)
    assert abs(scores[3] - scores[0]) > 1e-2


def test_rotation_at_position_zero_is_none_and_keeps_lengths():
    x = np.random.normal(size=(1, 2, 3, 6)).astype("float32")
    turned, _ = layers.RotaryEmbedding().rotate(x, x)
    np.testing.assert_array_equal(turned[:, :, 0], x[:, :, 0])
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-6)


def test_rotation_by_hand():
    """At width 4, component k turns with component k + 2: by t and by t / 100."""
    x = np.array([1, 2, 0, 0], "float32") * np.ones((1, 1, 2, 1), "float32")
    turned, _ = layers.RotaryEmbedding().rotate(x, x)
    expected = [np.cos(1), 2 * np.cos(0.01), np.sin(1), 2 * np.sin(0.01)]
    np.testing.assert_allclose(turned[0, 0, 1], expected, rtol=1e-6)


POSITIONS = {
    "rotary": layers.RotaryEmbedding,
    "shaw": lambda: layers.RelativePositionEmbedding(2),
    "buckets": lambda: layers.RelativePositionBias(6, 4),
}


@pytest.mark.parametrize("position", POSITIONS)
def test_in_cross_attention_each_side_counts_its_own_positions(position):
    """Whole, a position at a time against the cached context, and in two beams for each context."""
    layer = layers.MultiHeadAttention(2, position=POSITIONS[position](), scale=0.7)
    query, context = (np.random.normal(size=(2, n, 8)).astype("float32") for n in (5, 3))
    layer.build(query.shape, context.shape)
    contract.randomise(layer, seed=3)
    y = ops.convert_to_numpy(layer(query, context))
    np.testing.assert_allclose(y, reference.attention(layer, query, context), atol=1e-5)
    cache = layer.start_context(context)
    for t in range(5):
        one = query[:, t : t + 1]
        stepped = layer.step_context(one, cache, ops.arange(t, t + 1))
        np.testing.assert_allclose(stepped, y[:, t : t + 1], atol=1e-5)
        assert t == 0 or np.abs(layer(one, context) - y[:, t : t + 1]).max() > 1e-3
    beams = layer.step_context(np.repeat(query, 2, axis=0), cache)
    np.testing.assert_allclose(beams, np.repeat(y, 2, axis=0), atol=1e-5)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_decoder_steps_as_it_is_called_with_positions_in_cross_attention(position):
    def attention(causal):
        return layers.Residual(layers.MultiHeadAttention(2, position=POSITIONS[position]()), causal=causal)

    feedforward = layers.Residual(layers.FeedForward(9))
    parts = {"attention": attention(True), "context_attention": attention(False), "feedforward": feedforward}
    layer = FlatBlock(parts)
    x, context = (np.random.normal(size=(2, n, 8)).astype("float32") for n in (4, 3))
    layer.build(x.shape, context.shape)
    contract.randomise(layer, seed=3)
    cache, pieces = layer.start(2, 4, context), []
    for piece in np.split(x, [1, 3], axis=1):
        y, cache = layer.step(piece, cache)
        pieces.append(y)
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), layer(x, context), atol=1e-5)


@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
def test_the_layers_scale_is_that_of_shaws_scores_too(scale):
    """The vectors of distances are added to the keys, and the sum is what is scaled (eq. 4)."""
    layer = attention(layers.RelativePositionEmbedding(2), scale=scale)
    x = np.random.normal(size=(2, 6, 8)).astype("float32")
    np.testing.assert_allclose(layer(x), reference.attention(layer, x), atol=1e-5)


@pytest.mark.parametrize("with_values", [True, False])
def test_shaw_embeddings_of_zero_change_nothing(with_values):
    layer = attention(layers.RelativePositionEmbedding(2, with_values))
    plain = attention(None)
    plain.set_weights([w.numpy() for w in layer.weights if "table" not in w.path])
    x = np.random.normal(size=(2, 6, 8)).astype("float32")
    assert np.abs(layer(x) - plain(x)).max() > 1e-2
    layer.position.set_weights([np.zeros(w.shape) for w in layer.position.weights])
    np.testing.assert_allclose(layer(x), plain(x), atol=1e-6)


@pytest.mark.parametrize(
    "position", [layers.RotaryEmbedding, layers.RelativePositionEmbedding, layers.RelativePositionBias]
)
def test_shifting_all_positions_changes_nothing(position):
    """Padding on the left moves every position: what is relative does not notice."""
    layer = attention(position())
    x = np.random.normal(size=(2, 6, 8)).astype("float32")
    shifted = np.concatenate([np.ones((2, 5, 8), "float32"), x], axis=1)
    y = layer(shifted, mask=np.arange(11)[None] >= 5)
    np.testing.assert_allclose(y[:, 5:], layer(x), atol=1e-5)


@pytest.mark.parametrize("kind", [
    layers.RotaryEmbedding, layers.RelativePositionEmbedding, layers.RelativePositionBias])  # fmt: skip
def test_each_row_may_have_positions_of_its_own(kind):
    """(B, T) and (B, S) are what (T,) and (S,) are to each row alone."""
    position = attention(kind()).position
    query, key = (np.random.normal(size=(3, 2, n, 4)).astype("float32") for n in (4, 6))
    weights = np.random.random((3, 2, 4, 6)).astype("float32")
    places, key_places = np.random.randint(0, 40, (3, 4)), np.random.randint(0, 40, (3, 6))

    def outputs(query, key, weights, places, key_places):
        found = [
            *position.rotate(query, key, places, key_places),
            position.scores(query, key, places, key_places, 0.5),
            position.values(weights, places, key_places),
        ]
        return [np.asarray(x) for x in found if x is not None]

    together = outputs(query, key, weights, places, key_places)
    moved = outputs(query, key, weights, places + 1, key_places)
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(together, moved, strict=True))
    for i in range(3):
        rows = (x[i : i + 1] for x in (query, key, weights))
        alone = outputs(*rows, places[i], key_places[i])
        for one, all_rows in zip(alone, together, strict=True):
            np.testing.assert_allclose(all_rows[i : i + 1], one, atol=1e-5)


def test_shaw_distances_are_clipped():
    """Beyond the limit all distances share a row of the table."""
    position = layers.RelativePositionEmbedding(2)
    attention(position)
    query = np.ones((1, 1, 1, 4), "float32")
    scores = position.scores(query, None, np.array([4]), np.arange(9), 0.5)[0, 0, 0]
    rows = ops.convert_to_numpy(ops.sum(position.key_table, -1)) / 2
    np.testing.assert_allclose(scores, rows[[0, 0, 0, 1, 2, 3, 4, 4, 4]], rtol=1e-5)


@pytest.mark.parametrize(("bidirectional", "expected"), [
    (True, {0: 0, -1: 1, -7: 7, -8: 8, -15: 9, -16: 10, -127: 15, -500: 15, 1: 17, 7: 23, 127: 31, 500: 31}),
    (False, {0: 0, 3: 0, 500: 0, -1: 1, -15: 15, -16: 16, -31: 21, -32: 21, -127: 31, -128: 31, -500: 31}),
])  # fmt: skip
def test_buckets_by_hand(bidirectional, expected):
    buckets = layers.RelativePositionBias(32, 128, bidirectional).buckets(np.array(list(expected), "int32"))
    np.testing.assert_array_equal(buckets, list(expected.values()))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 16), (12, 50)])
def test_buckets_are_monotone_and_all_used(num_buckets, max_distance, bidirectional):
    position = layers.RelativePositionBias(num_buckets, max_distance, bidirectional)
    past = ops.convert_to_numpy(position.buckets(-np.arange(2 * max_distance, dtype="int32")))
    future = ops.convert_to_numpy(position.buckets(np.arange(2 * max_distance, dtype="int32")))
    assert (np.diff(past) >= 0).all() and past[max_distance] == past[-1]
    used = set(past) | set(future)
    unused = {num_buckets // 2} if bidirectional else set()  # a distance of 0 has no direction
    assert used == set(range(num_buckets)) - unused
    assert bidirectional or (future == 0).all()


def test_impossible_buckets_are_refused():
    for arguments in ((3, 128), (32, 8), (1, 128, False)):
        with pytest.raises(ValueError, match="`num_buckets` must be at least"):
            layers.RelativePositionBias(*arguments)
    with pytest.raises(ValueError, match="`max_distance` must be at least 1; it is 0"):
        layers.RelativePositionEmbedding(0)
