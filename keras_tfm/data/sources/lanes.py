"""Images of roads with their lanes, in TuSimple's format: JSON lines, each of an image,

    {"raw_file": "clips/0313-1/6040/20.jpg", "h_samples": [240, 250, ...], "lanes": [[-2, 632, ...], ...]}

with the x of each lane at each of the heights, in pixels from the left and the upper edge; a negative x says
that the lane is not there. A path is relative to the file's folder, or to a folder of images near it. Answers
are written in the same format.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.coco import located, with_slashes
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.lines import DataError, Path, files_of, json_lines
from keras_tfm.data.sources.pictures import Checked, Picture, checked_pictures, read_pictures, tell_parts
from keras_tfm.data.sources.stated_sizes import drawn_on
from keras_tfm.serving.image_headers import Header, Size

STRETCHED = Canvas()
NOWHERE = -1.0  # x of a lane where it is not
NOT_THERE = -2  # the same in TuSimple's files
LEAST_POINTS = 2  # of a lane in its image
MOST = 2.0**31  # pixels


class Lanes(NamedTuple):
    """Images, their original (height, width) (N, 2), for each image P heights, ascending, and x of its lanes
    there (M, P), both relative to its sides; x is `NOWHERE` where a lane is not.

    >>> images, sizes = np.zeros((1, 8, 8, 3), "uint8"), np.array([(8, 8)])
    >>> lanes = np.array([[0.5, 0.25]])  # from the middle to the left
    >>> data = keras_tfm.data.Lanes(images, sizes, [np.array([0.5, 1.0])], [lanes])
    >>> len(data.lanes[0])
    1
    """

    images: np.ndarray | ImageFiles
    sizes: np.ndarray
    heights: list[np.ndarray]
    lanes: list[np.ndarray]


def read_lanes(paths: Any, shape: tuple[int, int, int], canvas: Canvas = STRETCHED) -> Lanes:
    """The images in one or several of TuSimple's files, of this `shape` or decoded when needed, and their
    lanes.

    Skipped, with a warning that counts them and names some, are images that cannot be decoded or that their
    EXIF turns, and lanes with fewer than two points in their image; points outside of it do not count.

    Raises:
        DataError: for a mistake in a file, for a path that leads out of its folder, and if no image, or no
            lane, is left.

    >>> import pathlib
    >>> tf.io.write_file("road.png", tf.io.encode_png(np.zeros((20, 40, 3), "uint8")))
    >>> line = '{"raw_file": "road.png", "h_samples": [10, 15, 20], "lanes": [[-2, 10, 20]]}'
    >>> _ = pathlib.Path("lanes.json").write_text(line)
    >>> keras_tfm.data.read_lanes("lanes.json", shape=(10, 20, 3)).lanes[0].tolist()
    [[-1.0, 0.25, 0.5]]
    """
    files = files_of(paths)
    pictures = [picture for file in files for picture in pictures_in(file)]
    checked = checked_pictures(pictures, files[0], _checked)
    images, sizes, parts = read_pictures(pictures, checked, files[0], shape, canvas, "lanes")
    return Lanes(images, sizes, *_columns(parts))


def pictures_in(path: str) -> list[Picture]:
    """The images in a file, each with (heights, lanes) in pixels, or None where a line has none."""
    pictures: list[Picture] = []
    for number, row in json_lines(path):
        place = f"{path}, line {number}"
        if not isinstance(row, dict) or not isinstance(row.get("raw_file"), str):
            raise DataError(place, None, f'expected an object with a path as "raw_file", got {brief(row)}')
        pictures.append(Picture(row["raw_file"], place, (row.get("h_samples", []), row.get("lanes", []))))
    return located(path, pictures)


def checked_lanes(
    places: Sequence[str], heights: Sequence[Any], lanes: Sequence[Any], sizes: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(Heights, lanes) as shares of the sides of images of these `sizes`, as `Lanes` has them; `heights` and
    `lanes` are in pixels.

    Lanes of fewer than two points in their image are skipped, with a warning. DataError for anything but
    lists of numbers.
    """
    checked = [_lanes_of(*each) for each in zip(places, heights, lanes, sizes.tolist(), strict=True)]
    tell_parts(checked, "lanes")
    return _columns([each.parts for each in checked])


