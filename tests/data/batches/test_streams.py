"""Batches of streams equal batches of the same text in memory, in any order, and exactly so after a
restart."""

import collections
import itertools
import pydoc_data.topics
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import (
    BERTTokenizer,
    ByteLevelTokenizer,
    CharacterTokenizer,
    Masking,
    SentencePairs,
    StreamBlocks,
    StreamSentencePairs,
    TextBlocks,
    TextStream,
    read_texts,
)
from keras_tfm.data.sources import text_stream

TEXT = "\n\n\n".join(pydoc_data.topics.topics.values())[:30_000]
START = 1


@pytest.fixture(scope="module")
def tokenizers():
    return {
        "characters": CharacterTokenizer.train([TEXT]),
        "bytes": ByteLevelTokenizer.train([TEXT], 400),
        "bert": BERTTokenizer.train(TEXT.splitlines(), 400),
    }


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two files, in some ten parts of several chunks."""
    monkeypatch.setattr(text_stream, "CHUNK", 2000)
    monkeypatch.setattr(text_stream, "PART", 4000)
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_text("A short one, é.\n\n\nAnother\n")
    return tmp_path


def same(first, second):
    assert len(first) == len(second) > 0
    for one, other in zip(first, second, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("separator", [None, pytest.param("\n\n\n", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["bytes", pytest.param("characters", marks=pytest.mark.slow)])
def test_in_their_order_blocks_are_those_of_the_text_in_memory(
    files, monkeypatch, tokenizers, kind, separator
):
    monkeypatch.setattr(
        text_stream, "PART", 10**6
    )  # all in one part, that ends in padding as a whole text does
    options = {"max_length": 64, "batch_tokens": 256}
    texts = read_texts([files / "a.txt", files / "b.txt"], separator)
    whole = TextBlocks(texts, tokenizers[kind], min_batches=1, **options)
    stream = TextStream(files / "*.txt", separator)
    blocks = StreamBlocks(stream, tokenizers[kind], epoch_batches=whole.num_batches - 1, **options)
    assert blocks.num_batches == whole.num_batches - 1 > 25
    same(list(blocks.dataset().as_numpy_iterator()), list(whole.dataset().as_numpy_iterator())[:-1])


def pairs_of(batches):
    """How often each (token, label) occurs."""
    return collections.Counter(
        pair
        for inputs, labels, weights in batches
        for pair in zip(inputs["token_ids"][weights > 0], labels[weights > 0], strict=True)
    )


def test_a_pass_predicts_every_token_once(files, tokenizers):
    """The parts end with documents here: not one label is lost, and what is shuffled is the same."""
    tokenizer = tokenizers["characters"]
    stream = TextStream(files / "*.txt", "\n\n\n")
    texts = read_texts([files / "a.txt", files / "b.txt"], "\n\n\n")
    ids = [[START, *row, tokenizer.end_id] for row in tokenizer.tokenize(texts).to_list()]
    expected = collections.Counter(pair for row in ids for pair in itertools.pairwise(row))
    num_rows = sum(1 for _ in rows_of_a_pass(stream, tokenizer))
    options = {"max_length": 50, "batch_tokens": 50, "epoch_batches": num_rows}
    in_order = list(StreamBlocks(stream, tokenizer, **options).dataset().as_numpy_iterator())
    assert len(stream.parts()) > 5 and pairs_of(in_order) == expected
    one_part_after_the_other = in_order[0][0]["token_ids"]
    drawn = list(
        StreamBlocks(stream, tokenizer, seed=2, buffer=num_rows, **options).dataset().as_numpy_iterator()
    )
    assert (drawn[0][0]["token_ids"] != one_part_after_the_other).any()
    assert sum(weights.sum() for *_, weights in drawn) > 0.8 * sum(expected.values())


def rows_of_a_pass(stream, tokenizer):
    blocks = StreamBlocks(stream, tokenizer, max_length=50, batch_tokens=50)
    return tf.data.Dataset.range(len(stream.parts())).flat_map(blocks._rows_of_part)


def test_segments_change_where_a_document_begins(files, tokenizers):
    stream = TextStream(files / "*.txt", "\n")
    blocks = StreamBlocks(
        stream, tokenizers["bytes"], max_length=40, batch_tokens=160, epoch_batches=60, seed=1
    )
    for inputs, labels, weights in blocks.dataset().as_numpy_iterator():
        ids, mask = inputs["token_ids"], weights > 0
        begins = ids == tokenizers["bytes"].start_id
        np.testing.assert_array_equal(inputs["segment_ids"], np.cumsum(begins, axis=1) * mask)
        np.testing.assert_array_equal(inputs["padding_mask"], mask)
        assert not ids[~mask].any() and not labels[~mask].any()
        follows = labels[:, :-1] == ids[:, 1:]
        assert (follows | begins[:, 1:] | ~mask[:, 1:]).all()


def made(kind, files, tokenizers, **options):
    stream = TextStream(files / "*.txt", "\n\n\n")
    options = {"epoch_batches": 20, "seed": 3, "buffer": 60, **options}
    if kind in ("characters", "bytes"):
        return StreamBlocks(stream, tokenizers[kind], max_length=40, batch_tokens=160, **options)
    masking = Masking.of(tokenizers["bert"], kind)
    return StreamSentencePairs(stream, tokenizers["bert"], masking, max_length=40, batch_size=4, **options)


@pytest.mark.parametrize("kind", [pytest.param("bytes", marks=pytest.mark.slow), "span"])
def test_an_iterator_goes_on_bit_for_bit(files, tokenizers, kind, tmp_path):
    """From whatever has been read, kept in the buffer or just drawn, in another process as in this one."""
    iterator = iter(made(kind, files, tokenizers).epochs())
    for _ in range(37):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "place"))
    rest = [next(iterator) for _ in range(60)]
    other = iter(made(kind, files, tokenizers).epochs())
    tf.train.Checkpoint(iterator=other).read(path).assert_consumed()
    same([next(other) for _ in rest], rest)


@pytest.mark.parametrize("kind", ["bytes", pytest.param("word", marks=pytest.mark.slow)])
def test_epochs_go_on_from_each_other_and_are_the_seed_s(files, tokenizers, kind):
    batches = made(kind, files, tokenizers)
    stream = batches.epochs().as_numpy_iterator()
    epochs = [[next(stream) for _ in range(20)] for _ in range(3)]
    tf.random.set_seed(99)  # which is of no account
    again = made(kind, files, tokenizers)
    same(epochs[2], list(again.dataset(2).as_numpy_iterator()))
    assert again.dataset(1).cardinality() == 20 == again.num_batches
    other = made(kind, files, tokenizers, seed=4).dataset().as_numpy_iterator()
    assert (next(other)[0]["token_ids"] != epochs[0][0][0]["token_ids"]).any()


def assert_alike(one, other):
    """Both have one shape and dtype."""
    assert (one.shape, one.dtype) == (tuple(other.shape), other.dtype.as_numpy_dtype)


def test_masked_texts_are_those_of_the_documents(files, tokenizers):
    tokenizer = tokenizers["bert"]
    texts = read_texts([files / "a.txt", files / "b.txt"], "\n\n\n")
    batches = made("token", files, tokenizers, epoch_batches=150, seed=0)
    whole = SentencePairs(
        texts, tokenizer, Masking.of(tokenizer), objective="none", max_length=40, batch_size=4
    )
    rows = tokenizer.tokenize(texts).to_list()
    found = set()
    for batch, other in zip(batches.dataset().as_numpy_iterator(), whole.epochs(), strict=False):
        inputs, labels, weights = batch
        tf.nest.map_structure(assert_alike, batch, other)
        ids = inputs["token_ids"].copy()
        for row, (places, labels_of_row, weights_of_row) in enumerate(
            zip(inputs["mask_positions"], labels, weights, strict=True)
        ):
            ids[row, places[weights_of_row > 0]] = labels_of_row[weights_of_row > 0]
            tokens = ids[row][inputs["padding_mask"][row]].tolist()
            assert tokens[0] == tokenizer.start_id and tokens[-1] == tokenizer.end_id
            found.add(tuple(tokens[1:-1]))
        assert (ids[~inputs["padding_mask"]] == tokenizer.pad_id).all() and not inputs["segment_ids"].any()
    expected = {tuple(row[i : i + 38]) for row in rows for i in range(0, len(row), 38)}
    assert found <= expected
    assert len(found) > 0.9 * len(expected)  # in two passes


def test_what_cannot_be_batched(files, tokenizers):
    stream = TextStream(files / "*.txt")
    masking = Masking.of(tokenizers["bert"])
    with pytest.raises(ValueError, match=r'expected "none", got .*; pairs need all documents'):
        StreamSentencePairs(stream, tokenizers["bert"], masking, objective="next")
    with pytest.raises(ValueError, match="max_length: expected 4 or more, got 3"):
        StreamSentencePairs(stream, tokenizers["bert"], masking, max_length=3)
    with pytest.raises(ValueError, match="expected 1 or more, got 0, 4096 and 16"):
        StreamBlocks(stream, tokenizers["bytes"], epoch_batches=0)


def test_a_text_shorter_than_a_row_is_read_again_and_again(tmp_path, tokenizers):
    (tmp_path / "a.txt").write_text("abc")
    stream = TextStream(tmp_path / "a.txt")
    blocks = StreamBlocks(
        stream, tokenizers["characters"], max_length=8, batch_tokens=16, epoch_batches=2, seed=0, buffer=4
    )
    for inputs, _, weights in blocks.dataset().as_numpy_iterator():
        assert weights.tolist() == [[1] * 5 + [0] * 3] * 2
        assert (inputs["token_ids"][0] == inputs["token_ids"][1]).all()


@pytest.mark.skipif(sys.platform == "darwin", reason="names are UTF-8 there")
def test_names_outside_utf_8_are_read(tmp_path, tokenizers):
    path = tmp_path / "caf\udce9.txt"
    path.write_text("A short one. " * 9)
    batches = StreamBlocks(TextStream([path]), tokenizers["bytes"], max_length=8, batch_tokens=16)
    assert next(iter(batches.dataset()))[1].shape == (2, 8)
