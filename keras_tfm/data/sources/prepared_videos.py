"""Data sets of TFDS that say where objects are in videos, as youtube_vis and tao do.

"video"   the frames
"tracks"  a sequence of objects: their "category", "is_crowd", perhaps a "track_id", the "frames" that show
          them, counted from 0, and in each of these "bboxes", or "segmentations", a mask as large as the
          frame
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.coco import tell_crowds
from keras_tfm.data.sources.image_files import size_in
from keras_tfm.data.sources.mot import MOTBoxes
from keras_tfm.data.sources.rows import Columns, Row, one_of_each, read_all
from keras_tfm.data.sources.videos import VIDEOS, video_in
from keras_tfm.serving.examples import shown

TRACKS = ("tracks",)


class TrackedFrames(NamedTuple):
    """A video of a data set: its encoded frames, its objects, each a record, and its row."""

    frames: list[bytes]
    objects: list[dict[str, Any]]
    row: Row

    @property
    def place(self) -> str:
        """Where the video is, for messages."""
        return f"{self.row.path}, {self.row.place}"


def prepared_tracks(path: str, kind: str) -> Iterator[TrackedFrames]:
    """The videos of "tfds:NAME#SPLIT" with the tracks of their objects, whose `kind` is "bboxes" or
    "segmentations". Crowds are skipped, with a warning.

    DataError for a data set without tracks of this kind, and for one whose numbers of frames differ.
    """
    num_crowds = 0
    chosen = Columns(("video", "tracks"), one_of_each(VIDEOS, TRACKS))
    for row in read_all(path, chosen, "videos and their tracks"):
        tracks = row.cells[1]
        if not isinstance(tracks, dict) or not {"frames", kind} <= {*tracks}:
            got = sorted(tracks) if isinstance(tracks, dict) else shown(tracks)
            row.refuse(f'expected objects with "frames" and "{kind}" as {row.names[1]}, got {got}')
        frames, place = video_in(row)
        if not isinstance(frames, list):
            row.refuse(f"expected the frames of a video as {row.names[0]}, got {place}")
        objects = [dict(zip(tracks, values, strict=True)) for values in zip(*tracks.values(), strict=True)]
        for each in objects:
            places = each["frames"]
            if len(places) != len(each[kind]) or not set(places) <= set(range(len(frames))):
                expected = f'as many "frames", from 0 to {len(frames) - 1}, as "{kind}"'
                row.refuse(f"expected {expected} of an object, got {brief(places)}, {len(each[kind])}")
        separate = [each for each in objects if not each.get("is_crowd")]
        num_crowds += len(objects) - len(separate)
        yield TrackedFrames(frames, separate, row)
    tell_crowds(path, num_crowds)


def boxes_of(video: TrackedFrames) -> MOTBoxes:
    """The boxes of a video's objects in pixels. TFDS has them as (top, left, bottom, right) in parts of the
    sides. Objects without a "track_id" are counted from 1.
    """
    height, width = size_in(video.frames[0]) or (1, 1) if video.frames else (1, 1)
    rows = [
        ((frame + 1, each.get("track_id", number)), box)
        for number, each in enumerate(video.objects, 1)
        for frame, box in zip(each["frames"], each["bboxes"], strict=True)
    ]
    numbers = np.array([numbers for numbers, _ in rows], "int64").reshape(-1, 2)
    boxes = np.array([box for _, box in rows], "float64").reshape(-1, 4)[:, [1, 0, 3, 2]]
    boxes *= [width, height, width, height]
    ones = np.ones(len(rows))
    return MOTBoxes(numbers[:, 0], numbers[:, 1], boxes, ones, ones.astype("int64"))
