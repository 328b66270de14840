"""Videos with masks of their holes: pixels that are to be filled.

    FOLDER/videos/a.mp4, FOLDER/videos/b/0.png ...   or JPEGImages/, as DAVIS has them (Perazzi et al. 2016)
    FOLDER/masks/a.mp4,  FOLDER/masks/b/0.png ...    or Annotations/: of each video, by its name

Masks are dark outside of holes: a pixel is in one where a channel has a quarter of the highest value or more.
They are a video of as many frames, or one image, for a hole that stays where it is.
"""

import functools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_tfm.data.sources.image_files import kept_rows
from keras_tfm.data.sources.lines import DataError, Paths, by_stem, files_of
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.tracked_videos import frame_size, pixels_of
from keras_tfm.data.sources.videos import Sampling, VideoFiles, fitted, open_videos, read_videos
from keras_tfm.serving.examples import Refused
from keras_tfm.serving.video_files import FRAMES, SUFFIXES, FrameArray, Video, opened

FOLDERS = {"videos": "masks", "JPEGImages": "Annotations"}  # of videos, and of their masks
LEAST = 64  # the value, of 255, from which a pixel of a mask is in a hole


class HoledVideo(Video):
    """A video whose frames are pairs of a frame and its mask, as their own videos give them; `Refused` where
    their sizes differ, or their lengths.
    """

    def __init__(self, video: Video, masks: Video):
        super().__init__(video.times, video.end)
        self.video, self.masks, self.has_clock = video, masks, video.has_clock
        if len(masks) != len(video):
            raise Refused(
                f"expected masks of {len(video)} frames, as the video's, or of one, got {len(masks)}"
            )
        sizes = [f"{width} x {height}" for height, width in map(frame_size, (video, masks))]
        if sizes[0] != sizes[1]:
            raise Refused(f"expected masks of {sizes[0]} pixels, as the video's frames, got {sizes[1]}")

    def frames(self, places: Any) -> Iterator[tuple[Any, Any]]:
        places = list(places)
        yield from zip(self.video.frames(places), self.masks.frames(places), strict=True)
        self.num_lost = self.video.num_lost + self.masks.num_lost


class HoledVideos(VideoFiles):
    """`VideoFiles` of pairs (video, masks): clips (frames, height, width, channels + 1), 8-bit, with 255 in
    the last channel where a hole is, or a part of one, else 0. Masks that are arrays, (T, H, W) or (H, W),
    are 0 outside of holes.

    >>> from keras_tfm.data.sources.holed_videos import HoledVideos
    >>> video, mask = np.full((3, 4, 4, 3), 7, "uint8"), np.eye(4, dtype="bool")
    >>> np.asarray(HoledVideos([(video, mask)], shape=(2, 4, 4, 4)))[0, 1, 0].tolist()
    [[7, 7, 7, 255], [7, 7, 7, 0], [7, 7, 7, 0], [7, 7, 7, 0]]
    """

    @staticmethod
    def open(source: Any) -> HoledVideo:
        video = opened(source[0])
        return HoledVideo(video, opened_masks(source[1], len(video)))

    def fitted(self, frame: Any) -> np.ndarray:
        """A pair of a frame and its mask as 8-bit pixels (H, W, C + 1) of the shape."""
        return with_hole(frame, self.pixels[1:], self.preprocessing)


def with_hole(
    frame: tuple[Any, Any], shape: tuple[int, int, int], preprocessing: Preprocessing
) -> np.ndarray:
    """A pair of a frame and its mask as 8-bit pixels of a `shape` (H, W, C + 1), the last channel its
    hole.
    """
    height, width, channels = shape
    pixels = fitted(frame[0], (height, width, channels - 1), preprocessing)
    hole = fitted(255 * hole_in(frame[1]).astype("uint8"), (height, width, 1), preprocessing)
    return np.concatenate([pixels, np.where(hole > 0, 255, 0).astype("uint8")], axis=-1)


def hole_in(mask: Any) -> np.ndarray:
    """Where the holes of a mask are, an image's path or an array, at its own size: (H, W, 1), boolean."""
    return np.max(pixels_of(mask, 3), axis=-1, keepdims=True) >= LEAST


