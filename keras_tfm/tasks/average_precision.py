"""COCO's average precision of detected objects (Lin et al. 2014), by faster-coco-eval."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.data.sources.objects import Objects

MEASURES = {"ap": 0, "ap50": 1, "ap75": 2}  # their places among COCO's twelve


def average_precision(examples: Objects, found: Sequence[dict[str, Any]]) -> dict[str, float]:
    """{"ap", "ap50", "ap75"}, from 0 to 100, of what was `found` in each of the images, boxes in pixels.

    "ap" is the mean over overlaps of 0.5, 0.55, ... 0.95, and all over the classes that the examples have; of
    each image the 100 surest objects count.
    """
    from faster_coco_eval import COCO, COCOeval_faster

    names = sorted({name for names in examples.labels for name in names})
    number = {name: place for place, name in enumerate(names, 1)}
    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for row, (size, boxes, labels) in enumerate(
        zip(examples.sizes, examples.boxes, examples.labels, strict=True)
    ):
        height, width = size.tolist()
        pixels = as_coco(boxes.astype("float64") * [width, height, width, height])
        for box, name in zip(pixels, labels, strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": row,
                    "category_id": number[name],
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                }
            )
    for row, answer in enumerate(found):
        corners = as_coco(np.asarray(answer["boxes"], "float64"))
        for box, name, score in zip(corners, answer["labels"], answer["scores"], strict=True):
            if name in number:  # a class that no example has counts nowhere
                results.append(
                    {"image_id": row, "category_id": number[name], "bbox": box, "score": float(score)}
                )
    if not results or not annotations:
        return dict.fromkeys(MEASURES, 0.0)
    truth = COCO(
        {
            "images": [
                {"id": row, "height": int(height), "width": int(width)}
                for row, (height, width) in enumerate(examples.sizes)
            ],
            "annotations": annotations,
            "categories": [{"id": place, "name": name} for name, place in number.items()],
        }
    )
    evaluation = COCOeval_faster(truth, truth.loadRes(results), "bbox", print_function=lambda *_, **__: None)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return {name: 100 * float(evaluation.stats[place]) for name, place in MEASURES.items()}


def as_coco(corners: np.ndarray) -> list[list[float]]:
    """(left, top, right, bottom) -> [left, top, width, height]."""
    corners = corners.reshape(-1, 4)
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1).tolist()
