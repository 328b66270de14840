"""Videos whose frames are images with boxes, in COCO-video's layout, as MMTracking and TAO have it.

    "videos"       [{"id"}]
    "images"       [{"id", "file_name", "video_id", "frame_id"}]         "frame_index" in TAO
    "annotations"  [{"image_id", "category_id", "bbox", "instance_id"}]  or "track_id"
    "categories"   [{"id", "name"}]

The frames of a video stand in the order of their numbers, wherever the files are: see `coco.paths_of`.
"""

import collections
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.coco import (
    Coco,
    coco_of,
    corners_of,
    ids_of,
    is_crowd,
    is_number,
    lists_in,
    read_json,
    tell_crowds,
)
from keras_tfm.data.sources.ids import Id, as_number, known_id
from keras_tfm.data.sources.image_files import size_in
from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.sources.mot import MOTBoxes
from keras_tfm.data.sources.stated_sizes import misfit
from keras_tfm.serving.image_headers import Size

FRAME = ("frame_id", "frame_index")
IDENTITY = ("instance_id", "track_id")


class FrameList(NamedTuple):
    """A video: the ids and the paths of its frames, and its place for messages."""

    images: list[Id]
    paths: list[str]
    place: str


def read_coco_frames(path: str) -> list[FrameList]:
    """The videos of a file, which needs no annotations; DataError where a frame has no video, no number, or
    the number of another.
    """
    parts = lists_in(path, read_json(path), ("videos", "images"))
    return _videos(coco_of(path, {**parts, "annotations": [], "categories": []}), parts)


def read_coco_tracks(path: str) -> Iterator[tuple[FrameList, MOTBoxes]]:
    """The videos of a file, and the boxes of their objects, whose `classes` count the file's categories from
    1. Crowds are skipped, with a warning.

    Boxes of images that state another size than the file has are scaled. DataError as in `read_coco_frames`,
    and for an annotation without a box with an area, or without the identity of its object.
    """
    parts = lists_in(path, read_json(path), ("videos", "images", "annotations", "categories"))
    coco = coco_of(path, parts)
    by_image = coco.by_image()
    tell_crowds(path, sum(map(is_crowd, coco.annotations)))
    numbers = {id: number for number, id in enumerate(coco.names, 1)}
    for video in _videos(coco, parts):
        numbered, corners = [], []
        for frame, (image, file) in enumerate(zip(video.images, video.paths, strict=True), 1):
            items = [item for item in by_image[image] if not is_crowd(item)]
            scale = _scale(file, coco.sizes[image]) if items else None
            for item in items:
                identity, box = _checked(path, item)
                numbered.append((frame, identity, numbers[known_id(item["category_id"], coco.names)]))
                corners.append(box * scale)
        frames, ids, kinds = np.array(numbered, "int64").reshape(-1, 3).T
        yield video, MOTBoxes(frames, ids, np.array(corners).reshape(-1, 4), np.ones(len(ids)), kinds)


def _videos(coco: Coco, parts: dict[str, list[dict[str, Any]]]) -> list[FrameList]:
    """The frames of each of the "videos" in order."""
    frames: dict[Id, list[tuple[int, Id, str]]] = {
        id: [] for id in ids_of(coco.path, "videos", parts["videos"])
    }
    for item, (id, file, place) in zip(parts["images"], coco.paths(), strict=True):
        video, number = known_id(item.get("video_id"), frames), as_number(_first(item, FRAME))
        if video is None or number is None:
            names = {name: item.get(name) for name in ("video_id", FRAME[0])}
            raise DataError(place, None, f"expected the id of a video and a whole number, got {brief(names)}")
        frames[video].append((number, id, file))
    found = []
    for video, some in frames.items():
        place = f"{coco.path}, video {video!r}"
        numbers = collections.Counter(number for number, _, _ in some)
        if twice := [number for number, count in numbers.items() if count > 1]:
            raise DataError(place, None, f"expected each number of a frame once, {twice[0]} is repeated")
        ordered = sorted(some, key=lambda frame: frame[0])
        found.append(FrameList([id for _, id, _ in ordered], [file for _, _, file in ordered], place))
    return found


def _checked(path: str, item: dict[str, Any]) -> tuple[int, np.ndarray]:
    """(The identity, the corners (4,)) of an annotation."""
    identity, corners = as_number(_first(item, IDENTITY)), corners_of(item.get("bbox"))
    place = f"{path}, annotation {brief(item.get('id'))}"
    if identity is None or identity.bit_length() > 63:
        got = brief(_first(item, IDENTITY))
        raise DataError(place, None, f'expected a whole number as "instance_id" or "track_id", got {got}')
    is_box = isinstance(corners, list) and len(corners) == 4 and all(map(is_number, corners))
    if not is_box or not np.isfinite(corners).all() or corners[2] <= corners[0] or corners[3] <= corners[1]:
        got = brief(item.get("bbox"))
        raise DataError(place, None, f'expected left, top, width and height of an area as "bbox", got {got}')
    return identity, np.array(corners, "float64")


def _scale(file: str, stated: Size | None) -> np.ndarray:
    """What boxes of the `stated` size are multiplied by; DataError where the file is not of its form."""
    try:
        size = size_in(file)
    except OSError as error:
        raise DataError(file, None, f"cannot be read: {error.strerror or error}") from None
    if size is None or stated is None:
        return np.ones(4)
    if problem := misfit(stated, size):
        raise DataError(file, None, problem)
    return np.array([size[1] / stated[1], size[0] / stated[0]] * 2)


def _first(item: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The value of the first of these entries that there is."""
    return next((item[name] for name in names if item.get(name) is not None), None)
