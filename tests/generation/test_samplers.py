"""Sampling: how often what is drawn, and that a seed says all."""

import itertools
import re

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from keras_tfm.generation import (
    Decoder,
    DecodingOptions,
    EndTokens,
    MinP,
    Sample,
    Temperature,
    TopK,
    TopP,
    Typical,
)
from tests.generation.markov import markov

DRAWS = 20_000


def exact(logits, processors):
    """The distribution that processors leave, by definition."""
    p = np.exp(logits - logits.max())
    for processor in processors:
        order = np.argsort(-p)
        p = p / p.sum()
        match processor:
            case Temperature():
                p = p ** (1 / processor.temperature)
            case TopK():
                p[order[processor.k :]] = 0
            case TopP():
                p[order[np.searchsorted(np.cumsum(p[order]), processor.p) + 1 :]] = 0
            case MinP():
                p[p < processor.p * p.max()] = 0
    return p / p.sum()


@pytest.mark.parametrize(
    "processors",
    [(), (Temperature(0.7),), (TopK(4),), (TopP(0.8),), (MinP(0.2),), (Temperature(2.0), TopK(6), TopP(0.9))],
    ids=lambda processors: " ".join(type(p).__name__ for p in processors) or "plain",
)
def test_frequencies_are_the_distributions(processors):
    model = markov(12, seed=1, scale=1.0)
    decoder = Decoder(model, 2, Sample(7), processors)
    rows = tf.function(decoder, autograph=False, jit_compile=True)(tf.fill([DRAWS, 1], 1)).numpy()
    for last, drawn in ((1, rows[:, 1]), (5, rows[rows[:, 1] == 5, 2])):
        expected = exact(model.table[last].astype("float64"), processors) * len(drawn)
        counts = np.bincount(drawn, minlength=12)
        assert (counts[expected == 0] == 0).all()
        if len(drawn) > 200:
            test = scipy.stats.chisquare(counts[expected > 0], expected[expected > 0])
            assert test.pvalue > 1e-3


def test_seeds_and_steps_draw_independently():
    """One row, a seed each: frequencies over seeds, too, are the distribution; and pairs are independent."""
    logits = tf.constant(markov(4, seed=2, scale=0.7).table[:1])

    def drawn(seed):
        return tf.stack([Sample(seed)(logits, 0)[0], Sample(seed)(logits, 1)[0]])

    pairs = tf.function(lambda: tf.map_fn(drawn, tf.range(DRAWS), parallel_iterations=1), autograph=False)()
    p = exact(logits.numpy()[0].astype("float64"), ())
    counts = np.zeros((4, 4))
    np.add.at(counts, tuple(pairs.numpy().T), 1)
    assert scipy.stats.chisquare(counts.ravel(), np.outer(p, p).ravel() * DRAWS).pvalue > 1e-3
    following = np.zeros((4, 4))  # the seeds 0 and 1, 2 and 3, ...
    np.add.at(following, (pairs.numpy()[::2, 0], pairs.numpy()[1::2, 0]), 1)
    assert scipy.stats.chisquare(following.ravel(), np.outer(p, p).ravel() * DRAWS / 2).pvalue > 1e-3


def test_a_seed_says_all():
    prompts = tf.constant([[1], [1], [3]])

    def sampled(seed, prompts=prompts, **options):
        decoder = Decoder(markov(9), 30, Sample(seed))
        return tf.function(decoder, autograph=False, **options)(prompts).numpy()

    np.testing.assert_array_equal(sampled(5), sampled(tf.constant(5)))
    np.testing.assert_array_equal(sampled(5), sampled(5, jit_compile=True))
    np.testing.assert_array_equal(sampled(5)[:2], sampled(5, prompts[:2]))  # whatever else is in the batch
    assert (sampled(5) != sampled(6)).mean() > 0.5
    assert (sampled(5)[0] != sampled(5)[1]).mean() > 0.5


