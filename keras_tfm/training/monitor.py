"""The metric that chooses the best epoch, and whether high or low values of it are better."""

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

Mode = Literal["auto", "min", "max", "last"]
Logs = Any  # {metric: value}, as Keras passes it to callbacks, or None

HIGHER = re.compile(r"(^|_)(acc|accuracy|auc|precision|recall|f1|iou|bleu|chrf|pearson|exact_match)$")
LOWER = re.compile(r"(^|_)(loss|error|entropy|perplexity|mse|mae)$")


class Monitor:
    """Judges epochs by the metric `name`: the lowest value is best for `mode` "min", the highest for "max".

    "auto" decides by the name: "val_accuracy" should be high, "val_loss" low. "last" always takes the latest
    epoch, for trainings that no metric can judge. ValueError for another mode, and for a name that "auto"
    does not know.

    >>> monitor = keras_tfm.training.monitor.Monitor("val_accuracy")
    >>> monitor.is_best(monitor.score({"val_accuracy": 0.9}), monitor.score({"val_accuracy": 0.8}))
    True
    """

    def __init__(self, name: str, mode: Mode = "auto"):
        if mode not in get_args(Mode):
            raise ValueError(f"`mode` must be auto, min, max or last; it is {mode!r}.")
        best: str | None = mode
        if mode == "auto":
            best = "max" if HIGHER.search(name) else "min" if LOWER.search(name) else None
        if best is None:
            raise ValueError(f"The name {name!r} does not say whether low or high is better: pass `mode`.")
        self.name = name
        self.sign = {"min": 1, "max": -1, "last": 0}[best]

    def score(self, logs: Mapping[str, Any]) -> float:
        """The epoch's score, lower is better; ValueError if `logs` lack the metric."""
        if self.name not in logs:
            raise ValueError(f"`monitor` must be one of {', '.join(logs)}; it is {self.name!r}.")
        return self.sign * float(logs[self.name]) if self.sign else 0.0  # of a NaN, too

    @staticmethod
    def is_best(score: float, best: float) -> bool:
        """Whether `score` is at least as good as the `best` so far: of equal epochs the later one is kept."""
        return score <= best