def opened_masks(masks: Any, length: int) -> Video:
    """The masks of a video of this length, an opened video, a path, a file's bytes or an array; one for all
    frames is repeated. `Refused` for what is none.
    """
    if isinstance(masks, Video):
        return masks
    if isinstance(masks, bytes):
        return opened(masks)
    if isinstance(masks, np.ndarray):
        masks = np.where(masks, 255, 0).astype("uint8")
        if masks.ndim not in (2, 3):
            raise Refused(f"expected masks, an array (T, H, W) or (H, W), got {masks.shape}")
    elif os.fspath(masks).lower().endswith(FRAMES):
        try:
            masks = 255 * hole_in(os.fspath(masks)).astype("uint8")[..., 0]
        except OSError as error:
            raise Refused(f"{os.fspath(masks)}: cannot be read: {error.strerror or error}") from None
    else:
        return opened(os.fspath(masks))
    return FrameArray(masks if masks.ndim == 3 else np.broadcast_to(masks, (length, *masks.shape)))


def masks_beside(videos: Iterable[Any]) -> list[str | None]:
    """The masks of each video that lies in one of `FOLDERS`, by its name; None where there are none."""
    listed = functools.cache(by_stem)

    def one(video: Any) -> str | None:
        path = pathlib.Path(video).absolute() if isinstance(video, str | os.PathLike) else None
        if path is None or path.parent.name not in FOLDERS:
            return None
        return named_as(path, listed(path.parent.parent / FOLDERS[path.parent.name]))

    return list(map(one, videos))


def named_as(video: pathlib.Path, inside: Mapping[str, Sequence[pathlib.Path]]) -> str | None:
    """What has the name of a video, but for its ending, `inside` of a folder, as `by_stem` lists it; None if
    there is nothing.
    """
    alike = inside.get(video.name if video.is_dir() else video.stem, ())
    return next((str(x) for x in alike if x.is_dir() or x.suffix.lower() in (*SUFFIXES, *FRAMES)), None)


def read_holed_videos(
    paths: Paths,
    shape: tuple[int, int, int, int],
    preprocessing: Preprocessing | None = None,
    sampling: Sampling | None = None,
) -> HoledVideos | None:
    """The videos of folders that hold folders of videos and of masks, each with its masks, as clips of this
    shape, whose last channel is the masks'; None where no path is such a folder. What cannot be read is
    skipped, with a warning.

    Raises:
        DataError: for a video without masks, and if no video can be read.

    >>> keras_tfm.data.read_holed_videos(["videos.txt"], (4, 32, 32, 4)) is None
    True
    """
    files = files_of(paths)
    inside = [folder for file in files if (folder := _folder_of_videos(file)) is not None]
    if not inside:
        return None
    if len(inside) != len(files):
        raise DataError(files[0], None, "expected folders with videos/ and masks/ alone, or none of them")
    pairs: list[tuple[str, str]] = []
    for folder in inside:
        inputs = list(read_videos(str(folder)))
        found = masks_beside(video for video, _ in inputs)
        for (video, place), masks in zip(inputs, found, strict=True):
            if masks is None:
                raise DataError(place, None, f"expected masks of this name in {FOLDERS[folder.name]}/")
            pairs.append((str(video), masks))
    return _kept(pairs, shape, preprocessing, sampling or Sampling())


def _kept(
    pairs: Sequence[tuple[str, str]],
    shape: tuple[int, int, int, int],
    preprocessing: Preprocessing | None,
    sampling: Sampling,
) -> HoledVideos:
    """The pairs that can be read; DataError if there are none."""
    videos, problems = open_videos(pairs, shape[0], sampling, HoledVideos.open)
    found = HoledVideos(pairs, shape, preprocessing, sampling, videos)
    rows = kept_rows(problems, found.place, None, len(pairs), "videos")
    return found[rows]  # type: ignore[return-value]


def _folder_of_videos(file: str) -> pathlib.Path | None:
    """The folder of videos in a folder that also has one of masks."""
    folder = pathlib.Path(file)
    for videos, masks in FOLDERS.items():
        if (folder / videos).is_dir() and (folder / masks).is_dir():
            return folder / videos
    return None
