"""Videos with the masks of their objects in each frame, in YouTube-VIS's layout (Yang et al. 2019).

    instances.json          "videos": [{"id", "file_names": the frames', "height", "width"}], "categories",
                            "annotations": [{"video_id", "category_id", "segmentations": of each frame}]
    JPEGImages/0042/*.jpg   the frames of a video, in the folder that "file_names" says, or images/

A segmentation is as in COCO's files, and null where the object is not in a frame. Data sets of TFDS have the
features of `prepared_videos`. An object's masks in all frames, one below the other, are one mask of a high
image, as which they are packed and compared.
"""

import logging
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.coco import by_id, ids_of, is_crowd, lists_in, paths_of, read_json, tell_crowds
from keras_tfm.data.sources.ids import known_id
from keras_tfm.data.sources.lines import PREPARED, DataError, Paths, files_of
from keras_tfm.data.sources.prepared_videos import prepared_tracks
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.rows import Row
from keras_tfm.data.sources.run_lengths import mask_of, packed
from keras_tfm.data.sources.segments import SegmentSets
from keras_tfm.data.sources.stated_sizes import Size, stated_size
from keras_tfm.data.sources.tracked_videos import frame_size, pixels_of
from keras_tfm.data.sources.videos import Sampling, VideoFiles
from keras_tfm.serving.examples import Refused
from keras_tfm.serving.video_files import FRAMES, natural

LOG = logging.getLogger(__name__)
KINDS = (
    "a .json in YouTube-VIS's layout, with the frames of each video in a folder; or "
    "tfds:NAME[/CONFIG][:VERSION]#SPLIT with tracks, such as youtube_vis"
)


class VideoSegments(NamedTuple):
    """Videos, and the objects of each, whose masks stand one below the other, frame by frame.

    >>> videos = keras_tfm.data.VideoFiles([np.zeros((3, 8, 8, 3), "uint8")], shape=(2, 8, 8, 3))
    >>> data = keras_tfm.data.VideoSegments.of(videos, [np.ones((1, 3, 8, 8), "bool")], [["cat"]])
    >>> data.segments.sizes, data.segments.names
    ([(24, 8)], ('cat',))
    """

    videos: VideoFiles
    segments: SegmentSets

    @classmethod
    def of(
        cls,
        videos: VideoFiles,
        masks: Sequence[np.ndarray],
        labels: Sequence[Sequence[str]],
        names: Sequence[str] | None = None,
    ) -> Self:
        """Videos with masks (M, T, H, W) of their objects in all of their frames, and with M labels each."""
        return cls(videos, SegmentSets.of(list(map(one_below_the_other, masks)), labels, names))


def one_below_the_other(masks: np.ndarray) -> np.ndarray:
    """Masks (M, T, H, W) as (M, T H, W)."""
    count, length, height, width = masks.shape
    return masks.reshape(count, length * height, width)  # (M, T H, W)


