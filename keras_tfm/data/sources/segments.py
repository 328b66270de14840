"""Images with segments, masks with a class: COCO's instances, panoptic segments (Kirillov et al. 2019).

Instances: COCO's .json whose annotations have a "segmentation", polygons or run lengths; they may overlap.
Panoptic: a .json whose annotations have a "file_name" and "segments_info", and a folder of PNGs, in which a
pixel's colour, R + 256 G + 256² B, is the number of its segment, 0 for none; a category whose "isthing" is 0
is stuff. The folder is the one named behind the file or, as COCO has it, the one beside the file with its
name. Pixels of panoptic crowds are in no segment; crowds among instances are regions where nothing is wrong.
"""

import os
import pathlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.coco import (
    Coco,
    folder_of,
    is_coco,
    is_crowd,
    path_within,
    read_coco,
    refuse_unknown,
    tell_crowds,
)
from keras_tfm.data.sources.ids import as_number
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.lines import DataError, files_of
from keras_tfm.data.sources.mask_files import decoded_numbers
from keras_tfm.data.sources.pictures import Checked, Picture, checked_pictures, read_pictures
from keras_tfm.data.sources.run_lengths import mask_of, packed, unpacked
from keras_tfm.data.sources.stated_sizes import drawn_on, misfit, resized
from keras_tfm.serving.image_headers import Header, Size, turned

KINDS = "COCO's instances, a .json; COCO's panoptic segments, a .json and its folder of PNGs"
INSTANCES, PANOPTIC = "instances", "panoptic"
WORDS = {INSTANCES: "instances", PANOPTIC: "panoptic segments"}
MOST_NAMES = 254  # of classes: with "none" and "no image" they fill eight bits
STRETCHED = Canvas()


class SegmentSets:
    """The segments of images, packed: iterating gives (masks (M, H, W), boolean, M names) of each image.

    `sets[3:5]` and `sets[np.array([7, 2])]` select images. `kind` is "instances" or "panoptic", `names` name
    all classes, and `stuff` the classes whose pixels are one segment of an image. `crowds`, of each image
    like its `segments`, are instances that nobody has separated: what is found there is not wrong.

    >>> masks = np.eye(2, dtype="bool")[:, None]  # two segments of one pixel each
    >>> sets = keras_tfm.data.SegmentSets.of([masks], [["cat", "dog"]])
    >>> [(masks.tolist(), labels) for masks, labels in sets]
    [([[[True, False]], [[False, True]]], ['cat', 'dog'])]
    """

    dtype = np.dtype("bool")

    def __init__(
        self,
        sizes: Sequence[Size],
        segments: Sequence[Sequence[tuple[str, bytes]]],
        names: Sequence[str],
        stuff: Sequence[str] = (),
        kind: str = INSTANCES,
        crowds: Sequence[Sequence[tuple[str, bytes]]] | None = None,
    ):
        self.sizes = [(int(height), int(width)) for height, width in sizes]
        self.segments = [list(each) for each in segments]
        self.crowds = [list(each) for each in crowds or [()] * len(self.segments)]
        self.names, self.stuff, self.kind = tuple(names), tuple(stuff), kind

    @classmethod
    def of(
        cls,
        masks: Sequence[np.ndarray],
        labels: Sequence[Sequence[str]],
        names: Sequence[str] | None = None,
        **fields: Any,
    ) -> "SegmentSets":
        """The segments of masks (M, H, W) of each image, and of their names; by default every name that
        occurs is a class.
        """
        names = sorted({name for each in labels for name in each}) if names is None else names
        segments = [
            [(name, packed(mask)) for mask, name in zip(image_masks, each, strict=True)]
            for image_masks, each in zip(masks, labels, strict=True)
        ]
        return cls([image_masks.shape[1:] for image_masks in masks], segments, names, **fields)

    def __len__(self) -> int:
        return len(self.segments)

    def __getitem__(self, rows: Any) -> "SegmentSets":
        chosen = range(len(self))[rows] if isinstance(rows, slice) else rows
        kept = [self.sizes[row] for row in chosen], [self.segments[row] for row in chosen]
        crowds = [self.crowds[row] for row in chosen]
        return SegmentSets(*kept, self.names, self.stuff, self.kind, crowds)

    def __iter__(self) -> Iterator[tuple[np.ndarray, list[str]]]:
        for size, segments in zip(self.sizes, self.segments, strict=True):
            masks = np.zeros((len(segments), *size), bool)
            for mask, (_, runs) in zip(masks, segments, strict=True):
                mask[:] = unpacked(runs, size)
            yield masks, [name for name, _ in segments]

    @property
    def counts(self) -> list[int]:
        """How many segments each image has."""
        return [len(each) for each in self.segments]

    def identity(self) -> Iterator[str]:
        """Strings that change if the segments change."""
        yield repr((self.kind, self.names, self.stuff))
        for size, *parts in zip(self.sizes, self.segments, self.crowds, strict=True):
            yield f"{size} {[[(name, zlib.crc32(runs)) for name, runs in part] for part in parts]}"


