"""Pictures with scene graphs over them: boxes, and arrows from subjects to objects, with Pillow."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.serving.tracks import box_iou
from keras_tfm.tasks.images.drawing import COLOURS, Pictures, drawings
from keras_tfm.tasks.images.relation_recall import OVERLAP

LEAST_SIDE = 480  # pixels of a picture's shorter side, in which several predicates have room


def draw_graphs(
    images: Sequence[Any], found: Sequence[dict[str, Any]], class_names: list[str], folder: Pictures
) -> None:
    """Write each of the images, with the triplets `found` in it, to a PNG in the `folder`, as `draw_objects`
    names them. Subjects and objects of one name that overlap by half are drawn once.
    """
    for drawing, answer in zip(drawings(images, folder, LEAST_SIDE), found, strict=True):
        nodes, edges = graph_of(answer)
        for name, box in nodes:
            drawing.box(box, name, COLOURS[class_names.index(name) % len(COLOURS)])
        for first, predicate, second in edges:
            ends = [
                [drawing.scale * (box[i] + box[i + 2]) / 2 for i in (0, 1)]
                for _, box in (nodes[first], nodes[second])
            ]
            _arrow(drawing.pen, ends[0], ends[1], drawing.line)
            size = drawing.size_of(predicate)
            x, y = ((a + b - side) / 2 for a, b, side in zip(*ends, size, strict=True))
            drawing.text(predicate, (x, y), "black")


def graph_of(answer: dict[str, Any]) -> tuple[list[tuple[str, Any]], list[tuple[int, str, int]]]:
    """The objects (name, box) of an answer, each once, and its relations, (row, predicate, row)."""
    nodes: list[tuple[str, Any]] = []

    def row_of(name: str, box: Any) -> int:
        for row, (known, other) in enumerate(nodes):
            if known == name and box_iou(np.asarray(box), np.asarray(other)) >= OVERLAP:
                return row
        nodes.append((name, box))
        return len(nodes) - 1

    ends = [
        [row_of(name, box) for name, box in zip(answer[f"{place}s"], answer[f"{place}_boxes"], strict=True)]
        for place in ("subject", "object")
    ]
    return nodes, list(dict.fromkeys(zip(ends[0], answer["predicates"], ends[1], strict=True)))


def _arrow(pen: Any, start: Sequence[float], end: Sequence[float], line: int) -> None:
    """A line from `start` to `end`, with a head at four fifths of it."""
    for colour, width in (("black", 3 * line), ("white", line)):  # visible on bright objects too
        pen.line([*start, *end], fill=colour, width=width)
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    tip = [a + 0.8 * (b - a) for a, b in zip(start, end, strict=True)]
    size = 6 * line
    wings = [
        (tip[0] - size * math.cos(angle + turn), tip[1] - size * math.sin(angle + turn))
        for turn in (-0.5, 0.5)
    ]
    pen.polygon([tuple(tip), *wings], fill="white", outline="black")
