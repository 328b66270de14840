"""Tracks of many objects: which detection of a frame continues which track. State in, state out.

    tracks + detections of a frame --- cost 1 - GIoU, least sum ---> pairs
    a detection without a track begins one; a track without a detection lives on unseen for some frames, and
    is reborn if a detection fits its last box

Sun et al. 2020, "TransTrack: Multiple Object Tracking with Transformer", section 3.4. Boxes here are
corners, (left, top, right, bottom) in any unit. It needs SciPy for the assignment.
"""

from typing import Any, NamedTuple

import numpy as np


class Tracks(NamedTuple):
    """M tracks after a frame: those seen in it, then new ones, then unseen ones.

    `ids` (M,) count from 1, `boxes` (M, 4), `scores` (M,) of the last detection, `ages` (M,) 1 for a track
    seen in the last frame and one more for each frame since, `slots` (M,) the place of its detection in that
    frame, -1 for an unseen one, and `last_id`, the highest id given so far.
    """

    ids: Any
    boxes: Any
    scores: Any
    ages: Any
    slots: Any
    last_id: int = 0

    @property
    def is_seen(self):
        """Which tracks are seen in the last frame (M,)."""
        return self.ages == 1


def no_tracks():
    """The state before the first frame."""
    none = np.zeros(0, "int64")
    return Tracks(none, np.zeros((0, 4)), np.zeros(0), none, none)


def associate(
    tracks, scores, boxes, expected_boxes=None, *, least_score=0.4, highest_cost=1.2, max_age=32
) -> Tracks:
    """The tracks after a frame with detections `boxes` (Q, 4) of these `scores` (Q,).

    Detections of less than `least_score` are left out. `expected_boxes` (Q', 4) are where the detections of
    the frame before should now be, in its slots; without them a track is expected where it was. Pairs that
    cost more than `highest_cost` are refused; a track dies when it is not seen for `max_age` frames.

    >>> tracks = associate(no_tracks(), np.array([0.9, 0.1]), np.array([[0, 0, 2, 2], [5, 5, 6, 6]]))
    >>> tracks = associate(tracks, np.array([0.8, 0.9]), np.array([[5, 5, 6, 6], [0, 1, 2, 3]]))
    >>> tracks.ids.tolist(), tracks.slots.tolist()
    ([1, 2], [1, 0])
    """
    scores, boxes = np.asarray(scores), np.asarray(boxes)
    if boxes.shape != (*scores.shape, 4):
        raise ValueError(f"`boxes` must have the shape {(*scores.shape, 4)}; it is {boxes.shape}.")
    tracks = _expected(tracks, expected_boxes)
    slots = np.flatnonzero(scores >= least_score)
    pairs, refused = _pairs(boxes[slots], tracks.boxes, highest_cost)
    detections, matched = pairs
    new, unseen = (
        np.concatenate([np.setdiff1d(np.arange(count), np.concatenate([pair, others])), others])
        for count, pair, others in zip((len(slots), len(tracks.ids)), pairs, refused, strict=True)
    )
    unseen = unseen[tracks.ages[unseen] < max_age]
    seen = slots[np.concatenate([detections, new])]
    ids = tracks.last_id + 1 + np.arange(len(new))
    return Tracks(
        np.concatenate([tracks.ids[matched], ids, tracks.ids[unseen]]),
        np.concatenate([boxes[seen], tracks.boxes[unseen]]),
        np.concatenate([scores[seen], tracks.scores[unseen]]),
        np.concatenate([np.ones(len(seen), "int64"), tracks.ages[unseen] + 1]),
        np.concatenate([seen, np.full(len(unseen), -1)]),
        tracks.last_id + len(new),
    )


def _expected(tracks, boxes):
    """`tracks` where they should now be, in the order of their slots, unseen ones last."""
    seen, unseen = np.flatnonzero(tracks.slots >= 0), np.flatnonzero(tracks.slots < 0)
    order = np.concatenate([seen[np.argsort(tracks.slots[seen])], unseen])
    ids, last_boxes, scores, ages, slots = (x[order] for x in tracks[:-1])
    if boxes is not None:
        last_boxes = np.where(slots[:, None] >= 0, np.asarray(boxes)[np.maximum(slots, 0)], last_boxes)
    return Tracks(ids, last_boxes, scores, ages, slots, tracks.last_id)


def _pairs(boxes, others, highest_cost):
    """((Indices of boxes, of others) of the assignment of least cost, the same of its refused pairs)."""
    costs = 1 - generalized_iou(boxes[:, None], others[None])
    first, second = assignment(costs)
    is_cheap = costs[first, second] <= highest_cost
    return (first[is_cheap], second[is_cheap]), (first[~is_cheap], second[~is_cheap])


def assignment(costs):
    """(Rows, columns) of the pairs of a matrix of `costs` with the least sum, as many as there can be."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise ImportError("tracking needs SciPy: pip install scipy") from None
    return linear_sum_assignment(costs)


def overlaps(boxes, others):
    """(Intersections, unions) of corner boxes (..., 4), which broadcast: (...) both."""
    common = _area(np.minimum(boxes[..., 2:], others[..., 2:]) - np.maximum(boxes[..., :2], others[..., :2]))
    areas = _area(boxes[..., 2:] - boxes[..., :2]) + _area(others[..., 2:] - others[..., :2])
    return common, areas - common


def generalized_iou(boxes, others):
    """The GIoU of corner boxes (..., 4), which broadcast: (...)."""
    common, union = overlaps(boxes, others)
    hull = _area(np.maximum(boxes[..., 2:], others[..., 2:]) - np.minimum(boxes[..., :2], others[..., :2]))
    return _quotient(common, union) - _quotient(hull - union, hull)


def box_iou(boxes, others):
    """The IoU of corner boxes (..., 4), which broadcast: (...)."""
    return _quotient(*overlaps(boxes, others))


def _area(sides):
    return np.prod(np.maximum(sides, 0), axis=-1)


def _quotient(x, y):
    return np.divide(x, y, out=np.zeros(np.shape(x)), where=y != 0)
