"""The weights of classes in the loss."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_tfm.configs import FieldError
from keras_tfm.training.options import WeightedClasses


def class_weights(training: WeightedClasses, labels: np.ndarray, names: Sequence[str]) -> np.ndarray | None:
    """A weight for each of the classes `names`, (C,), as the training asks for; None if all are 1.

    "balanced" weighs the N `labels`, indices of the names, by N / (classes that occur * examples of the
    class), as King and Zeng (2001) and scikit-learn do. ValueError for a weight of an unknown class.
    """
    if training.class_weight is None:
        return None
    if training.class_weight == "balanced":
        counts = np.bincount(labels, minlength=len(names))
        return np.where(counts, len(labels) / (np.count_nonzero(counts) * np.maximum(counts, 1)), 1.0)
    refuse_unknown_classes(training, names)
    weights = training.class_weights()
    return np.array([weights.get(name, 1.0) for name in names])


def refuse_unknown_classes(training: Any, names: Iterable[str]) -> None:
    """Raise ValueError if a training gives a weight to a class that is not among the `names`."""
    if getattr(training, "class_weight", None) in (None, "balanced"):
        return
    if unknown := sorted(set(training.class_weights()) - set(names)):
        known = ", ".join(sorted(names))[:200]
        raise FieldError(
            "{class_weight} must name classes of the task, {}; it names {!r}.", known, unknown[0]
        )
