"""Images with boxes around objects: COCO's JSON, folders in Pascal VOC's layout, JSON lines, or sets of TFDS.

COCO (Lin et al. 2014): {"images": [{"id", "file_name"}], "annotations": [{"image_id", "category_id", "bbox":
[left, top, width, height]}], "categories": [{"id", "name"}]}; boxes around crowds are skipped. VOC
(Everingham et al. 2010): a folder with Annotations/*.xml and JPEGImages/, or one of its lists,
ImageSets/Main/train.txt; difficult objects are skipped. JSON lines: {"image": path, "boxes": [[left, top,
right, bottom]], "labels": [name]}, and perhaps "width" and "height". Boxes are in pixels. Paths are
relative to the file's folder, or to a folder of images near it, and must stay inside. Sets of TFDS have
"image" and "objects", a sequence of {"bbox", "label"}.
"""

import math
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.configs import brief, number_in
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.coco import BOXES_OF_CROWDS, paths_of, read_coco
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
    "COCO's .json, a folder with Annotations/ and JPEGImages/, one of its ImageSets/Main/*.txt, a .jsonl, or "
    "tfds:NAME[/CONFIG][:VERSION]#SPLIT"
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


def read_objects(paths: Any, shape: tuple[int, int, int], canvas: Canvas = STRETCHED) -> Objects:
    """The images in one or several files, of this `shape` or decoded when needed, and their objects.

    Skipped, with a warning that counts them and names some, are images that cannot be decoded, and boxes that
    lie outside their image, are empty, have no area, are reversed or not finite. Boxes are clipped at the
    edges of the image. Where files state another size than the image has, boxes are scaled if one number is
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
    boxes = [as_array([box for box, _ in each]) for each in parts]
    return Objects(images, sizes, boxes, [[name for _, name in each] for each in parts])


def checked_objects(picture: Picture, header: Header) -> Checked | str:
    """The boxes of a picture, each with its name."""
    drawn = drawn_on(header, picture.stated)
    if isinstance(drawn, str):
        return drawn
    boxes, names = picture.annotation
    relative = _boxes_of(picture.place, boxes, names, picture.stated or header.size)
    turned = turned_boxes(as_array([box for box, _ in relative.parts]), drawn.orientation)
    return relative._replace(parts=list(zip(turned, [name for _, name in relative.parts], strict=True)))


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
    """The images in a file, a folder or a data set of TFDS, each with (boxes in pixels, their names)."""
    if path.startswith(PREPARED):
        return list(prepared_objects(path))
    if path.lower().endswith(".json"):
        return _coco(path)
    if path.lower().endswith(LINES):
        return pictures_of_lines(path)
    folder = pathlib.Path(path)
    if path.lower().endswith(".txt") and folder.parent.parent.name == "ImageSets":
        names = [text.split()[0] for _, text in numbered_lines(path) if text.strip()]
        return list(voc_images(folder.parents[2], names))
    if not os.path.exists(path):
        raise DataError(path, None, "cannot be read: No such file or directory")
    if not (folder / "Annotations").is_dir():
        raise DataError(path, None, f"expected {KINDS}")
    return list(voc_images(folder, sorted(file.stem for file in (folder / "Annotations").glob("*.xml"))))


def checked_boxes(
    found: Sequence[tuple[str, Any, Sequence[Any]]], sizes: np.ndarray
) -> tuple[list[np.ndarray], list[list[Any]]]:
    """(Boxes relative to the sides of images of these `sizes`, their names), for (place, boxes in pixels,
    names) of each image.

    Invalid boxes are skipped, with a warning. DataError for anything but lists of numbers.
    """
    checked = [_boxes_of(*each, size) for each, size in zip(found, sizes.tolist(), strict=True)]
    tell_parts(checked, "boxes")
    boxes = [as_array([box for box, _ in each.parts]) for each in checked]
    return boxes, [[name for _, name in each.parts] for each in checked]


def _boxes_of(place: str, given: Any, names: Sequence[Any], size: Size) -> Checked:
    """The boxes of an image of this `size`, relative to its sides, each with its name."""
    if len(given) != len(names):
        raise DataError(place, None, f"expected a label for each of {len(given)} boxes, got {len(names)}")
    parts, problems = [], {}
    for number, (box, name) in enumerate(zip(given, names, strict=True), 1):
        result = _box(box, size[1], size[0], place)
        if isinstance(result, str):
            problems[f"{place}, box {number}"] = result
        else:
            parts.append((result, name))
    return Checked(parts, problems)


def _box(box: Any, width: int, height: int, place: str) -> list[float] | str:
    """A box in pixels relative to the sides, or the reason why it is invalid; DataError unless it is four
    numbers or empty.
    """
    box = box.tolist() if isinstance(box, np.ndarray) else box
    if box == []:
        return "empty"
    if not isinstance(box, list | tuple) or len(box) != 4 or not all(map(_is_number, box)):
        raise DataError(place, None, f"expected a box of four numbers, got {brief(box)}")
    left, top, right, bottom = box = list(map(_as_float, box))
    if not all(map(math.isfinite, box)):
        return "not finite"
    if right < left or bottom < top:
        return "reversed"
    if right == left or bottom == top:
        return "of no area"
    left, right = (min(max(x / width, 0.0), 1.0) for x in (left, right))
    top, bottom = (min(max(y / height, 0.0), 1.0) for y in (top, bottom))
    return [left, top, right, bottom] if left < right and top < bottom else "outside of the image"


def _as_float(number: Any) -> float:
    """A number in float64; infinite for an integer that is too large."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def pictures_of_lines(
    path: str, names_of: Callable[[dict[str, Any], str], list] | None = None
) -> list[Picture]:
    """The images in JSON lines, each with (boxes in pixels, their names, or what `names_of` makes of a line
    and its place).
    """
    pictures = []
    base: Callable | None = None
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
        base = base or paths_of(path, row["image"])
        stated = stated_size(row.get("width"), row.get("height"), place)
        names = labels if names_of is None else names_of({**row, "labels": labels}, place)
        pictures.append(Picture(base(row["image"], place), place, (boxes, names), stated))
    return pictures


def _coco(path: str) -> list[Picture]:
    content = read_coco(path)
    return [
        Picture(image, place, (list(map(_corners, objects)), list(map(content.name_of, objects))), stated)
        for image, place, objects, stated in content.objects(BOXES_OF_CROWDS)
    ]


def _corners(annotation: dict[str, Any]) -> Any:
    """COCO's (left, top, width, height), numbers or their texts, as corners; without a box, the corners of
    the polygons; anything else unchanged.
    """
    box = annotation.get("bbox")
    if not box and (points := _points(annotation.get("segmentation"))):
        across, down = points[::2], points[1::2]
        return [min(across), min(down), max(across), max(down)]
    if isinstance(box, list) and len(box) == 4:
        try:
            numbers = [number_in(side) if isinstance(side, str) else side for side in box]
        except ValueError:
            return box
        if all(map(_is_number, numbers)):
            left, top, width, height = map(_as_float, numbers)
            return [left, top, left + width, top + height]
    return box


def _points(polygons: Any) -> list[float]:
    """The numbers x, y, x, y, ... of COCO's polygons; none for anything else."""
    is_one = isinstance(polygons, list) and all(isinstance(x, list) and len(x) % 2 == 0 for x in polygons)
    points = [number for polygon in polygons for number in polygon] if is_one else []
    return list(map(_as_float, points)) if all(map(_is_number, points)) else []
