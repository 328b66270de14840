"""Span corruption and denoising: exact counts, statistics on a million tokens, nothing lost, reproducible."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from keras_tfm.data import (
    Denoising,
    DenoisingBatches,
    SentencePermutation,
    SpanCorruption,
    TextInfilling,
)
from keras_tfm.heads import LanguageModel, TokenCrossEntropy
from keras_tfm.models import T5, T5Config

SENTINELS = tuple(range(99, 49, -1))
CORRUPTION = SpanCorruption(SENTINELS, start_id=0, end_id=1)
MASK, STOP = 48, 7
INFILLING, PERMUTATION = TextInfilling(MASK), SentencePermutation([STOP])
SPECIAL = {"begin_id": 2, "end_id": 1, "pad_id": 0}
DENOISING = Denoising([PERMUTATION, INFILLING], **SPECIAL)


def texts(lengths, seed=0):
    """Ids 3 .. 47, of which one is a full stop."""
    lengths = np.asarray(lengths, "int64")
    ids = np.random.default_rng(seed).integers(3, 48, lengths.sum(), "int32")
    return tf.RaggedTensor.from_row_lengths(ids, lengths)


def rows(batch):
    """(source, target) of each text as lists, paddings left out, and what the batch promises of them."""
    inputs, labels, weights = (tf.nest.map_structure(np.asarray, part) for part in batch)
    mask, decoder_mask = inputs["padding_mask"], inputs["decoder_padding_mask"]
    np.testing.assert_array_equal(weights, decoder_mask)
    np.testing.assert_array_equal(
        inputs["decoder_token_ids"][:, 1:], (labels * decoder_mask)[:, :-1] * decoder_mask[:, 1:]
    )
    assert (inputs["token_ids"][~mask] == 0).all() and (labels[~decoder_mask] == 0).all()
    sources = [row[is_token].tolist() for row, is_token in zip(inputs["token_ids"], mask, strict=True)]
    targets = [row[is_token].tolist() for row, is_token in zip(labels, decoder_mask, strict=True)]
    return list(zip(sources, targets, strict=True))


def mended(source, target):
    """The text, each sentinel of the source replaced by what the target says of it."""
    spans, current = {}, None
    assert source[-1] == target[-1] == 1
    for token in target[:-1]:
        if token in SENTINELS:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    assert list(spans) == list(SENTINELS[: len(spans)])
    assert [token for token in source if token in SENTINELS] == list(spans)
    return [x for token in source[:-1] for x in (spans[token] if token in SENTINELS else [token])], spans


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(0, 2**31 - 1))
@example([1], 0)
def test_nothing_is_lost(lengths, seed):
    batch = texts(lengths)
    for text, (source, target) in zip(batch.to_list(), rows(CORRUPTION(batch, [seed, 1])), strict=True):
        if len(text) == 1:  # nothing is taken out of it: the target has the sentinel of what stays
            assert (source, target) == ([*text, 1], [SENTINELS[0], 1])
            continue
        whole, spans = mended(source, target)
        assert whole == text and all(spans.values())
        assert len(text) < 2 or source[0] == text[0]
        num_noise = sum(map(len, spans.values()))
        expected = min(max(round(np.float32(len(text)) * np.float32(0.15)), 1), max(len(text) - 1, 0))
        assert num_noise == expected
        assert len(spans) == min(max(round(num_noise / 3), 1), num_noise, len(text) - num_noise)


def test_span_corruption_on_a_million_tokens():
    batch = texts([512] * 1954)
    assert batch.flat_values.shape[0] > 1_000_000
    pairs = rows(SpanCorruption(SENTINELS, 0, 1)(batch, [1, 2]))
    assert {len(source) for source, _ in pairs} == {512 - 77 + 26 + 1}  # all alike: one shape to compile
    assert {len(target) for _, target in pairs} == {77 + 26 + 1}
    lengths = [len(span) for pair in pairs for span in mended(*pair)[1].values()]
    assert len(lengths) == 26 * 1954 and np.mean(lengths) == 77 / 26
    # Partitions of 77 in 26 runs, all alike: P(length = k) = C(76 - k, 24) / C(76, 25).
    chance = 25 / 76
    for length in (1, 2, 3):
        assert np.mean(np.array(lengths) == length) == pytest.approx(chance, abs=0.01)
        chance *= (76 - length - 24) / (76 - length)
    places = np.zeros(512)
    for source, _ in pairs[:500]:
        for place, token in enumerate(source):
            places[place] += token in SENTINELS
    assert places[0] == 0 and places[1:400].std() < 0.35 * places[1:400].mean()


def test_denoising_on_a_million_tokens():
    batch = texts([512] * 1954)
    pairs = rows(DENOISING(batch, [3, 4]))
    counts = np.array([source.count(MASK) for source, _ in pairs])
    taken = np.array([512 + 2 - (len(source) - source.count(MASK)) for source, _ in pairs])
    assert (taken == np.ceil(0.3 * 512)).all()
    # Until the budget of 154 is used up: 154 / 3 spans and half of one more, the inspection paradox apart.
    assert taken.sum() / counts.sum() == pytest.approx(3, rel=0.02)
    for text, (source, target) in zip(batch.to_list(), pairs, strict=True):
        assert target == [2, *text, 1] and source[0] == 2 and source[-1] == 1
    whole = Denoising([PERMUTATION], **SPECIAL)
    moved = 0
    batch = tf.concat([batch[:200], tf.fill([200, 1], STOP)], axis=1)
    for text, (source, _) in zip(batch.to_list(), rows(whole(batch, [5, 6])), strict=True):
        assert sorted(sentences(source[1:-1])) == sorted(sentences(text))
        moved += source[1:-1] != text
    assert moved == 200


def sentences(text):
    """The text cut after each full stop."""
    parts: list = [[]]
    for token in text:
        parts[-1].append(token)
        if token == STOP:
            parts.append([])
    return [part for part in parts if part]


def test_spans_have_poisson_lengths():
    """A text without repetitions shows where the spans were; the last one is cut and left out."""
    denoising = Denoising([TextInfilling(1000, share=0.5)], 1001, 1002, 0)
    batch = tf.RaggedTensor.from_row_lengths(np.tile(np.arange(3, 403, dtype="int32"), 300), [400] * 300)
    lengths = []
    for source, _ in rows(denoising(batch, [0, 0])):
        kept = [token for token in source[1:-1] if token != 1000]
        assert kept == sorted(kept)
        # A mask between neighbours of which n are missing; several in a row cannot be told apart.
        known = [2, *source[1:-1], 403]
        for i in range(1, len(known) - 1):
            if known[i] == 1000 and 1000 not in (known[i - 1], known[i + 1]):
                lengths.append(known[i + 1] - known[i - 1] - 1)
    counts = np.bincount(lengths, minlength=9)[:9] / len(lengths)
    expected = [np.exp(-3) * 3**k / np.prod(np.arange(1, k + 1)) for k in range(9)]
    np.testing.assert_allclose(counts, expected, atol=0.012)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 2**31 - 1))
def test_what_stays_is_in_order(lengths, seed):
    batch = texts(lengths)
    without = Denoising([INFILLING], **SPECIAL)
    for text, (source, target) in zip(batch.to_list(), rows(without(batch, [seed, 3])), strict=True):
        assert target == [2, *text, 1]
        kept = iter(text)
        assert all(token in kept for token in source[1:-1] if token != MASK)
        assert len(text) - sum(token != MASK for token in source[1:-1]) == np.ceil(
            np.float32(0.3) * len(text)
        )


def test_the_papers_figure_of_t5():
    """Raffel et al. 2020, figure 2, the full stop left out."""
    text, taken = "Thank you for inviting me to your party last week", {"for", "inviting", "last"}
    words = ["<pad>", "</s>", *dict.fromkeys(text.split()), "<X>", "<Y>", "<Z>"]
    corruption = SpanCorruption([words.index(f"<{name}>") for name in "XYZ"], start_id=0, end_id=1)
    token_ids = tf.ragged.constant([[words.index(word) for word in text.split()]])
    batch = corruption.take_out(token_ids, tf.ragged.constant([[word in taken for word in text.split()]]))
    ((source, target),) = rows(batch)
    assert " ".join(words[i] for i in source) == "Thank you <X> me to your party <Y> week </s>"
    assert " ".join(words[i] for i in target) == "<X> for inviting <Y> last <Z> </s>"


@given(st.lists(st.lists(st.booleans(), max_size=40), min_size=1, max_size=5), st.booleans())
def test_what_is_said_to_be_taken_out_is_taken_out(taken, is_ragged):
    batch = texts([len(row) for row in taken])
    is_noise = tf.ragged.constant(taken, tf.bool, ragged_rank=1)
    parts = rows(CORRUPTION.take_out(batch, is_noise if is_ragged else is_noise.to_tensor()))
    for text, row, (source, target) in zip(batch.to_list(), taken, parts, strict=True):
        if row and any(row) and not row[-1]:
            target.pop(-2)  # the sentinel of what stays behind the last span
        if not any(row):
            target = [1]
        whole, spans = mended(source, target)
        assert whole == text
        assert [token for span in spans.values() for token in span] == [
            token for token, is_out in zip(text, row, strict=True) if is_out
        ]


@pytest.mark.parametrize(
    "corruption",
    [pytest.param(CORRUPTION, id="t5"), pytest.param(DENOISING, id="bart", marks=pytest.mark.slow)],
)
def test_batches_are_fixed_by_seed_and_epoch(corruption):
    batch = texts(np.arange(5, 42))
    batches = DenoisingBatches(batch, corruption, batch_size=8, seed=4)
    assert batches.num_batches == 5

    def drawn(batches, epoch):
        return [pair for one in batches.dataset(epoch) for pair in rows(one)]

    first = drawn(batches, 0)
    assert len(first) == 37
    assert first == drawn(DenoisingBatches(batch, corruption, batch_size=8, seed=4), 0)
    others = [drawn(batches, 1), drawn(DenoisingBatches(batch, corruption, batch_size=8, seed=5), 0)]
    assert first not in others
    stream = iter(batches.epochs())
    assert first == [pair for _ in range(5) for pair in rows(next(stream))]
    if corruption is CORRUPTION:
        assert sorted(mended(*pair)[0] for pair in others[0]) == sorted(batch.to_list())


@pytest.mark.slow
def test_a_model_trains_on_them():
    """The tokens count up: a span is told by what stands around it."""
    keras.utils.set_random_seed(0)
    starts = np.random.default_rng(0).integers(3, 30, 256)
    batch = tf.RaggedTensor.from_tensor(tf.constant(starts[:, None] + np.arange(12), tf.int32))
    batches = DenoisingBatches(batch, CORRUPTION, batch_size=64)
    config = T5Config(100, num_layers=1, dim=32, num_heads=2, key_dim=16, intermediate_dim=64, dropout=0.0)
    model = LanguageModel(T5(config))
    model.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy(), jit_compile=False)
    history = model.fit(
        batches.epochs(), steps_per_epoch=batches.num_batches, epochs=12, shuffle=False, verbose=0
    )
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="expected 0 < share < 1"):
        SpanCorruption(SENTINELS, 0, 1, share=1.0)
    with pytest.raises(ValueError, match=r"got 0\.15, 3\.0 and 0"):
        SpanCorruption((), 0, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is_noise: expected the shape of token_ids"):
        CORRUPTION.take_out(texts([4, 3]), [[True]])
    with pytest.raises(ValueError, match="expected 1 or more, got 0 and 32"):
        DenoisingBatches(texts([]), CORRUPTION)
    with pytest.raises(tf.errors.InvalidArgumentError, match="More spans than sentinels"):
        SpanCorruption(SENTINELS[:2], 0, 1)(texts([60]), [0, 0])
