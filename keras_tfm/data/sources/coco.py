"""COCO's JSON (Lin et al. 2014): images, categories and annotations by ids, and paths within a folder.

The ids 7, 7.0 and "7" are one, unless a file has both 7 and "7". Paths of Windows, with backslashes, are read
as well.
"""

import json
import logging
import math
import os
import pathlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.configs import brief, number_in, parse_json
from keras_tfm.data.sources.ids import Id, as_id, known_id
from keras_tfm.data.sources.lines import DataError, refuse_utf_16
from keras_tfm.data.sources.pictures import Picture
from keras_tfm.data.sources.stated_sizes import Size, stated_size

LOG = logging.getLogger(__name__)
MAX_JSON_BYTES = 1 << 29  # COCO's own training set has 450 MB
KINDS_OF_FILES = ("instances_", "panoptic_")  # how the names of COCO's files begin, before the folder's name


class Coco(NamedTuple):
    """The content of a file: `images` are {id: file name}, `sizes` {id: its stated size, None for none}, and
    `names` {id: name of the category}.
    """

    path: str
    images: dict[Id, str]
    sizes: dict[Id, Size | None]
    names: dict[Id, str]
    annotations: list[dict[str, Any]]
    categories: list[dict[str, Any]]

    def by_image(self, keys: tuple[str, ...] = ("image_id", "category_id")) -> dict[Id, list[dict]]:
        """{id of an image: its annotations}; DataError where one of the `keys` is not the id of an image, or
        of a category.
        """
        annotations: dict[Id, list[dict]] = defaultdict(list)
        unknown: list[str] = []
        for number, annotation in enumerate(self.annotations, 1):
            if problem := self.unknown(annotation, keys):
                unknown.append(f"annotation {number} has {problem}")
            else:
                annotations[known_id(annotation["image_id"], self.images)].append(annotation)
        refuse_unknown(self.path, unknown)
        return annotations

    def unknown(self, annotation: dict[str, Any], keys: tuple[str, ...]) -> str | None:
        """Which of the `keys` has no id of an image, or of a category; None if all have."""
        for key in keys:
            value, known = annotation.get(key), self.images if key == "image_id" else self.names
            if known_id(value, known) is None:
                return f'{brief(value)} as "{key}"'
        return None

    def name_of(self, annotation: dict[str, Any]) -> str:
        """The name of an annotation's category, which is not `unknown`."""
        return self.names[known_id(annotation["category_id"], self.names)]

    def objects(self) -> Iterator[tuple[str, str, list[dict], Size | None]]:
        """(Path, place, annotations, stated size) of each image, crowds among the annotations."""
        by_image = self.by_image()
        for id, path, place in self.paths():
            yield path, place, by_image[id], self.sizes[id]

    def paths(self) -> Iterator[tuple[Id, str, str]]:
        """(Id, path, place) of each image; DataError for a path that leads out of its folder."""
        within = paths_of(self.path, self.images.values())
        for id, file in self.images.items():
            place = f"{self.path}, image {id!r}"
            yield id, within(file, place), place


def is_coco(path: str) -> bool:
    """Whether a path is a JSON of COCO's layouts, by its name."""
    return path.lower().endswith(".json")


def read_coco(path: str) -> Coco:
    """Read a file; DataError where it is no JSON of lists of objects, or an id is missing or repeated."""
    return coco_of(path, lists_in(path, read_json(path), ("images", "annotations", "categories")))


def coco_of(path: str, parts: dict[str, list[dict[str, Any]]]) -> Coco:
    """The content of a file whose lists are `parts`; DataError where an id is missing or repeated."""
    categories = [item | {"name": _name(item.get("name"))} for item in parts["categories"]]
    names = by_id(path, "categories", categories, "name")
    images = by_id(path, "images", parts["images"], "file_name")
    sizes = {
        id: stated_size(item.get("width"), item.get("height"), f"{path}, image {id!r}")
        for id, item in zip(images, parts["images"], strict=True)
    }
    return Coco(path, images, sizes, names, parts["annotations"], categories)


