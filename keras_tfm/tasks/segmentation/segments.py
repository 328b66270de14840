"""Segments of an image, each a mask with a class: instances, and panoptic segments with their measure.

Kirillov et al. 2019, "Panoptic Segmentation"; Cheng et al. 2021 (MaskFormer), section 3.4. A map of segments
is (H, W), 0 where a pixel is in none, beside {number: class}.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.layers.boxes import corners_of_masks

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
    query whose probability of the class times the pixel's, by `masks` (Q, rows, columns) resized to the
    `size`, is the greatest. A query is left out where what it got is no more than `overlap` of the pixels
    where this product is at least one half. All of a class in `fused`, the sky for example, are one segment.
    """
    size = masks.shape[1:] if size is None else size
    found = panoptic_map(
        tf.constant(logits), tf.constant(masks), tf.constant(size), threshold, overlap, fused
    )
    numbers, classes, scores = (found[name].numpy() for name in ("segments", "classes", "scores"))
    segments = [
        {"id": number, "class": int(label), "score": float(score)}
        for number, (label, score) in enumerate(zip(classes, scores, strict=True), 1)
    ]
    return numbers, segments


def panoptic_map(
    logits: tf.Tensor,
    masks: tf.Tensor,
    size: tf.Tensor,
    threshold: tf.Tensor | float = 0.5,
    overlap: float = 0.8,
    fused: Collection[int] = (),
) -> dict[str, tf.Tensor]:
    """What `panoptic_segments` returns, in the graph: `segments` (H, W), int32, the number of each pixel's
    segment from 1, 0 for none; `classes` and `scores` (N,) of the segments in the order of their numbers.
    """
    probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))
    none = logits.shape[-1] - 1
    scores, classes = tf.reduce_max(probabilities, axis=-1), tf.argmax(probabilities, -1, tf.int32)
    kept = tf.where((classes < none) & (scores > threshold))[:, 0]
    # After the kept queries comes one of no class, which gets the pixels that no query claims.
    scores = tf.concat([tf.gather(scores, kept), [0.0]], axis=0)
    classes = tf.concat([tf.gather(classes, kept), [none]], axis=0)
    inside = tf.sigmoid(tf.cast(tf.gather(masks, kept), tf.float32))
    inside = tf.concat([inside, tf.zeros_like(tf.cast(masks[:1], tf.float32))], axis=0)
    shares = tf.image.resize(tf.transpose(inside, (1, 2, 0)), tf.cast(size, tf.int32)) * scores
    owners, count = tf.argmax(shares, -1, tf.int32), tf.shape(scores)[0]
    own = tf.math.bincount(tf.reshape(owners, [-1]), minlength=count, maxlength=count)
    whole = tf.math.count_nonzero(shares >= 0.5, axis=(0, 1), dtype=tf.int32)
    # Divide in float32, as transformers does: its rounding decides when exactly 80 % are left.
    covered = tf.cast(tf.math.divide_no_nan(tf.cast(own, tf.float32), tf.cast(whole, tf.float32)), tf.float64)
    is_one = (own > 0) & (whole > 0) & (covered > overlap) & (classes < none)

    places = tf.range(count)
    is_fused = tf.gather(tf.constant([label in fused for label in range(none + 1)]), classes)
    is_alike = (classes[:, None] == classes[None]) & is_one[None]
    first = tf.where(is_fused, tf.argmax(is_alike, -1, tf.int32), places)  # whose number a query has
    is_first = is_one & (first == places)
    numbers = tf.where(is_one, tf.gather(tf.cumsum(tf.cast(is_first, tf.int32)), first), 0)
    return {
        "segments": tf.gather(numbers, owners),
        "classes": tf.boolean_mask(classes, is_first),
        "scores": tf.boolean_mask(scores, is_first),
    }


def instance_masks(
    logits: tf.Tensor, masks: tf.Tensor, size: tf.Tensor, threshold: tf.Tensor | float = 0.0, most: int = 100
) -> dict[str, tf.Tensor]:
    """The instances in one image, in the graph, the surest first: `masks` (N, H, W), boolean, `classes` and
    `scores` (N,).

    It takes the likeliest pairs of a query, by `logits` (Q, C + 1), and a class: `most`, or as many as there
    are queries. Their masks are where the logits `masks` (Q, rows, columns), resized to the `size`, are above
    0, and may overlap. A score is the probability of the class times the mean probability of the mask's
    pixels (Cheng et al. 2021, appendix A). Left out are masks without pixels, and scores below `threshold`.
    """
    probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))[:, :-1]
    num_queries, num_classes = probabilities.shape
    scores, places = tf.math.top_k(tf.reshape(probabilities, [-1]), min(most, num_queries))
    classes, queries = places % num_classes, places // num_classes
    chosen = tf.transpose(tf.cast(tf.gather(masks, queries), tf.float32), (1, 2, 0))
    chosen = tf.image.resize(chosen, tf.cast(size, tf.int32))  # (H, W, N)
    is_inside = chosen > 0
    inside = tf.cast(is_inside, tf.float32)
    area = tf.reduce_sum(inside, axis=(0, 1))
    scores *= tf.math.divide_no_nan(tf.reduce_sum(tf.sigmoid(chosen) * inside, axis=(0, 1)), area)
    order = tf.argsort(scores, direction="DESCENDING", stable=True)
    order = tf.boolean_mask(order, tf.gather((area > 0) & (scores >= threshold), order))
    return {
        "masks": tf.transpose(tf.gather(is_inside, order, axis=2), (2, 0, 1)),
        "classes": tf.gather(classes, order),
        "scores": tf.gather(scores, order),
    }


def areas_and_boxes(masks: tf.Tensor) -> dict[str, tf.Tensor]:
    """`areas` (N,), in pixels, and `boxes` (N, 4), (left, top, right, bottom), float32, of masks (N, H, W)
    that have pixels.
    """
    areas = tf.math.count_nonzero(masks, axis=(1, 2), dtype=tf.int32)
    return {"areas": areas, "boxes": corners_of_masks(masks)}


def panoptic_quality(
    pairs: Iterable[tuple[Segments, Segments]], groups: Mapping[str, Collection[int]] | None = None
) -> dict[str, float]:
    """{"pq", "sq", "rq"}, from 0 to 100, of pairs of (the truth, what is found).

    Two segments of one class match where their intersection is more than half of their union, without pixels
    that are in no true segment. For each class PQ is the sum of these shares over TP + FP / 2 + FN / 2, SQ
    their mean, RQ the quotient of PQ and SQ; a segment that is found is no false one where most of it is in
    no true segment. All three are averaged over the classes that occur (equation 1), and over the classes of
    each of the `groups`, {"things": classes}, as "pq_things" and so on; 0 where none occurs.
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
    averages = dict(_averages(counts, counts))
    for name, classes in (groups or {}).items():
        averages |= {f"{measure}_{name}": value for measure, value in _averages(counts, classes)}
    return averages


def _averages(counts: Mapping[int, np.ndarray], classes: Collection[int]) -> list[tuple[str, float]]:
    """[("pq", its average over the `classes` that occur), ...] by the counts of each."""
    rows = [row for label, row in counts.items() if label in classes]
    if not rows:
        return [("pq", 0.0), ("sq", 0.0), ("rq", 0.0)]
    shares, right, wrong, missed = np.array(rows).T
    halves = right + wrong / 2 + missed / 2
    parts = {"pq": shares / halves, "sq": shares / np.maximum(right, 1), "rq": right / halves}
    return [(name, 100 * float(part.mean())) for name, part in parts.items()]
