"""Animated GIFs of videos with tracks over them, with Pillow, which the extra `plot` brings."""

import pathlib
from collections.abc import Iterator
from typing import Any

from keras_tfm.data.sources.mot import MOTBoxes
from keras_tfm.data.sources.tracked_videos import pixels_of
from keras_tfm.serving.video_files import Video
from keras_tfm.tasks.images.drawing import COLOURS, Drawing
from keras_tfm.training.folder import new_file

MILLISECONDS = 100  # that a frame is shown for, where the video has no clock


def draw_tracks(video: Video, tracks: MOTBoxes, path: pathlib.Path) -> None:
    """Write the frames of the video, with the boxes and identities of the `tracks` over them, to a GIF;
    small frames are several times as large. ImportError where Pillow is missing.
    """
    duration = MILLISECONDS
    if video.has_clock:
        duration = max(20, round(1000 * (video.end - video.times[0]) / len(video)))
    pictures = _pictures(video, tracks)
    with new_file(path) as work:
        first = next(pictures)
        first.save(work, "GIF", save_all=True, append_images=pictures, duration=duration, loop=0)


def _pictures(video: Video, tracks: MOTBoxes) -> Iterator[Any]:
    """The pictures of all frames, one by one."""
    for number, frame in enumerate(video.frames(range(len(video))), 1):
        drawing, seen = Drawing.on(pixels_of(frame, 3)), tracks.of_frame(number)
        for identity, box in zip(seen.ids.tolist(), seen.boxes, strict=True):
            drawing.box(box, str(identity), COLOURS[identity % len(COLOURS)])
        yield drawing.picture
