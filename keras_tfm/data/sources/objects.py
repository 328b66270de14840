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

from keras_tfm.configs import brief, number_in, parse_json
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.coco import (
    BOXES_OF_CROWDS,
    is_crowd,
    paths_of,
    read_coco,
    tell_crowds,
)
from keras_tfm.data.sources.image_files import ImageFiles, readable
from keras_tfm.data.sources.lines import PREPARED, DataError, files_of, numbered_lines, tell_left_out
from keras_tfm.data.sources.prepared_images import prepared_objects
from keras_tfm.data.sources.stated_sizes import is_stored, stated_size, tell_scaled
from keras_tfm.data.sources.voc import voc_images
from keras_tfm.serving.image_headers import FLIPPED, MIRRORED, TRANSPOSED, Header, Size, header_in

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


class Found(NamedTuple):
    """An image as a file describes it: its path or its bytes, its place, its boxes in pixels, their names,
    and the size of the image if the file states it, which the boxes have then.
    """

    source: str | bytes
    place: str
    boxes: list
    labels: list[str]
    stated: Size | None = None


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
    found = [image for file in files_of(paths) for image in found_in(file)]
    first = os.fspath(paths if isinstance(paths, str | os.PathLike) else paths[0])
    if not found:
        raise DataError(first, None, "expected images, there are none")
    places = [image.place if isinstance(image.source, bytes) else image.source for image in found]
    images, good = readable(ImageFiles([image.source for image in found], shape, canvas, places))
    found = [found[row] for row in good]
    headers = [header_in(image.source) or Header((0, 0)) for image in found]
    are_stored = _fitting(found, headers)
    if len(are_stored) < len(found):
        fitting = np.array(list(are_stored))
        images, found, headers = images[fitting], [found[x] for x in fitting], [headers[x] for x in fitting]
    sizes = [header.size for header in headers]
    drawn_on = np.array([image.stated or size for image, size in zip(found, sizes, strict=True)], "int64")
    boxes, labels = checked_boxes([(*image[1:3], image.labels) for image in found], drawn_on)
    boxes = [
        turned_boxes(each, header.orientation) if is_one else each
        for each, header, is_one in zip(boxes, headers, are_stored.values(), strict=True)
    ]
    if not any(map(len, boxes)):
        raise DataError(first, None, "expected boxes, there are none")
    return Objects(images, np.array(sizes, "int64"), boxes, labels)


def _fitting(found: Sequence[Found], headers: Sequence[Header]) -> dict[int, bool]:
    """{row: whether its boxes are drawn on the stored pixels, `is_stored`} of images of the stated sizes,
    also of resized ones; the others are reported.

    DataError if there is none.
    """
    problems: dict[str, str] = {}
    rows: dict[int, bool] = {}
    scaled = []
    for row, (image, header) in enumerate(zip(found, headers, strict=True)):
        result = is_stored(header, image.stated)
        if isinstance(result, str):
            problems[image.place] = result
            continue
        rows[row] = result
        scaled.append((image.place, image.stated, header.stored if result else header.size))
    if not rows:
        place, problem = next(iter(problems.items()))
        raise DataError(place, None, problem)
    tell_left_out(problems, len(found))
    tell_scaled(scaled)
    return rows


def turned_boxes(boxes: np.ndarray, orientation: int) -> np.ndarray:
    """Boxes (M, 4) on stored pixels, relative to the sides, on the image that the orientation makes."""
    boxes = boxes[:, [1, 0, 3, 2]] if orientation in TRANSPOSED else boxes.copy()
    for orientations, sides in ((MIRRORED, [2, 0]), (FLIPPED, [3, 1])):
        if orientation in orientations:
            boxes[:, sides[::-1]] = 1 - boxes[:, sides]
    return boxes


def found_in(path: str) -> list[Found]:
    """The images that a file, a folder or a data set of TFDS describes, with their objects."""
    if path.startswith(PREPARED):
        return [Found(*image) for image in prepared_objects(path)]
    if path.lower().endswith(".json"):
        return _coco(path)
    if path.lower().endswith((".jsonl", ".jsonl.gz", ".jsonl.xz")):
        return _json_lines(path)
    folder = pathlib.Path(path)
    if path.lower().endswith(".txt") and folder.parent.parent.name == "ImageSets":
        names = [text.split()[0] for _, text in numbered_lines(path) if text.strip()]
        return [Found(*image) for image in voc_images(folder.parents[2], names)]
    if not os.path.exists(path):
        raise DataError(path, None, "cannot be read: No such file or directory")
    if not (folder / "Annotations").is_dir():
        raise DataError(path, None, f"expected {KINDS}")
    names = sorted(file.stem for file in (folder / "Annotations").glob("*.xml"))
    return [Found(*image) for image in voc_images(folder, names)]


def checked_boxes(
    found: Sequence[tuple[str, Any, Sequence[str]]], sizes: np.ndarray
) -> tuple[list[np.ndarray], list[list[str]]]:
    """(Boxes relative to the sides of images of these `sizes`, their names), for (place, boxes in pixels,
    names) of each image.

    Invalid boxes are skipped, with a warning. DataError for anything but lists of numbers.
    """
    boxes, labels, problems = [], [], {}
    for (place, given, names), (height, width) in zip(found, sizes.tolist(), strict=True):
        if len(given) != len(names):
            raise DataError(place, None, f"expected a label for each of {len(given)} boxes, got {len(names)}")
        kept, kept_names = [], []
        for number, (box, name) in enumerate(zip(given, names, strict=True), 1):
            result = _box(box, width, height, place)
            if isinstance(result, str):
                problems[f"{place}, box {number}"] = result
            else:
                kept.append(result)
                kept_names.append(name)
        boxes.append(np.array(kept, "float32").reshape(-1, 4))
        labels.append(kept_names)
    tell_left_out(problems, len(problems) + sum(map(len, boxes)), "boxes")
    return boxes, labels


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


def _json_lines(path: str) -> list[Found]:
    found = []
    base: Callable | None = None
    for line, text in numbered_lines(path):
        try:
            row = parse_json(text)
        except ValueError as error:
            raise DataError(path, line, f"expected a JSON object: {error}") from None
        if not isinstance(row, dict) or not isinstance(row.get("image"), str):
            raise DataError(path, line, f'expected an object with a path as "image", got {text[:60]!r}')
        boxes, labels = row.get("boxes", []), row.get("labels", [])
        for name, value in (("boxes", boxes), ("labels", labels)):
            if not isinstance(value, list):
                raise DataError(path, line, f'expected a list as "{name}", got {brief(value)}')
        if not all(isinstance(label, str) and label.strip() for label in labels):
            raise DataError(path, line, f'expected names as "labels", got {brief(labels)}')
        base = base or paths_of(path, row["image"])
        place = f"{path}, line {line}"
        stated = stated_size(row.get("width"), row.get("height"), place)
        found.append(Found(base(row["image"], place), place, boxes, labels, stated))
    return found


def _coco(path: str) -> list[Found]:
    content = read_coco(path)
    annotations = content.by_image()
    tell_crowds(path, sum(map(is_crowd, content.annotations)), BOXES_OF_CROWDS)
    found = []
    for id, image, place in content.paths():
        objects = [annotation for annotation in annotations[id] if not is_crowd(annotation)]
        boxes = [_corners(annotation) for annotation in objects]
        found.append(Found(image, place, boxes, list(map(content.name_of, objects)), content.sizes[id]))
    return found


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
