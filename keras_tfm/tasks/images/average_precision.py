"""COCO's average precision of detected objects, by their boxes or masks (Lin et al. 2014), by
faster-coco-eval.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from keras_tfm.data.sources.objects import CrowdedObjects, Objects
from keras_tfm.data.sources.run_lengths import packed
from keras_tfm.data.sources.segments import SegmentSets
from keras_tfm.data.sources.stated_sizes import Size

MEASURES = {"ap": 0, "ap50": 1, "ap75": 2}  # their places among COCO's twelve
IGNORED_AREA = 1e12  # larger than the areas that count: COCO's measure ignores what fits such an object
Entries = list[dict[str, Any]]


def average_precision(
    examples: Objects | CrowdedObjects, found: Sequence[dict[str, Any]]
) -> dict[str, float]:
    """{"ap", "ap50", "ap75"}, from 0 to 100, of what was `found` in each of the images, boxes in pixels.

    "ap" is the mean over overlaps of 0.5, 0.55, ... 0.95, and all over the classes that the examples have; of
    each class in an image the 100 surest objects count. What fits a difficult object, or fits none and lies
    in a crowd of its class, is neither right nor wrong; the overlap with a crowd is the intersection over the
    area of what was found.
    """
    marks = [[np.zeros(len(names), "bool") for names in examples.labels]] * 2
    if isinstance(examples, CrowdedObjects):
        marks = [examples.is_crowd, examples.is_difficult]
    truth: list[Entries] = []
    rows = zip(examples.sizes, examples.boxes, examples.labels, *marks, found, strict=True)
    for size, boxes, labels, crowds, difficult, answer in rows:
        height, width = size.tolist()
        pixels = as_coco(boxes.astype("float64") * [width, height, width, height])
        entries: Entries = []
        for box, name, crowd, is_difficult in zip(pixels, labels, crowds, difficult, strict=True):
            area = IGNORED_AREA if is_difficult else box[2] * box[3]
            entry = {"name": name, "bbox": box, "area": area, "iscrowd": int(crowd)}
            # In VOC's measure a difficult object fits any number of guesses, in COCO's an object fits one.
            entries += [entry] * (list(answer["labels"]).count(name) if is_difficult and not crowd else 1)
        truth.append(entries)
    results = []
    for answer in found:
        corners = as_coco(np.asarray(answer["boxes"], "float64"))
        guesses = zip(corners, answer["labels"], answer["scores"], strict=True)
        results.append([{"name": name, "bbox": box, "score": float(score)} for box, name, score in guesses])
    return _precision(examples.sizes.tolist(), truth, results, "bbox")


def mask_precision(sets: SegmentSets, found: Iterable[dict[str, Any]]) -> dict[str, float]:
    """What `average_precision` measures, by the masks of segments, (M, H, W) in each of the answers."""
    truth = [
        [
            {"name": name, "iscrowd": is_crowd} | _of_runs(runs, size)
            for is_crowd, entries in enumerate((segments, crowds))
            for name, runs in entries
        ]
        for size, segments, crowds in zip(sets.sizes, sets.segments, sets.crowds, strict=True)
    ]
    results = []
    for answer in found:
        rows = zip(answer["masks"], answer["labels"], answer["scores"], strict=True)
        results.append(
            [
                {"name": name, "score": float(score)} | _of_runs(packed(mask), mask.shape)
                for mask, name, score in rows
            ]
        )
    return _precision(sets.sizes, truth, results, "segm")


def _of_runs(runs: bytes, size: Size) -> dict[str, Any]:
    """COCO's entries for a packed mask."""
    from faster_coco_eval.core import mask as library

    segmentation = {"size": list(size), "counts": runs.decode("ascii")}
    return {"segmentation": segmentation, "area": int(library.area(segmentation))}


def _precision(
    sizes: Sequence[Sequence[int]], truth: Sequence[Entries], found: Sequence[Entries], kind: str
) -> dict[str, float]:
    """The measures of entries, which have a "name" in place of COCO's ids, in images of these `sizes`."""
    from faster_coco_eval import COCO, COCOeval_faster

    names = sorted({entry["name"] for entries in truth for entry in entries})
    number = {name: place for place, name in enumerate(names, 1)}

    def numbered(entries: Sequence[Entries]) -> Entries:
        return [
            {"image_id": row, "category_id": number[entry["name"]]}
            | {key: value for key, value in entry.items() if key != "name"}
            for row, each in enumerate(entries)
            for entry in each
            if entry["name"] in number  # a class that no example has counts nowhere
        ]

    annotations = [{"id": place, **entry} for place, entry in enumerate(numbered(truth), 1)]
    results = numbered(found)
    if not results or all(entry["iscrowd"] or entry["area"] == IGNORED_AREA for entry in annotations):
        return dict.fromkeys(MEASURES, 0.0)
    known = COCO(
        {
            "images": [
                {"id": row, "height": int(height), "width": int(width)}
                for row, (height, width) in enumerate(sizes)
            ],
            "annotations": annotations,
            "categories": [{"id": place, "name": name} for name, place in number.items()],
        }
    )
    evaluation = COCOeval_faster(known, known.loadRes(results), kind, print_function=lambda *_, **__: None)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return {name: 100 * float(evaluation.stats[place]) for name, place in MEASURES.items()}


def as_coco(corners: np.ndarray) -> list[list[float]]:
    """(left, top, right, bottom) -> [left, top, width, height]."""
    corners = corners.reshape(-1, 4)
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1).tolist()
