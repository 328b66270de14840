"""The reader of videos: clips of files, folders of frames and arrays as numbers of the model's size."""

import math
from typing import Literal

import numpy as np

from .examples import check, not_video
from .image_readers import MOST_VALUES, Images, from_0_to_1, grey_of
from .reading import Read, Reader
from .video_files import Video, clip_of, opened, places_of, shares_of


class Clips(Reader):
    """Clips (B, frames, height, width, channels) from 0 to 1: `num_views` of each video, which are rows of
    their own. A subclass has `take`.

    Args:
        shape: (frames, height, width, channels) of a clip.
        frame_step, seconds_per_frame: which frames are taken, as `video_files.places_of` says.
        num_views: how many clips of a video are read; a video of as many frames as a clip is one.
    """

    def __init__(self, shape, frame_step=None, seconds_per_frame=None, num_views=1):
        self._clip, self._views = tuple(shape), num_views
        self._step, self._seconds = frame_step, seconds_per_frame
        self.portion = max(1, MOST_VALUES // (math.prod(shape) * num_views))

    def take(self, frame):
        """A frame, an array or an image file, as (height, width, channels); raises `Refused`."""
        raise NotImplementedError

    def read_one(self, example):
        if isinstance(example, Video):
            video = example
        else:
            check(example, not_video)
            video = opened(example)
        length = self._clip[0]
        if self._seconds is not None and len(video) != length:
            video.needs_clock()
        shares = shares_of(1 if len(video) == length else self._views)
        places = [places_of(video.times, video.end, length, self._step, self._seconds, x) for x in shares]
        frames = clip_of(video, np.concatenate(places), self.take)
        return Read(list(frames.reshape(len(shares), *self._clip)))

    def join(self, rows, widths=None):
        return {"videos": from_0_to_1(np.stack(rows))}


class Videos(Clips):
    """`Clips` whose frames are resized as `Images` are, by Pillow. Files are decoded by PyAV."""

    def __init__(
        self,
        folder,
        shape: tuple[int, int, int, int],
        interpolation: Literal["bilinear", "bicubic", "lanczos"],
        crop_fraction: float,
        keep_aspect: bool,
        frame_step: int | None,
        seconds_per_frame: float | None,
        num_views: int,
        rounds_crop: bool = False,
    ):
        super().__init__(shape, frame_step, seconds_per_frame, num_views)
        _, height, width, self._channels = shape
        image = height, width, self._channels
        self._images = Images(folder, image, interpolation, crop_fraction, keep_aspect, rounds_crop)

    def take(self, frame):
        if self._channels == 1 and isinstance(frame, np.ndarray) and frame.shape[2:] == (3,):
            frame = grey_of(frame)
        return self._images.row(frame)
