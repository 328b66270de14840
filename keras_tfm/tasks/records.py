"""What is known of answers, as JSON: their confidence, the probabilities of all labels, rounded numbers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def records_of(
    answers: Iterable[Any],
    confidences: Iterable[float],
    labels: Iterable[Any] = (),
    probabilities: Iterable[Sequence[float]] | None = None,
) -> list[dict[str, Any]]:
    """A record for each of the answers: {"answer": …, "confidence": …}, and with `probabilities` (N, labels)
    {"probabilities": {label: probability}} too; without `labels` their numbers from 0.
    """
    records = [
        {"answer": answer, "confidence": rounded(confidence)}
        for answer, confidence in zip(answers, confidences, strict=True)
    ]
    if probabilities is not None:
        for record, row in zip(records, probabilities, strict=True):
            names = list(map(str, labels)) or map(str, range(len(row)))
            record["probabilities"] = dict(zip(names, map(rounded, row), strict=True))
    return records


def rounded(x: Any) -> float:
    """A number with as many digits as are shown."""
    return float(f"{x:.6g}")


def rounded_line(answer: Mapping[str, Any], digits: Mapping[str, int]) -> str:
    """The answer as JSON, with as many `digits` behind the point as they say by name."""

    def value(name: str, x: Any) -> Any:
        if name in digits:
            return np.round(np.asarray(x, "float64"), digits[name]).tolist()
        return x.tolist() if isinstance(x, np.ndarray) else x

    return json.dumps({name: value(name, x) for name, x in answer.items()}, ensure_ascii=False)


def surest(values: np.ndarray) -> np.ndarray:
    """How sure several labels (N, labels) are that each apply or not: the least sure label of each row."""
    return np.maximum(values, 1 - values).min(-1)
