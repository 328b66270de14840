"""Videos with boxes around the objects that are followed: folders of frames beside text files of boxes.

MOT17-02/seqinfo.ini       many objects: the layout of `mot`; without this file the frames are in img1/
         img1/000001.jpg
         gt/gt.txt
ball/groundtruth.txt       one object (LaSOT, OTB): a line for each frame, left, top, width, height, with
     img/00000001.jpg      commas, tabs or spaces between; zeros or NaN where it is not seen
tracks.json                many objects: the layout of `coco_videos`
tfds:tao#train             many objects: the features of `prepared_videos`
"""

import logging
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.configs import number_in
from keras_tfm.data.sources.coco import is_coco
from keras_tfm.data.sources.coco_videos import read_coco_tracks
from keras_tfm.data.sources.image_files import in_threads, size_in
from keras_tfm.data.sources.images import visible
from keras_tfm.data.sources.lines import PREPARED, DataError, Path, Paths, files_of, numbered_lines
from keras_tfm.data.sources.mot import MOTBoxes, read_mot, read_mot_video
from keras_tfm.data.sources.prepared_videos import boxes_of, prepared_tracks
from keras_tfm.data.sources.preprocessing import Preprocessing, decode_pixels, in_channels
from keras_tfm.data.sources.videos import VideoFiles
from keras_tfm.serving.examples import Refused
from keras_tfm.serving.image_headers import problem_of, read_bytes

LOG = logging.getLogger(__name__)
KINDS = (
    "a folder in MOT's layout, with img1/ and gt/gt.txt; one with img/ and the boxes of one object in "
    "groundtruth.txt; a folder of such folders; a .json in COCO-video's layout; or "
    "tfds:NAME[/CONFIG][:VERSION]#SPLIT with tracks"
)
TRUTHS = ("groundtruth.txt", "groundtruth_rect.txt")
FOLDERS = ("img1", "img")  # of the frames
SIDES = ("left", "top", "width", "height")


class TrackedVideos(NamedTuple):
    """Videos, and of each the boxes of its objects, which are clipped at the edges of the frames.

    >>> frames, box = np.zeros((2, 8, 8, 3), "uint8"), [1, 7, 0, 0, 4, 4]  # frame 1, object 7
    >>> videos = keras_tfm.data.VideoFiles([frames], shape=(2, 8, 8, 3))
    >>> data = keras_tfm.data.TrackedVideos(videos, keras_tfm.data.checked_tracks(videos, [[box]]))
    >>> data.boxes[0].ids.tolist(), data.boxes[0].boxes.tolist()
    ([7], [[0.0, 0.0, 4.0, 4.0]])
    """

    videos: VideoFiles
    boxes: list[MOTBoxes]


class Recording(NamedTuple):
    """Where a video stands: its folder, its frames' folder, and the file of its boxes, None without one."""

    folder: pathlib.Path
    frames: pathlib.Path
    truth: pathlib.Path | None


def read_tracked_videos(
    paths: Paths, shape: tuple[int, int, int, int], preprocessing: Preprocessing | None = None
) -> TrackedVideos:
    """The videos of `KINDS`, whose frames are read in a `shape` (frames, height, width, channels).

    Boxes outside of the image are left out, with a warning. DataError for a folder of another kind, a file
    with a mistake, one of one object with another number of lines than frames, and a video without boxes.

    >>> from keras_tfm.data.worlds import write_tracked_clips
    >>> write_tracked_clips("tracked", count=2, num_frames=3, num_objects=(2, 2))
    >>> data = keras_tfm.data.read_tracked_videos("tracked", shape=(1, 64, 64, 3))
    >>> len(data.videos), data.boxes[0].ids.tolist()
    (2, [1, 2, 1, 2, 1, 2])
    """
    found = [video for path in files_of(paths) for video in _read(path)]
    places = [source if isinstance(source, str) else truth for source, truth, *_ in found]
    videos = VideoFiles([source for source, *_ in found], shape, preprocessing, places=places)
    for (_, truth, _, count), length in zip(found, videos.num_frames, strict=True):
        if count not in (None, length):
            problem = f"expected a line for each of the {length} frames, got {count}"
            raise DataError(truth, None, f"{problem}: leave out the frames without one")
    truths, boxes = [truth for _, truth, *_ in found], [boxes for *_, boxes, _ in found]
    return TrackedVideos(videos, checked_tracks(videos, boxes, truths))


