"""Animated GIFs of videos with tracks over them, with Pillow, which the extra `plot` brings."""

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_tfm.data.sources.mot import MOTBoxes
from keras_tfm.data.sources.tracked_videos import pixels_of
from keras_tfm.serving.video_files import Video
from keras_tfm.tasks.images.drawing import COLOURS, LEAST_SIDE, beside, pillow
from keras_tfm.training.folder import new_file

MILLISECONDS = 100  # that a frame is shown for, where the video has no clock


def draw_tracks(video: Video, tracks: MOTBoxes, path: pathlib.Path) -> None:
    """Write the frames of the video, with the boxes and identities of the `tracks` over them, to a GIF;
    small frames are several times as large. ImportError where Pillow is missing.
    """
    PIL = pillow()
    duration = MILLISECONDS
    if video.has_clock:
        duration = max(20, round(1000 * (video.end - video.times[0]) / len(video)))
    pictures = _pictures(PIL, video, tracks)
    with new_file(path) as work:
        first = next(pictures)
        first.save(work, "GIF", save_all=True, append_images=pictures, duration=duration, loop=0)


def _pictures(PIL: Any, video: Video, tracks: MOTBoxes) -> Iterator[Any]:
    """The pictures of all frames, one by one."""
    for number, frame in enumerate(video.frames(range(len(video))), 1):
        picture = PIL.Image.fromarray(np.ascontiguousarray(pixels_of(frame, 3)))
        scale = -(-LEAST_SIDE // min(picture.size))
        picture = picture.resize([scale * side for side in picture.size], PIL.Image.Resampling.NEAREST)
        pen, line = PIL.ImageDraw.Draw(picture), max(1, round(min(picture.size) / 120))
        seen = tracks.of_frame(number)
        for identity, box in zip(seen.ids.tolist(), seen.boxes, strict=True):
            colour = COLOURS[identity % len(COLOURS)]
            left, top, right, bottom = (scale * float(side) for side in box)
            pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=line)
            place = beside(pen.textbbox((0, 0), str(identity))[2:], (left, top, right, bottom), picture.size)
            pen.rectangle(pen.textbbox(place, str(identity)), fill=colour)
            pen.text(place, str(identity), fill="white")
        yield picture