def test_options_choose_the_decoder():
    model, stop = markov(), EndTokens(2)
    prompt = tf.constant([[1], [3]])
    greedy = DecodingOptions(5).decoder(model, stop)(prompt)
    np.testing.assert_array_equal(greedy, DecodingOptions(5, top_k=1).decoder(model, stop)(prompt))
    assert DecodingOptions(5, seed=1).samples and not DecodingOptions(5, beam_size=2).samples
    first = MinP(0.1)
    numbers = {"typical_p": 0.8, "min_p": 0.05, "top_p": 0.9, "top_k": 3, "temperature": 0.5}
    warm = DecodingOptions(5, processors=[first], **numbers).decoder(model, stop)
    assert [type(p) for p in warm.processors] == [MinP, Temperature, TopK, TopP, MinP, Typical]
    assert [vars(p) for p in warm.processors[-2:]] == [{"p": 0.05}, {"mass": 0.8}]
    for name, value in numbers.items():
        assert DecodingOptions(5, **{name: value}).samples
    np.testing.assert_array_equal(greedy, DecodingOptions(5, min_p=1.0).decoder(model, stop)(prompt))


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("field", "values", "rule"),
    [
        ("max_new_tokens", [0, -1], "at least 1"),
        ("max_new_tokens", [2.5, "5", None, True, 2**31, NAN], "a whole number"),
        ("beam_size", [0], "at least 1"),
        ("beam_size", [1.5, INFINITY], "a whole number"),
        ("length_penalty", [NAN, INFINITY, "1", None], "a finite number"),
        ("early_stopping", [1, "always", None], 'True, False or "never"'),
        ("temperature", [0.0, -1.0, 1e-50], "above 0"),
        ("temperature", [NAN, INFINITY, 1e39, "hot", True], "a finite number"),
        ("top_k", [0, -3], "at least 1"),
        ("top_k", [2.5, INFINITY, NAN, 2**31], "a whole number"),
        ("top_p", [0.0, -0.1, 1.5, 2], "lie in (0, 1]"),
        ("top_p", [NAN, INFINITY], "a finite number"),
        ("min_p", [-0.1, 1.5], "lie in [0, 1]"),
        ("min_p", [NAN, "x"], "a finite number"),
        ("typical_p", [0.0, 1.5], "lie in (0, 1]"),
        ("typical_p", [NAN, "x"], "a finite number"),
        ("seed", [-1], "at least 0"),
        ("seed", [2**31, -(2**40), 1.5, "one", NAN], "a whole number of 32 bits"),
        ("contrastive_alpha", [-0.1, 1.1], "lie in [0, 1]"),
        ("contrastive_alpha", [NAN, "x"], "a finite number"),
        ("repetition_penalty", [0.0, -1], "above 0"),
        ("repetition_penalty", [NAN, INFINITY], "a finite number"),
        ("no_repeat_ngram_size", [-1], "at least 0"),
        ("no_repeat_ngram_size", [1.5], "a whole number"),
        ("min_new_tokens", [-1], "at least 0"),
        ("forced_first_id", [-1], "at least 0"),
        ("forced_last_ids", [[-1], (2, -3)], "at least 0"),
        ("suppressed_ids", [[-1]], "at least 0"),
        ("suppressed_ids", [[0.5], ["a"], [2**31]], "a whole number"),
        ("processors", [[3]], "callables"),
    ],
)
def test_each_field_refuses_what_it_cannot_be_by_its_name(field, values, rule):
    for value in values:
        with pytest.raises(ValueError, match=rf"^`{field}` must (be )?{re.escape(rule)}.*(it is|they are)"):
            DecodingOptions(**{"max_new_tokens": 5, field: value})


def test_fields_that_exclude_each_other_are_refused():
    with pytest.raises(ValueError, match="Beam search does not sample"):
        DecodingOptions(5, beam_size=2, seed=1)
    with pytest.raises(ValueError, match=r"`suppressed_ids` must be without 5, the `forced_first_id`"):
        DecodingOptions(5, forced_first_id=5, suppressed_ids=[4, 5])
    with pytest.raises(ValueError, match="`seed` must be at least 0"):
        Sample(-1)
    for right in ({"top_k": np.int64(3)}, {"temperature": np.float32(0.7)}, {"length_penalty": -1},
                  {"suppressed_ids": np.array([1, 2])}, {"seed": 2**31 - 1}):  # fmt: skip
        hash(DecodingOptions(5, **right))


@pytest.mark.parametrize("beam_size", [1, 3])
def test_plain_fields_are_processors(beam_size):
    """No end before the fourth token, 1 first, an end at last, never 4, no pair of tokens twice."""
    model, end_ids = markov(6, scale=4.0), (2, 3)
    options = {
        "beam_size": beam_size,
        "min_new_tokens": 3,
        "forced_first_id": 1,
        "forced_last_ids": end_ids,
        "suppressed_ids": [4],
        "no_repeat_ngram_size": 2,
    }
    decoder = DecodingOptions(6, **options).decoder(model, EndTokens(*end_ids), pad_id=0)
    (row,) = decoder(np.array([[5]])).numpy().tolist()
    ends = [i for i, token in enumerate(row) if token in end_ids]
    assert row[1] == 1 and 4 not in row and ends and ends[0] >= 4
    written = row[: ends[0] + 1]
    assert len(set(itertools.pairwise(written))) == len(written) - 1
