"""Examples that share an image, or a context, and stay together where some are held out."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from keras_tfm.data.batches.epochs import HeldOut, hold_out
from keras_tfm.tasks.columns import rows_of


def distinct(keys: Sequence[Hashable]) -> tuple[list[int], np.ndarray]:
    """The first row of each key; and for each row (N,), the index of its key."""
    numbers: dict[Hashable, int] = {}
    ids = np.array([numbers.setdefault(key, len(numbers)) for key in keys], int)
    rows: dict[int, int] = {}
    for row, number in enumerate(ids.tolist()):
        rows.setdefault(number, row)
    return list(rows.values()), ids


def hold_out_groups(examples: Any, keys: Sequence[Hashable], held: HeldOut, seed: int) -> tuple[Any, Any]:
    """Hold out as many of the distinct `keys`, one for each example, as `held` says, with all their
    examples.
    """
    rows, ids = distinct(keys)
    parts = hold_out(len(rows), seed, held)
    train, rest = (rows_of(examples, np.flatnonzero(np.isin(ids, part))) for part in parts)
    return train, rest
