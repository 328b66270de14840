"""Masking: its shares over a million tokens, whole words and spans, and the inventory's worked examples."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data.batches.masking import NOT_CHOSEN, Masking, choose_spans, choose_words, span_lengths

VOCABULARY = 1_000
SPECIAL = (0, 100, 101, 102, 999)  # scattered, as in BERT's own vocabulary; 102 is [MASK]
BEGINS = np.random.default_rng(0).random(VOCABULARY) < 0.7
ORDINARY = np.setdiff1d(np.arange(VOCABULARY), SPECIAL)


def masking(unit="token", **shares):
    return Masking(BEGINS, SPECIAL, 102, unit, **shares)


def rows(num_rows, length, seed=0):
    """Ids (B, S): a special token, text, another, text, and padding in half the rows."""
    rng = np.random.default_rng(seed)
    token_ids = rng.choice(ORDINARY, (num_rows, length)).astype("int32")
    token_ids[:, 0] = 100
    token_ids[:, length // 3] = 101
    token_ids[::2, -length // 8 :] = 0
    return token_ids


def masked(unit, token_ids, seed=(1, 2), **shares):
    """(inputs, labels, weights) as arrays, and which tokens were chosen (B, S)."""
    mask = masking(unit, **shares)
    inputs, labels, weights = tf.function(mask)(token_ids, seed, mask.max_positions(token_ids.shape[1]))
    inputs = {name: value.numpy() for name, value in inputs.items()}
    chosen = np.zeros(token_ids.shape, bool)
    row, place = np.nonzero(weights.numpy())
    chosen[row, inputs["mask_positions"][row, place]] = True
    return inputs, labels.numpy(), weights.numpy(), chosen


MILLION = rows(2_200, 512)


@pytest.fixture(
    scope="module",
    params=["token", *(pytest.param(unit, marks=pytest.mark.slow) for unit in ("word", "span"))],
)
def million(request):
    return request.param, *masked(request.param, MILLION)


def test_shares_over_a_million_tokens(million):
    """15 % of what is not special; 80:10:10 of those. Each within three standard deviations."""
    unit, inputs, _, _, chosen = million
    eligible = ~np.isin(MILLION, SPECIAL)
    count, size = eligible.sum(), chosen.sum()
    assert count > 1e6 and not chosen[~eligible].any()
    share = size / count
    # A row has exactly its share, up or down to a whole number; only spans and long words leave some room.
    assert share == pytest.approx(0.15, abs=3 * 0.5 / 480 / np.sqrt(len(MILLION))) or (
        unit != "token" and 0.147 < share < 0.15
    )
    ids = inputs["token_ids"]
    is_mask, is_same = (ids == 102) & chosen, (ids == MILLION) & chosen
    spread = 3 * (2.2 if unit == "span" else 1)  # spans decide for some five tokens at once
    for part, expected in ((is_mask, 0.8), (is_same, 0.1 + 0.1 / len(ORDINARY))):
        bound = spread * np.sqrt(expected * (1 - expected) / size)
        assert part.sum() / size == pytest.approx(expected, abs=bound)
    random = ids[chosen & ~is_mask & ~is_same]
    assert not np.isin(random, SPECIAL).any()
    counts = np.bincount(random, minlength=VOCABULARY)[ORDINARY]
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert chi_square < len(ORDINARY) + (5 if unit != "span" else 9) * np.sqrt(2 * len(ORDINARY))


def test_what_is_not_chosen_stays_and_labels_are_what_was_there(million):
    unit, inputs, labels, weights, chosen = million
    np.testing.assert_array_equal(inputs["token_ids"][~chosen], MILLION[~chosen])
    there = np.take_along_axis(MILLION, inputs["mask_positions"], axis=1)
    np.testing.assert_array_equal(labels, np.where(weights > 0, there, 0))
    assert (np.diff(inputs["mask_positions"])[weights[:, 1:] > 0] > 0).all()  # ascending, each once
    assert (inputs["mask_positions"][weights == 0] == (unit == "span")).all()


def test_every_token_is_as_likely_as_another():
    _, _, _, chosen = masked("token", np.tile(rows(1, 64)[0], (20_000, 1)))
    eligible = ~np.isin(rows(1, 64)[0], SPECIAL)
    shares = chosen.mean(axis=0)
    assert (shares[~eligible] == 0).all()
    assert np.abs(shares[eligible] - 0.15).max() < 4.5 * np.sqrt(0.15 * 0.85 / 20_000)


def words_of(token_ids):
    """(B, S) numbers of words; special tokens are words of their own."""
    special = np.isin(token_ids, SPECIAL)
    after = np.pad(special[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    return np.cumsum(BEGINS[token_ids] | special | after, axis=1)


@pytest.mark.parametrize("unit", ["word", "span"])
def test_words_are_masked_whole(unit):
    token_ids = rows(500, 128)
    *_, chosen = masked(unit, token_ids)
    words = words_of(token_ids)
    for row in range(500):
        for word in np.unique(words[row][chosen[row]]):
            assert chosen[row][words[row] == word].all()


def spans_of(chosen):
    """(row, start, stop) of runs."""
    edges = np.diff(np.pad(chosen, ((0, 0), (1, 1))).astype(int), axis=1)
    return zip(*np.nonzero(edges == 1), np.nonzero(edges == -1)[1], strict=True)


def test_spans_are_decided_at_a_time_and_know_their_boundaries():
    token_ids = rows(2_000, 128)
    inputs, _, weights, chosen = masked("span", token_ids)
    ids, words = inputs["token_ids"], words_of(token_ids)
    kinds = np.where(ids == 102, 0, np.where(ids == token_ids, 1, 2))
    lengths, decided = [], []
    for row, start, stop in spans_of(chosen):
        kind = set(kinds[row, start:stop])
        assert len(kind) == 1 or kind == {1, 2}  # what is drawn at random may be what was there
        decided.append(min(kind) if kind != {1, 2} else 2)
        lengths.append(len(np.unique(words[row, start:stop])))
        at = (inputs["mask_positions"][row] >= start) & (inputs["mask_positions"][row] < stop)
        at &= weights[row] > 0
        np.testing.assert_array_equal(
            inputs["span_boundaries"][row][at], np.tile([start - 1, stop], (stop - start, 1))
        )
    assert max(lengths) == 10
    for kind, share in ((0, 0.8), (1, 0.1), (2, 0.1)):
        bound = 4 * np.sqrt(share * (1 - share) / len(decided))
        assert np.mean(np.array(decided) == kind) == pytest.approx(share, abs=bound)


def test_span_lengths_are_geometric_up_to_ten():
    """Renormalised: mean 3.80. Clipped to ten it would be 4.46."""
    lengths = span_lengths([200_000], (3, 4)).numpy()
    assert lengths.min() == 1 and lengths.max() == 10
    assert lengths.mean() == pytest.approx(3.80, abs=0.05)
    expected = 0.2 * 0.8 ** np.arange(10)
    np.testing.assert_allclose(np.bincount(lengths)[1:] / 2e5, expected / expected.sum(), atol=0.005)


def test_a_seed_fixes_the_draws_and_another_gives_others():
    token_ids = rows(8, 64)
    first, again, other = (
        masked("token", token_ids, seed)[0]["token_ids"] for seed in ((1, 2), (1, 2), (1, 3))
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


# "So long and thanks for all the fish" (S2, figures 24 and 25): ids 1 to 8, with [CLS] and padding beside.
FISH = np.array([[0, 1, 2, 3, 4, 5, 6, 7, 8, 0]], "int32")


def test_forced_choices_give_the_figure():
    """ "long" and "thanks" are masked, "apricot" replaces "the"."""
    text = "So long and thanks for all the fish"
    words = ["[mask]", *text.split(), "apricot"]
    token_ids = np.array([[words.index(word) for word in text.split()]])
    replacements = np.full_like(token_ids, NOT_CHOSEN)
    replacements[0, [1, 3, 6]] = [words.index(word) for word in ("[mask]", "[mask]", "apricot")]
    masking = Masking(np.ones(10, bool), [0], mask_id=0)
    inputs, labels, weights = masking.replace(token_ids, replacements)
    assert " ".join(words[i] for i in inputs["token_ids"][0]) == "So [mask] and [mask] for all apricot fish"
    places = inputs["mask_positions"][0].numpy()
    targets = {place: words[i] for place, i in zip(places, labels[0], strict=True)}
    assert targets == {1: "long", 3: "thanks", 6: "the"} and weights.numpy().all()


def test_a_forced_span_knows_its_boundaries():
    """For "and thanks for" they are "long" (place 2, after [CLS]) and "all" (6)."""
    masking = Masking(np.ones(10, bool), (0, 9), 9, "span")
    replacements = np.where(np.isin(FISH, (3, 4, 5)), 9, NOT_CHOSEN)
    inputs, labels, _ = masking.replace(FISH, replacements)
    assert labels.numpy().tolist() == [[3, 4, 5]]
    assert inputs["span_boundaries"].numpy().tolist() == [[[2, 6]] * 3]


@given(st.data())
def test_what_is_said_of_each_token_comes_to_be(data):
    """Masked, replaced, kept or not chosen: the inputs, the labels and their places agree."""
    num_rows, length = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 12))
    grid = lambda values: np.array(  # noqa: E731
        data.draw(st.lists(values, min_size=num_rows * length, max_size=num_rows * length))
    ).reshape(num_rows, length)
    token_ids, replacements = grid(st.integers(0, 9)), grid(st.integers(NOT_CHOSEN, 9))
    chosen = replacements != NOT_CHOSEN
    spare = data.draw(st.integers(0, 3))
    num_positions = data.draw(st.sampled_from([None, int(chosen.sum(1).max()) + spare]))
    masking = Masking(np.ones(10, bool), (0, 9), 9)
    inputs, labels, weights = masking.replace(token_ids, replacements, num_positions)
    np.testing.assert_array_equal(inputs["token_ids"], np.where(chosen, replacements, token_ids))
    weights = weights.numpy().astype(bool)
    np.testing.assert_array_equal(weights.sum(1), chosen.sum(1))
    rows, places = np.nonzero(chosen)
    np.testing.assert_array_equal(inputs["mask_positions"].numpy()[weights], places)
    np.testing.assert_array_equal(labels.numpy()[weights], token_ids[rows, places])


def test_impossible_replacements_are_refused():
    masking = Masking(np.ones(10, bool), (0, 9), 9)
    for replacements, num_positions, message in (
        (FISH, 3, "expected num_positions a row at most"),
        (FISH + 9, None, "expected ids below 10 or NOT_CHOSEN, -1"),
        (FISH - 2, None, "expected ids below 10 or NOT_CHOSEN, -1"),
        (FISH[:, :1], None, "expected the shape of token_ids"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            masking.replace(FISH, replacements, num_positions)


def test_a_span_lies_between_its_boundaries():
    """For "and thanks for" the boundaries are "long" (place 2, after [CLS]) and "all" (6)."""
    eligible, begins = FISH != 0, np.ones(FISH.shape, bool)
    for seed in range(40):
        chosen, groups = choose_spans(tf.constant(eligible), tf.constant(begins), tf.constant([3]), (seed, 0))
        assert 0 < chosen.numpy().sum() <= 3 and (chosen.numpy() <= eligible).all()
        for _, start, stop in spans_of(chosen.numpy()):
            assert (groups.numpy()[0, start:stop] == start).all()


rectangles = st.tuples(st.integers(1, 4), st.integers(1, 24)).flatmap(
    lambda shape: st.tuples(*(st.lists(st.lists(st.booleans(), min_size=shape[1], max_size=shape[1]),
                                       min_size=shape[0], max_size=shape[0]) for _ in "ab"))
)  # fmt: skip


SIGNATURE = [tf.TensorSpec([None, None], tf.bool)] * 2 + [
    tf.TensorSpec([None], tf.int32),
    tf.TensorSpec([2], tf.int32),
]
TRACED = [
    tf.function(choose, input_signature=SIGNATURE, autograph=False) for choose in (choose_words, choose_spans)
]


@given(rectangles, st.integers(0, 12), st.integers(0, 99))
def test_no_choice_exceeds_its_budget_or_takes_what_it_may_not(rows, budget, seed):
    eligible, begins = (np.array(row) for row in rows)
    budgets = [budget] * len(eligible)
    for choose in TRACED:
        chosen = choose(eligible, begins, budgets, [seed, 1])[0].numpy()
        assert not (chosen & ~eligible).any() and (chosen.sum(axis=1) <= budget).all()
    tokens = TRACED[0](eligible, np.ones_like(begins), budgets, [seed, 1])[0].numpy()
    np.testing.assert_array_equal(tokens.sum(axis=1), np.minimum(eligible.sum(axis=1), budget))


def test_empty_batches_and_rows_without_words():
    for unit in ("token", "word", "span"):
        inputs, labels, weights, _ = masked(unit, np.zeros((3, 16), "int32"))
        assert (inputs["token_ids"] == 0).all() and not weights.any() and not labels.any()
        inputs, labels, _, _ = masked(unit, np.zeros((0, 16), "int32"))
        assert inputs["token_ids"].shape == (0, 16) and labels.shape == (0, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": "letter"}, "unit: expected one of token, word, span, got 'letter'"),
        ({"share": 1.5}, "share: expected 0 to 1, got 1.5"),
        ({"mask_share": 0.9, "random_share": 0.2}, "expected 1 at most"),
    ],
)
def test_impossible_shares_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        masking(**options)
