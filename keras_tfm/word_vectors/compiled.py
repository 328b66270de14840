"""Numba, the extra `fast`, where it is installed; without it NumPy and SciPy do the same more slowly. Each
function that Numba compiles has a sister in NumPy or SciPy, and both are tested.
"""

import functools
import importlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

LOG = logging.getLogger(__name__)


@functools.cache
def numba() -> Any | None:
    """The module; None, with a warning the first time, where it cannot be imported."""
    try:
        return importlib.import_module("numba")
    except ImportError:
        LOG.warning(
            "Numba is not installed, so counting words, and learning vectors and factors, takes several "
            'times as long: pip install "keras-tfm[fast]"'
        )
        return None


@functools.cache
def compiled(function: Callable, **options: Any) -> Callable | None:
    """`function` as machine code that leaves Python's lock alone, kept on disk; None without Numba."""
    module = numba()
    if module is None:
        return None
    try:
        return module.njit(function, nogil=True, cache=True, **options)
    except RuntimeError:  # no folder can be written where Numba would keep it
        return module.njit(function, nogil=True, **options)


def ranges(starts: np.ndarray, size: int) -> Iterator[tuple[int, int]]:
    """Ranges (begin, end) of rows for threads: about `size` entries together, at least one row each.

    The entries of row i are `starts[i]` to `starts[i + 1]`.
    """
    edges = np.unique([0, *np.searchsorted(starts, np.arange(0, starts[-1], size)), len(starts) - 1])
    return zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def num_threads() -> int:
    """How many processors this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    return len(affinity(0)) if affinity else os.cpu_count() or 1
