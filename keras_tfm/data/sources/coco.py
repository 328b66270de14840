"""COCO's JSON (Lin et al. 2014): images, categories and annotations by ids, and paths within a folder."""

import json
import logging
import os
import pathlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from keras_tfm.configs import brief, parse_json
from keras_tfm.data.sources.lines import DataError

LOG = logging.getLogger(__name__)
MAX_JSON_BYTES = 1 << 29  # COCO's own training set has 450 MB
BOXES_OF_CROWDS = "boxes around crowds"
KINDS_OF_FILES = ("instances_", "panoptic_")  # how the names of COCO's files begin, before the folder's name
Id = int | str


class Coco(NamedTuple):
    """The content of a file: `images` are {id: file name}, `names` {id: name of the category}."""

    path: str
    images: dict[Id, str]
    names: dict[Id, str]
    annotations: list[dict[str, Any]]
    categories: list[dict[str, Any]]

    def by_image(self, keys: tuple[str, ...] = ("image_id", "category_id")) -> dict[Id, list[dict]]:
        """{id of an image: its annotations}; DataError where one of the `keys` is not the id of an image, or
        of a category.
        """
        found: dict[Id, list[dict]] = defaultdict(list)
        unknown: list[str] = []
        for number, annotation in enumerate(self.annotations, 1):
            if problem := self.unknown(annotation, keys):
                unknown.append(f"annotation {number} has {problem}")
            else:
                found[annotation["image_id"]].append(annotation)
        refuse_unknown(self.path, unknown)
        return found

    def unknown(self, annotation: dict[str, Any], keys: tuple[str, ...]) -> str | None:
        """Which of the `keys` has no id of an image, or of a category; None if all have."""
        for key in keys:
            value, known = annotation.get(key), self.images if key == "image_id" else self.names
            if not is_id(value) or value not in known:
                return f'{brief(value)} as "{key}"'
        return None

    def paths(self) -> Iterator[tuple[Id, str, str]]:
        """(Id, path, place) of each image; DataError for a path that leads out of its folder."""
        within = paths_of(self.path, next(iter(self.images.values()), ""))
        for id, file in self.images.items():
            place = f"{self.path}, image {id!r}"
            yield id, within(file, place), place


def read_coco(path: str) -> Coco:
    """Read a file; DataError where it is no JSON of lists of objects, or an id is missing or repeated."""
    content = read_json(path)
    parts: dict[str, Any] = {}
    for name in ("images", "annotations", "categories"):
        parts[name] = content.get(name) if isinstance(content, dict) else None
        if not isinstance(parts[name], list) or not all(isinstance(item, dict) for item in parts[name]):
            raise DataError(path, None, f'expected a list of objects as "{name}", got {brief(parts[name])}')
    names = _by_id(path, "categories", parts["categories"], "name")
    images = _by_id(path, "images", parts["images"], "file_name")
    return Coco(path, images, names, parts["annotations"], parts["categories"])


def refuse_unknown(path: str, unknown: list[str]) -> None:
    """Raise DataError, naming the first, if annotations have `unknown` ids."""
    if unknown:
        more = f" ({len(unknown) - 1:,} more annotations are alike)" if len(unknown) > 1 else ""
        raise DataError(path, None, f"expected the id of an image and of a category: {unknown[0]}{more}")


def is_id(value: Any) -> bool:
    """Whether a value of JSON can be an id."""
    return isinstance(value, int | str) and not isinstance(value, bool)


def is_crowd(annotation: dict[str, Any]) -> bool:
    """Whether an annotation stands for a crowd, whose objects are not told apart."""
    return annotation.get("iscrowd") not in (None, 0, False)


def tell_crowds(path: str, count: int, skipped: str = "crowds") -> None:
    """Warn that so many of what is `skipped` are left out of a file."""
    if count:
        LOG.warning("%s: %s %s are skipped", path, f"{count:,}", skipped)


def _by_id(path: str, name: str, items: list[dict], entry: str) -> dict[Id, str]:
    """{id: text of an entry} from COCO's lists; DataError for missing and repeated ids."""
    found: dict[Id, str] = {}
    for number, item in enumerate(items, 1):
        id: Any = item.get("id")
        text = item.get(entry)
        if not is_id(id) or not isinstance(text, str) or not text.strip():
            raise DataError(
                path, None, f'"{name}", item {number}: expected "id" and "{entry}", got {brief(item)}'
            )
        if id in found:
            raise DataError(path, None, f'"{name}", item {number}: the id {id!r} occurs before')
        found[id] = text
    return found


def read_json(path: str) -> Any:
    """The value in a JSON file; DataError if it cannot be read or is larger than `MAX_JSON_BYTES`."""
    try:
        if (size := os.path.getsize(path)) > MAX_JSON_BYTES:
            raise DataError(path, None, f"expected {MAX_JSON_BYTES:,} bytes at most, got {size:,}")
        text = pathlib.Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DataError(path, None, f"expected UTF-8: {error.reason} at position {error.start}") from None
    try:
        return parse_json(text)
    except (ValueError, json.JSONDecodeError) as error:
        raise DataError(path, None, f"expected JSON: {error}") from None


def paths_of(path: str, first: str) -> Callable[[str, str], str]:
    """A function (name, place) that finds the images of a file in the folder where the `first` of them is:
    the file's own folder, images/ in it or next to it, or a folder with the file's name, as for COCO.
    """
    home = pathlib.Path(path).absolute().parent
    named = pathlib.Path(path).stem
    for start in KINDS_OF_FILES:
        named = named.removeprefix(start)
    homes = [home, home / "images", home.parent / "images", home / named, home.parent / named]
    inside = [folder for folder in homes if _is_plain(first) and (folder / first).is_file()]
    folder = (inside or homes)[0]
    return lambda name, place: path_within(folder, name, place)


def _is_plain(name: str) -> bool:
    """Whether a path, as it is written, stays inside its folder."""
    parts = pathlib.PurePath(name).parts
    return bool(parts) and not os.path.isabs(name) and not {"..", "\0"} & {*parts, *name} and "\\" not in name


def path_within(folder: pathlib.Path, name: str, place: str) -> str:
    """The path of a file in a `folder`; DataError if it, or a link on its way, leads out of the folder."""
    problem = f"expected a path within {folder}, got {brief(name)}"
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
