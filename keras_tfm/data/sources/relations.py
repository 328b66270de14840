"""Images with boxes around objects and relations between them: JSON lines, or Visual Genome's JSON.

JSON lines are as of `objects`, with "relations": [[subject, predicate, object]], where subject and object
are the numbers, from 0, of boxes of the line. Visual Genome's relationships.json (Krishna et al. 2017):
[{"image_id", "relationships": [{"predicate", "subject", "object"}]}], where subject and object are
{"object_id", "name" or "names", "x", "y", "w", "h"} in pixels; the image is image_id.jpg.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.coco import located, read_json
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.lines import LINES, DataError, files_of
from keras_tfm.data.sources.objects import (
    STRETCHED,
    as_array,
    checked_boxes,
    checked_objects,
    pictures_of_lines,
)
from keras_tfm.data.sources.pictures import Picture, checked_pictures, read_pictures

KINDS = "a .jsonl with boxes, labels and relations, or Visual Genome's relationships.json"
Relation = tuple[int, str, int]  # the row of the subject, the predicate, the row of the object


class RelatedObjects(NamedTuple):
    """`Objects` with the relations in each image: (row of the subject, predicate, row of the object).

    >>> images = np.zeros((1, 8, 8, 3), "uint8")
    >>> boxes = np.array([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
    >>> labels, relations = [["cat", "dog"]], [[(0, "left of", 1)]]
    >>> data = keras_tfm.data.RelatedObjects(images, np.array([(8, 8)]), [boxes], labels, relations)
    >>> data.relations[0]
    [(0, 'left of', 1)]
    """

    images: np.ndarray | ImageFiles
    sizes: np.ndarray
    boxes: list[np.ndarray]
    labels: list[list[str]]
    relations: list[list[Relation]]


class Thing(NamedTuple):
    """A box's row, its name, and (predicate, row of the object) of each relation whose subject it is."""

    row: int
    name: str
    relations: list[tuple[str, int]]


def read_relations(paths: Any, shape: tuple[int, int, int], canvas: Canvas = STRETCHED) -> RelatedObjects:
    """The images in one or several files, of this `shape` or decoded when needed, with objects and relations.

    Images and boxes are skipped as by `read_objects`, and with a box its relations.

    Raises:
        DataError: as from `read_objects`, for a relation to a box that is not there, and if no relation is
            left.

    >>> import pathlib
    >>> tf.io.write_file("scene.png", tf.io.encode_png(np.zeros((4, 4, 3), "uint8")))
    >>> line = '{"image": "scene.png", "boxes": [[0, 0, 2, 4], [2, 0, 4, 4]], "labels": ["cat", "dog"],'
    >>> _ = pathlib.Path("scenes.jsonl").write_text(line + ' "relations": [[0, "left of", 1]]}')
    >>> keras_tfm.data.read_relations("scenes.jsonl", shape=(8, 8, 3)).relations
    [[(0, 'left of', 1)]]
    """
    files = files_of(paths)
    pictures = [picture for file in files for picture in related_in(file)]
    checked = checked_pictures(pictures, files[0], checked_objects)
    images, sizes, parts = read_pictures(pictures, checked, files[0], shape, canvas, "boxes")
    boxes = [as_array([box for box, _ in each]) for each in parts]
    labels, relations = _split([[thing for _, thing in each] for each in parts])
    if not any(relations):
        raise DataError(files[0], None, "expected relations between boxes, there are none")
    return RelatedObjects(images, sizes, boxes, labels, relations)


def checked_relations(
    found: Sequence[tuple[str, Any, Sequence[str], Any]], sizes: np.ndarray
) -> tuple[list[np.ndarray], list[list[str]], list[list[Relation]]]:
    """(Boxes relative to the sides of images of these `sizes`, their names, their relations), for (place,
    boxes in pixels, names, relations) of each image, as `checked_boxes` has them.
    """
    rows = [(place, boxes, things_of(names, relations, place)) for place, boxes, names, relations in found]
    parts = checked_boxes(rows, sizes)
    boxes = [as_array([box for box, _ in each]) for each in parts]
    return boxes, *_split([[thing for _, thing in each] for each in parts])


def related_in(path: str) -> list[Picture]:
    """The images in a file, each with (boxes in pixels, their `Thing`s)."""
    if path.lower().endswith(LINES):
        return pictures_of_lines(
            path, lambda row, place: things_of(row["labels"], row.get("relations", []), place)
        )
    if path.lower().endswith(".json"):
        return _visual_genome(path)
    raise DataError(path, None, f"expected {KINDS}")


def things_of(names: Sequence[str], relations: Any, place: str) -> list[Thing]:
    """The boxes of these names with their relations; DataError for a relation that is none."""
    if not isinstance(relations, list | tuple):
        raise DataError(place, None, f'expected a list as "relations", got {brief(relations)}')
    things = [Thing(row, name, []) for row, name in enumerate(names)]
    for number, relation in enumerate(relations, 1):
        is_triple = isinstance(relation, list | tuple) and len(relation) == 3
        if not is_triple or not (isinstance(relation[1], str) and relation[1].strip()):
            expected = "expected [subject, predicate, object], two numbers of boxes around a text"
            raise DataError(place, None, f"relation {number}: {expected}, got {brief(relation)}")
        for end in (relation[0], relation[2]):
            if not isinstance(end, int | np.integer) or isinstance(end, bool) or not 0 <= end < len(things):
                expected = f"expected the number of one of {len(things)} boxes, from 0"
                raise DataError(place, None, f"relation {number}: {expected}, got {brief(end)}")
        subject, predicate, target = relation
        things[subject].relations.append((predicate, int(target)))
    return things


def _split(things: Sequence[Sequence[Thing]]) -> tuple[list[list[str]], list[list[Relation]]]:
    """The names of the boxes that are left in each image, and the relations between them."""
    labels = [[thing.name for thing in each] for each in things]
    relations = []
    for each in things:
        row_of = {thing.row: row for row, thing in enumerate(each)}
        relations.append(
            [
                (row, predicate, row_of[target])
                for row, thing in enumerate(each)
                for predicate, target in thing.relations
                if target in row_of
            ]
        )
    return labels, relations


def _visual_genome(path: str) -> list[Picture]:
    content = read_json(path)
    if not isinstance(content, list) or not content:
        raise DataError(path, None, f"expected a list of images with relationships, got {brief(content)}")
    pictures: list[Picture] = []
    for number, entry in enumerate(content, 1):
        place = f"{path}, image {number}"
        if not isinstance(entry, dict) or not isinstance(entry.get("relationships"), list):
            raise DataError(place, None, f'expected an object with "relationships", got {brief(entry)}')
        if not isinstance(entry.get("image_id"), int):
            raise DataError(
                place, None, f'expected a number as "image_id", got {brief(entry.get("image_id"))}'
            )
        row_of: dict[Any, int] = {}
        boxes: list[list[Any]] = []
        names: list[str] = []
        relations = []
        for order, relationship in enumerate(entry["relationships"], 1):
            where = f"{place}, relationship {order}"
            if not isinstance(relationship, dict):
                raise DataError(where, None, f"expected an object, got {brief(relationship)}")
            rows = []
            for role in ("subject", "object"):
                box, label = _end(relationship.get(role), role, where)
                key = relationship[role].get("object_id", (label, *box))
                if key not in row_of:
                    row_of[key] = len(boxes)
                    boxes.append(box)
                    names.append(label)
                rows.append(row_of[key])
            relations.append([rows[0], relationship.get("predicate"), rows[1]])
        things = things_of(names, relations, place)
        pictures.append(Picture(f"{entry['image_id']}.jpg", place, (boxes, things)))
    return located(path, pictures)


def _end(value: Any, role: str, place: str) -> tuple[list[Any], str]:
    """The corners and the name of a subject or an object of Visual Genome."""
    names = value.get("names", [value.get("name")]) if isinstance(value, dict) else []
    sides: list[Any] = [value.get(key) for key in "xywh"] if isinstance(value, dict) else []
    if not (names and isinstance(names[0], str)) or not all(isinstance(x, int | float) for x in sides):
        raise DataError(place, None, f'expected a name, x, y, w and h as "{role}", got {brief(value)}')
    left, top, width, height = sides
    return [left, top, left + width, top + height], names[0]
