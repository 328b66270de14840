"""Learning to find one object in an image: each cell of the searched map learns by where the object is.

Chen et al. 2021, "Transformer Tracking", section 3.3, and Zhao et al. 2021, "TrTr: Visual Tracking with
Transformer", section 3.4, whose heat map is CenterNet's (Zhou et al. 2019, "Objects as Points", section 3).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_tfm.heads.loss import SumOfMeans
from keras_tfm.layers.boxes import box_distance, generalized_iou


class CellLoss(SumOfMeans):
    """A loss of the cells of a map of the `grid` (rows, columns), whose targets are one box for each image
    (B, 4), (x, y, width, height) around the centre as parts of the image's sides. Abstract.

    A box without area stands for an image without the object. `weights` multiply the terms.
    """

    def __init__(self, grid: Sequence[int], weights: Sequence[float], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        self.weights = tuple(weights)

    def means(self, boxes, predictions):
        boxes, predictions = ops.cast(boxes, "float32"), ops.cast(predictions, "float32")
        means = self.plain_means(boxes, predictions)
        return [(weight * total, count) for weight, (total, count) in zip(self.weights, means, strict=True)]

    def plain_means(self, boxes, predictions):
        """[(total, count)] of the terms before they are weighed."""
        raise NotImplementedError


class TargetLoss(CellLoss):
    """TransT's loss of the cells of a `TargetDetector`, in nats.

    Predictions are (B, N, C + 1 + 4): logits, the first of the target and the last of none, and boxes. The
    cells inside the object are of the target: from the first whose upper left corner lies in its box, at
    least one along each axis. The loss is the cross-entropy of all cells, where cells outside weigh
    `no_target`, averaged by these weights, and the sum of absolute differences and 1 - GIoU of the boxes of
    cells inside, over their number.

    >>> loss = keras_tfm.heads.TargetLoss(grid=(1, 2))
    >>> cells = [[9.0, -9.0, 0.25, 0.5, 0.5, 1.0], [-9.0, 9.0, 0, 0, 0, 0]]
    >>> round(float(loss(np.array([[0.25, 0.5, 0.5, 1.0]]), np.array([cells]))), 2)
    0.0
    """

    def __init__(
        self,
        grid: Sequence[int],
        weights: Sequence[float] = (8.334, 5.0, 2.0),
        no_target: float = 0.0625,
        **kwargs: Any,
    ) -> None:
        super().__init__(grid, weights, **kwargs)
        self.no_target = no_target

    def plain_means(self, boxes, predictions):
        inside = cells_inside(boxes, self.grid)  # (B, N)
        logits, found = predictions[..., :-4], predictions[..., -4:]
        labels = ops.where(inside, 0, logits.shape[-1] - 1)
        entropies = ops.sparse_categorical_crossentropy(labels, logits, True)
        weights = ops.where(inside, 1.0, self.no_target)
        count = ops.sum(ops.cast(inside, "float32"))
        distances = box_distance(found, boxes[:, None])
        overlaps = generalized_iou(found, boxes[:, None])
        return [
            (ops.sum(weights * entropies), ops.sum(weights)),
            (ops.sum(ops.where(inside, distances, 0.0)), count),
            (ops.sum(ops.where(inside, 1 - overlaps, 0.0)), count),
        ]


class HeatmapLoss(CellLoss):
    """TrTr's loss of the cells of a `HeatmapDetector`, in nats.

    Predictions are (B, N, 1 + 2 + 2): the logit of an object's centre, where in the cell it is, and the
    object's size. The heat map learns a Gaussian around the centre's cell, a sixth of the object's sides
    wide, by CenterNet's focal loss, over the number of objects; the other terms are the absolute differences
    of place and size in that cell alone.

    >>> loss = keras_tfm.heads.HeatmapLoss(grid=(1, 2))
    >>> cells = [[9.0, 0.5, 0.5, 0.5, 1.0], [-9.0, 0, 0, 0, 0]]
    >>> round(float(loss(np.array([[0.25, 0.5, 0.5, 1.0]]), np.array([cells]))), 2)
    0.0
    """

    def __init__(
        self, grid: Sequence[int], weights: Sequence[float] = (1.0, 1.0, 1.0), **kwargs: Any
    ) -> None:
        super().__init__(grid, weights, **kwargs)

    def plain_means(self, boxes, predictions):
        sides = np.array(self.grid[::-1], "float32")  # columns, rows
        places = boxes[:, :2] * sides
        cell = ops.clip(ops.floor(places), 0.0, sides - 1)  # (B, 2)
        wanted = ops.concatenate([places - cell, boxes[:, 2:]], axis=-1)[:, None]
        heat = gaussian_heat(cell, boxes[:, 2:] * sides / 6, self.grid)  # (B, N)
        is_there = ops.all(boxes[:, 2:] > 0, axis=-1, keepdims=True)
        is_centre = ops.logical_and(heat == 1, is_there)
        heat = ops.where(is_there, heat, 0.0)
        logits = predictions[..., 0]
        probability = ops.sigmoid(logits)
        right = -ops.square(1 - probability) * ops.log_sigmoid(logits)
        wrong = -((1 - heat) ** 4) * ops.square(probability) * ops.log_sigmoid(-logits)
        count = ops.sum(ops.cast(is_there, "float32"))
        total = ops.sum(ops.where(is_centre, right, wrong))
        distances = ops.where(is_centre[..., None], ops.abs(predictions[..., 1:] - wanted), 0.0)
        return [
            (total, ops.maximum(count, 1.0)),
            (ops.sum(distances[..., :2]), count),
            (ops.sum(distances[..., 2:]), count),
        ]


def cells_inside(boxes, grid):
    """Which cells of a `grid` (rows, columns) are inside `boxes` (B, 4) around centres: (B, N)."""
    sides = np.array(grid[::-1], "float32")  # columns, rows
    centre, size = boxes[:, :2], boxes[:, 2:]
    first = ops.clip(ops.ceil((centre - size / 2) * sides), 0.0, sides - 1)
    end = ops.maximum(ops.ceil((centre + size / 2) * sides), first + 1)
    places = grid_places(grid)  # (N, 2)
    inside = ops.logical_and(first[:, None] <= places, end[:, None] > places)
    return ops.logical_and(ops.all(inside, axis=-1), ops.all(size > 0, axis=-1, keepdims=True))


def gaussian_heat(cell, deviations, grid):
    """A Gaussian around a `cell` (B, 2), (column, row), 1 there, with these standard `deviations` (B, 2) in
    cells, at least a third: (B, N).
    """
    distances = (grid_places(grid) - cell[:, None]) / ops.maximum(deviations, 1 / 3)[:, None]
    return ops.exp(-ops.sum(ops.square(distances), axis=-1) / 2)


def grid_places(grid):
    """(Column, row) of each cell, row by row: (N, 2)."""
    rows, columns = np.indices(grid).reshape(2, -1)
    return np.stack([columns, rows], axis=-1).astype("float32")
