"""Images with boxes around objects: COCO's JSON, CrowdHuman's .odgt, folders in Pascal VOC's layout, JSON
lines, or sets of TFDS.

COCO (Lin et al. 2014): {"images": [{"id", "file_name"}], "annotations": [{"image_id", "category_id", "bbox":
[left, top, width, height]}], "categories": [{"id", "name"}]}, perhaps with "vis_bbox", the box of what is
visible, as CityPersons has it, and with "iscrowd": 1 for a region to ignore. CrowdHuman: see `crowds`. VOC
(Everingham et al. 2010): a folder with Annotations/*.xml and JPEGImages/, or one of its lists,
ImageSets/Main/train.txt. JSON lines: {"image": path, "boxes": [[left, top, right, bottom]], "labels":
[name]}, and perhaps "width" and "height", and for each box "visible", a box or null, and "iscrowd". Boxes are
in pixels. Paths are relative to the file's folder, or to a folder of images near it, and must stay inside.
Sets of TFDS have "image" and "objects", a sequence of {"bbox", "label"}.
"""

import math
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.coco import (
    as_float,
    corners_of,
    corners_of_polygons,
    is_crowd,
    is_number,
    located,
    read_coco,
)
from keras_tfm.data.sources.crowds import BoxDetails, crowd_human, details_in_coco, details_of
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.lines import (
    LINES,
    PREPARED,
    DataError,
    files_of,
    json_lines,
    numbered_lines,
)
from keras_tfm.data.sources.pictures import Checked, Picture, checked_pictures, read_pictures, tell_parts
from keras_tfm.data.sources.prepared_images import prepared_objects
from keras_tfm.data.sources.stated_sizes import drawn_on, stated_size
from keras_tfm.data.sources.voc import voc_images
from keras_tfm.serving.image_headers import FLIPPED, MIRRORED, TRANSPOSED, Header, Size

KINDS = (
    "COCO's .json, CrowdHuman's .odgt, a folder with Annotations/ and JPEGImages/, one of its "
    "ImageSets/Main/*.txt, a .jsonl, or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
)
STRETCHED = Canvas()


class Objects(NamedTuple):
    """Images, their original (height, width) (N, 2), and for each image its boxes (M, 4), (left, top, right,
    bottom) relative to its sides, and the M names of their classes.

    >>> images, boxes = np.zeros((1, 8, 8, 3), "uint8"), np.array([[0.0, 0.0, 0.5, 1.0]])
    >>> data = keras_tfm.data.Objects(images, np.array([(8, 8)]), boxes=[boxes], labels=[["cat"]])
    >>> data.labels[0], data.boxes[0].tolist()  # a cat in the left half
    (['cat'], [[0.0, 0.0, 0.5, 1.0]])
    """

    images: np.ndarray | ImageFiles
    sizes: np.ndarray
    boxes: list[np.ndarray]
    labels: list[list[str]]


class CrowdedObjects(NamedTuple):
    """`Objects` of which some are hidden, crowds or difficult: `visible` boxes, by default the whole ones;
    `is_crowd` (M,), regions to ignore; `is_difficult` (M,), objects that need not be found. Crowds and
    difficult objects do not count as objects.

    >>> images, sizes, labels = np.zeros((1, 8, 8, 3), "uint8"), np.array([(8, 8)]), [["cat", "cat"]]
    >>> whole = np.array([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
    >>> visible, is_crowd, none = whole * [1, 1, 1, 0.5], np.array([False, True]), np.zeros(2, "bool")
    >>> data = keras_tfm.data.CrowdedObjects(images, sizes, [whole], labels, [visible], [is_crowd], [none])
    >>> data.objects.boxes[0].tolist()
    [[0.0, 0.0, 0.5, 1.0]]
    """

    images: np.ndarray | ImageFiles
    sizes: np.ndarray
    boxes: list[np.ndarray]
    labels: list[list[str]]
    visible: list[np.ndarray]
    is_crowd: list[np.ndarray]
    is_difficult: list[np.ndarray]

    @property
    def has_hidden_parts(self) -> bool:
        """Whether a visible box is smaller than the whole one."""
        return any((one != other).any() for one, other in zip(self.visible, self.boxes, strict=True))

    @property
    def objects(self) -> Objects:
        """The objects alone, by their whole boxes."""
        single = [~(crowds | other) for crowds, other in zip(self.is_crowd, self.is_difficult, strict=True)]
        boxes = [boxes[rows] for boxes, rows in zip(self.boxes, single, strict=True)]
        labels = [
            [name for name, is_one in zip(names, rows, strict=True) if is_one]
            for names, rows in zip(self.labels, single, strict=True)
        ]
        return Objects(self.images, self.sizes, boxes, labels)


