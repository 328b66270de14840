"""Objects that hide each other: what is visible of each, and regions where nobody has marked single objects.

CrowdHuman's .odgt (Shao et al. 2018): a line of JSON for each image, {"ID", "gtboxes": [{"tag": "person" or
"mask", "fbox", "vbox", "extra": {"ignore"}}]}, where fbox surrounds the whole object, hidden parts too, and
vbox what is visible of it, both [left, top, width, height] in pixels. A mask, and a person with "ignore": 1,
is a region to ignore. The image is ID.jpg, or another image of that name, beside the file or in Images/.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.coco import corners_of, is_crowd, paths_of
from keras_tfm.data.sources.lines import DataError, json_lines
from keras_tfm.data.sources.pictures import SUFFIXES, Picture

PERSON, MASK = "person", "mask"  # tags


class BoxDetails(NamedTuple):
    """The name of a box's class, with the box around what is visible, None for the whole; whether the box
    surrounds a crowd, a region to ignore; and whether VOC calls the object difficult.
    """

    name: str
    visible: Any = None
    is_crowd: bool = False
    is_difficult: bool = False


def details_of(place: str, names: Sequence[str], visible: Any = None, iscrowd: Any = None) -> Sequence[Any]:
    """The names of an image's boxes, as `BoxDetails` where the `visible` box of each, None for the whole, or
    `iscrowd`, 0 or 1 for each, is given; DataError unless these are as many.
    """
    if visible is None and iscrowd is None:
        return names
    columns = []
    for name, values in (("visible", visible), ("iscrowd", iscrowd)):
        values = [None] * len(names) if values is None else values
        if not isinstance(values, list | tuple | np.ndarray) or len(values) != len(names):
            expected = f'expected a list of {len(names)} as "{name}", one for each label'
            raise DataError(place, None, f"{expected}, got {brief(values)}")
        columns.append(values)
    return [
        BoxDetails(name, box, is_crowd({"iscrowd": mark}))
        for name, box, mark in zip(names, *columns, strict=True)
    ]


def details_in_coco(annotation: dict[str, Any], name: str) -> Any:
    """The name of COCO's annotation, as `BoxDetails` where it is a crowd or has CityPersons' "vis_bbox"."""
    visible = annotation.get("vis_bbox")
    if visible is None and not is_crowd(annotation):
        return name
    return BoxDetails(name, None if visible is None else corners_of(visible), is_crowd(annotation))


def crowd_human(path: str) -> Iterator[Picture]:
    """The image of each line, with (boxes in pixels, their names as `BoxDetails`)."""
    for line, row in json_lines(path):
        place = f"{path}, line {line}"
        if not isinstance(row, dict) or not isinstance(row.get("ID"), str):
            raise DataError(place, None, f'expected an object with a text as "ID", got {brief(row)}')
        marks = row.get("gtboxes")
        if not isinstance(marks, list) or not all(isinstance(mark, dict) for mark in marks):
            raise DataError(place, None, f'expected a list of objects as "gtboxes", got {brief(marks)}')
        names = [_details(mark, f"{place}, box {number}") for number, mark in enumerate(marks, 1)]
        boxes = [corners_of(mark.get("fbox")) for mark in marks]
        yield Picture(_image(path, row["ID"], place), place, (boxes, names))


def _details(mark: dict[str, Any], place: str) -> BoxDetails:
    tag, extra = mark.get("tag"), mark.get("extra", {})
    if tag not in (PERSON, MASK):
        raise DataError(place, None, f'expected "{PERSON}" or "{MASK}" as "tag", got {brief(tag)}')
    if not isinstance(extra, dict):
        raise DataError(place, None, f'expected an object as "extra", got {brief(extra)}')
    if tag == MASK or extra.get("ignore") not in (None, 0):
        return BoxDetails(PERSON, is_crowd=True)
    return BoxDetails(PERSON, corners_of(mark.get("vbox")))


def _image(path: str, id: str, place: str) -> str:
    """The path of the image of an ID; ID.jpg where there is none."""

    def found(suffix: str) -> str:
        return paths_of(path, [f"{id}{suffix}"])(f"{id}{suffix}", place)

    return next(filter(os.path.isfile, map(found, SUFFIXES)), found(SUFFIXES[0]))
