"""The evolutionary search: what it finds, how often it asks, and that it goes on where it stopped."""

import numpy as np
import pytest

from keras_tfm.training import Population, evolve


class Words:
    """Tuples of five digits."""

    def sample(self, rng):
        return tuple(rng.integers(0, 10, 5).tolist())

    def mutate(self, candidate, rng):
        fresh = self.sample(rng)
        return tuple(b if new else a for a, b, new in zip(candidate, fresh, rng.random(5) < 0.3, strict=True))

    def cross(self, candidate, other, rng):
        return tuple(rng.choice(pair).item() for pair in zip(candidate, other, strict=True))


TARGET = np.array([3, 1, 4, 1, 5])


def closeness(candidate):
    return -np.abs(np.array(candidate) - TARGET).sum()


def test_it_finds_the_best_and_goes_on_as_if_never_stopped():
    whole = evolve(Words(), closeness, generations=12, size=40, seed=1)
    assert whole.best(1) == [tuple(TARGET)]  # one of 100,000, of which at most 480 were scored
    assert len(whole.scores) <= 480
    part = evolve(Words(), closeness, generations=5, size=40, seed=1)
    resumed = evolve(Words(), closeness, generations=7, size=40, seed=1, population=part)
    assert (resumed, list(resumed.scores)) == (whole, list(whole.scores))
    assert part.generations == 5 and evolve(Words(), closeness, 1, 40, seed=2) != part


def test_it_beats_chance():
    drawn = evolve(Words(), closeness, generations=1, size=480, seed=1)  # the first generation is random
    found = evolve(Words(), closeness, generations=12, size=40, seed=1)
    assert found.scores[found.best(1)[0]] > drawn.scores[drawn.best(1)[0]]


def test_refused_candidates_are_no_parents_and_the_work_is_bounded():
    calls = []

    def none(candidate):
        calls.append(candidate)

    population = evolve(Words(), none, generations=2, size=3)
    assert population.best(5) == [] and len(calls) <= 2 * 3 * 10

    class One(Words):
        def sample(self, rng):
            return (0,) * 5

    population = evolve(One(), closeness, generations=3, size=4)
    assert population == Population(3, {(0,) * 5: -14.0})


def test_refusals():
    with pytest.raises(ValueError, match="`size` must be at least 1; it is 0"):
        evolve(Words(), closeness, size=0)
    with pytest.raises(ValueError, match="A score must be a finite number, or None; it is nan"):
        evolve(Words(), lambda _: float("nan"))
