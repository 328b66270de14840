"""Segments of an image, each with a class and a number: panoptic segmentation and its measure.

Kirillov et al. 2019, "Panoptic Segmentation"; Cheng et al. 2021 (MaskFormer), section 3.4. A map of segments
is (H, W), 0 where a pixel is in none, beside {number: class}.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

Segments = tuple[np.ndarray, Mapping[int, int]]


def panoptic_segments(
    logits: np.ndarray,
    masks: np.ndarray,
    size: tuple[int, int] | None = None,
    threshold: float = 0.5,
    overlap: float = 0.8,
    fused: Collection[int] = (),
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """What a `MaskClassifier` sees in one image: a map (H, W), and {"id", "class", "score"} of each segment.

    Queries by `logits` (Q, C + 1) whose class is surer than `threshold` share the pixels: each goes to the
    query whose probability of the class times that of the pixel, by `masks` (Q, rows, columns) resized to the
    `size`, is the greatest. A query is left out where what it got is no more than `overlap` of the pixels
    where this product is at least one half. All of a class in `fused`, the sky for example, are one segment.
    """
    probabilities = tf.nn.softmax(tf.cast(logits, tf.float32)).numpy()
    classes, scores = probabilities.argmax(-1), probabilities.max(-1)
    kept = np.flatnonzero((classes < probabilities.shape[-1] - 1) & (scores > threshold))
    size = masks.shape[1:] if size is None else size
    numbers = np.zeros(size, "int32")
    segments: list[dict[str, Any]] = []
    if not len(kept):
        return numbers, segments
    shares = tf.image.resize(tf.transpose(tf.sigmoid(masks[kept]), (1, 2, 0)), size).numpy() * scores[kept]
    owners = shares.argmax(-1)
    shared: dict[int, int] = {}
    for place, query in enumerate(kept):
        own, whole = owners == place, int((shares[..., place] >= 0.5).sum())
        # In float32, as in transformers: it decides where four of five pixels are left.
        if not own.any() or not whole or float(np.float32(own.sum()) / np.float32(whole)) <= overlap:
            continue
        label = int(classes[query])
        number = shared.get(label) or len(segments) + 1
        numbers[own] = number
        if label not in shared:
            segments.append({"id": number, "class": label, "score": float(scores[query])})
        if label in fused:
            shared[label] = number
    return numbers, segments


def panoptic_quality(pairs: Iterable[tuple[Segments, Segments]]) -> dict[str, float]:
    """{"pq", "sq", "rq"}, from 0 to 100, of pairs of (the truth, what is found).

    Two segments of one class match where their intersection is more than half of their union, without pixels
    that are in no true segment. For each class PQ is the sum of these shares over TP + FP / 2 + FN / 2, SQ
    their mean, RQ the quotient of PQ and SQ; a segment that is found is no false one where most of it is in
    no true segment. All three are averaged over the classes that occur (equation 1).
    """
    counts: dict[int, np.ndarray] = {}  # class: sum of shares, TP, FP, FN
    for (truth, true_classes), (found, found_classes) in pairs:
        matched: set[int] = set()
        for number, label in true_classes.items():
            is_true = truth == number
            row = counts.setdefault(label, np.zeros(4))
            best, share = 0, 0.5
            for other in np.unique(found[is_true]).tolist():
                if found_classes.get(other) != label:
                    continue
                is_found = found == other
                union = (is_true | (is_found & (truth != 0))).sum()
                this = (is_true & is_found).sum() / union
                best, share = (other, this) if this > share else (best, share)
            row += [share, 1, 0, 0] if best else [0, 0, 0, 1]
            matched |= {best} - {0}
        for other, label in found_classes.items():
            is_found = found == other
            if other not in matched and (truth[is_found] == 0).sum() <= is_found.sum() / 2:
                counts.setdefault(label, np.zeros(4))[2] += 1
    if not counts:
        return {"pq": 0.0, "sq": 0.0, "rq": 0.0}
    shares, right, wrong, missed = np.array(list(counts.values())).T
    halves = right + wrong / 2 + missed / 2
    parts = {"pq": shares / halves, "sq": shares / np.maximum(right, 1), "rq": right / halves}
    return {name: 100 * float(part.mean()) for name, part in parts.items()}