def _read(path: str) -> Iterator[tuple[Any, str, MOTBoxes, int | None]]:
    """(The source of a video, where its boxes stand, the boxes, how many frames they are of, if that is said)
    of each video of a path.
    """
    if path.startswith(PREPARED):
        for video in prepared_tracks(path, "bboxes"):
            yield video.frames, video.place, boxes_of(video), None
    elif is_coco(path):
        for frames, boxes in read_coco_tracks(path):
            yield frames.paths, frames.place, boxes, None
    else:
        for recording in recordings_in(pathlib.Path(path)):
            if recording.truth is None:
                problem = "expected gt/gt.txt or groundtruth.txt, there is neither"
                raise DataError(recording.folder, None, problem)
            yield str(recording.frames), str(recording.truth), *read_truth(recording)


def recordings_in(path: pathlib.Path) -> Iterator[Recording]:
    """The videos in a folder, or in the folders in it; DataError if there are none."""
    if not path.exists():
        raise DataError(path, None, "cannot be read: No such file or directory")
    if (recording := recording_of(path)) is not None:
        yield recording
        return
    inside = [each for each in (visible(path) if path.is_dir() else []) if each.is_dir()]
    if not inside:
        raise DataError(path, None, f"expected {KINDS}")
    for each in inside:
        yield from recordings_in(each)


def recording_of(folder: pathlib.Path) -> Recording | None:
    """The video whose boxes, or seqinfo.ini, stand in the `folder`; None if it is none."""
    truths = [folder / "gt" / "gt.txt", *(folder / name for name in TRUTHS)]
    truth = next((path for path in truths if path.is_file()), None)
    if (folder / "seqinfo.ini").is_file():
        return Recording(folder, read_mot_video(folder).frames, truth)
    frames = next((folder / name for name in FOLDERS if (folder / name).is_dir()), None)
    if frames is not None:
        return Recording(folder, frames, truth)
    if truth is not None:
        raise DataError(
            folder, None, f"expected a folder of frames, {' or '.join(FOLDERS)}, beside {truth.name}"
        )
    return None


def read_truth(recording: Recording) -> tuple[MOTBoxes, int | None]:
    """(The true boxes of a video with a file of them, how many frames these are of or, where the file names
    the frames, None).
    """
    assert recording.truth is not None
    if recording.truth.name in TRUTHS:
        return read_one_object(recording.truth)
    return read_mot(recording.truth, is_truth=True), None


def read_one_object(path: Path) -> tuple[MOTBoxes, int]:
    """(The boxes of one object, of the identity 1, the number of frames) in a file with a line for each
    frame; DataError for anything else. Empty lines at the end do not count.
    """
    rows, lines = [], list(numbered_lines(str(path)))
    while lines and not lines[-1][1].strip():
        lines.pop()
    for number, line in lines:
        cells = re.split(r"[,;\s]+", line.strip())
        try:
            values = [number_in(cell) for cell in cells]
        except ValueError:
            values = []
        if len(values) != len(SIDES):
            raise DataError(path, number, f"expected {', '.join(SIDES)}, got {line.strip()!r:.60}")
        rows.append(values)
    table = np.array(rows, "float64").reshape(-1, 4)
    seen = np.flatnonzero(np.isfinite(table).all(axis=1) & (table[:, 2:] > 0).all(axis=1))
    corners = np.concatenate([table[:, :2], table[:, :2] + table[:, 2:]], axis=1)[seen]
    ones = np.ones(len(seen), "int64")
    return MOTBoxes(seen + 1, ones, corners, ones.astype("float64"), ones), len(rows)