class Segments(NamedTuple):
    """Images, their original (height, width) (N, 2), and the segments of each.

    >>> images, masks = np.zeros((1, 8, 8, 3), "uint8"), np.ones((1, 8, 8), "bool")
    >>> sets = keras_tfm.data.SegmentSets.of([masks], [["cat"]])
    >>> data = keras_tfm.data.Segments(images, np.array([(8, 8)]), sets)
    >>> data.segments.names, data.segments.counts
    (('cat',), [1])
    """

    images: np.ndarray | ImageFiles
    sizes: np.ndarray
    segments: SegmentSets


class Panoptic(NamedTuple):
    """The segments of an image: {number: name, None for a crowd} in the colours of the file `mask`."""

    names: Mapping[int, str | None]
    mask: str


def read_segments(paths: Any, shape: tuple[int, int, int], canvas: Canvas = STRETCHED) -> Segments:
    """Read the images of one or several files, of this `shape` or decoded when needed, and their segments.

    Skipped, with a warning that counts them and names some, are images that cannot be decoded, panoptic masks
    of another size than their image or with a number that is no segment's, and segments without area, with
    run lengths of another size, or not finite. Polygons are cut off at the edges of the image. Where the file
    states another size than an image has, polygons and masks of that size are scaled if one number is the
    ratio of both sides; otherwise the image is skipped. Where the EXIF of an image turns it, the stated size,
    or the size of a panoptic mask, says whether segments are turned too; where it does not, the image is
    skipped.

    Raises:
        DataError: for a mistake in a file, for a path that leads out of its folder, and if no image, or no
            segment, is left.

    >>> import json, pathlib
    >>> tf.io.write_file("cat.png", tf.io.encode_png(np.zeros((4, 4, 3), "uint8")))
    >>> cat = {"image_id": 1, "category_id": 7, "segmentation": [[0, 0, 2, 0, 2, 4, 0, 4]]}
    >>> content = {"images": [{"id": 1, "file_name": "cat.png"}], "annotations": [cat]}
    >>> content |= {"categories": [{"id": 7, "name": "cat"}]}
    >>> _ = pathlib.Path("cats.json").write_text(json.dumps(content))
    >>> ((masks, labels),) = keras_tfm.data.read_segments("cats.json", shape=(8, 8, 3)).segments
    >>> masks[0].astype(int).tolist(), labels  # the left half
    ([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]], ['cat'])
    """
    files = files_of(paths)
    pictures, names, stuff, kind = described(files)
    checked = checked_pictures(pictures, files[0], _checked)
    images, sizes, parts = read_pictures(pictures, checked, files[0], shape, canvas, "segments")
    segments, crowds = (
        [[(name, runs) for name, runs, is_many in each if is_many == which] for each in parts]
        for which in (False, True)
    )
    if not any(segments):
        raise DataError(files[0], None, "expected segments of single objects, there are none")
    return Segments(images, sizes, SegmentSets(sizes.tolist(), segments, names, stuff, kind, crowds))


def described(files: Sequence[str]) -> tuple[list[Picture], list[str], list[str], str]:
    """(The pictures that files describe, all classes' names, the names of stuff, the kind of segments)."""
    pictures: list[Picture] = []
    names: list[str] = []
    stuff: list[str] = []
    kind = None
    rest = list(files)
    while rest:
        path = rest.pop(0)
        if not is_coco(path):
            raise DataError(path, None, f"expected {KINDS}")
        content = read_coco(path)
        own = PANOPTIC if any("segments_info" in item for item in content.annotations) else INSTANCES
        if kind not in (None, own):
            raise DataError(path, None, f"expected {WORDS[kind]} as in {files[0]}, got {WORDS[own]}")
        kind = own
        if kind == PANOPTIC:
            folder = rest.pop(0) if rest and os.path.isdir(rest[0]) else None
            pictures += _panoptic(content, folder)
        else:
            pictures += _instances(content)
        for number, category in enumerate(content.categories, 1):
            is_thing = category.get("isthing", 1)
            if is_thing not in (0, 1):
                problem = f'expected 0 or 1 as "isthing", got {brief(is_thing)}'
                raise DataError(path, None, f'"categories", item {number}: {problem}')
            for known, is_one in ((names, True), (stuff, kind == PANOPTIC and not is_thing)):
                if is_one and category["name"] not in known:
                    known.append(category["name"])
    if len(names) > MOST_NAMES:
        raise DataError(files[0], None, f"expected {MOST_NAMES} categories at most, got {len(names):,}")
    return pictures, names, stuff, kind or INSTANCES


