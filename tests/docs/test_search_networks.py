"""The evolutionary search of examples/search_networks.py: what it finds, and how often it asks."""

import importlib

import numpy as np
import pytest

from tests.docs.test_examples import EXAMPLES, pytestmark  # noqa: F401

TARGET = np.array([3, 1, 4, 1, 5])


class Words:
    """Tuples of five digits."""

    def sample(self, rng):
        return tuple(rng.integers(0, 10, 5).tolist())

    def mutate(self, candidate, rng):
        fresh = self.sample(rng)
        return tuple(b if new else a for a, b, new in zip(candidate, fresh, rng.random(5) < 0.3, strict=True))

    def cross(self, candidate, other, rng):
        return tuple(rng.choice(pair).item() for pair in zip(candidate, other, strict=True))


def closeness(candidate):
    return -np.abs(np.array(candidate) - TARGET).sum()


@pytest.fixture
def search(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("search_networks")


def test_it_finds_the_best_and_beats_chance(search):
    found = search.evolve(Words(), closeness, generations=12, size=40, num_parents=10, seed=1)
    assert search.best(found, 1) == [tuple(TARGET)]  # one of 100,000, of which at most 480 were scored
    assert len(found) <= 480
    drawn = search.evolve(Words(), closeness, 1, 480, 10, seed=1)  # the first generation is random
    assert max(drawn.values()) < 0 == max(found.values())


def test_refused_candidates_are_no_parents_and_the_work_is_bounded(search):
    calls = []
    scores = search.evolve(Words(), calls.append, generations=2, size=3, num_parents=2)
    assert search.best(scores, 5) == [] and len(calls) <= 2 * 3 * 10

    class One(Words):
        def sample(self, rng):
            return (0,) * 5

        def mutate(self, candidate, rng):
            return candidate

    assert search.evolve(One(), closeness, generations=3, size=4, num_parents=2) == {(0,) * 5: -14}


def test_the_space_is_searched(search):
    """The widest of the networks that are allowed is found, and each is scored once."""
    seen, space = [], search.SPACE

    def score(network):
        seen.append(network)
        size = search.num_weights(network)
        return size if size <= 20_000 else None

    scores = search.evolve(space, score, generations=6, size=20, num_parents=5)
    assert len(seen) == len({*seen}) == len(scores)
    assert 19_000 < scores[search.best(scores, 1)[0]] <= 20_000
    for network in seen:
        assert len(network.num_heads) in space.num_layers and network.dim in space.dims
        assert {*network.num_heads} <= {*space.num_heads} and {*network.mlp_ratios} <= {*space.mlp_ratios}


@pytest.mark.slow
def test_the_example(search, capsys):
    search.main(epochs=3, generations=2)
    assert "by itself, with its part of the weights: accuracy" in capsys.readouterr().out