def checked_tracks(
    videos: VideoFiles, boxes: Sequence[Any], places: Sequence[str] | None = None
) -> list[MOTBoxes]:
    """The `MOTBoxes` of each video, inside its frames. `boxes` holds for each video `MOTBoxes`, or an
    array whose rows are frame, identity, left, top, width and height, as in MOT's files.

    Boxes outside of the image are left out, with a warning. DataError, with the place of a video, for rows of
    another form, a frame that the video does not have, an identity that is negative, as MOT's unknown ones
    are, or twice in a frame, and a video without boxes.

    >>> videos = keras_tfm.data.VideoFiles([np.zeros((2, 8, 8, 3), "uint8")], shape=(1, 8, 8, 3))
    >>> keras_tfm.data.checked_tracks(videos, [[[1, 7, -2, 0, 4, 4]]])[0].boxes.tolist()
    [[0.0, 0.0, 2.0, 4.0]]
    """
    found, lost = [], {}
    sizes = list(in_threads(frame_size, videos.videos))
    for row, (given, video, size) in enumerate(zip(boxes, videos.videos, sizes, strict=True)):
        place = places[row] if places else videos.place(row)
        whole = given if isinstance(given, MOTBoxes) else as_boxes(place, given)
        if len(whole.frames) and not 1 <= whole.frames.min() <= whole.frames.max() <= len(video):
            wrong = whole.frames[(whole.frames < 1) | (whole.frames > len(video))][0]
            raise DataError(place, None, f"expected frames from 1 to {len(video)}, the video's, got {wrong}")
        (height, width), corners = size, np.asarray(whole.boxes, "float64")
        clipped = np.clip(corners, 0, [width, height, width, height])
        is_inside = np.all(clipped[:, 2:] > clipped[:, :2], axis=1)
        if not is_inside.any():
            problem = (
                "there are none" if not len(is_inside) else f"all lie outside of {width} x {height} pixels"
            )
            raise DataError(place, None, f"expected boxes in the frames, {problem}")
        if not is_inside.all():
            lost[place] = int(np.sum(~is_inside))
        kept = MOTBoxes(*(x[is_inside] for x in whole._replace(boxes=clipped)))
        if (identity := kept.ids.min()) < 0:
            frame = kept.frames[kept.ids.argmin()]
            raise DataError(place, None, f"expected identities from 0, got {identity} in frame {frame}")
        pairs = np.stack([kept.frames, kept.ids], axis=1)
        unique, counts = np.unique(pairs, axis=0, return_counts=True)
        if (counts > 1).any():
            frame, identity = unique[counts > 1][0]
            raise DataError(place, None, f"identity {identity} stands twice in frame {frame}")
        found.append(kept)
    if lost:
        place, count = next(iter(lost.items()))
        total, more = sum(lost.values()), f" and {len(lost) - 1:,} more" * (len(lost) > 1)
        LOG.warning(
            "%s boxes lie outside of the image and are left out: %s (%s)%s", total, place, count, more
        )
    return found


def as_boxes(place: str, rows: Any) -> MOTBoxes:
    """Rows of frame, identity, left, top, width and height as `MOTBoxes`; DataError for others."""
    expected = "rows of frame, identity, left, top, width, height"
    try:
        table = np.asarray(rows, "float64")
    except (TypeError, ValueError):
        raise DataError(place, None, f"expected {expected}, got {rows!r:.60}") from None
    table = table.reshape(-1, 6) if not table.size else table
    if table.ndim != 2 or table.shape[1] != 6:
        raise DataError(place, None, f"expected {expected}, got an array of the shape {table.shape}")
    if not (np.isfinite(table).all() and (table[:, :2] % 1 == 0).all() and (table[:, 4:] > 0).all()):
        wrong = next(
            row for row in table if not (np.isfinite(row).all() and min(row[4:]) > 0) or any(row[:2] % 1)
        )
        numbers = ", ".join(f"{x:g}" for x in wrong)
        raise DataError(place, None, f"expected {expected}, with an area, got {numbers}")
    corners = np.concatenate([table[:, 2:4], table[:, 2:4] + table[:, 4:]], axis=1)
    ones = np.ones(len(table))
    return MOTBoxes(
        table[:, 0].astype("int64"), table[:, 1].astype("int64"), corners, ones, ones.astype("int64")
    )


def frame_size(video: Any) -> tuple[int, int]:
    """(Height, width) of the frames of an opened video."""
    frame = next(iter(video.frames([0])))
    size = frame.shape[:2] if isinstance(frame, np.ndarray) else size_in(frame) or (0, 0)
    return int(size[0]), int(size[1])


def pixels_of(frame: Any, channels: int) -> np.ndarray:
    """A frame, an array or an image file, at its own size, 8-bit (H, W, channels); `Refused` if it is no
    image.
    """
    if isinstance(frame, np.ndarray):
        frame = frame[..., None] if frame.ndim == 2 else frame
        frame = frame if frame.dtype == np.uint8 else np.rint(frame * 255).astype("uint8")
        return in_channels(tf.constant(frame), channels).numpy()
    data, name = read_bytes(frame), "" if isinstance(frame, bytes) else f"{frame}: "
    if problem := problem_of(data):
        raise Refused(f"{name}{problem}")
    try:
        return decode_pixels(tf.constant(data), channels).numpy()
    except tf.errors.InvalidArgumentError:
        raise Refused(f"{name}is damaged: it cannot be decoded") from None
