"""MR^-2, by which detectors of crowds are compared (Dollár et al. 2012, "Pedestrian Detection: An Evaluation
of the State of the Art", sections 3.1 and 3.2).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.data.sources.objects import CrowdedObjects
from keras_tfm.serving.tracks import box_iou, overlaps

REFERENCES = np.logspace(-2, 0, 9)  # false positives per image
OVERLAP = 0.5
RIGHT, WRONG, IGNORED = 1, 0, -1


def miss_rate(examples: CrowdedObjects, found: Sequence[dict[str, Any]]) -> float:
    """The geometric mean, from 0 to 100, of the shares of objects that are missed at 0.01, 0.018, ... 1 false
    positives per image, of what was `found`, boxes in pixels; the mean over classes.

    The surest first, each box gets the free object of its class of the highest IoU, of 0.5 at least. Without
    one it is wrong, but if half of it lies in a crowd, where it counts nothing.
    """
    rates = [
        _of_class(name, examples, found) for name in sorted({x for y in examples.objects.labels for x in y})
    ]
    return 100 * float(np.mean(rates)) if rates else 0.0


def _of_class(name: str, examples: CrowdedObjects, found: Sequence[dict[str, Any]]) -> float:
    scores, verdicts, count = [], [], 0
    for row, answer in enumerate(found):
        scale = examples.sizes[row][[1, 0, 1, 0]]
        is_own = np.array([label == name for label in examples.labels[row]], "bool")
        crowds = (examples.is_crowd[row] | examples.is_difficult[row])[is_own]
        boxes = examples.boxes[row][is_own] * scale
        chosen = np.array([label == name for label in answer["labels"]], "bool")
        guesses = np.asarray(answer["boxes"], "float64").reshape(-1, 4)[chosen]
        scores.append(np.asarray(answer["scores"], "float64")[chosen])
        verdicts.append(_verdicts(guesses, boxes[~crowds], boxes[crowds]))
        count += int((~crowds).sum())
    order = np.argsort(-np.concatenate(scores), kind="stable")
    verdict = np.concatenate(verdicts)[order]
    false = np.cumsum(verdict == WRONG) / len(found)
    missed = np.append(1.0, 1 - np.cumsum(verdict == RIGHT) / count)
    at = missed[np.searchsorted(false, REFERENCES, side="right")]
    return float(np.exp(np.log(np.maximum(at, 1e-10)).mean()))


def _verdicts(guesses: np.ndarray, objects: np.ndarray, crowds: np.ndarray) -> np.ndarray:
    """What each of the `guesses` (D, 4) of an image, the surest first, is: right, wrong or ignored."""
    guesses = guesses[:, None]  # (D, 1, 4)
    iou, areas = box_iou(guesses, objects), np.prod(guesses[..., 2:] - guesses[..., :2], axis=-1)
    shares = overlaps(guesses, crowds)[0] / np.maximum(areas, 1e-9)
    verdicts = np.where((shares >= OVERLAP).any(axis=1), IGNORED, WRONG)
    for number, row in enumerate(iou):  # of an object that is taken, all are 0
        if row.max(initial=0.0) >= OVERLAP:
            verdicts[number] = RIGHT
            iou[:, row.argmax()] = 0.0
    return verdicts