def objects_of(images: Any, sizes: np.ndarray, parts: Sequence[Sequence[tuple]]) -> Objects | CrowdedObjects:
    """The objects of images, for each box and its name; `CrowdedObjects` if a name is `BoxDetails`."""
    boxes = [as_array([box for box, _ in each]) for each in parts]
    if not any(isinstance(name, BoxDetails) for each in parts for _, name in each):
        return Objects(images, sizes, boxes, [[name for _, name in each] for each in parts])
    details = [
        [(box, name if isinstance(name, BoxDetails) else BoxDetails(name)) for box, name in each]
        for each in parts
    ]
    return CrowdedObjects(
        images,
        sizes,
        boxes,
        [[name.name for _, name in each] for each in details],
        [as_array([box if name.visible is None else name.visible for box, name in each]) for each in details],
        [np.array([name.is_crowd for _, name in each], "bool") for each in details],
        [np.array([name.is_difficult for _, name in each], "bool") for each in details],
    )


def read_objects(
    paths: Any, shape: tuple[int, int, int], canvas: Canvas = STRETCHED
) -> Objects | CrowdedObjects:
    """The images in one or several files, of this `shape` or decoded when needed, and their objects;
    `CrowdedObjects` where a file says what is visible of one, or has crowds or difficult objects.

    Skipped, with a warning that counts them and names some, are images that cannot be decoded, and boxes that
    lie outside their image, are empty, have no area, are reversed or not finite, or whose visible box is so,
    or lies outside of the whole one. Boxes are clipped at the edges of the image, visible ones at the edges
    of the whole box. Where files state another size than the image has, boxes are scaled if one number is
    the ratio of both sides; otherwise the image is skipped. Where the EXIF of an image turns it, the stated
    size says whether boxes are turned too; where it does not, the image is skipped.

    Raises:
        DataError: for a mistake in a file, for a path that leads out of its folder, and if no image, or no
            box, is left.

    >>> import pathlib
    >>> tf.io.write_file("cat.png", tf.io.encode_png(np.zeros((4, 4, 3), "uint8")))
    >>> line = '{"image": "cat.png", "boxes": [[0, 0, 2, 4]], "labels": ["cat"]}'
    >>> _ = pathlib.Path("objects.jsonl").write_text(line)
    >>> keras_tfm.data.read_objects("objects.jsonl", shape=(8, 8, 3)).boxes[0].tolist()
    [[0.0, 0.0, 0.5, 1.0]]
    """
    files = files_of(paths)
    pictures = [image for file in files for image in found_in(file)]
    checked = checked_pictures(pictures, files[0], checked_objects)
    images, sizes, parts = read_pictures(pictures, checked, files[0], shape, canvas, "boxes")
    found = objects_of(images, sizes, parts)
    if not any(objects_in(found).labels):
        raise DataError(files[0], None, "expected boxes around single objects, there are none")
    return found


def objects_in(examples: Any) -> Any:
    """The examples without crowds and difficult objects; others than `CrowdedObjects` unchanged."""
    return examples.objects if isinstance(examples, CrowdedObjects) else examples


def checked_objects(picture: Picture, header: Header) -> Checked | str:
    """The boxes of a picture, each with its name."""
    drawn = drawn_on(header, picture.stated)
    if isinstance(drawn, str):
        return drawn
    boxes, names = picture.annotation
    relative = _boxes_of(picture.place, boxes, names, picture.stated or header.size)
    turned = turned_boxes(as_array([box for box, _ in relative.parts]), drawn.orientation)
    turned_names = [_turned(name, drawn.orientation) for _, name in relative.parts]
    return relative._replace(parts=list(zip(turned, turned_names, strict=True)))


def _turned(name: Any, orientation: int) -> Any:
    """The name of a box, with its visible box, if it has one, turned as `turned_boxes` does."""
    if not isinstance(name, BoxDetails) or name.visible is None:
        return name
    return name._replace(visible=turned_boxes(as_array([name.visible]), orientation)[0])


def as_array(boxes: Sequence) -> np.ndarray:
    """Boxes as an array (M, 4), also where there are none."""
    return np.array(boxes, "float32").reshape(-1, 4)


def turned_boxes(boxes: np.ndarray, orientation: int) -> np.ndarray:
    """Boxes (M, 4) on stored pixels, relative to the sides, on the image that the orientation makes."""
    boxes = boxes[:, [1, 0, 3, 2]] if orientation in TRANSPOSED else boxes.copy()
    for orientations, sides in ((MIRRORED, [2, 0]), (FLIPPED, [3, 1])):
        if orientation in orientations:
            boxes[:, sides[::-1]] = 1 - boxes[:, sides]
    return boxes


def found_in(path: str) -> list[Picture]:
    """The images in a file, a folder or a data set of TFDS, each with (boxes in pixels, their names); see
    `BoxDetails` for more than a name.
    """
    if path.startswith(PREPARED):
        return list(prepared_objects(path))
    if path.lower().endswith(".json"):
        return _coco(path)
    if path.lower().endswith(LINES):
        return pictures_of_lines(
            path, lambda row, place: details_of(place, row["labels"], row.get("visible"), row.get("iscrowd"))
        )
    if path.lower().endswith(".odgt"):
        return list(crowd_human(path))
    folder = pathlib.Path(path)
    if path.lower().endswith(".txt") and folder.parent.parent.name == "ImageSets":
        names = [text.split()[0] for _, text in numbered_lines(path) if text.strip()]
        return list(voc_images(folder.parents[2], names))
    if not os.path.exists(path):
        raise DataError(path, None, "cannot be read: No such file or directory")
    if not (folder / "Annotations").is_dir():
        raise DataError(path, None, f"expected {KINDS}")
    return list(voc_images(folder, sorted(file.stem for file in (folder / "Annotations").glob("*.xml"))))


