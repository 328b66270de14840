"""Patterns of heads that are built to follow one score 1, exactly; and how far heads look."""

import numpy as np
import pytest

from keras_tfm.layers.positions import sines
from keras_tfm.visualize import PATTERNS, attention_distance, attention_patterns

TOKENS = ["[CLS]", "the", "cat", "the", "[SEP]", "the", "cat", "ran", "fast", "[SEP]"]
SEGMENTS = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
T = len(TOKENS)


def heads():
    """A head for each pattern, in the order of PATTERNS: (H, T, T)."""
    following = np.roll(np.eye(T), 1, axis=1)  # the last token looks at the first
    across = np.eye(T)  # "the" at 1 and 3 looks at "the" at 5, which looks at both; "cat" at "cat"
    across[[1, 3, 2, 6]] = np.eye(T)[[5, 5, 6, 2]]
    across[5] = (np.eye(T)[1] + np.eye(T)[3]) / 2
    same = across.copy()
    same[[1, 3]] = (np.eye(T)[[3, 1]] + np.eye(T)[5]) / 2
    segment = np.kron(np.eye(2), np.full((5, 5), 1 / 5))
    null = np.eye(T)[[0, 4, 9, 0, 4, 9, 0, 4, 9, 0]]
    return np.stack([following, following.T, across, same, segment, null, np.full((T, T), 1 / T)])


def test_a_head_that_follows_a_pattern_scores_one():
    found = attention_patterns(heads(), TOKENS, SEGMENTS)
    for number, name in enumerate(PATTERNS):
        assert getattr(found, name)[0, number] == pytest.approx(1, abs=1e-12), name
    assert found.strongest() == [list(PATTERNS)]
    assert found.broad[0, 0] == found.previous[0, 0] == 0
    rows = found.table()
    assert [row["strongest"] for row in rows] == [*PATTERNS]
    assert (rows[0]["layer"], rows[0]["head"], rows[0]["next"]) == ("attention", 0, 1.0)


def test_padding_counts_neither_as_query_nor_as_key():
    short = attention_patterns(heads(), TOKENS, SEGMENTS)
    padded = np.random.default_rng(0).uniform(size=(2, len(PATTERNS), T + 3, T + 3))
    padded[:, :, :T, T:] = 0
    padded[:, :, :T, :T] = heads()
    found = attention_patterns({"a": padded}, [TOKENS] * 2, [SEGMENTS] * 2)
    for name in PATTERNS:
        np.testing.assert_allclose(getattr(found, name), getattr(short, name), rtol=1e-12)


def test_what_there_is_nothing_to_measure_of():
    found = attention_patterns({"a": np.eye(3)[None], "b": np.stack([np.eye(3)] * 2)}, ["a", "b", "c"])
    assert all(np.isnan(getattr(found, name)).all() for name in PATTERNS if name.startswith("same"))
    assert np.isnan(found.null).tolist() == [[False, True], [False, False]]
    assert list(map(len, found.strongest())) == [1, 2]
    assert len(found.table()) == 3


def test_causal_heads_are_broad_over_what_they_see():
    causal = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None]
    found = attention_patterns(causal[None], list("abcde"))
    np.testing.assert_allclose(found.broad, 1)
    assert found.next[0, 0] == 0


@pytest.mark.parametrize("shift, name", [(1, "next"), (-1, "previous")])
def test_positions_can_make_a_head_recurrent(shift, name):
    """Queries that are the sines of the next position, c times as large, find it among the keys."""
    positions = np.asarray(sines(np.arange(42), 64), "float64")
    keys, least = positions[1:41], []
    for c in (5, 20, 50):
        scores = c * positions[1 + shift : 41 + shift] @ keys.T / np.sqrt(64)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        found = attention_patterns(weights[None], [f"{i}" for i in range(40)])
        diagonal = np.diagonal(weights, shift)
        np.testing.assert_allclose(getattr(found, name), diagonal.mean())
        least.append(diagonal.min())
    np.testing.assert_allclose(least, [0.43, 0.88, 0.998], atol=0.01)


def test_what_is_no_self_attention_of_the_tokens():
    with pytest.raises(ValueError, match="it has 2 x 3"):
        attention_patterns({"a": np.ones((1, 1, 2, 3))}, ["a", "b"])
    with pytest.raises(ValueError, match="but `tokens` are 2"):
        attention_patterns(np.ones((1, 1, 1)), ["a", "b"])
    with pytest.raises(ValueError, match="`segments` must be one for each of 2"):
        attention_patterns(np.ones((1, 2, 2)), ["a", "b"], [0])
    with pytest.raises(ValueError, match="got the shape"):
        attention_patterns(np.ones(3), ["a"])
    with pytest.raises(ValueError, match="they are empty"):
        attention_patterns({}, ["a"])


def test_distances_in_pixels():
    """ViT-B/16 at 224 x 224: to all patches alike 116.5 pixels, to itself none."""
    patches = 14 * 14
    weights = np.zeros((2, 3, patches + 1, patches + 1))
    weights[:, 0] = 1 / (patches + 1)  # with the class token, which is left out
    weights[:, 1] = np.eye(patches + 1)
    weights[:, 2, :, 0] = 0.5
    weights[:, 2] += np.roll(np.eye(patches + 1), 1, axis=1) / 2
    distances = attention_distance({"block": weights}, (14, 14), 16)
    assert distances.shape == (1, 3)
    np.testing.assert_allclose(distances[0, :2], [116.5, 0], atol=0.05)
    (step,) = attention_distance(np.roll(np.eye(6), 1, axis=1)[None], (2, 3), (2, 4))[0]
    np.testing.assert_allclose(step, (4 * 4 + np.hypot(2, 8) * 2) / 6)


def test_distances_need_the_patches():
    with pytest.raises(ValueError, match="expected 4 patches or more"):
        attention_distance(np.ones((1, 3, 3)), (2, 2))
