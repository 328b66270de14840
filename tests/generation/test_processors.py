"""Each processor on logits small enough to check by hand, and its threshold against sorting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.generation import (
    DecodingOptions,
    ForcedTokens,
    LengthDecay,
    MinNewTokens,
    MinP,
    NoRepeatNGram,
    Renormalize,
    RepetitionPenalty,
    SequenceBias,
    Suppress,
    SuppressFirst,
    Temperature,
    TopK,
    TopP,
    Typical,
)
from keras_tfm.generation.processors import Written, process

INFINITY = float("inf")
PROBABILITIES = [0.5, 0.25, 0.15, 0.1]


def written(rows, length=None, prompt_length=0, mask=None):
    rows = np.array(rows, "int32")
    length = rows.shape[1] if length is None else length
    mask = np.broadcast_to(np.arange(rows.shape[1]) < length, rows.shape) if mask is None else np.array(mask)
    return Written(rows, mask, np.int32(length), np.int32(prompt_length))


def processed(processor, logits, of=None):
    return np.asarray(process(np.array([logits], "float32"), of or written([[0]]), [processor]))[0]


def kept(processor, probabilities=PROBABILITIES):
    return np.flatnonzero(np.isfinite(processed(processor, np.log(probabilities)))).tolist()


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (RepetitionPenalty(0.5, prompt_only=True), [1.0, 2.0, 2.0, 2.0, 1.0]),  # 4 is padding
        (NoRepeatNGram(1, prompt_only=True), [1.0, -INFINITY, -INFINITY, -INFINITY, 1.0]),
        (NoRepeatNGram(2, prompt_only=True), [1.0, 1.0, 1.0, -INFINITY, 1.0]),  # 2 3, of which 2 is written
        (NoRepeatNGram(3, prompt_only=True), [1.0, 1.0, 1.0, 1.0, 1.0]),  # one token does not begin three
    ],
)
def test_the_prompt_of_an_encoder_is_its_source(processor, expected):
    source = np.array([[2, 3, 1, 2, 4]]), np.array([[True] * 4 + [False]])
    of = written([[2, 0, 0]], length=1, prompt_length=1)._replace(source=source)
    assert processed(processor, [1.0] * 5, of).tolist() == expected
    assert processed(NoRepeatNGram(2), [1.0] * 5, of).tolist() == [1.0] * 5


def test_temperature_divides():
    np.testing.assert_allclose(processed(Temperature(0.5), [1.0, -2.0]), [2.0, -4.0])


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        (TopK(1), [0]),
        (TopK(3), [0, 1, 2]),
        (TopK(9), [0, 1, 2, 3]),
        (TopP(0.01), [0]),
        (TopP(0.5), [0]),
        (TopP(0.51), [0, 1]),
        (TopP(0.76), [0, 1, 2]),
        (TopP(1.0), [0, 1, 2, 3]),
        (MinP(0.31), [0, 1]),
        (MinP(0.29), [0, 1, 2]),
        (MinP(0.0), [0, 1, 2, 3]),
        # The entropy is 1.208 nats; the informations are 0.693, 1.386, 1.897, 2.303.
        (Typical(0.2), [1]),
        (Typical(0.5), [0, 1]),
        (Typical(0.8), [0, 1, 2]),
    ],
    ids=lambda x: f"{type(x).__name__} {vars(x)}" if hasattr(x, "__dict__") else "",
)
def test_what_is_kept(processor, expected):
    assert kept(processor) == expected


def test_equals_stay_together():
    assert kept(TopK(2), [0.4, 0.2, 0.2, 0.2]) == [0, 1, 2, 3]
    assert kept(TopK(1), [0.4, 0.2, 0.2, 0.2]) == [0]
    assert kept(TopP(0.3), [0.25] * 4) == [0, 1, 2, 3]


@given(st.integers(2, 40), st.integers(0, 10**6), st.floats(0.1, 30), st.floats(0.01, 0.99))
def test_thresholds_equal_sorting(size, seed, scale, share):
    logits = (np.random.default_rng(seed).normal(size=size) * scale).astype("float32")
    order = np.argsort(-logits)
    k = 1 + int(share * size) % size
    assert set(np.flatnonzero(np.isfinite(processed(TopK(k), logits)))) == set(order[:k])
    p = np.exp(logits.astype("float64") - logits.max())
    total = np.cumsum((p / p.sum())[order])
    if np.abs(total - share).min() > 1e-5:
        expected = set(order[: np.searchsorted(total, share) + 1])
        assert set(np.flatnonzero(np.isfinite(processed(TopP(share), logits)))) == expected


def test_thresholds_pass_over_what_is_forbidden_already():
    logits = [2.0, -INFINITY, 1.0, 0.0]
    for processor, expected in ((TopK(2), [0, 2]), (TopP(0.9), [0, 2]), (Typical(1.0), [0, 2, 3])):
        result = processed(processor, logits)
        assert np.flatnonzero(np.isfinite(result)).tolist() == expected and not np.isnan(result).any()


def test_repetition_penalty():
    rows = written([[1, 3, 3, 0]], length=3)
    result = processed(RepetitionPenalty(2.0), [4.0, 4.0, 4.0, -4.0], rows)
    np.testing.assert_allclose(result, [4.0, 2.0, 4.0, -8.0])


def test_padding_of_a_prompt_is_not_repeated():
    rows = written([[0, 1]], mask=[[False, True]])
    np.testing.assert_allclose(processed(RepetitionPenalty(2.0), [4.0, 4.0], rows), [4.0, 2.0])
    np.testing.assert_allclose(processed(NoRepeatNGram(1), [4.0, 4.0], rows), [4.0, -INFINITY])


@pytest.mark.parametrize(
    ("size", "row", "length", "expected"),
    [
        (1, [1, 2, 0, 0], 2, [1, 2]),
        (2, [1, 2, 1, 0], 3, [2]),
        (2, [1, 2, 3, 0], 3, []),
        (2, [1, 2, 1, 3, 1, 0], 5, [2, 3]),
        (3, [1, 2, 3, 1, 2, 0], 5, [3]),
        (3, [1, 2, 3, 2, 2, 0], 5, []),
        (3, [1, 2], 2, []),
        (2, [0, 0, 0], 1, []),
        (4, [1, 1, 1, 1, 1, 0], 5, [1]),
        (4, [1, 2], 2, []),
    ],
)
def test_no_repeated_ngram(size, row, length, expected):
    result = processed(NoRepeatNGram(size), np.zeros(4), written([row], length))
    assert np.flatnonzero(np.isinf(result)).tolist() == expected


def test_ngrams_do_not_begin_in_padding():
    """After padding 0 stands 1; 0 1 is no bigram of this row, so that 1 may follow a 0 of the text."""
    rows = written([[0, 1, 0, 0]], length=3, mask=[[False, True, True, False]])
    assert np.isfinite(processed(NoRepeatNGram(2), np.zeros(3), rows)).all()


def test_lengths_and_forced_tokens():
    early, late = written([[5, 6, 0]], 2, prompt_length=1), written([[5, 6, 7]], 3, prompt_length=1)
    for rows, expected in ((early, [0, -INFINITY]), (late, [0, 0])):
        np.testing.assert_array_equal(processed(MinNewTokens(2, [1]), [0, 0], rows), expected)
    np.testing.assert_array_equal(processed(Suppress([0, 2]), [1, 1, 1]), [-INFINITY, 1, -INFINITY])
    forced = ForcedTokens([1, 0], first=1)
    np.testing.assert_array_equal(processed(forced, [1, 1], early), [-INFINITY, 0])
    np.testing.assert_array_equal(processed(forced, [1, 1], late), [0, -INFINITY])
    np.testing.assert_array_equal(processed(forced, [1, 1], written([[5]], 1, prompt_length=1)), [1, 1])
    either = processed(ForcedTokens([(0, 2)], first=1), [1, 1, 1], early)
    np.testing.assert_array_equal(either, [0, -INFINITY, 0])
    with pytest.raises(ValueError, match="`token_ids` must be in the vocabulary of 3; one of them is 3"):
        processed(ForcedTokens([1, (0, 3)]), [1, 1, 1], early)
    with pytest.raises(ValueError, match="`token_ids` must be in the vocabulary of 3; one of them is 9"):
        processed(Suppress([0, 9]), [1, 1, 1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Temperature(0), "`temperature` must be above 0; it is 0"),
        (lambda: Temperature(-1.0), "`temperature` must be above 0"),
        (lambda: TopK(0), "`top_k` must be at least 1"),
        (lambda: TopP(0.0), r"`top_p` must lie in \(0, 1\]; it is 0.0"),
        (lambda: TopP(1.1), r"`top_p` must lie in \(0, 1\]"),
        (lambda: MinP(-0.1), r"`min_p` must lie in \[0, 1\]"),
        (lambda: Typical(0.0), r"`typical_p` must lie in \(0, 1\]"),
        (lambda: RepetitionPenalty(0.0), "`repetition_penalty` must be above 0"),
        (lambda: NoRepeatNGram(0), "`size` must be at least 1"),
        (lambda: TopK(1.5), "`top_k` must be a whole number of 32 bits; it is 1.5"),
        (lambda: NoRepeatNGram(1.5), "`size` must be a whole number"),
        (lambda: MinNewTokens(0.5, [1]), "`count` must be a whole number"),
        (lambda: MinNewTokens(-1, [1]), "`count` must be at least 0"),
        (lambda: MinNewTokens(1, [0.5]), "`end_ids` must be a whole number"),
        (lambda: Suppress([0.5]), "`token_ids` must be a whole number"),
    ],
)
def test_impossible_numbers_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


ONES, MINUS = [1.0, 1.0, 1.0, -1.0], -INFINITY


@pytest.mark.parametrize(
    ("processor", "of", "expected"),
    [
        (SequenceBias([([0], 2.0), ([3], -1.0), ([0], 3.0)]), written([[1]]), [4, 1, 1, -2]),
        (SequenceBias([([1, 2], 5.0), ([1, 2], 4.0), ([0, 1, 2], 7.0)]), written([[0, 1]]), [1, 1, 12, -1]),
        (SequenceBias([([1, 2], 5.0), ([2, 2], 3.0)]), written([[1, 2, 9]], 2), [1, 1, 4, -1]),
        (SequenceBias([([0, 1, 2], 7.0)]), written([[1]]), ONES),  # longer than the row
        (SequenceBias([([0, 1, 2], 7.0)]), written([[9, 9, 9, 9]], 1), ONES),
        (SequenceBias([([0, 2], MINUS), ([1], MINUS)]), written([[0]]), [1, MINUS, MINUS, -1]),
        (SequenceBias([([0, 2], 5.0)]), written([[0, 1]], mask=[[False, True]]), ONES),
        (SequenceBias([([1, 1, 2], 5.0)]), written([[1, 1]], mask=[[False, True]]), ONES),  # padding
        (SuppressFirst([1, 2]), written([[0, 0]], prompt_length=2), [1, MINUS, MINUS, -1]),
        (SuppressFirst([1, 2]), written([[0, 0]], prompt_length=1), ONES),
        (SuppressFirst([1, 2], 1), written([[0, 0]], prompt_length=1), [1, MINUS, MINUS, -1]),
        (LengthDecay(1, 3.0, [0, 3]), written([[0, 0, 0]]), [9, 1, 1, 7]),
        (LengthDecay(1, 3.0, [0, 3]), written([[0, 0, 0]], prompt_length=2), ONES),
        (LengthDecay(1, 3.0, []), written([[0, 0, 0]]), ONES),
        (RepetitionPenalty(0.5, True), written([[3, 0, 1]], prompt_length=2), [2, 1, 1, -0.5]),
        (NoRepeatNGram(2, True), written([[0, 1, 0, 3, 0]], prompt_length=3), [1, MINUS, 1, -1]),
        (NoRepeatNGram(1, True), written([[0, 1, 2]], prompt_length=2), [MINUS, MINUS, 1, -1]),
    ],
)
def test_what_published_folders_ask_for(processor, of, expected):
    np.testing.assert_allclose(processed(processor, ONES, of), expected)
    assert processor == type(processor)(**vars(processor))


def test_an_end_that_is_forbidden_stays_so():
    logits = processed(LengthDecay(0, 2.0, [0]), [MINUS, 1.0], written([[0, 0]]))
    assert logits[0] == MINUS and logits[1] == 1
    np.testing.assert_allclose(np.exp(processed(Renormalize(), [MINUS, 3.0, 3.0])), [0, 0.5, 0.5])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SequenceBias([([], 1.0)]), "one token or more in each sequence"),
        (lambda: SequenceBias([([-1], 1.0)]), "`sequence_bias` must be at least 0"),
        (lambda: processed(SequenceBias([([1, 4], 1.0)]), ONES), "in the vocabulary of 4; one id is 4"),
        (lambda: LengthDecay(-1, 2.0, [0]), "`start` must be at least 0"),
        (lambda: LengthDecay(1, 0.0, [0]), "`factor` must be above 0"),
        (lambda: SuppressFirst([1], -1), "`number` must be at least 0"),
        (lambda: SuppressFirst([1], 0.5), "`number` must be a whole number"),
        (lambda: LengthDecay(0.5, 2.0, [0]), "`start` must be a whole number"),
        (lambda: DecodingOptions(4, forbidden_sequences=[[]]), "`forbidden_sequences` must have one token"),
        (
            lambda: DecodingOptions(4, prompt_repetition_penalty=0),
            "`prompt_repetition_penalty` must be above",
        ),
        (lambda: DecodingOptions(4, prompt_no_repeat_ngram_size=-1), "must be at least 0"),
    ],
)
def test_what_they_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "field",
    [
        {"forced_first_id": np.int64(50)},
        {"forced_last_ids": (1, 50)},
        {"suppressed_ids": (1, 50)},
        {"first_suppressed_ids": (50,)},
        {"forbidden_sequences": ((50, 1), (1,))},
        {"sequence_bias": (((1, 50), 2.0),)},
    ],
)
def test_ids_outside_the_vocabulary_are_refused_by_the_name_of_their_field(field):
    options = DecodingOptions(4, **field)
    assert options.within(51) is options
    (name,) = field
    with pytest.raises(ValueError, match=rf"`{name}` must lie in \[0, 50\); it has 50"):
        options.within(50)
