"""How many of the true relations in images are found: recall at k, its mean over predicates, and a baseline.

Lu et al. 2016, "Visual Relationship Detection with Language Priors", section 5, and, for the mean over
predicates, Chen et al. 2019, "Knowledge-Embedded Routing Network for Scene Graph Generation", section 4.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.data.sources.relations import RelatedObjects
from keras_tfm.serving.tracks import box_iou

BOUNDS = (20, 50)
OVERLAP = 0.5  # the least IoU of both boxes with the true ones
RULE = "r20_of_the_commonest_predicate"


def relation_recall(examples: RelatedObjects, found: Sequence[dict[str, Any]]) -> dict[str, float]:
    """{"r20", "r50", "mr20", "mr50"}, from 0 to 100, of the answers `found`, the surest triplets first.

    A true relation is found by a triplet among the k surest with the same three names and both boxes at an
    IoU of 0.5 or more. "r" is the mean over images of the share that is found; "mr" the mean over predicates
    of the same for the relations of one predicate. Images without relations count nothing. Beside them stands
    the recall of a rule that knows all true boxes and names: between each two objects, in both directions,
    stands the commonest predicate of these examples.
    """
    truth = [_triplets(examples, row) for row in range(len(examples.relations))]
    measures = {}
    for kind in ("r", "mr"):
        for k in BOUNDS:
            hits = [
                [_is_found(true, answer, k) for true in each]
                for each, answer in zip(truth, found, strict=True)
            ]
            measures[f"{kind}{k}"] = _mean(hits) if kind == "r" else _mean_of_predicates(truth, hits)
    measures[RULE] = _mean(_by_rule(examples))
    return measures


def _triplets(
    examples: RelatedObjects, row: int
) -> list[tuple[tuple[str, str, str], np.ndarray, np.ndarray]]:
    """(Names, box of the subject, box of the object), in pixels, of each relation of an image."""
    height, width = examples.sizes[row].tolist()
    boxes = examples.boxes[row].astype("float64") * [width, height, width, height]
    names = examples.labels[row]
    return [((names[s], p, names[o]), boxes[s], boxes[o]) for s, p, o in examples.relations[row]]


def _is_found(true: tuple[Any, np.ndarray, np.ndarray], answer: dict[str, Any], k: int) -> bool:
    names, *ends = true
    for place in range(min(k, len(answer["scores"]))):
        if names == tuple(answer[part][place] for part in ("subjects", "predicates", "objects")):
            boxes = answer["subject_boxes"][place], answer["object_boxes"][place]
            if (box_iou(np.array(boxes, "float64"), np.array(ends)) >= OVERLAP).all():
                return True
    return False


def _mean(hits: Sequence[Sequence[bool]]) -> float:
    """The mean over images of the share of hits, from 0 to 100."""
    shares = [np.mean(each) for each in hits if each]
    return 100 * float(np.mean(shares)) if shares else 0.0


def _mean_of_predicates(truth: Sequence[Sequence[Any]], hits: Sequence[Sequence[bool]]) -> float:
    of_predicate: dict[str, list[list[bool]]] = defaultdict(list)
    for triplets, each in zip(truth, hits, strict=True):
        of_image: dict[str, list[bool]] = defaultdict(list)
        for ((_, predicate, _), *_), hit in zip(triplets, each, strict=True):
            of_image[predicate].append(hit)
        for predicate, found in of_image.items():
            of_predicate[predicate].append(found)
    return float(np.mean([_mean(each) for each in of_predicate.values()])) if of_predicate else 0.0


def _by_rule(examples: RelatedObjects) -> list[list[bool]]:
    """Whether the rule finds each relation: of the pairs of an image, row by row, 20 count."""
    counts = Counter(predicate for each in examples.relations for _, predicate, _ in each)
    commonest = max(sorted(counts), key=lambda name: counts[name]) if counts else None
    hits = []
    for labels, relations in zip(examples.labels, examples.relations, strict=True):
        pairs = [(s, o) for s in range(len(labels)) for o in range(len(labels)) if s != o][: BOUNDS[0]]
        hits.append([predicate == commonest and (s, o) in pairs for s, predicate, o in relations])
    return hits