def _instances(content: Coco) -> list[Picture]:
    """The pictures of instances, (name, "segmentation", whether it is a crowd)."""
    pictures = []
    for path, place, objects, stated in content.objects():
        parts = [(content.name_of(item), item.get("segmentation"), is_crowd(item)) for item in objects]
        pictures.append(Picture(path, place, parts, stated))
    return pictures


def _panoptic(content: Coco, folder: str | None) -> list[Picture]:
    """The pictures of panoptic annotations, of which images without one are skipped."""
    path = content.path
    by_image = content.by_image(("image_id",))
    home = pathlib.Path(path).absolute().parent
    homes = [home / pathlib.Path(path).stem, home] if folder is None else [pathlib.Path(folder)]
    masks = folder_of(homes, (item.get("file_name") for item in content.annotations))
    pictures, unknown, num_crowds = [], [], 0
    for id, image, place in content.paths():
        annotations = by_image[id]
        if not annotations:
            continue
        if len(annotations) > 1:
            raise DataError(place, None, f"expected one annotation, got {len(annotations):,}")
        file, segments = (annotations[0].get(name) for name in ("file_name", "segments_info"))
        if not isinstance(file, str):
            raise DataError(place, None, f'expected a PNG as "file_name", got {brief(file)}')
        if not isinstance(segments, list) or not all(isinstance(item, dict) for item in segments):
            raise DataError(
                place, None, f'expected a list of objects as "segments_info", got {brief(segments)}'
            )
        names: dict[int, str | None] = {}
        for item in segments:
            number = as_number(item.get("id"))
            if number is None or not 0 < number < 1 << 24 or number in names:
                raise DataError(
                    place, None, f'expected an "id" of its own for a segment, got {brief(item.get("id"))}'
                )
            if problem := content.unknown(item, ("category_id",)):
                unknown.append(f"a segment of the image {id!r} has {problem}")
                continue
            names[number] = None if is_crowd(item) else content.name_of(item)
        num_crowds += sum(name is None for name in names.values())
        annotation = Panoptic(names, path_within(masks, file, place))
        pictures.append(Picture(image, place, annotation, content.sizes[id]))
    refuse_unknown(path, unknown)
    tell_crowds(path, num_crowds)
    return pictures


def _checked(picture: Picture, header: Header) -> Checked | str:
    """The segments of a picture, (name, packed mask, whether it is a crowd)."""
    if isinstance(picture.annotation, Panoptic):
        return _of_colours(picture, header)
    drawn = drawn_on(header, picture.stated)
    if isinstance(drawn, str):
        return drawn
    size, orientation = drawn
    segments, problems = [], {}
    for number, (name, segmentation, is_many) in enumerate(picture.annotation, 1):
        if is_many and not segmentation:
            continue
        place = f"{picture.place}, segment {number}"
        try:
            mask = mask_of(segmentation, size, picture.stated)
        except ValueError as error:
            raise DataError(place, None, str(error)) from None
        if isinstance(mask, str) or not mask.any():
            problems[place] = mask if isinstance(mask, str) else "of no area"
        else:
            segments.append((name, packed(turned(mask, orientation)), is_many))
    return Checked(segments, problems)


def _of_colours(picture: Picture, header: Header) -> Checked | str:
    """What `_checked` gives for panoptic segments."""
    names, mask = picture.annotation
    numbers = decoded_numbers(mask)
    if isinstance(numbers, str):
        return f"{mask}: {numbers}"
    drawn = drawn_on(header, numbers.shape) if header.orientation > 1 else header
    if isinstance(drawn, str):
        return drawn
    size, orientation = drawn
    if numbers.shape == picture.stated and misfit(picture.stated, size) is None:
        numbers = resized(numbers, size)
    if numbers.shape != size:
        (height, width), (rows, columns) = size, numbers.shape
        return f"expected a mask of {width} x {height}, as the image, got {columns} x {rows}"
    numbers = turned(numbers, orientation)
    occurs = np.unique(numbers).tolist()
    unknown = [number for number in occurs if number and number not in names]
    if unknown:
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        return f"{mask}: the number {unknown[0]}{more} in the mask is no segment's"
    segments, problems = [], {}
    for number, name in names.items():
        if number not in occurs:
            problems[f"{picture.place}, segment {number}"] = "of no area"
        elif name is not None:
            segments.append((name, packed(numbers == number), False))
    return Checked(segments, problems)
