"""BART's noises: what each leaves as it was, how often each acts, and that they compose."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import (
    Denoising,
    DenoisingBatches,
    DocumentRotation,
    OneOf,
    SentencePermutation,
    SpanCorruption,
    TextInfilling,
    TokenDeletion,
    TokenMasking,
)
from keras_tfm.heads import LanguageModel, TokenCrossEntropy
from keras_tfm.models import BART, BARTConfig

BEGIN, PAD, END, MASK, STOP = range(5)
ALL = [
    TokenMasking(MASK),
    TokenDeletion(),
    TextInfilling(MASK),
    SentencePermutation([STOP]),
    DocumentRotation(),
]
MIXTURE = [OneOf(ALL[:3]), SentencePermutation([STOP]), OneOf([DocumentRotation(), TokenDeletion(0.1)])]
texts = st.lists(st.lists(st.integers(STOP, 30), max_size=30), min_size=1, max_size=5)
shares = st.floats(0, 1)
seeds = st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 99))


def ragged(rows):
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)


def noised(noise, rows, seed):
    return noise(ragged(rows), tf.constant(seed, tf.int64)).to_list()


def is_rounding(count, share, length):
    """Whether `count` is `share` of `length`, up or down to a whole number."""
    exact = np.float32(share) * np.float32(length)
    return np.floor(exact) <= count <= np.ceil(exact)


@given(texts, shares, seeds)
def test_masking_leaves_every_other_token_in_its_place(rows, share, seed):
    for text, source in zip(rows, noised(TokenMasking(MASK, share), rows, seed), strict=True):
        assert len(source) == len(text)
        assert all(token in (MASK, there) for token, there in zip(source, text, strict=True))
        assert is_rounding(source.count(MASK), share, len(text))


@given(texts, shares, seeds)
def test_deletion_keeps_the_order_and_at_least_one_token(rows, share, seed):
    for text, source in zip(rows, noised(TokenDeletion(share), rows, seed), strict=True):
        rest = iter(text)
        assert all(token in rest for token in source)
        assert bool(source) == bool(text)
        is_last = len(source) == 1 and share * len(text) > len(text) - 1
        assert is_rounding(len(text) - len(source), share, len(text)) or is_last


@given(texts, seeds)
def test_a_rotated_text_goes_on_from_its_end_to_its_beginning(rows, seed):
    for text, source in zip(rows, noised(DocumentRotation(), rows, seed), strict=True):
        assert source in [text[first:] + text[:first] for first in range(max(1, len(text)))]


def many(noise, num_rows, length):
    """What becomes of `num_rows` texts, each of the tokens STOP to STOP + `length` - 1."""
    rows = np.tile(np.arange(STOP, STOP + length, dtype="int32"), (num_rows, 1))
    return noise(tf.RaggedTensor.from_tensor(rows), tf.constant((1, 2), tf.int64))


@pytest.mark.parametrize("noise", [TokenMasking(MASK, 0.15), TokenDeletion(0.15)], ids=["mask", "delete"])
def test_every_token_is_as_likely_as_another(noise):
    """Binomial bounds: 15 % of 20,000 texts of 23 tokens, all told and at each place."""
    sources, kept = many(noise, 20_000, 23), np.zeros((20_000, 23), bool)
    tokens, rows = sources.flat_values.numpy(), sources.value_rowids().numpy()
    is_kept = tokens != MASK
    kept[rows[is_kept], tokens[is_kept] - STOP] = True
    assert 1 - kept.mean() == pytest.approx(0.15, abs=4 * np.sqrt(0.15 * 0.85 / kept.size))
    assert np.abs(1 - kept.mean(0) - 0.15).max() < 4.5 * np.sqrt(0.15 * 0.85 / 20_000)


@pytest.mark.parametrize(
    "change",
    [*ALL, *MIXTURE, Denoising(MIXTURE, BEGIN, END, PAD), SpanCorruption([30, 31], BEGIN, END)],
    ids=lambda change: type(change).__name__,
)
def test_an_array_of_padded_texts_is_refused(change):
    """Padding would be taken for text."""
    dense = np.array([[11, 12, 13], [14, PAD, PAD]])
    for token_ids in (dense, tf.constant(dense)):
        with pytest.raises(
            ValueError, match=r"token_ids: expected a RaggedTensor \(B, None\), got .*\(2, 3\)"
        ):
            change(token_ids, tf.constant([1, 2], tf.int64))
    if isinstance(change, Denoising | SpanCorruption):
        with pytest.raises(ValueError, match="token_ids: expected a RaggedTensor"):
            DenoisingBatches(dense, change)


def test_every_token_may_come_first():
    firsts = many(DocumentRotation(), 10_000, 10).to_tensor()[:, 0].numpy()
    assert np.abs(np.bincount(firsts)[STOP:] / 10_000 - 0.1).max() < 4.5 * np.sqrt(0.1 * 0.9 / 10_000)


def test_one_of_several_acts_on_each_text():
    text = list(range(STOP, STOP + 20))
    sources = noised(OneOf([TokenMasking(MASK, 0.5), TokenDeletion(0.5)]), [text] * 2_000, (1, 2))
    is_masked = np.array([MASK in source for source in sources])
    assert all(
        len(source) == (20 if masked else 10) for source, masked in zip(sources, is_masked, strict=True)
    )
    assert is_masked.mean() == pytest.approx(0.5, abs=4.5 * 0.5 / np.sqrt(2_000))


@given(texts, st.lists(st.sampled_from([*ALL, *MIXTURE]), max_size=4), seeds)
def test_the_target_is_the_original_whatever_the_noises(rows, noises, seed):
    """Special tokens stand around the source, which holds none of them and nothing that was not there."""
    denoising = Denoising(noises, BEGIN, END, PAD)
    inputs, labels, weights = denoising(ragged(rows), tf.constant(seed, tf.int64))
    np.testing.assert_array_equal(weights, inputs["decoder_padding_mask"])
    for row, text in enumerate(rows):
        target = labels[row].numpy()[weights[row].numpy() > 0].tolist()
        assert target == [BEGIN, *text, END]
        assert inputs["decoder_token_ids"][row].numpy()[: len(target)].tolist() == [END, *target[:-1]]
        source = inputs["token_ids"][row].numpy()[inputs["padding_mask"][row].numpy()].tolist()
        assert (source[0], source[-1]) == (BEGIN, END)
        assert not {BEGIN, END, PAD} & {*source[1:-1]} and {*source[1:-1]} <= {MASK, *text}


@pytest.mark.parametrize("noise", [*ALL, *MIXTURE], ids=lambda noise: type(noise).__name__)
def test_a_seed_fixes_the_draws_and_another_gives_others(noise):
    rows = np.random.default_rng(0).integers(STOP, 30, (20, 30)).tolist()
    first, again, other = (noised(noise, rows, seed) for seed in ((1, 2), (1, 2), (1, 3)))
    assert first == again != other


@pytest.mark.slow
def test_bart_learns_to_mend_a_mixture_of_them():
    keras.utils.set_random_seed(0)
    rows = ragged(np.random.default_rng(0).integers(STOP, 30, (16, 12)).tolist())
    noises = [OneOf([TokenMasking(MASK), DocumentRotation()]), TokenDeletion()]
    batches = DenoisingBatches(rows, Denoising(noises, BEGIN, END, PAD), batch_size=8)
    sizes = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 32, "max_length": 32}
    model = LanguageModel(BART(BARTConfig(30, **sizes, dropout=0.0)))
    model.compile(keras.optimizers.Adam(0.02), TokenCrossEntropy(), jit_compile=False)
    steps = {"steps_per_epoch": batches.num_batches, "shuffle": False, "verbose": 0}
    losses = model.fit(batches.epochs(), epochs=40, **steps).history["loss"]
    assert losses[-1] < losses[0] / 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TokenMasking(MASK, 1.5), "share: expected 0 to 1, got 1.5"),
        (lambda: TokenDeletion(-0.1), "share: expected 0 to 1, got -0.1"),
        (lambda: TextInfilling(MASK, mean_span=0), "expected 0 <= share < 1 and more than 0, got 0.3 and 0"),
        (lambda: OneOf([]), "noises: expected one or more, got none"),
    ],
)
def test_impossible_noises_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
