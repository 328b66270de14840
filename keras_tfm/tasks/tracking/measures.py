"""How well objects are tracked, in percent: one object by the overlap of boxes, many by their identities too.

| measure | what it counts | from |
|---|---|---|
| auc | frames whose IoU is above a threshold, averaged over 0, 0.05, ... 1 | Wu et al. 2013, OTB |
| precision | frames whose centre is at most 20 pixels off | the same |
| mota | 1 - (misses + false positives + switches) / objects | Bernardin and Stiefelhagen 2008, CLEAR MOT |
| idf1 | 2 pairs / (objects + detections), where each identity is of one track | Ristani et al. 2016 |
| hota | root of detection and association accuracy, averaged over 19 overlaps | Luiten et al. 2021 |

Boxes are corners, (left, top, right, bottom), in pixels.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.serving.tracks import assignment, box_iou

THRESHOLDS = np.arange(21) * 0.05  # of the success plot
OVERLAPS = np.arange(1, 20) * 0.05  # of HOTA
NEAR = 20.0  # pixels
LEAST_OVERLAP = 0.5  # of a pair, for MOTA and IDF1
TOLERANCE = 1e-10  # for overlaps that are equal but for rounding


class Frame(NamedTuple):
    """The identities (N,) and boxes (N, 4) of the objects of a frame."""

    ids: Any
    boxes: Any


class Clip(NamedTuple):
    """A video's overlaps: for each frame the places of its N objects and its M tracks among all identities of
    the video, and the IoU of all pairs (N, M); `num_objects` and `num_tracks` in the whole video.
    """

    frames: list
    num_objects: int
    num_tracks: int


def single_object_measures(truth: Any, found: Any) -> dict[str, float]:
    """{"auc", "precision"} of one object's boxes `found` (T, 4) in the frames of a video.

    Frames where `truth` (T, 4) has a box without area, since the object is not there, do not count.
    """
    truth, found = (np.asarray(x, "float64").reshape(-1, 4) for x in (truth, found))
    if truth.shape != found.shape:
        raise ValueError(f"`found` must have a box for each of {len(truth)} frames; it has {len(found)}.")
    is_there = np.all(truth[:, 2:] > truth[:, :2], axis=1)
    if not is_there.any():
        raise ValueError("`truth` must have a box with an area in some frame; it has none.")
    truth, found = truth[is_there], found[is_there]
    overlaps = box_iou(truth, found)
    distances = np.linalg.norm((truth[:, :2] + truth[:, 2:] - found[:, :2] - found[:, 2:]) / 2, axis=1)
    return {
        "auc": 100 * float(np.mean(overlaps[:, None] > THRESHOLDS)),
        "precision": 100 * float(np.mean(distances <= NEAR)),
    }


def multiple_object_measures(videos: Iterable[tuple[Sequence[Frame], Sequence[Frame]]]) -> dict[str, float]:
    """{"mota", "idf1", "hota", "detection_accuracy", "association_accuracy"} and the number of
    "id_switches", of `videos`, pairs of the true and of the found `Frame`s.

    ValueError for videos without objects, of unequal numbers of frames, or with an identity twice in a frame.
    """
    clips = [_clip(truth, found) for truth, found in videos]
    num_objects = sum(len(objects) for clip in clips for objects, *_ in clip.frames)
    num_found = sum(len(tracks) for clip in clips for _, tracks, _ in clip.frames)
    if not num_objects:
        raise ValueError("the videos must show at least one object; they show none.")
    pairs, switches = np.sum([_clear_counts(clip) for clip in clips], axis=0).tolist()
    wrong = num_objects + num_found - 2 * pairs + switches
    same = sum(_identity_pairs(clip) for clip in clips)
    matched, associated = np.sum([_hota_counts(clip) for clip in clips], axis=0)  # (19,) both
    detection = matched / (num_objects + num_found - matched)
    association = associated / np.maximum(matched, 1)
    return {
        "mota": 100 * (1 - wrong / num_objects),
        "idf1": 100 * 2 * same / (num_objects + num_found),
        "hota": 100 * float(np.mean(np.sqrt(detection * association))),
        "detection_accuracy": 100 * float(np.mean(detection)),
        "association_accuracy": 100 * float(np.mean(association)),
        "id_switches": int(switches),
    }


def _clip(truth: Sequence[Frame], found: Sequence[Frame]) -> Clip:
    if len(truth) != len(found):
        raise ValueError(f"a video of {len(truth)} frames has answers for {len(found)}.")
    sides = []
    for frames in (truth, found):
        ids = [np.asarray(frame.ids).reshape(-1) for frame in frames]
        for i, x in enumerate(ids):
            if len(np.unique(x)) < len(x):
                raise ValueError(f"an identity stands twice in frame {i}: {sorted(x.tolist())}.")
        names = np.concatenate([np.zeros(0, "int64"), *ids])
        known, places = np.unique(names, return_inverse=True)
        sides.append((len(known), np.split(places, np.cumsum([len(x) for x in ids])[:-1])))
    (num_objects, objects), (num_tracks, tracks) = sides
    overlaps = [
        box_iou(np.reshape(a.boxes, (-1, 1, 4)), np.reshape(b.boxes, (1, -1, 4)))
        for a, b in zip(truth, found, strict=True)
    ]
    return Clip(list(zip(objects, tracks, overlaps, strict=True)), num_objects, num_tracks)


def _clear_counts(clip: Clip) -> tuple[int, int]:
    """(Pairs, switches): a pair of the frame before stays while it overlaps, the others are made anew; as in
    TrackEval, a frame without objects or without tracks is passed over. An object switches when it gets
    another track than it last had.
    """
    last, before = np.full(clip.num_objects, -1), np.full(clip.num_objects, -1)
    pairs = switches = 0
    for objects, tracks, overlaps in clip.frames:
        if not overlaps.size:
            continue
        stays = before[objects][:, None] == tracks
        scores = np.where(overlaps >= LEAST_OVERLAP - TOLERANCE, overlaps + 1000 * stays, 0)
        rows, columns = assignment(-scores)
        is_pair = scores[rows, columns] > 0
        matched, own = objects[rows[is_pair]], tracks[columns[is_pair]]
        switches += np.sum((last[matched] >= 0) & (last[matched] != own))
        before[:] = -1
        last[matched] = before[matched] = own
        pairs += len(matched)
    return pairs, switches


def _identity_pairs(clip: Clip) -> float:
    """The most frames in which objects can overlap with their tracks, each with one track in all frames."""
    counts = np.zeros((clip.num_objects, clip.num_tracks))
    for objects, tracks, overlaps in clip.frames:
        counts[np.ix_(objects, tracks)] += overlaps >= LEAST_OVERLAP - TOLERANCE
    return counts[assignment(-counts)].sum()


def _hota_counts(clip: Clip) -> tuple[np.ndarray, np.ndarray]:
    """(Pairs, the sum of their association accuracies) for each of the `OVERLAPS`: (19,) both."""
    shared = np.zeros((clip.num_objects, clip.num_tracks))
    of_objects, of_tracks = np.zeros(clip.num_objects), np.zeros(clip.num_tracks)
    for objects, tracks, overlaps in clip.frames:
        union = overlaps.sum(0, keepdims=True) + overlaps.sum(1, keepdims=True) - overlaps
        shared[np.ix_(objects, tracks)] += np.divide(
            overlaps, union, out=np.zeros_like(overlaps), where=union > TOLERANCE
        )
        of_objects[objects] += 1
        of_tracks[tracks] += 1
    both = of_objects[:, None] + of_tracks
    alike = shared / np.maximum(both - shared, TOLERANCE)
    counts = np.zeros((len(OVERLAPS), clip.num_objects, clip.num_tracks))
    for objects, tracks, overlaps in clip.frames:
        rows, columns = assignment(-alike[np.ix_(objects, tracks)] * overlaps)
        is_pair = overlaps[rows, columns] >= OVERLAPS[:, None] - TOLERANCE  # (19, pairs)
        counts[:, objects[rows], tracks[columns]] += is_pair
    association = counts / np.maximum(both - counts, 1)
    return counts.sum((1, 2)), (counts * association).sum((1, 2))
