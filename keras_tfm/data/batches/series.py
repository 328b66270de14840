"""Windows of a series of numbers: k values, and the next one as the target."""

import numpy as np


def windows_of(series, size) -> tuple[np.ndarray, np.ndarray]:
    """All windows (N - k, k) of a series (N,), and the value after each, (N - k, 1)."""
    series = np.asarray(series)
    if len(series) <= size:
        raise ValueError(
            f"The series must have more than {size} values, a window and the next; it has {len(series)}."
        )
    windows = np.lib.stride_tricks.sliding_window_view(series, size + 1)
    return windows[:, :-1], windows[:, -1:]