def checked_boxes(found: Sequence[tuple[str, Any, Sequence[Any]]], sizes: np.ndarray) -> list[list[tuple]]:
    """The boxes relative to the sides of images of these `sizes`, each with its name, for (place, boxes in
    pixels, names) of each image.

    Invalid boxes are skipped, with a warning. DataError for anything but lists of numbers.
    """
    checked = [_boxes_of(*each, size) for each, size in zip(found, sizes.tolist(), strict=True)]
    tell_parts(checked, "boxes")
    return [each.parts for each in checked]


def _boxes_of(place: str, given: Any, names: Sequence[Any], size: Size) -> Checked:
    """The boxes of an image of this `size`, relative to its sides, each with its name."""
    if len(given) != len(names):
        raise DataError(place, None, f"expected a label for each of {len(given)} boxes, got {len(names)}")
    parts, problems = [], {}
    for number, (box, name) in enumerate(zip(given, names, strict=True), 1):
        result = _box(box, size[1], size[0], place)
        if isinstance(name, BoxDetails) and name.visible is not None and not isinstance(result, str):
            visible = _visible_box(name.visible, result, size, place)
            name = name._replace(visible=visible)
            result = visible if isinstance(visible, str) else result
        if isinstance(result, str):
            problems[f"{place}, box {number}"] = result
        else:
            parts.append((result, name))
    return Checked(parts, problems)


def _visible_box(box: Any, whole: list[float], size: Size, place: str) -> list[float] | str:
    """A visible box, clipped at the edges of the `whole` one, relative to the sides, or why it is invalid."""
    visible = _box(box, size[1], size[0], f"{place}, visible box")
    if isinstance(visible, str):
        return f"its visible box is {visible}"
    left, top = (max(visible[axis], whole[axis]) for axis in (0, 1))
    right, bottom = (min(visible[axis], whole[axis]) for axis in (2, 3))
    return (
        [left, top, right, bottom] if left < right and top < bottom else "its visible box lies outside of it"
    )


def _box(box: Any, width: int, height: int, place: str) -> list[float] | str:
    """A box in pixels relative to the sides, or the reason why it is invalid; DataError unless it is four
    numbers or empty.
    """
    box = box.tolist() if isinstance(box, np.ndarray) else box
    if box == []:
        return "empty"
    if not isinstance(box, list | tuple) or len(box) != 4 or not all(map(is_number, box)):
        raise DataError(place, None, f"expected a box of four numbers, got {brief(box)}")
    left, top, right, bottom = box = list(map(as_float, box))
    if not all(map(math.isfinite, box)):
        return "not finite"
    if right < left or bottom < top:
        return "reversed"
    if right == left or bottom == top:
        return "of no area"
    left, right = (min(max(x / width, 0.0), 1.0) for x in (left, right))
    top, bottom = (min(max(y / height, 0.0), 1.0) for y in (top, bottom))
    return [left, top, right, bottom] if left < right and top < bottom else "outside of the image"


def pictures_of_lines(path: str, names_of: Callable[[dict[str, Any], str], Sequence]) -> list[Picture]:
    """The images in JSON lines, each with its boxes in pixels and what `names_of` makes of (line, place)."""
    pictures = []
    for line, row in json_lines(path):
        place = f"{path}, line {line}"
        if not isinstance(row, dict) or not isinstance(row.get("image"), str):
            raise DataError(place, None, f'expected an object with a path as "image", got {brief(row)}')
        boxes, labels = row.get("boxes", []), row.get("labels", [])
        for name, value in (("boxes", boxes), ("labels", labels)):
            if not isinstance(value, list):
                raise DataError(place, None, f'expected a list as "{name}", got {brief(value)}')
        if not all(isinstance(label, str) and label.strip() for label in labels):
            raise DataError(place, None, f'expected names as "labels", got {brief(labels)}')
        stated = stated_size(row.get("width"), row.get("height"), place)
        names = names_of({**row, "labels": labels}, place)
        pictures.append(Picture(row["image"], place, (boxes, names), stated))
    return located(path, pictures)


def _coco(path: str) -> list[Picture]:
    content = read_coco(path)

    def details(annotation: dict[str, Any]) -> Any:
        return details_in_coco(annotation, content.name_of(annotation))

    return [
        Picture(image, place, (list(map(_corners, items)), list(map(details, items))), stated)
        for image, place, items, stated in content.objects()
    ]


def _corners(annotation: dict[str, Any]) -> Any:
    """The corners of an annotation's box or, without one, of the box around its polygons; of a crowd without
    both an empty box.
    """
    box = annotation.get("bbox")
    if not box and (around := corners_of_polygons(annotation.get("segmentation"))):
        return around
    return [] if box is None and is_crowd(annotation) else corners_of(box)
