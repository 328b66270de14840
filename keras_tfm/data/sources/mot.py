"""The layout of the MOT Challenge (Milan et al. 2016, "MOT16"): folders of frames with boxes in text files.

    MOT17-02/seqinfo.ini      the frames' folder, their number, rate and size
             img1/000001.jpg
             gt/gt.txt        frame, identity, left, top, width, height, counts or not, class, visibility
             det/det.txt      frame, -1, left, top, width, height, score

Frames count from 1. A file of answers has the columns of det.txt, with identities.
"""

import configparser
import os
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from keras_tfm.configs import number_in
from keras_tfm.data.sources.lines import DataError, Path, numbered_lines

WHOLE = ("the frame", "the identity")
NAMES = (*WHOLE, "the left side", "the top side", "the width", "the height", "the score")
LEAST_COLUMNS = 6
CLASS = 7  # the column of gt.txt


class MOTBoxes(NamedTuple):
    """N boxes of a video: `frames` (N,) from 1, `ids` (N,), -1 where unknown, `boxes` (N, 4), (left, top,
    right, bottom) in pixels, `scores` (N,), by default 1, and `classes` (N,), by default 1, pedestrians.

    >>> corners, ones = np.array([[0.0, 0.0, 4.0, 4.0], [1.0, 0.0, 5.0, 4.0]]), np.ones(2)
    >>> boxes = keras_tfm.data.MOTBoxes(np.array([1, 2]), np.array([7, 7]), corners, ones, ones)
    >>> boxes.of_frame(2).boxes.tolist()
    [[1.0, 0.0, 5.0, 4.0]]
    """

    frames: np.ndarray
    ids: np.ndarray
    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray

    def of_frame(self, frame: int) -> "MOTBoxes":
        """The boxes of one frame."""
        return MOTBoxes(*(x[self.frames == frame] for x in self))


class MOTVideo(NamedTuple):
    """What seqinfo.ini says: the folder of the frames, the endings of their names, their number, the frames a
    second, and (height, width).
    """

    frames: pathlib.Path
    suffix: str
    length: int
    rate: float
    size: tuple[int, int]

    def path_of(self, frame: int) -> pathlib.Path:
        """The file of a frame, which counts from 1."""
        return self.frames / f"{frame:06d}{self.suffix}"


def read_mot(path: Path, is_truth: bool = False) -> MOTBoxes:
    """The boxes in gt.txt, det.txt or a file of answers. In a file that `is_truth` those do not count whose
    seventh column is 0.

    DataError for a line of too few or other than numbers, a frame before the first, a box without area, and
    an identity that stands twice in a frame.

    >>> import pathlib
    >>> _ = pathlib.Path("gt.txt").write_text("1,7,0,0,4,4,1,1,1")
    >>> keras_tfm.data.read_mot("gt.txt", is_truth=True).boxes.tolist()
    [[0.0, 0.0, 4.0, 4.0]]
    """
    name, rows = os.fspath(path), []
    seen: dict[tuple[int, int], int] = {}  # the line of each identity in each frame
    for number, line in numbered_lines(name):
        if not line.strip():
            continue
        values = _numbers(name, number, line)
        frame, identity = int(values[0]), int(values[1])
        if is_truth and len(values) > LEAST_COLUMNS and not values[LEAST_COLUMNS]:
            continue
        if identity >= 0 and (first := seen.setdefault((frame, identity), number)) != number:
            raise DataError(
                name, number, f"identity {identity} stands in frame {frame} already, line {first}"
            )
        score = values[6] if len(values) > 6 and not is_truth else 1.0
        kind = values[CLASS] if is_truth and len(values) > CLASS else 1
        left, top, width, height = values[2:6]
        rows.append((frame, identity, left, top, left + width, top + height, score, kind))
    table = np.array(rows, "float64").reshape(-1, 8)
    whole = table[:, [0, 1, 7]].astype("int64")
    return MOTBoxes(whole[:, 0], whole[:, 1], table[:, 2:6], table[:, 6], whole[:, 2])


def write_mot(path: Path, boxes: MOTBoxes) -> None:
    """Write a file of answers, frame by frame, as MOT's own measures read it.

    >>> one = np.ones(1, "int64")
    >>> boxes = keras_tfm.data.MOTBoxes(one, one, np.array([[0.0, 0.0, 4.0, 8.0]]), np.array([0.5]), one)
    >>> keras_tfm.data.write_mot("answers.txt", boxes)
    >>> keras_tfm.data.read_mot("answers.txt").scores.tolist()
    [0.5]
    """
    order = np.lexsort([boxes.ids, boxes.frames])
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in _lines(MOTBoxes(*(x[order] for x in boxes))))


def _lines(boxes: MOTBoxes) -> Iterable[str]:
    sides = boxes.boxes[:, 2:] - boxes.boxes[:, :2]
    for frame, identity, corner, side, score, _ in zip(
        boxes.frames, boxes.ids, boxes.boxes, sides, boxes.scores, boxes.classes, strict=True
    ):
        numbers = ",".join(f"{x:.2f}" for x in (*corner[:2], *side))
        yield f"{frame},{identity},{numbers},{score:.6g},-1,-1,-1"


def read_mot_video(folder: Path) -> MOTVideo:
    """The frames of a video's folder by its seqinfo.ini; DataError for a file that says too little."""
    path = pathlib.Path(folder) / "seqinfo.ini"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
        entries = parser["Sequence"]
        size = int(entries["imHeight"]), int(entries["imWidth"])
        length, rate = int(entries["seqLength"]), number_in(entries["frameRate"])
        return MOTVideo(path.parent / entries["imDir"], entries["imExt"], length, rate, size)
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise DataError(
            path, None, f"expected an entry {error.args[0]!r} in [Sequence], there is none"
        ) from None
    except (configparser.Error, UnicodeDecodeError, ValueError) as error:
        raise DataError(path, None, f"expected MOT's entries: {str(error).splitlines()[0]}") from None


def _numbers(path: str, number: int, line: str) -> list[float]:
    """The numbers of a line, of which frame and identity are whole and the box has an area."""
    cells = line.split(",")
    if len(cells) < LEAST_COLUMNS:
        raise DataError(
            path, number, f"expected at least {LEAST_COLUMNS} numbers with commas, got {len(cells)}"
        )
    values = []
    for place, cell in enumerate(cells):
        name = NAMES[place] if place < len(NAMES) else f"column {place + 1}"
        try:
            values.append(number_in(cell))
        except ValueError:
            raise DataError(path, number, f"expected a number for {name}, got {cell.strip()!r:.60}") from None
        is_whole = place < len(WHOLE)
        if not np.isfinite(values[-1]) or (is_whole and values[-1] % 1):
            kind = "whole" if is_whole else "finite"
            raise DataError(path, number, f"expected a {kind} number for {name}, got {cell.strip()!r:.60}")
    if values[0] < 1:
        raise DataError(path, number, f"frames count from 1, got {int(values[0])}")
    if min(values[4:6]) <= 0:
        raise DataError(path, number, f"expected a box with an area, got {values[4]:g} x {values[5]:g}")
    return values
