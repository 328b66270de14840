"""The measure that judges epochs, and which of two values of it is the better one."""

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

Mode = Literal["auto", "min", "max", "last"]
Logs = Any  # measures by name, as Keras gives them to callbacks, or None

HIGHER = re.compile(r"(^|_)(acc|accuracy|auc|precision|recall|f1|iou|bleu|chrf|pearson|exact_match)$")
LOWER = re.compile(r"(^|_)(loss|error|entropy|perplexity|mse|mae)$")


class Monitor:
    """Judges epochs by the measure `name`, best where it is lowest (`mode` "min") or highest ("max").

    "auto" tells by the name: "val_accuracy" is best high, "val_loss" low. With "last" the latest epoch is the
    best, whatever its measure: for what no measure judges. Raises ValueError for a name that does not tell,
    and for another mode.
    """

    def __init__(self, name: str, mode: Mode = "auto"):
        if mode not in get_args(Mode):
            raise ValueError(f"`mode` must be auto, min, max or last; it is {mode!r}.")
        best: str | None = mode
        if mode == "auto":
            best = "max" if HIGHER.search(name) else "min" if LOWER.search(name) else None
        if best is None:
            raise ValueError(f"Whether {name!r} is best low or high its name does not tell: pass `mode`.")
        self.name = name
        self.sign = {"min": 1, "max": -1, "last": 0}[best]

    def score(self, logs: Mapping[str, Any]) -> float:
        """The epoch's score, the lower the better; ValueError where `logs` lack the measure."""
        if self.name not in logs:
            raise ValueError(f"`monitor` must be one of {', '.join(logs)}; it is {self.name!r}.")
        return self.sign * float(logs[self.name])

    @staticmethod
    def is_best(score: float, best: float) -> bool:
        """Whether `score` is at least as good as the `best` so far: of equals the later one is kept."""
        return score <= best
