"""Caches whose entries a group of sequences shares: what beams see after they are reordered."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.layers import MultiHeadAttention
from keras_tfm.layers.attention.positions import (
    RelativePositionBias,
    RelativePositionEmbedding,
    RotaryEmbedding,
)
from keras_tfm.layers.cache import PastCache, map_rows, repeat_rows

NUM_PROMPTS, WIDTH, LENGTH, DIM = 2, 3, 9, 16


@pytest.mark.parametrize("position", [None, RotaryEmbedding, RelativePositionEmbedding, RelativePositionBias])
def test_reordered_beams_attend_to_their_ancestors(position):
    """Each step beams move at random within their prompt; each then equals its own history, read whole."""
    rng = np.random.default_rng(0)
    layer = MultiHeadAttention(2, position=position and position())
    layer.build((None, None, DIM))
    prompts = rng.normal(size=(NUM_PROMPTS, 3, DIM)).astype("f")
    padding = np.array([[False, True, True], [True, True, True]])
    _, cache = layer.step(prompts, layer.start(NUM_PROMPTS, LENGTH), padding)
    cache = repeat_rows(cache, WIDTH)
    histories, seen = np.repeat(prompts, WIDTH, axis=0), np.repeat(padding, WIDTH, axis=0)
    for _ in range(LENGTH - 3):
        parents = np.concatenate([p * WIDTH + rng.integers(0, WIDTH, WIDTH) for p in range(NUM_PROMPTS)])
        cache = map_rows(lambda x, rows=parents: np.asarray(x)[rows], cache)
        x = rng.normal(size=(NUM_PROMPTS * WIDTH, 1, DIM)).astype("f")
        histories = np.concatenate([histories[parents], x], axis=1)
        seen = np.concatenate([seen[parents], np.ones((len(x), 1), bool)], axis=1)
        y, cache = layer.step(x, cache)
        expected = layer(histories, mask=seen[:, None, :], causal=True)
        np.testing.assert_allclose(y, expected[:, -1:], atol=1e-5)


def test_single_sequences_move_with_their_entries():
    rng = np.random.default_rng(0)
    layer = MultiHeadAttention(2)
    layer.build((None, None, DIM))
    x = rng.normal(size=(3, 4, DIM)).astype("f")
    _, cache = layer.step(x, layer.start(3, LENGTH))
    rows = [2, 2, 0, 1]
    moved = map_rows(lambda x: np.asarray(x)[rows], cache)
    more = rng.normal(size=(4, 2, DIM)).astype("f")
    y, _ = layer.step(more, moved)
    expected = layer(np.concatenate([x[rows], more], axis=1), causal=True)
    np.testing.assert_allclose(y, expected[:, -2:], atol=1e-5)


@pytest.mark.parametrize("room", [4, 5, 16])
@pytest.mark.parametrize("window", [None, 3])
def test_room_behind_the_past_is_no_distance(room, window):
    """Entries of a caller stand before their room, new ones behind it."""
    entries = np.zeros((1, 1, room, 2), "f")
    past = PastCache(entries, entries, np.arange(room)[None] < 4, 4)
    new = np.zeros((1, 1, 2, 2), "f")
    mask = np.array(past.append(new, new).attention_mask(new, window))[0, 0]
    assert not mask[:, 4:room].any()
    seen = np.concatenate([mask[:, :4], mask[:, room:]], 1)
    allowed = np.tril(np.ones((6, 6), bool)) & ~np.tril(np.ones((6, 6), bool), -(window or 6))
    np.testing.assert_array_equal(seen, allowed[4:])


def test_a_step_beyond_the_last_position_is_refused():
    layer = MultiHeadAttention(2)
    layer.build((None, None, DIM))
    x = np.ones((1, 3, DIM), "f")
    _, cache = layer.step(x, layer.start(1, 5))
    with pytest.raises(ValueError, match="room for `max_length` = 5 positions; a step ends at 6"):
        layer.step(x, cache)
    y, _ = tf.function(layer.step, autograph=False)(x, cache)
    assert np.isnan(y).all()
    y, _ = tf.function(layer.step, autograph=False)(x[:, :2], cache)
    assert np.isfinite(y).all()
