"""Plain text in blocks: what stands in them, what they lose (nothing), and where they go on."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import ByteLevelTokenizer, CharacterTokenizer, TextBlocks
from keras_tfm.data.batches import blocks as module

LETTERS = CharacterTokenizer("abcdefg")
A, B, C, D, E, F, G = range(4, 11)
START, END = 1, 2


def batches(blocks, epoch=0):
    return list(blocks.dataset(epoch).as_numpy_iterator())


def test_the_figure_of_the_header():
    blocks = TextBlocks(["abcde", "fg"], LETTERS, max_length=4, batch_tokens=12, min_batches=1)
    ((inputs, labels, weights),) = batches(blocks)
    np.testing.assert_array_equal(inputs["token_ids"], [[START, A, B, C], [D, E, START, F], [G, 0, 0, 0]])
    np.testing.assert_array_equal(labels, [[A, B, C, D], [E, END, F, G], [END, 0, 0, 0]])
    np.testing.assert_array_equal(inputs["segment_ids"], [[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]])
    np.testing.assert_array_equal(weights, [[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]])
    np.testing.assert_array_equal(inputs["padding_mask"], weights > 0)
    assert (blocks.num_tokens, blocks.num_bytes, blocks.num_blocks) == (9, 7, 3)


def pairs_of(batches):
    """All (token, label) that count, sorted."""
    rows = [(i["token_ids"], y, w > 0) for i, y, w in batches]
    return sorted((int(x), int(y)) for ids, labels, is_real in rows
                  for x, y in zip(ids[is_real], labels[is_real], strict=True))  # fmt: skip


@given(
    texts=st.lists(st.text("abcdefg", max_size=9), min_size=1, max_size=6).filter(any),
    length=st.integers(1, 12),
    rows=st.integers(1, 4),
    epoch=st.integers(0, 3),
)
def test_an_epoch_predicts_every_token_once(texts, length, rows, epoch):
    blocks = TextBlocks(texts, LETTERS, max_length=length, batch_tokens=rows * length, seed=5)
    expected = []
    for text in texts:
        ids = [START, *("abcdefg".index(letter) + 4 for letter in text), END]
        expected += itertools.pairwise(ids)
    drawn = batches(blocks, epoch)
    assert pairs_of(drawn) == sorted(expected)
    assert len(drawn) == blocks.num_batches and len({b[1].shape for b in drawn}) == 1
    for inputs, labels, weights in drawn:
        assert not inputs["token_ids"][weights == 0].any() and not labels[weights == 0].any()


def test_segments_change_where_a_document_begins():
    blocks = TextBlocks(["ab", "cd", "efg"], LETTERS, max_length=5, batch_tokens=5, seed=1)
    for epoch in range(4):
        for inputs, _, weights in batches(blocks, epoch):
            ids, segments = inputs["token_ids"][0], inputs["segment_ids"][0]
            steps = np.diff(segments)[weights[0, 1:] > 0]
            np.testing.assert_array_equal(steps, (ids[1:] == START)[weights[0, 1:] > 0])


def test_epochs_are_drawn_by_number_and_seed():
    def drawn(seed, epoch):
        return np.stack([b[0]["token_ids"] for b in batches(TextBlocks(["abcdefg" * 9], LETTERS, max_length=4,
                         batch_tokens=8, seed=seed), epoch)])  # fmt: skip

    np.testing.assert_array_equal(drawn(3, 2), drawn(3, 2))
    assert (drawn(3, 2) != drawn(3, 1)).any() and (drawn(3, 2) != drawn(4, 2)).any()


def test_epochs_go_on_where_they_were_left(tmp_path):
    blocks = TextBlocks(["abcdefg" * 9, "gfe"], LETTERS, max_length=4, batch_tokens=8, seed=3)
    whole = [b[1] for b in blocks.epochs().take(2 * blocks.num_batches + 3).as_numpy_iterator()]
    expected = [b[1] for epoch in range(3) for b in batches(blocks, epoch)][: len(whole)]
    np.testing.assert_array_equal(whole, expected)
    iterator = iter(blocks.epochs())
    for _ in range(blocks.num_batches + 2):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "iterator"))
    other = iter(blocks.epochs())
    tf.train.Checkpoint(iterator=other).read(path)
    np.testing.assert_array_equal(next(other)[1], whole[blocks.num_batches + 2])


def test_an_epoch_may_be_fewer_batches_than_a_pass():
    """The next one goes on from there; a pass with fewer stays whole."""
    blocks = TextBlocks(["abcdefg" * 9], LETTERS, max_length=4, batch_tokens=8, seed=3)
    fewer = blocks.in_epochs_of(2)
    assert fewer.num_batches == 2 < blocks.num_batches
    for one, other in zip(fewer.epochs().take(blocks.num_batches), blocks.dataset(), strict=True):
        np.testing.assert_array_equal(one[1], other[1])
    for most in (None, 10_000):
        assert blocks.in_epochs_of(most).num_batches == blocks.num_batches


def test_short_texts_make_small_batches():
    blocks = TextBlocks(["abc"], LETTERS, max_length=256)
    assert (blocks.length, blocks.num_rows, blocks.num_batches) == (4, 1, 1)
    assert TextBlocks(["abcdefg" * 100], LETTERS, max_length=7, batch_tokens=10_000).num_batches >= 10
    with pytest.raises(ValueError, match="expected some text"):
        TextBlocks(["", ""], LETTERS)


def test_long_texts_are_tokenized_in_parts_as_whole(monkeypatch):
    text = "It's  late,\n\nvery late; we'll\tgo home. 12 345 Ελλάδα !? " * 40
    tokenizer = ByteLevelTokenizer.train([text], 300)
    whole, is_start = module._stream([text, "a b"], tokenizer)
    monkeypatch.setattr(module, "CHUNK", 7)
    assert len(list(module._chunks(text))) > 100 and "".join(module._chunks(text)) == text
    parts, flags = module._stream([text, "a b"], tokenizer)
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(is_start, flags)
    assert is_start.sum() == 2
    assert list(module._chunks("x" * 30)) == ["x" * 30]
