"""How well lanes are found, by TuSimple's measures (the benchmark of its lane detection challenge, 2017)."""

from collections.abc import Iterable

import numpy as np

from keras_tfm.data.sources.lanes import LEAST_POINTS, NOWHERE, Lanes

TOLERANCE, WIDTH = 20.0, 1280  # pixels across a vertical lane, in an image of this width
LEAST_MATCHED = 0.85  # of a lane's heights
MOST_COUNTED, MOST_SPARE = 4, 2  # lanes of an image, and lanes more than it has
FAR = -100.0  # tolerances: there a lane is where it is not, so that it is near to no other


def lane_measures(examples: Lanes, found: Iterable[np.ndarray]) -> dict[str, float]:
    """{"accuracy", "fp", "fn"}, from 0 to 100, means over images, of the lanes `found` in each of them, x (M,
    P) at its heights relative to its width, negative where a lane is not.

    "accuracy" is the share of points that are right, "fp" the share of the lanes found that match none, "fn"
    the share of the lanes that none matches; see `lane_scores`. An image without lanes counts in "fp" alone.
    """
    scores, spurious = [], []
    for size, heights, wanted, answer in zip(*examples[1:], found, strict=True):
        height, width = size.tolist()
        tolerance = TOLERANCE * width / WIDTH
        accuracy, fp, fn = lane_scores(wanted * width, answer * width, heights * height, tolerance)
        if len(wanted):
            scores.append((accuracy, fn))
        # All are false where there is none, also more than make a failure.
        spurious.append(fp if len(wanted) else float(len(answer) > 0))
    accuracy, fn = np.mean(scores, axis=0) if scores else (np.nan, np.nan)
    return {"accuracy": 100 * accuracy, "fp": 100 * float(np.mean(spurious)), "fn": 100 * fn}


def lane_scores(
    wanted: np.ndarray, found: np.ndarray, heights: np.ndarray, tolerance: float = TOLERANCE
) -> tuple[float, float, float]:
    """(Accuracy, share of false lanes, share of missed lanes) of the lanes `found` (M, P) in an image with
    the lanes `wanted` (N, P), x in pixels at `heights` (P,), negative where a lane is not.

    A point is right within the `tolerance`, which is measured across the lane: a slanted lane has more along
    a row. The accuracy of a lane is the largest share of right points of one found, points that are in
    neither being right; it is matched from 85 % on. Among five lanes or more the worst may be missed; more
    lanes than there are and two are a failure.

    >>> wanted, found = np.array([[10.0, 20.0, 30.0, 40.0]]), np.array([[10.0, 20.0, 30.0, -2.0]])
    >>> from keras_tfm.tasks.images.lane_measures import lane_scores
    >>> lane_scores(wanted, found, np.array([1.0, 2.0, 3.0, 4.0]))
    (0.75, 1.0, 1.0)
    """
    if len(found) > len(wanted) + MOST_SPARE:
        return 0.0, 0.0, 1.0
    wanted, found = (np.where(x < 0, FAR * tolerance, x) for x in (wanted, found))
    accuracies = []
    for lane in wanted:
        is_right = abs(found - lane) < tolerance * _stretch(lane, heights)
        accuracies.append(float(is_right.mean(axis=1).max(initial=0.0)))
    num_matched = sum(accuracy >= LEAST_MATCHED for accuracy in accuracies)
    total, num_missed = sum(accuracies), len(wanted) - num_matched
    if len(wanted) > MOST_COUNTED:
        total, num_missed = total - min(accuracies), max(num_missed - 1, 0)
    count = max(min(len(wanted), MOST_COUNTED), 1)
    return total / count, (len(found) - num_matched) / max(len(found), 1), num_missed / count


def _stretch(lane: np.ndarray, heights: np.ndarray) -> float:
    """How much longer a lane's way across is along a row: 1 / cos of the angle of the line through it."""
    is_there = lane >= 0
    if is_there.sum() < LEAST_POINTS:
        return 1.0
    y, x = heights[is_there], lane[is_there]
    slope = np.mean((y - y.mean()) * (x - x.mean())) / np.var(y)
    return float(np.hypot(1.0, slope))


def mean_lanes(examples: Lanes, heights: np.ndarray) -> np.ndarray:
    """The mean lanes (M, P) at `heights`, what `lane_measures` takes for a baseline: of the images with as
    many lanes as most have, the mean of their first from the left, of their second, and so on, each where
    half of the images have it.
    """
    counts = [len(lanes) for lanes in examples.lanes]
    most = int(np.bincount(counts)[1:].argmax()) + 1
    stacked = []
    for own, lanes in zip(examples.heights, examples.lanes, strict=True):
        if len(lanes) != most:
            continue
        curves = [(own[x >= 0], x[x >= 0]) for x in lanes]
        rows = [np.interp(heights, y, x, left=np.nan, right=np.nan) for y, x in curves]
        bottoms = [np.polyval(np.polyfit(y, x, 1), 1.0) for y, x in curves]
        stacked.append(np.array(rows)[np.argsort(bottoms)])
    values = np.array(stacked)  # (images, M, P)
    is_there = np.isfinite(values)
    means = np.where(is_there, values, 0).sum(axis=0) / np.maximum(is_there.sum(axis=0), 1)
    return np.where(is_there.mean(axis=0) >= 0.5, means, NOWHERE)


def mean_accuracy(examples: Lanes, asked: Lanes) -> float:
    """The accuracy, from 0 to 100, that the mean lanes of `examples` have on those `asked`."""
    grids = {heights.tobytes(): heights for heights in asked.heights}  # most images share one
    means = {key: mean_lanes(examples, heights) for key, heights in grids.items()}
    return lane_measures(asked, [means[heights.tobytes()] for heights in asked.heights])["accuracy"]
