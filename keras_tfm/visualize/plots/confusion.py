"""Which classes are taken for which: the answers to examples beside the truth."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.visualize.plots.canvas import INK, colour_bar, heat_map, label_cells, new_axes

MOST_WRITTEN = 16  # classes whose counts are written into the cells


def plot_confusion(matrix: np.ndarray, labels: Sequence[str], axes: Any = None) -> Any:
    """A confusion matrix (C, C): how often each of the `labels` (row) was answered by each (column). Colours
    are shares of the row, numbers are counts. ValueError for another shape.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_confusion(np.array([[8, 2], [1, 9]]), ["cat", "dog"])
    >>> [text.get_text() for text in axes.texts]
    ['8', '2', '1', '9']
    """
    matrix = np.asarray(matrix)
    if matrix.shape != (len(labels), len(labels)):
        raise ValueError(f"`matrix` must be (C, C) for {len(labels)} labels; it is {matrix.shape}.")
    side = min(16.0, 2.5 + 0.42 * len(labels))
    axes = new_axes(axes, (side + 1, side))
    shares = matrix / np.maximum(1, matrix.sum(1, keepdims=True))
    image = heat_map(axes, shares, vmin=0, vmax=1)
    axes.set_aspect("equal")
    label_cells(axes, labels, labels)
    axes.set(xlabel="answer", ylabel="truth")
    if len(labels) <= MOST_WRITTEN:
        for row, column in np.ndindex(*matrix.shape):
            colour = "white" if shares[row, column] > 0.5 else INK
            axes.text(column, row, f"{matrix[row, column]:,}", ha="center", va="center", color=colour, size=8)
    colour_bar(axes, image, "share of the truth")
    return axes