def _columns(parts: Sequence[list]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The heights (P,) and the lanes (M, P) of each image; none of either for one without lanes."""
    heights = [each[0][0] if each else np.empty(0, "float32") for each in parts]
    lanes = [
        np.array([x for _, x in each], "float32").reshape(len(each), len(rows))
        for each, rows in zip(parts, heights, strict=True)
    ]
    return heights, lanes


def write_lanes(path: Path, files: Sequence[Path], answers: Sequence[Mapping[str, Any]]) -> None:
    """Write a new file in TuSimple's format with the lanes of image files: of each a dict of "h_samples" (P,)
    and "lanes" (M, P), in pixels, negative where a lane is not, as `tasks.LaneFinder` answers.

    >>> answer = {"h_samples": [10, 20], "lanes": np.array([[-2, 30.5]])}
    >>> keras_tfm.data.write_lanes("answers.json", ["clips/1.jpg"], [answer])
    >>> import pathlib
    >>> pathlib.Path("answers.json").read_text().strip()
    '{"raw_file": "clips/1.jpg", "h_samples": [10, 20], "lanes": [[-2, 30.5]]}'
    """
    home = os.path.dirname(os.path.abspath(path))
    with open(path, "x", encoding="utf-8") as lines:
        for file, answer in zip(files, answers, strict=True):
            lanes = np.asarray(answer["lanes"], "float64").tolist()
            row = {
                "raw_file": with_slashes(os.path.relpath(file, home)),
                "h_samples": list(map(_short, np.asarray(answer["h_samples"], "float64").tolist())),
                "lanes": [[NOT_THERE if x < 0 else _short(x) for x in lane] for lane in lanes],
            }
            lines.write(json.dumps(row) + "\n")


def _short(number: float) -> int | float:
    """A number with two digits behind the point, without them where they are 0."""
    rounded = round(number, 2)
    return int(rounded) if rounded == int(rounded) else rounded


def _checked(picture: Picture, header: Header) -> Checked | str:
    drawn = drawn_on(header, None)
    if isinstance(drawn, str):
        return drawn
    heights, lanes = picture.annotation
    return _lanes_of(picture.place, heights, lanes, header.size)


def _lanes_of(place: str, heights: Any, lanes: Any, size: Size) -> Checked:
    """(Heights, x) of each lane of an image of this `size`, relative to its sides, the heights ascending."""
    height, width = size
    rows = _numbers(heights, place, "h_samples")
    if not isinstance(lanes, list | tuple | np.ndarray):
        raise DataError(place, None, f'expected a list of lanes as "lanes", got {brief(lanes)}')
    order = np.argsort(rows, kind="stable")
    parts, problems = [], {}
    for number, lane in enumerate(lanes, 1):
        x = _numbers(lane, place, "lanes")
        if len(x) != len(rows):
            problem = f"expected an x for each of {len(rows)} heights, got {len(x)} in lane {number}"
            raise DataError(place, None, problem)
        is_there = (x >= 0) & (x <= width) & (rows >= 0) & (rows <= height)
        if is_there.sum() < LEAST_POINTS:
            problems[f"{place}, lane {number}"] = f"fewer than {LEAST_POINTS} points in the image"
            continue
        relative = np.where(is_there, x / width, NOWHERE)
        parts.append(((rows / height)[order].astype("float32"), relative[order].astype("float32")))
    return Checked(parts, problems)


def _numbers(values: Any, place: str, name: str) -> np.ndarray:
    """A list of finite numbers as an array, float64; DataError for anything else."""
    values = values.tolist() if isinstance(values, np.ndarray) else values
    good = isinstance(values, list | tuple) and all(
        isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < MOST for x in values
    )
    if not good:
        raise DataError(place, None, f'expected lists of numbers as "{name}", got {brief(values)}')
    return np.array(values, "float64")
