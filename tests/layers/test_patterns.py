"""Attention by patterns: the contract, pictures of what is seen, caches with padding and beams."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm import layers
from keras_tfm.layers import BlockPattern, GridPattern, HeadProjections, PatternAttention, TilePattern
from keras_tfm.layers.attention.patterns import tiles
from keras_tfm.layers.cache import map_rows, repeat_rows
from tests import contract
from tests.contract import Case, floats, randomise

WIDTH = 6


def attention(kind):
    pattern = GridPattern(kind, columns=2, prefix=1, kernel_size=2)
    return PatternAttention(HeadProjections(2), pattern, dropout=0.1)


def start(layer, inputs, max_length):
    return layer.start(len(inputs["query"]), max_length)


test_contract = contract.check(
    *(
        Case(
            kind,
            lambda kind=kind: attention(kind),
            {"query": floats("T", WIDTH)},
            {"causal": True},
            attends=True,
            causal="T",
            cache=start,
            without_effect=("query_key_value/bias",),
        )
        for kind in ("row", "convolution")
    )
)

PICTURES = {
    "row": "....\n11q.\n....",
    "column": "..1.\n..q.\n....",
    "convolution": ".11.\n.1q.\n....",
    "full": "1111\n11q.\n....",
}


@pytest.mark.parametrize("kind", PICTURES)
def test_what_a_cell_sees(kind):
    """Cell (1, 2) of a picture of 3 x 4 behind two tokens of text."""
    pattern = GridPattern(kind, columns=4, prefix=2, kernel_size=2)
    seen = np.asarray(pattern(np.arange(14), np.arange(14))) & np.tri(14, dtype=bool)
    assert seen[:2, :2].tolist() == [[True, False], [True, True]]  # the text
    assert seen[2:, :2].all()
    rows = [["1" if x else "." for x in row] for row in seen[8, 2:].reshape(3, 4)]
    rows[1][2] = "q"
    assert "\n".join(map("".join, rows)) == PICTURES[kind]


def seen_by(pattern, query, rows, columns):
    """The earlier cells that a query sees of a picture, and the query."""
    places = np.arange(rows * columns)
    row = np.asarray(pattern(places, places))[query] & (places <= query)
    text = "".join("q" if i == query else "1" if x else "." for i, x in enumerate(row))
    return [text[i * columns : (i + 1) * columns] for i in range(rows)]


def test_blocks_and_tiles():
    assert seen_by(BlockPattern(3), 7, 1, 12) == ["...1111q...."]
    assert seen_by(BlockPattern(3), 3, 1, 12) == ["111q........"]
    pattern = TilePattern((2, 3), margin=(1, 2), columns=9)
    # The tile is rows 2 and 3, columns 3 to 5.
    assert seen_by(pattern, 3 * 9 + 4, 5, 9) == [
        ".........",
        ".1111111.",
        ".1111111.",
        ".111q....",
        ".........",
    ]
    assert seen_by(pattern, 4 * 9, 5, 9)[2:] == [".........", "11111....", "q........"]


PATTERNS = {
    "row": GridPattern("row", 6, prefix=5),
    "column": GridPattern("column", 6, prefix=3),
    "convolution": GridPattern("convolution", 6, prefix=2, kernel_size=2),
    "full": GridPattern("full", 6),
    "block": BlockPattern(7),
    "tile": TilePattern((2, 3), (1, 1), columns=9),
}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 41, 60])
@pytest.mark.parametrize("name", PATTERNS)
def test_tiles_hold_what_their_queries_see(name, length, causal):
    pattern, places = PATTERNS[name], np.arange(length)
    expected = pattern.call(places, places) & (np.tri(length, dtype=bool) | (not causal))
    found = tiles(pattern, length, causal)
    if found is None:
        assert name != "block" or length == 1
        return
    assert 2 * found.queries.size * found.keys.shape[1] < length**2
    seen = np.zeros((length + 1, length + 1), bool)
    for queries, keys in zip(found.queries, found.keys, strict=True):
        seen[np.ix_(queries, keys)] = True
    assert (seen[:length, :length] >= expected).all()
    np.testing.assert_array_equal(found.queries.ravel()[found.places], places)


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("name", ["row", "column", "block", "tile"])
def test_tiles_give_what_all_scores_give(name, is_masked, monkeypatch):
    """Outputs and gradients, with padding of some rows; a row of the batch is padding alone."""
    rng = np.random.default_rng(3)
    layer, length = PatternAttention(HeadProjections(2), PATTERNS[name]), 130
    x = tf.constant(rng.normal(size=(3, length, WIDTH)), "float32")
    mask = np.arange(length) < np.array([[length], [57], [0]]) if is_masked else None
    layer.build(x.shape)
    randomise(layer, 1)
    assert tiles(PATTERNS[name], length)

    def outputs():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, mask=mask, causal=True)
            loss = tf.reduce_sum(y * tf.sin(tf.range(WIDTH, dtype="float32")))
        return y, *tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)])

    found = outputs()
    monkeypatch.setattr(PatternAttention, "_tiles", lambda *args: None)
    for y, expected in zip(found, outputs(), strict=True):
        assert np.isfinite(y).all()
        np.testing.assert_allclose(y, expected, atol=2e-6 * max(1, np.abs(expected).max()))


def test_padding_before_a_prompt_takes_no_position():
    layer = attention("row")
    x = np.random.default_rng(0).normal(size=(2, 7, WIDTH)).astype("float32")
    layer.build(x.shape)
    randomise(layer, 1)
    expected = np.asarray(layer(x, causal=True))
    padded = np.concatenate([np.ones((2, 3, WIDTH), "float32"), x], axis=1)
    mask = np.arange(10) >= np.full((2, 1), 3)
    cache = layer.start(2, 12)
    y, cache = layer.step(ops.convert_to_tensor(padded[:, :6]), cache, mask[:, :6])
    np.testing.assert_allclose(y[:, 3:], expected[:, :3], atol=1e-5)
    y, cache = layer.step(ops.convert_to_tensor(padded[:, 6:]), cache)
    np.testing.assert_allclose(y, expected[:, 3:], atol=1e-5)


def test_beams_see_their_own_rows():
    """Three beams of each of two inputs; after two steps the beams of an input swap places."""
    layer = attention("row")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, WIDTH)).astype("float32")
    more = rng.normal(size=(6, 4, WIDTH)).astype("float32")
    layer.build(x.shape)
    randomise(layer, 1)
    _, cache = layer.step(ops.convert_to_tensor(x), layer.start(2, 8))
    cache = repeat_rows(cache, 3)
    _, cache = layer.step(ops.convert_to_tensor(more[:, :2]), cache)
    order = np.array([1, 1, 0, 5, 3, 4])
    cache = map_rows(lambda rows: ops.take(rows, order, axis=0), cache)
    y, _ = layer.step(ops.convert_to_tensor(more[:, 2:]), cache)
    whole = np.concatenate([np.repeat(x, 3, axis=0), more[order][:, :2], more[:, 2:]], axis=1)
    np.testing.assert_allclose(y, np.asarray(layer(whole, causal=True))[:, 5:], atol=1e-5)


def test_refusals():
    with pytest.raises(
        ValueError, match="`kind` must be one of full, row, column, convolution; it is 'rows'"
    ):
        GridPattern("rows", 3)
    with pytest.raises(ValueError, match="`columns` must be at least 1; it is 0"):
        GridPattern("row", 0)
    with pytest.raises(ValueError, match="`length` must be at least 1; it is 0"):
        BlockPattern(0)
    with pytest.raises(ValueError, match=r"`margin` must be at least 0; it is \(0, -1\)"):
        TilePattern((1, 1), (0, -1), 3)
    for options in (
        {"position": layers.RelativePositionBias()},
        {"on_scores": layers.TopK(3)},
        {"on_weights": keras.layers.Identity()},
    ):
        with pytest.raises(ValueError, match="scores are computed in tiles"):
            PatternAttention(HeadProjections(2), BlockPattern(7), **options)
