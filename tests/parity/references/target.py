"""TransT's rules to follow one object, in NumPy: which window to look at, and where it is. State in and out.

    target --- search_side ---> window ---> network: a score and a box for each cell ---> moved target
                                            scores lose by the distance from the middle

Chen et al. 2021, "Transformer Tracking", section 3.4. Sizes are in pixels, and the middle of the image's
first pixel is at (0, 0).
"""

from typing import NamedTuple

import numpy as np

LEAST_SIDE = 10  # of a target, in pixels


class Target(NamedTuple):
    """Where the object is: its centre (x, y) and its size (width, height)."""

    centre: tuple[float, float]
    size: tuple[float, float]

    @classmethod
    def of_box(cls, box):
        """The target in a `box`, (left, top, width, height)."""
        left, top, width, height = map(float, box)
        return cls((left + width / 2, top + height / 2), (width, height))

    @property
    def box(self):
        """(Left, top, width, height)."""
        (x, y), (width, height) = self
        return x - width / 2, y - height / 2, width, height


def template_side(target):
    """The side of the window that shows the object: the object and half its mean side around it."""
    return _side(target, 0.5)


def search_side(target):
    """The side of the window in which it is looked for, about twice as long."""
    return _side(target, 1.5)


def _side(target, context):
    width, height = target.size
    margin = context * (width + height)
    return float(np.ceil(np.sqrt((width + margin) * (height + margin))))


def window(image, centre, side, fill=None):
    """The window of an `image` (H, W, C) with this `centre` (x, y) and `side`: (side, side, C) in float32.

    Outside the image are the values `fill` (C,), by default the means of the channels, rounded down.
    """
    fill = np.floor(np.mean(image, axis=(0, 1))) if fill is None else fill
    side = int(side)
    left, top = (int(np.floor(x - (side + 1) / 2 + 0.5)) for x in centre)
    height, width = image.shape[:2]
    found = np.empty((side, side, image.shape[2]), "float32")
    found[:] = fill
    rows = slice(max(top, 0), min(top + side, height))
    columns = slice(max(left, 0), min(left + side, width))
    if rows.start < rows.stop and columns.start < columns.stop:
        here = slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left)
        found[here] = image[rows, columns]
    return found


def penalised(scores, grid, penalty=0.49):
    """`scores` (N,) of the cells of a `grid` (rows, columns), mixed with a Hann window of that share, which
    prefers the middle of the search window.
    """
    rows, columns = (np.hanning(length) for length in grid)
    return np.asarray(scores) * (1 - penalty) + np.outer(rows, columns).ravel() * penalty


def moved(target, scores, boxes, grid, image_size, penalty=0.49):
    """(The `target` in the next frame, its score).

    `scores` (N,) and `boxes` (N, 4), (x, y, width, height) around centres as parts of the searched window's
    sides, are a network's for the cells of the `grid`; the cell of the highest penalised score decides. The
    target stays in the image of `image_size` (height, width).

    >>> target = Target.of_box((10, 10, 20, 20))
    >>> moved(target, np.ones(1), np.array([[0.5, 0.5, 0.25, 0.5]]), (1, 1), (100, 100))[0].size
    (20.0, 40.0)
    """
    side, (height, width) = search_side(target), image_size
    best = int(np.argmax(penalised(scores, grid, penalty)))
    box = np.asarray(boxes[best], "float64")
    centre = np.asarray(target.centre) + (box[:2] - 0.5) * side
    limits = np.array([width, height], "float64")
    centre = np.clip(centre, 0, limits)
    size = np.maximum(np.minimum(box[2:] * side, limits), LEAST_SIDE)
    return Target(tuple(centre.tolist()), tuple(size.tolist())), float(scores[best])
