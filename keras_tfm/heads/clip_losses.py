"""Learning tracks: in a clip the queries of a track, one for each frame, are matched together.

    frame 0   query 0   query 1        object 0   object 1
    frame 1   query 0   query 1        object 0      -          the mean cost of a pair counts frames alone
    frame 2   query 0   query 1        object 0   object 1      in which the object is

Wang et al. 2021, "End-to-End Video Instance Segmentation with Transformers", section 3.2.
"""

import math
from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_tfm.heads.cells import cell_means
from keras_tfm.heads.matching import match
from keras_tfm.heads.panoptic_loss import PanopticSetLoss, objects_of
from keras_tfm.heads.set_prediction import MatchingLoss, SetPredictionLoss, taken


class AlongFrames(MatchingLoss):
    """A `MatchingLoss` of images as one of clips of `num_frames` frames. Abstract.

    The query i of each frame is of one track, which is matched with one object: the cost of a pair is the
    mean over the frames in which the object is. In other frames its query learns to be of no class.
    """

    def __init__(self, num_frames: int, *arguments: Any, **kwargs: Any) -> None:
        super().__init__(*arguments, **kwargs)
        self.num_frames = num_frames

    def of_frames(self, x, axis):
        """`x`, whose `axis` holds all queries frame by frame, with the frames as part of the batch."""
        if x.shape[axis] % self.num_frames:
            raise ValueError(
                f"`num_frames`, {self.num_frames}, must divide the number of queries; it is {x.shape[axis]}."
            )
        shape = (
            -1,
            *x.shape[1:axis],
            self.num_frames,
            x.shape[axis] // self.num_frames,
            *x.shape[axis + 1 :],
        )
        x = ops.moveaxis(ops.reshape(x, shape), axis, 1)
        return ops.reshape(x, (-1, *x.shape[2:]))

    def matched(self, targets, predictions, num_blocks):
        costs = self.pair_costs(targets, predictions)  # (B F L, Q, M)
        shape = (-1, self.num_frames, num_blocks, *costs.shape[1:])
        is_there = ops.reshape(targets[..., 0] >= 0, (-1, self.num_frames, num_blocks, 1, costs.shape[2]))
        count = ops.sum(ops.cast(is_there, "float32"), axis=1)  # (B, L, 1, M)
        total = ops.sum(ops.where(is_there, ops.reshape(costs, shape), 0.0), axis=1)
        total = ops.reshape(ops.divide_no_nan(total, count), (-1, *costs.shape[1:]))  # (B L, Q, M)
        of_track = match(total, ops.reshape(count > 0, (-1, costs.shape[2])))  # (B L, Q)
        of_track = ops.reshape(of_track, (-1, 1, num_blocks, costs.shape[1]))
        of_query = ops.broadcast_to(of_track, ops.shape(ops.reshape(costs, shape))[:-1])
        of_query = ops.reshape(of_query, (-1, costs.shape[1]))  # (B F L, Q)
        return ops.where(taken(targets, of_query)[..., 0] >= 0, of_query, -1)


class ClipSetPredictionLoss(AlongFrames, SetPredictionLoss):
    """`SetPredictionLoss` of a clip's objects, of a `ClipDetector`.

    Targets are (B, F, M, 5): an object's class, -1 in frames in which it is not, and its box in each frame;
    predictions (B, L, F n, C + 1 + 4), frame by frame. The first argument is the number of frames, all others
    are arguments of `SetPredictionLoss`.

    >>> loss = keras_tfm.heads.ClipSetPredictionLoss(num_frames=2)
    >>> box = [0.5, 0.5, 0.2, 0.2]
    >>> targets = np.array([[[[0, *box]], [[-1, 0, 0, 0, 0]]]])  # an object that leaves after the first frame
    >>> predictions = np.array([[[[9.0, -9.0, *box], [-9.0, 9.0, *box]]]])  # one query in each frame
    >>> round(float(loss(targets, predictions)), 2)
    0.0
    """

    def means(self, targets, predictions):
        targets = ops.reshape(targets, (-1, *targets.shape[2:]))  # (B F, M, 5)
        return super().means(targets, self.of_frames(predictions, 2))


class ClipMaskLoss(AlongFrames, PanopticSetLoss):
    """`PanopticSetLoss` of a clip's objects with masks, of a `ClipSegmenter`.

    Targets are (B, F, M, H, W), the masks of each object in each frame, without a pixel where it is not;
    predictions (B, F n, L (C + 5) + rows columns), frame by frame. All arguments but the number of frames and
    the last two are of `PanopticSetLoss`.

    With `num_cells` predictions are (B, F, .): of each frame the numbers of its `num_objects` n queries, then
    what the cells of its encoded map predict and their centres, C + 7 for each. The loss then has the terms
    of classes and boxes of the cells too, averaged by themselves, once for each block, see `cell_means`.

    >>> loss = keras_tfm.heads.ClipMaskLoss(num_frames=1, grid=(1, 2), num_classes=1)
    >>> query = [9.0, -9.0, 0.25, 0.5, 0.5, 1.0, 9.0, -9.0]  # classes, the box, the mask
    >>> round(float(loss(np.array([[[[[1, 0]]]]]), np.array([[query]]))), 2)
    0.0
    """

    def __init__(
        self,
        num_frames: int,
        grid: Sequence[int],
        num_classes: int,
        *arguments: Any,
        num_objects: int = 0,
        num_cells: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_frames, grid, num_classes, *arguments, **kwargs)
        if num_cells and num_objects < 1:
            raise ValueError(f"`num_objects` must be at least 1 with `num_cells`; it is {num_objects}.")
        self.num_objects = num_objects
        self.num_cells = num_cells

    def means(self, targets, predictions):
        targets = ops.reshape(targets, (-1, *targets.shape[2:]))  # (B F, M, H, W)
        predictions = self.of_frames(predictions, 1)  # (B F, n, .)
        if not self.num_cells:
            return super().means(targets, predictions)
        queries, cells = self.parts_of(predictions[:, 0])
        num_blocks = (queries.shape[-1] - math.prod(self.grid)) // (self.num_classes + 5)
        of_cells = cell_means(self, objects_of(targets)[0], cells, num_blocks)
        return [*super().means(targets, queries), *of_cells]

    def parts_of(self, predictions):
        """The predictions of frames (B F, .) in two parts: queries (B F, n, .) and cells (B F, N, C + 7)."""
        width, length = self.num_classes + 7, predictions.shape[-1]
        of_queries = length - self.num_cells * width
        of_query, rest = divmod(of_queries, self.num_objects)
        if rest or (of_query - math.prod(self.grid)) % (self.num_classes + 5):
            raise ValueError(
                f"`predictions` must hold, of each frame, {self.num_objects} queries and {self.num_cells} "
                f"cells with {self.num_classes} classes; they are {length} numbers wide."
            )
        queries = ops.reshape(predictions[:, :of_queries], (-1, self.num_objects, of_query))
        cells = ops.reshape(predictions[:, of_queries:], (-1, self.num_cells, width))
        return queries, ops.cast(cells, "float32")
