"""Evolutionary search for the best of many candidates, such as the subnets of a supernet.

Chen et al. 2021, "AutoFormer": the best candidates so far are the parents; half of each generation are
mutants of parents, half are crosses of two; random candidates fill what is missing.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import numpy as np

ATTEMPTS = 10  # per place in a generation, since a space may have no new candidates left


class Space(Protocol):
    """The interface of a search space; its candidates are hashable, and `rng` is a NumPy generator."""

    def sample(self, rng: np.random.Generator) -> Any:
        """A random candidate."""

    def mutate(self, candidate: Any, rng: np.random.Generator) -> Any:
        """A variation of `candidate`."""

    def cross(self, candidate: Any, other: Any, rng: np.random.Generator) -> Any:
        """A candidate that combines the two."""


@dataclasses.dataclass(frozen=True)
class Population:
    """The state of a search after `generations`: {candidate: score}, None for a refused candidate.

    >>> population = keras_tfm.training.Population(1, {"a": 0.5, "b": 0.9, "too large": None})
    >>> population.best(2)
    ['b', 'a']
    """

    generations: int = 0
    scores: dict[Hashable, float | None] = dataclasses.field(default_factory=dict)

    def best(self, count: int) -> list[Any]:
        """The `count` candidates with the highest scores, highest first; of equals the earlier first."""
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
    """Search for `generations` more generations of `size` candidates, starting from `population` if given.

    Args:
        space: the candidates: a `Space`.
        score: the score of a candidate, higher is better, or None to refuse it, for example because of its
            size. It is called once per candidate, at most 20 x `generations` x `size` times.
        generations, size, num_parents: the numbers of generations, of candidates in each, and of parents.
        population: the result of an earlier search to continue. Since random numbers only depend on `seed`
            and the generation, the result is the same as without the interruption.
        seed: seeds all random numbers.

    Raises:
        ValueError: for numbers below 1, and for a score that is not finite.

    >>> class Numbers:
    ...     def sample(self, rng):
    ...         return int(rng.integers(100))
    ...     def mutate(self, candidate, rng):
    ...         return candidate + int(rng.integers(-3, 4))
    ...     def cross(self, candidate, other, rng):
    ...         return (candidate + other) // 2
    >>> found = keras_tfm.training.evolve(Numbers(), lambda x: -abs(x - 42), generations=9, size=9)
    >>> found.best(1)
    [42]
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
        """Score candidates until `count` new ones are accepted or too many were made; returns how many were
        accepted.
        """
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
