"""Evolutionary search for the best of many candidates, such as the networks of a supernet.

Chen et al. 2021, "AutoFormer": the best so far are parents; of each generation one half are
mutants, one half crosses, and random candidates fill what is left.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import numpy as np

ATTEMPTS = 10  # candidates are made for each place at most, since a space may have no new ones left


class Space(Protocol):
    """What `evolve` asks of a space of candidates, which are hashable; `rng` is a NumPy generator."""

    def sample(self, rng: np.random.Generator) -> Any:
        """A candidate drawn at random."""

    def mutate(self, candidate: Any, rng: np.random.Generator) -> Any:
        """A candidate like this one."""

    def cross(self, candidate: Any, other: Any, rng: np.random.Generator) -> Any:
        """A candidate that has something of both."""


@dataclasses.dataclass(frozen=True)
class Population:
    """All that a search has scored in so many `generations`: {candidate: score}, None for the refused."""

    generations: int = 0
    scores: dict[Hashable, float | None] = dataclasses.field(default_factory=dict)

    def best(self, count: int) -> list[Any]:
        """The `count` candidates of the highest scores, the highest first, the earlier of equal ones."""
        scored = [(score, candidate) for candidate, score in self.scores.items() if score is not None]
        return [candidate for _, candidate in sorted(scored, key=lambda pair: -pair[0])[:count]]


def evolve(
    space: Space,
    score: Callable[[Any], float | None],
    generations: int = 20,
    size: int = 50,
    num_parents: int = 10,
    population: Population | None = None,
    seed: int = 0,
) -> Population:
    """The `Population` after so many further `generations` of `size` candidates, from `population` if given.

    `score` is the higher the better, None for a candidate that is refused, by its size for example; it is
    called once for each candidate, at most 20 x `generations` x `size` times. The draws depend on `seed` and
    the generation alone, so that a search that goes on from its population ends like one that was never
    stopped. Raises ValueError for numbers below 1 and for a score that is no finite number.
    """
    for name, number in (("generations", generations), ("size", size), ("num_parents", num_parents)):
        if number < 1:
            raise ValueError(f"`{name}` must be at least 1; it is {number}.")
    population = population or Population()
    for _ in range(generations):
        population = _next_generation(space, score, size, num_parents, population, seed)
    return population


def _next_generation(
    space: Space,
    score: Callable[[Any], float | None],
    size: int,
    num_parents: int,
    population: Population,
    seed: int,
) -> Population:
    rng = np.random.default_rng([seed, population.generations])
    scores, parents = dict(population.scores), population.best(num_parents)

    def parent() -> Any:
        return parents[rng.integers(len(parents))]

    def add(make: Callable[[], Any], count: int) -> int:
        """Score candidates until `count` new ones are accepted, or too many were made; how many were."""
        added = 0
        for _ in range(ATTEMPTS * count):
            if added == count:
                break
            candidate = make()
            if candidate not in scores:
                scores[candidate] = _checked(score(candidate))
                added += scores[candidate] is not None
        return added

    added = 0
    if parents:
        added += add(lambda: space.mutate(parent(), rng), size // 2)
        added += add(lambda: space.cross(parent(), parent(), rng), size - size // 2)
    add(lambda: space.sample(rng), size - added)
    return Population(population.generations + 1, scores)


def _checked(score: float | None) -> float | None:
    if score is None:
        return None
    if not math.isfinite(score):
        raise ValueError(f"A score must be a finite number, or None; it is {score}.")
    return float(score)
