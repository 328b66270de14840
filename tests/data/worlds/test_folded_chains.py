"""Chains made of moves: steps, letters, alignments, contacts."""

import numpy as np
import pytest

from keras_tfm.data.worlds.folded_chains import MOVES, STEP, chains, touching


def test_a_chain_goes_by_steps_and_does_not_meet_itself():
    frames = chains(20, length=12).frames
    places = frames[..., :3, 3]
    np.testing.assert_allclose(np.linalg.norm(np.diff(places, axis=1), axis=-1), STEP, rtol=1e-5)
    gaps = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1) + 100 * np.eye(12)
    assert gaps.min() > STEP - 1e-3
    rotations = frames[..., :3, :3]
    np.testing.assert_allclose(np.linalg.det(rotations), 1, atol=1e-5)
    steps = np.diff(places, axis=1)  # each along the x of the residue that it leads to
    np.testing.assert_allclose(steps, STEP * rotations[:, 1:, :, 0], atol=1e-4)


def test_letters_say_the_moves():
    made = chains(200, length=6, num_sequences=3, errors=0.0)
    assert made.numbers.min() == 0 and made.numbers.max() == 19
    moves = made.alignment % len(MOVES)
    assert (moves == moves[:, :1]).all()  # all spellings of a chain mean the same
    turns = np.linalg.inv(made.frames[:, :-1]) @ made.frames[:, 1:]
    for move in range(len(MOVES)):
        same = turns[moves[:, 0, :-1] == move]
        np.testing.assert_allclose(same, np.broadcast_to(same[0], same.shape), atol=1e-4)


def test_errors_and_seeds():
    made, again, other = chains(200, errors=0.5), chains(200, errors=0.5), chains(200, errors=0.5, seed=1)
    np.testing.assert_array_equal(made.alignment, again.alignment)
    assert (made.numbers != other.numbers).any()
    np.testing.assert_array_equal(made.alignment[:, 0], made.numbers)
    moves = made.alignment % len(MOVES)
    agree = (moves[:, 0] == moves[:, 1]).mean()
    assert abs(agree - (0.25 + 0.75 / 5)) < 0.03  # both right, or the same by chance
    with pytest.raises(ValueError, match=r"`errors` must lie in \[0, 1\]; it is 2"):
        chains(1, errors=2)
    with pytest.raises(ValueError, match="`length` must be at least 1; it is 0"):
        chains(1, length=0)


def test_contacts():
    places = np.array([[0, 0, 0], [3.8, 0, 0], [3.8, 3.8, 0], [0, 3.8, 0], [0, 3.8, 3.8], [0, 30, 0]])
    touch = touching(places)
    assert np.argwhere(np.triu(touch)).tolist() == [[0, 4]]
    np.testing.assert_array_equal(touch, touch.T)
