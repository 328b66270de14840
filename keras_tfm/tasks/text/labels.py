"""The labels of tasks that classify texts and words: checked, read from published folders, as numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def check_labels(labels: Sequence[str]) -> None:
    """Raise ValueError unless the labels are at least two different strings."""
    if len(set(labels)) < max(2, len(labels)) or not all(isinstance(label, str) for label in labels):
        raise ValueError(f"`labels` must be different strings, two at least; they are {labels[:20]}.")


def published_labels(entries: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """The names of `count` labels, from a published config.json or as transformers numbers them."""
    names = entries.get("id2label") or {}
    return tuple(names.get(str(number), f"LABEL_{number}") for number in range(count))


def label_ids(labels: Iterable, names: Iterable, unseen: str = "in training") -> np.ndarray:
    """The indices of `labels` among `names`, an int32 array; ValueError for a label that is not there."""
    ids = {name: number for number, name in enumerate(names)}
    unknown = sorted(set(labels) - ids.keys(), key=str)
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise ValueError(
            f"labels: {unknown[0]!r}{more} unseen {unseen}; known are {', '.join(map(str, names))[:200]}"
        )
    return np.array([ids[label] for label in labels], "int32")