def lists_in(path: str, content: Any, names: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    """{name: list of objects} of what a file contains; DataError where it lacks one."""
    parts: dict[str, Any] = {}
    for name in names:
        parts[name] = content.get(name) if isinstance(content, dict) else None
        if not isinstance(parts[name], list) or not all(isinstance(item, dict) for item in parts[name]):
            raise DataError(path, None, f'expected a list of objects as "{name}", got {brief(parts[name])}')
    return parts


def refuse_unknown(path: str, unknown: list[str]) -> None:
    """Raise DataError, naming the first, if annotations have `unknown` ids."""
    if unknown:
        more = f" ({len(unknown) - 1:,} more annotations are alike)" if len(unknown) > 1 else ""
        raise DataError(path, None, f"expected the id of an image and of a category: {unknown[0]}{more}")


def is_crowd(annotation: dict[str, Any]) -> bool:
    """Whether an annotation stands for a crowd, whose objects are not separated."""
    return annotation.get("iscrowd") not in (None, 0, False, "0", "")


def tell_crowds(path: str, count: int) -> None:
    """Warn that so many crowds are left out of a file."""
    if count:
        LOG.warning("%s: %s crowds are skipped", path, f"{count:,}")


def corners_of(box: Any) -> Any:
    """COCO's (left, top, width, height), numbers or their texts, as corners; anything else unchanged."""
    if isinstance(box, list) and len(box) == 4:
        try:
            numbers = [number_in(side) if isinstance(side, str) else side for side in box]
        except ValueError:
            return box
        if all(map(is_number, numbers)):
            left, top, width, height = map(as_float, numbers)
            return [left, top, left + width, top + height]
    return box


def corners_of_polygons(polygons: Any) -> list[float] | None:
    """The corners of the box around COCO's polygons, x, y, x, y, ...; None for anything else."""
    is_one = isinstance(polygons, list) and all(isinstance(x, list) and len(x) % 2 == 0 for x in polygons)
    points = [number for polygon in polygons for number in polygon] if is_one else []
    if not points or not all(map(is_number, points)):
        return None
    across, down = ([as_float(x) for x in points[axis::2]] for axis in (0, 1))
    return [min(across), min(down), max(across), max(down)]


def as_float(number: Any) -> float:
    """A number in float64; infinite for an integer that is too large."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def is_number(value: Any) -> bool:
    """Whether a value is a number, Python's or NumPy's, and neither True nor False."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _name(value: Any) -> Any:
    """A name of a category as a text, also where a file has a number; other values unchanged."""
    number = as_id(value)
    return str(number) if isinstance(number, int) else value


def by_id(path: str, name: str, items: list[dict], entry: str) -> dict[Id, str]:
    """{id: text of an entry} from COCO's lists; DataError for missing and repeated ids."""
    texts: dict[Id, str] = {}
    for number, item in enumerate(items, 1):
        id: Any = as_id(item.get("id"))
        text = item.get(entry)
        if id is None or not isinstance(text, str) or not text.strip():
            raise DataError(
                path, None, f'"{name}", item {number}: expected "id" and "{entry}", got {brief(item)}'
            )
        if id in texts:
            raise DataError(path, None, f'"{name}", item {number}: the id {id!r} occurs before')
        texts[id] = text
    return texts


def ids_of(path: str, name: str, items: list[dict]) -> list[Id]:
    """The ids of a list of COCO's; DataError for missing and repeated ones."""
    ids = [id for item in items if (id := as_id(item.get("id"))) is not None]
    if len({*ids}) != len(items):
        raise DataError(path, None, f'expected an "id" of its own for each of the "{name}"')
    return ids


def read_json(path: str) -> Any:
    """The value in a JSON file; DataError if it cannot be read or is larger than `MAX_JSON_BYTES`."""
    try:
        if (size := os.path.getsize(path)) > MAX_JSON_BYTES:
            raise DataError(path, None, f"expected {MAX_JSON_BYTES:,} bytes at most, got {size:,}")
        data = pathlib.Path(path).read_bytes()
        refuse_utf_16(path, data[:64])
        text = data.decode("utf-8-sig")  # "-sig": Windows writes a byte order mark
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DataError(path, None, f"expected UTF-8: {error.reason} at position {error.start}") from None
    try:
        return parse_json(text)
    except (ValueError, json.JSONDecodeError) as error:
        raise DataError(path, None, f"expected JSON: {error}") from None


def paths_of(path: str, names: Iterable[Any]) -> Callable[[str, str], str]:
    """A function (name, place) that finds the images of a file, which have these `names`, in the folder where
    the first of them is that is in any: the file's own folder, images/ in it or next to it, or a folder with
    the file's name, as for COCO.
    """
    home = pathlib.Path(path).absolute().parent
    named = pathlib.Path(path).stem
    for start in KINDS_OF_FILES:
        named = named.removeprefix(start)
    homes = [home, home / "images", home.parent / "images", home / named, home.parent / named]
    homes += [folder / "JPEGImages" for folder in homes]  # YouTube-VIS's
    homes += [home / "Images", home.parent / "Images"]  # CrowdHuman's
    folder = folder_of(homes, names)
    return lambda name, place: path_within(folder, name, place)


def folder_of(homes: Sequence[pathlib.Path], names: Iterable[Any]) -> pathlib.Path:
    """Which of the folders has the first of the files with these `names` that is in any of them; the first
    folder if all files are missing.
    """
    there = [home for home in homes if home.is_dir()]
    plain = (name for each in names if isinstance(each, str) and _is_plain(name := with_slashes(each)))
    return next((home for name in plain for home in there if os.path.isfile(home / name)), homes[0])


def located(path: str, pictures: Sequence[Picture]) -> list[Picture]:
    """The pictures in the file at the `path`, whose sources are names, with their paths, as `paths_of` finds
    them.
    """
    within = paths_of(path, [picture.source for picture in pictures])
    return [picture._replace(source=within(str(picture.source), picture.place)) for picture in pictures]


def with_slashes(name: str) -> str:
    """A path of Windows as one of this system."""
    return name.replace("\\", "/")


def is_absolute(name: str) -> bool:
    """Whether a path, of this system or of Windows, begins at a root or a drive."""
    return os.path.isabs(name) or pathlib.PureWindowsPath(name).is_absolute()


def _is_plain(name: str) -> bool:
    """Whether a path, as it is written, stays inside its folder."""
    parts = pathlib.PurePath(name).parts
    return bool(parts) and not is_absolute(name) and not {"..", "\0"} & {*parts, *name}


def path_within(folder: pathlib.Path, name: str, place: str) -> str:
    """The path of a file in a `folder`, with slashes or backslashes; DataError if it, or a link on its way,
    leads out of the folder.
    """
    problem = f"expected a path within {folder}, got {brief(name)}"
    name = with_slashes(name)
    if not _is_plain(name):
        raise DataError(place, None, problem)
    path = folder / name
    try:
        is_inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # circular links
        is_inside = False
    if not is_inside:
        raise DataError(place, None, problem)
    return os.fspath(path)
