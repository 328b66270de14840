"""Answers beside the truth: by class, by row, and how far their confidence is to be trusted."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

BINS = 15  # of confidence, as in Guo et al. 2017


class Counts(NamedTuple):
    """For one class, or one kind of span: how many answers are `right`, how many are `answered`, how many
    true ones there are.
    """

    right: int
    answered: int
    true: int

    @property
    def precision(self) -> float:
        """The share of the answers that is right; 0 without answers."""
        return self.right / max(1, self.answered)

    @property
    def recall(self) -> float:
        """The share of the true ones that is found; 0 without true ones."""
        return self.right / max(1, self.true)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.right / max(1, self.answered + self.true)


class Judgements(NamedTuple):
    """What `judge` of a task says of N examples.

    Args:
        measures: what `measure` returns.
        truth, answers: of each example, as JSON values.
        losses: (N,), how wrong each answer is: its cross-entropy in nats, for numbers the squared error.
        counts: {class, or kind of span: `Counts`}, where answers are classes.
        labels, confusion: the names of classes (C,), and how often each (row) was answered by each (C, C).
        confidences, are_right: (M,), of each example or word: its answer's probability, and whether it is
            right.
    """

    measures: dict[str, Any]
    truth: Sequence[Any]
    answers: Sequence[Any]
    losses: np.ndarray
    counts: Mapping[str, Counts] = {}
    labels: Sequence[str] = ()
    confusion: np.ndarray | None = None
    confidences: np.ndarray | None = None
    are_right: np.ndarray | None = None


def judged_classes(
    measures: dict[str, Any], labels: Sequence[Any], truth: np.ndarray, probabilities: np.ndarray
) -> Judgements:
    """Judge one class per example: `truth` (N,) are its indices, `probabilities` are (N, labels)."""
    answers = probabilities.argmax(-1)
    matrix = confusion_of(truth, answers, len(labels))
    return Judgements(
        measures,
        [labels[place] for place in truth],
        [labels[place] for place in answers],
        losses_of(probabilities, truth),
        counts_in(matrix, labels),
        list(map(str, labels)),
        matrix,
        probabilities.max(-1),
        answers == truth,
    )


def losses_of(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The cross-entropy, in nats, of each of the labels (N,) under probabilities (N, labels)."""
    right = probabilities[np.arange(len(labels)), labels]
    return -np.log(np.maximum(right, np.finfo("float32").tiny))


def confusion_of(truth: Iterable[int], answers: Iterable[int], size: int) -> np.ndarray:
    """How often each of `size` classes (row) was answered by each (column).

    >>> keras_tfm.tasks.judgements.confusion_of([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1, 1], [0, 1]]
    """
    matrix = np.zeros((size, size), "int64")
    np.add.at(matrix, (np.asarray(truth, int), np.asarray(answers, int)), 1)
    return matrix


def counts_in(confusion: np.ndarray, labels: Iterable[Any]) -> dict[str, Counts]:
    """The `Counts` of each class, from a matrix as of `confusion_of`."""
    rows = zip(np.diag(confusion), confusion.sum(0), confusion.sum(1), strict=True)
    return {str(label): Counts(*map(int, row)) for label, row in zip(labels, rows, strict=True)}


def counts_of_sets(truth: Iterable[set], answers: Iterable[set]) -> dict[str, Counts]:
    """The `Counts` by the first part of the members of sets, such as spans (label, start, end)."""
    found: dict[str, np.ndarray] = {}
    for true, answered in zip(truth, answers, strict=True):
        for member in true | answered:
            new = [member in true and member in answered, member in answered, member in true]
            found[member[0]] = found.get(member[0], 0) + np.array(new, int)
    return {label: Counts(*map(int, row)) for label, row in sorted(found.items())}


def calibration_error(confidences: np.ndarray, are_right: np.ndarray) -> float:
    """The expected calibration error, from 0 to 1: how far the confidence is from the share of right answers,
    on average over `BINS` equal intervals of confidence.

    After section 3 of Guo et al. 2017, "On Calibration of Modern Neural Networks".

    >>> keras_tfm.tasks.judgements.calibration_error(np.array([0.75, 0.75]), np.array([True, False]))
    0.25
    """
    places = np.clip(np.ceil(confidences * BINS).astype(int) - 1, 0, BINS - 1)
    surplus = np.bincount(places, confidences - are_right, BINS)
    return float(np.abs(surplus).sum() / max(1, len(confidences)))
