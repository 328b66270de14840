"""Beam search against the enumeration of all sequences, and what must hold of any search."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.generation import BeamSearch, Decoder, EndTokens, ForcedTokens, NoRepeatNGram
from tests.generation.markov import markov

FIRST = np.array([[1], [3]], "int32")
END, PAD, LENGTH = 2, 0, 4
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]


def search(model, beam_size, *arguments, prompts=FIRST, compiled=False, **options):
    beams = BeamSearch(model, LENGTH, beam_size, *arguments, stop=EndTokens(END), pad_id=PAD, **options)
    function = tf.function(beams.search, autograph=False, jit_compile=True) if compiled else beams.search
    return [x.numpy() for x in function(tf.constant(prompts))]


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
def test_a_beam_as_wide_as_all_sequences_is_exhaustive(length_penalty, compiled):
    model = markov()
    rows, scores = search(model, 5**LENGTH, length_penalty, "never", compiled=compiled)
    for row, scores_of_row, first in zip(rows.tolist(), scores, FIRST[:, 0].tolist(), strict=True):
        all_of_them = model.sequences(first, LENGTH, length_penalty, END)
        assert scores_of_row[:30] == pytest.approx([score for score, _ in all_of_them[:30]], abs=1e-5)
        # Which of equal sequences (the same steps in another order) comes first is not said.
        score_of = {(first, *tokens, *[PAD] * (LENGTH - len(tokens))): s for s, tokens in all_of_them}
        assert [score_of[tuple(found)] for found in row[:30]] == pytest.approx(scores_of_row[:30], abs=1e-5)
        assert len({tuple(found) for found in row[:30]}) == 30


@pytest.mark.parametrize("seed", SEEDS)
def test_one_beam_is_greedy(seed):
    model = markov(7, seed)
    rows, scores = search(model, 1)
    greedy = Decoder(model, LENGTH, stop=EndTokens(END), pad_id=PAD)(FIRST).numpy()
    np.testing.assert_array_equal(rows[:, 0], greedy)
    for row, score in zip(greedy, scores[:, 0], strict=True):
        length = LENGTH if END not in row[1:] else row[1:].tolist().index(END) + 1
        steps = itertools.pairwise(row[: length + 1])
        assert score == pytest.approx(sum(model.log_probabilities[a, b] for a, b in steps) / length, abs=1e-5)


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_batch_equals_its_rows_one_by_one(seed, early_stopping):
    model = markov(6, seed)
    prompts = np.array([[1], [3], [4], [5]], "int32")
    together = search(model, 3, 1.0, early_stopping, prompts=prompts)
    for row in range(4):
        alone = search(model, 3, 1.0, early_stopping, prompts=prompts[row : row + 1])
        for one, all_ in zip(alone, together, strict=True):
            np.testing.assert_allclose(one[0], all_[row], rtol=1e-6)


def test_an_ended_sequence_is_frozen_and_the_length_penalty_decides():
    """1 -> end has p = 0.4; 1 -> 3 -> 4 -> end has 0.6: which is best depends on the penalty alone."""
    table = np.full((5, 5), -30.0)
    table[1, [END, 3]] = np.log([0.4, 0.6])
    table[3, 4] = table[4, END] = table[END, 4] = 0.0
    model = type(markov())(table)
    for length_penalty, best in ((0.0, [3, 4, END, PAD]), (-2.0, [END, PAD, PAD, PAD])):
        rows, scores = search(model, 2, length_penalty, "never", prompts=[[1]])
        assert rows[0, 0].tolist() == [1, *best]
        assert {round(float(np.exp(s * n**length_penalty)), 4) for s, n in zip(
            scores[0], (3, 1) if length_penalty == 0 else (1, 3), strict=True
        )} == {0.4, 0.6}  # fmt: skip


def test_early_stopping_takes_what_ended_first():
    """As soon as both beams ended; not stopping, a better one is found later."""
    table = np.full((6, 6), -30.0)
    table[1, [END, 3, 4]] = np.log([0.3, 0.3, 0.4])
    table[3, END] = table[4, 5] = table[5, END] = 0.0
    model = type(markov())(table)
    early, _ = search(model, 2, 0.0, True, prompts=[[1]])
    late, _ = search(model, 2, 0.0, "never", prompts=[[1]])
    assert early[0, 0].tolist() == [1, END, PAD, PAD, PAD] or early[0, 0].tolist() == [1, 3, END, PAD, PAD]
    assert late[0, 0].tolist() == [1, 4, 5, END, PAD]


def test_processors_act_on_the_running_beams():
    rows, _ = search(markov(), 3, processors=(NoRepeatNGram(1), ForcedTokens([4])))
    for row in rows.reshape(-1, 1 + LENGTH):
        tokens = row.tolist()[: row.tolist().index(END) if END in row else None]
        assert tokens[1] == 4 and len(set(tokens)) == len(tokens)


def test_an_empty_batch_gives_an_empty_one():
    rows, scores = search(markov(), 3, prompts=np.zeros((0, 1), "int32"))
    assert rows.shape == (0, 3, 1 + LENGTH) and scores.shape == (0, 3)


def test_no_new_tokens_leave_the_prompt():
    prompts = np.array([[1, 3], [0, 4]], "int32")
    np.testing.assert_array_equal(BeamSearch(markov(), 0, 2)(prompts), prompts)


def test_impossible_searches_are_refused():
    with pytest.raises(ValueError, match="`beam_size` must be at least 1; it is 0"):
        BeamSearch(markov(), 4, 0)
    with pytest.raises(ValueError, match="`early_stopping` must be True, False or \"never\"; it is 'always'"):
        BeamSearch(markov(), 4, 2, early_stopping="always")
    with pytest.raises(ValueError, match='`early_stopping` must be True, False or "never"; it is 1'):
        BeamSearch(markov(), 4, 2, early_stopping=1)
