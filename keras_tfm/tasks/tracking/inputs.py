"""What a tracker is asked about: videos, folders of frames, and where one object is in the first frame."""

import os
import pathlib
from typing import Any

import numpy as np

from keras_tfm.configs import Field, FieldError, number_in
from keras_tfm.data.sources.coco import is_coco
from keras_tfm.data.sources.coco_videos import read_coco_frames
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.tracked_videos import frame_size, read_truth, recording_of
from keras_tfm.data.sources.videos import read_videos
from keras_tfm.serving.examples import Refused, check, not_video
from keras_tfm.serving.video_files import Video, opened


def first_box(source: Any, video: Video, box: Any) -> np.ndarray:
    """The corners (4,) of the object in the first frame, by the `box` or by the file beside the frames;
    `Refused` where there is neither, or where it is outside.
    """
    height, width = frame_size(video)
    if box is not None:
        left, top, *sides = numbers_of(box)
        corners = np.array([left, top, left + sides[0], top + sides[1]])
    else:
        corners = _true_box(source)
    inside = np.clip(corners, 0, [width, height, width, height])
    if not np.all(inside[2:] > inside[:2]):
        got = ", ".join(f"{x:g}" for x in (*corners[:2], *(corners[2:] - corners[:2])))
        raise Refused(f"expected a box in the first frame of {width} x {height} pixels, got {got}")
    return inside


def numbers_of(box: Any) -> list[float]:
    """(Left, top, width, height) of a box, numbers or a text with commas; FieldError for others."""
    parts = box.split(",") if isinstance(box, str) else list(box)
    try:
        numbers = [number_in(part) if isinstance(part, str) else float(part) for part in parts]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 4 or not np.isfinite(numbers).all() or min(numbers[2:]) <= 0:
        expected = "{}: expected left, top, width and height of an area, four numbers with commas, got {}"
        raise FieldError(expected, Field("box"), f"{box!r:.60}")
    return numbers


def frames_in(source: Any) -> Any:
    """The folder of the frames of a video in the layout of MOT or of one object; all else as it is."""
    if isinstance(source, str | os.PathLike) and os.path.isdir(source):
        recording = recording_of(pathlib.Path(source))
        return source if recording is None else str(recording.frames)
    return source


def opened_video(source: Any) -> Video:
    """The opened video; `Refused` for anything else."""
    if isinstance(source, Video):
        return source
    check(source, not_video)
    try:
        return opened(frames_in(source))
    except Refused:
        raise
    except ValueError as error:  # of a seqinfo.ini
        raise Refused(str(error)) from None


def _true_box(source: Any) -> np.ndarray:
    """The corners (4,) of the object in the first frame, by the file beside the frames of a folder."""
    recording = None
    if isinstance(source, str | os.PathLike) and os.path.isdir(source):
        folder = pathlib.Path(source)
        recording = recording_of(folder) or recording_of(folder.parent)
    if recording is None or recording.truth is None:
        raise Refused(
            "expected the object's box in the first frame, as left, top, width and height, got none"
        )
    boxes = read_truth(recording)[0].of_frame(1)
    if len(boxes.ids) != 1:
        raise Refused(f"{recording.truth}: expected one object in the first frame, got {len(boxes.ids)}")
    return boxes.boxes[0]


def inputs_in(path: pathlib.Path) -> Inputs:
    """A video, a folder of MOT's, what is in a folder, or the videos of a .json, each with its place."""
    if is_coco(str(path)):
        yield from ((video.paths, video.place) for video in read_coco_frames(str(path)))
        return
    if not path.is_dir():
        yield from read_videos(str(path))
        return
    if recording_of(path) is not None:
        yield str(path), str(path)
        return
    inside = sorted(each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))
    if any(recording_of(each) is not None for each in inside):
        for each in inside:
            yield from inputs_in(each)
        return
    yield from read_videos(str(path))