def frames_of(masks: np.ndarray, length: int) -> np.ndarray:
    """Masks (M, T H, W), `length` frames one below the other, as (M, T, H, W)."""
    count, rows, width = masks.shape
    return masks.reshape(count, length, rows // length, width)  # (M, T, H, W)


def read_video_segments(
    paths: Paths,
    shape: tuple[int, int, int, int],
    preprocessing: Preprocessing | None = None,
    sampling: Sampling | None = None,
) -> VideoSegments:
    """The videos of one or several files, as clips of this `shape`, and the masks of their objects.

    Crowds, and objects without pixels, are left out, with a warning. DataError for a mistake in a file, for
    frames that are not all of one folder, in its order, and where no object is left.

    >>> from keras_tfm.data.worlds import write_segmented_clips
    >>> write_segmented_clips("segmented", count=2, num_frames=3, num_objects=(2, 2))
    >>> data = keras_tfm.data.read_video_segments("segmented/instances.json", shape=(2, 64, 64, 3))
    >>> data.segments.counts, data.segments.sizes
    ([2, 2], [(192, 64), (192, 64)])
    """
    found: list[Segmented] = []
    names: list[str] = []
    files = files_of(paths)
    for path in files:
        read = _of_prepared if path.startswith(PREPARED) else _of_json
        for video in read(path, names):
            objects = [(label, packed(mask)) for label, mask in video.objects if mask.any()]
            if lost := len(video.objects) - len(objects):
                LOG.warning("%s: %d objects without pixels are left out", video.place, lost)
            found.append(video._replace(objects=objects))
    if not any(video.objects for video in found):
        raise DataError(files[0], None, "expected objects with masks, there are none")
    sources, places = [video.source for video in found], [video.place for video in found]
    videos = VideoFiles(sources, shape, preprocessing, sampling, places=places)
    sets = SegmentSets([video.size for video in found], [video.objects for video in found], names)
    return VideoSegments(videos, sets)


class Segmented(NamedTuple):
    """A video: its source, the size of its frames one below the other, (label, mask) of each object, and its
    place.
    """

    source: Any
    size: Size
    objects: list[tuple[str, Any]]
    place: str


def _of_json(path: str, names: list[str]) -> Iterator[Segmented]:
    """The videos of a .json; `names` get the names of its categories."""
    content = lists_in(path, read_json(path), ("videos", "annotations", "categories"))
    categories = by_id(path, "categories", content["categories"], "name")
    names += [name for name in categories.values() if name not in names]
    annotations = _by_video(path, content, categories)
    within = paths_of(path, _frames(content["videos"]))
    for number, (item, own) in enumerate(zip(content["videos"], annotations, strict=True), 1):
        place = f'{path}, "videos", item {number}'
        folder, length = _folder_of(item.get("file_names"), within, place)
        height, width = _size_of(folder, folder)
        stated = stated_size(item.get("width"), item.get("height"), place)
        objects = [
            (label, _tube(segmentations, length, (height, width), stated, place))
            for label, segmentations in own
        ]
        yield Segmented(folder, (length * height, width), objects, folder)


def _of_prepared(path: str, names: list[str]) -> Iterator[Segmented]:
    """The videos of a data set of TFDS; `names` get the names of its objects' categories."""
    for video in prepared_tracks(path, "segmentations"):
        length, (height, width) = len(video.frames), _size_of(video.frames, video.place)
        objects = []
        for each in video.objects:
            if each.get("category") is None:
                video.row.refuse('expected a "category" of each object, one has none')
            tube = np.zeros((length, height, width), bool)
            for place, data in zip(each["frames"], each["segmentations"], strict=True):
                mask = _mask_in(data, video.row)
                if mask.shape != (height, width):
                    got = f"{mask.shape[1]} x {mask.shape[0]}"
                    video.row.refuse(f"expected masks of {width} x {height} pixels, as the frames, got {got}")
                tube[place] = mask
            objects.append((str(each["category"]), tube.reshape(-1, width)))  # (T H, W)
        names += [name for name in dict(objects) if name not in names]
        yield Segmented(video.frames, (length * height, width), objects, video.place)


def _size_of(source: Any, place: str) -> Size:
    """The (height, width) of a video's frames; DataError for what is no video."""
    return frame_size(VideoFiles([source], (1, 1, 1, 3), places=[place]).videos[0])


def _mask_in(data: bytes, row: Row) -> np.ndarray:
    """The mask (H, W), boolean, in an image file."""
    try:
        return pixels_of(data, 1)[..., 0] > 0
    except Refused as refused:
        row.refuse(f"expected a mask: {refused}")


def _by_video(path: str, content: dict[str, list[dict]], categories: dict) -> list[list[tuple[str, Any]]]:
    """(Label, "segmentations") of the objects of each video."""
    ids = {id: row for row, id in enumerate(ids_of(path, "videos", content["videos"]))}
    found: list[list[tuple[str, Any]]] = [[] for _ in ids]
    tell_crowds(path, sum(map(is_crowd, content["annotations"])))
    for number, item in enumerate(content["annotations"], 1):
        known = known_id(item.get("video_id"), ids), known_id(item.get("category_id"), categories)
        if None in known:
            raise DataError(
                path, None, f"expected the id of a video and of a category: annotation {number} has none"
            )
        if not is_crowd(item):
            found[ids[known[0]]].append((categories[known[1]], item.get("segmentations")))
    return found


def _frames(videos: list[dict[str, Any]]) -> Iterator[Any]:
    """The names of all frames, by which their folder is found."""
    for video in videos:
        names = video.get("file_names")
        yield from names if isinstance(names, list) else ()


def _folder_of(names: Any, within: Any, place: str) -> tuple[str, int]:
    """(The folder of a video's frames, their number); DataError unless the names are all of its files."""
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DataError(place, None, f'expected the names of frames as "file_names", got {brief(names)}')
    folder = pathlib.Path(within(names[0], place)).parent
    if not folder.is_dir():
        raise DataError(place, None, f"expected frames in {folder}, there is no such folder")
    inside = sorted((x for x in os.listdir(folder) if x.lower().endswith(FRAMES)), key=natural)
    if [within(name, place) for name in names] != [os.fspath(folder / name) for name in inside]:
        expected = f"expected all frames of {folder} in their order, {len(inside):,}"
        raise DataError(place, None, f"{expected}, got {len(names):,} names")
    return os.fspath(folder), len(names)


def _tube(segmentations: Any, length: int, size: Size, stated: Size | None, place: str) -> np.ndarray:
    """The masks of an object in all frames, one below the other: (T H, W)."""
    if not isinstance(segmentations, list) or len(segmentations) != length:
        got = len(segmentations) if isinstance(segmentations, list) else brief(segmentations)
        raise DataError(place, None, f'expected {length} "segmentations" of an object, got {got}')
    tube = np.zeros((length, *size), bool)
    for mask, segmentation in zip(tube, segmentations, strict=True):
        if segmentation is None:
            continue
        try:
            found = mask_of(segmentation, size, stated)
        except ValueError as error:
            raise DataError(place, None, str(error)) from None
        if isinstance(found, str):
            raise DataError(place, None, found)
        mask[:] = found
    return tube.reshape(-1, size[1])  # (T H, W)
