"""Folders in the layout of Pascal VOC (Everingham et al. 2010): Annotations/*.xml and JPEGImages/.

Pixels are counted from 1. Difficult objects are marked, as VOC's own measure ignores them. Tools and people
rename images and leave out suffixes, so the image of an annotation is the first of these in JPEGImages/: the
file that <filename> names or, without one, the last part of <path>; the one file of that name with another
suffix; and the one file with the annotation's own name.
"""

import os
import pathlib
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from keras_tfm.configs import brief, number_in
from keras_tfm.data.sources.coco import is_absolute, path_within, with_slashes
from keras_tfm.data.sources.crowds import BoxDetails
from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.sources.pictures import SUFFIXES, Picture
from keras_tfm.data.sources.stated_sizes import stated_size

MAX_XML_BYTES = 1 << 24
FLAGS = {"": False, "0": False, "false": False, "no": False, "unspecified": False}
FLAGS |= {"1": True, "true": True, "yes": True}
Stems = Mapping[str, Sequence[str]]  # {name of an image without suffix, case-folded: its files' names}


def voc_images(folder: pathlib.Path, names: Sequence[str]) -> Iterator[Picture]:
    """The image of each annotation, with (boxes in pixels from 0, their names)."""
    stems = _stems(folder / "JPEGImages")
    for name in names:
        place = path_within(folder / "Annotations", f"{name}.xml", os.fspath(folder))
        root = read_xml(place)
        boxes: list[list[float]] = []
        labels: list[str | BoxDetails] = []
        for number, item in enumerate(root.findall("object"), 1):
            boxes.append(_box(item, number, place))
            if not (label := _text(item, "name")):
                raise DataError(place, None, f"object {number}: expected a name, there is none")
            is_difficult = _is_difficult(item, number, place)
            labels.append(BoxDetails(label, is_difficult=True) if is_difficult else label)
        stated = stated_size(_text(root, "size/width"), _text(root, "size/height"), place)
        path = _image(root, folder / "JPEGImages", name, stems, place)
        yield Picture(path, place, (boxes, labels), stated)


def _text(item: ElementTree.Element, path: str) -> str:
    """The text in an element, "" for none."""
    return (item.findtext(path) or "").strip()


def _is_difficult(item: ElementTree.Element, number: int, place: str) -> bool:
    text = _text(item, "difficult")
    if text.lower() not in FLAGS:
        raise DataError(place, None, f'object {number}: expected 0 or 1 as "difficult", got {brief(text)}')
    return FLAGS[text.lower()]


def _box(item: ElementTree.Element, number: int, place: str) -> list[float]:
    """The (left, top, right, bottom) of an object, from the first pixel, 0, to the end of the last."""
    try:
        sides = [number_in(_text(item, f"bndbox/{side}")) for side in ("xmin", "ymin", "xmax", "ymax")]
    except ValueError:
        raise DataError(place, None, f"object {number}: expected a bndbox of four numbers") from None
    return [sides[0] - 1, sides[1] - 1, *sides[2:]]


def _image(root: ElementTree.Element, folder: pathlib.Path, name: str, stems: Stems, place: str) -> str:
    """The path of the image of an annotation with this `name`; where there is none, the path stated."""
    stated = with_slashes(_text(root, "filename") or _text(root, "path") or f"{name}.jpg")
    if is_absolute(stated) or not _text(root, "filename"):
        stated = pathlib.PurePosixPath(stated).name
    path = path_within(folder, stated, place)
    if os.path.isfile(path):
        return path
    last = pathlib.PurePosixPath(stated)
    for stem in (last.name, last.stem, name):
        files = stems.get(stem.casefold(), ())
        if len(files) > 1:
            others = ", ".join(files[:3])
            raise DataError(
                place, None, f"expected the image {brief(stated)}, or one of its name, got {others}"
            )
        if files:
            return path_within(folder, files[0], place)
    return path


def _stems(folder: pathlib.Path) -> Stems:
    """The images in a folder by their names without suffix."""
    stems: dict[str, list[str]] = defaultdict(list)
    files = sorted(os.listdir(folder)) if folder.is_dir() else []
    for path in map(pathlib.PurePath, files):
        if path.suffix.lower() in SUFFIXES and not path.name.startswith("."):
            stems[path.stem.casefold()].append(path.name)
    return stems


def read_xml(path: str) -> ElementTree.Element:
    """The root of an XML file; DataError if it declares a document type, whose entities could expand without
    limit.
    """
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_XML_BYTES + 1)
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None
    is_suspect = b"<!DOCTYPE" in data or b"\0" in data  # a NUL is a sign of UTF-16, which could hide one
    if len(data) > MAX_XML_BYTES or is_suspect:
        raise DataError(path, None, f"expected XML without a DOCTYPE, of {MAX_XML_BYTES:,} bytes at most")
    try:
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise DataError(path, None, f"expected XML: {error}") from None
