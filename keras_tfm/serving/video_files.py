"""Videos, frame by frame: files by PyAV, folders and lists of frames, arrays.

A video's frames are counted and timed before any is decoded, so that a clip's frames are chosen first and
only these are kept. A file states its length, if at all, in its metadata, which streams, cut files and
variable rates belie: its packets are passed over once instead, without decoding. Frames are decoded in
order, from the last key frame before each that is chosen.
"""

import contextlib
import io
import os
import re
from typing import Any

import numpy as np

from .examples import Refused
from .image_headers import MAX_PIXELS, header_in, problem_of, read_bytes, regular

# FFmpeg's names of the containers that are read. Playlists are not: they name other files, and addresses.
CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,gif,mpeg,mpegts,mpegvideo,flv,asf,ogg"
KINDS = "a video (mp4, webm, mkv, avi, mov or gif), or a folder of frames"
SUFFIXES = (
    ".mp4", ".m4v", ".webm", ".mkv", ".avi", ".mov", ".gif", ".mpg", ".mpeg", ".ts", ".flv", ".wmv", ".ogv",
    ".3gp",
)  # fmt: skip
FRAMES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
HIDDEN = (".", "__MACOSX", "Thumbs.db")  # how the names begin of what systems write beside frames


class Video:
    """A video of N frames: `times` (N,), when each is shown, and `end`, when the last one ends, in seconds
    or, where there is no clock, in frames. Abstract.
    """

    has_clock = False
    num_lost = 0  # parts of the file that the last `frames` could not decode

    def __init__(self, times, end):
        self.times, self.end = np.asarray(times, "float64"), float(end)
        if len(self.times) < 2:
            got = "there are none" if not len(self.times) else "got one: a still image is no video"
            raise Refused(f"expected two frames or more, {got}")

    def __len__(self):
        return len(self.times)

    def needs_clock(self):
        """Raise `Refused` unless its times are seconds."""
        if not self.has_clock:
            raise Refused("expected a video file to choose frames by seconds, got frames without times")

    def frames(self, places):
        """Yield the frames at `places`, which ascend: 8-bit RGB (H, W, 3), an array's own, or an image file
        by its path or its bytes. `Refused` if none can be decoded; a lost frame is replaced by the one before
        it, else after it.
        """
        raise NotImplementedError


class VideoFile(Video):
    """A video file, by its path or its bytes, or an animated GIF."""

    has_clock = True

    def __init__(self, source):
        self._source = source
        with self._opened() as (container, stream):
            if stream.width * stream.height > MAX_PIXELS:
                got = f"{stream.width:,} x {stream.height:,}"
                raise Refused(f"expected frames of {MAX_PIXELS:,} pixels at most, got {got}")
            packets, base = self._packets(container, stream), float(stream.time_base or 0)
            rate = float(stream.average_rate or 25)
        stamps = [packet[0] for packet in packets]
        self._is_timed = base > 0 and None not in stamps and len(set(stamps)) == len(stamps)
        if not self._is_timed:  # raw streams have no times, and some old files wrong ones
            self._stamps, self._keys = np.arange(len(stamps)), np.zeros(1, int)
            super().__init__(self._stamps / rate, len(stamps) / rate)
            return
        packets.sort()  # as they are shown, which differs from the order of decoding
        self._stamps = np.array([packet[0] for packet in packets], "int64")
        self._keys = np.union1d(0, np.nonzero([packet[1] for packet in packets])[0]).astype(int)
        times = self._stamps * base
        last = packets[-1][2] * base if packets else 0.0
        mean = np.diff(times).mean() if len(times) > 1 else 1 / rate
        super().__init__(times, times[-1] + (last or mean) if packets else 0.0)

    @contextlib.contextmanager
    def _opened(self):
        """The container and its stream of pictures, open; `Refused` for what has none."""
        try:
            import av
        except ImportError:
            raise ImportError('Videos need PyAV: pip install av, or "keras-tfm[video]"') from None
        with contextlib.ExitStack() as stack:
            try:
                if isinstance(self._source, bytes):
                    file: Any = io.BytesIO(self._source)
                else:
                    file = open(self._source, "rb", opener=regular)  # noqa: SIM115 (the stack closes it)
                stack.enter_context(file)
            except OSError as error:
                raise Refused(f"cannot be read: {error.strerror or error}") from None
            try:
                # Titles may be in any encoding; none of them is used.
                opening = av.open(file, options={"format_whitelist": CONTAINERS}, metadata_errors="replace")
                container = stack.enter_context(opening)
                pictures = [
                    each
                    for each in container.streams.video
                    if not each.disposition & each.disposition.attached_pic
                ]
                if not pictures:
                    sound = "sound alone" if container.streams.audio else "no pictures"
                    raise Refused(f"expected {KINDS}, got {sound}")
                stream = next((each for each in pictures if each.codec_context is not None), None)
                if stream is None:
                    raise Refused(f"expected {KINDS}, FFmpeg has no decoder for its pictures")
                yield container, stream
            except (av.error.FFmpegError, OSError) as error:
                raise Refused(f"expected {KINDS}, got none that can be read ({error.strerror})") from None

    def _packets(self, container, stream):
        """[(time stamp, whether it is a key frame, duration)] of the packets that are shown."""
        import av

        found = []
        with contextlib.suppress(av.error.FFmpegError):  # the rest of a file that is cut off
            for packet in container.demux(stream):
                if packet.size and not packet.is_discard:
                    found.append((packet.pts, packet.is_keyframe, packet.duration or 0))
        return found

    def _decoded(self, container, stream):
        """Yield the frames from here on; parts that cannot be decoded are counted."""
        import av

        packets = container.demux(stream)
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except av.error.FFmpegError:
                self.num_lost += 1
                return
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                self.num_lost += 1
                continue
            for frame in frames:
                if frame.is_corrupt:
                    self.num_lost += 1
                else:
                    yield frame

    def frames(self, places):
        self.num_lost = 0
        with self._opened() as (container, stream):
            decoded, at = self._decoded(container, stream), -1
            before = frame = None
            for place in places:
                key = self._keys[np.searchsorted(self._keys, place, "right") - 1]
                if key > at + 1:  # nothing between is wanted
                    container.seek(int(self._stamps[key]), stream=stream)
                    decoded, before, at = self._decoded(container, stream), frame or before, key - 1
                    frame = None
                while at < place:
                    following = next(decoded, None)
                    if following is None:
                        at = len(self)
                        before, frame = frame or before, None
                    else:
                        before, frame = frame or before, following
                        at = self._place(frame, at)
                shown = frame if at == place else before or frame
                if shown is None:
                    raise Refused(f"expected {KINDS}, no frame can be decoded")
                yield _upright(shown)

    def _place(self, frame, before):
        """The place of a decoded frame, which follows the one at the place `before`."""
        if not self._is_timed or frame.pts is None:
            return before + 1
        return int(np.searchsorted(self._stamps, frame.pts, "right")) - 1


class FrameFiles(Video):
    """Image files, each by its path or its bytes, in the order of the frames and of one size."""

    def __init__(self, files):
        self._files = [file if isinstance(file, bytes) else os.fspath(file) for file in files]
        super().__init__(np.arange(len(self._files)), len(self._files))
        first = None
        for number, file in enumerate(self._files, 1):
            name = f"frame {number}" if isinstance(file, bytes) else file
            try:
                header = header_in(file)
            except OSError as error:
                raise Refused(f"{name}: cannot be read: {error.strerror or error}") from None
            if header is None:
                raise Refused(f"{name}: {problem_of(read_bytes(file))}")
            first = first or header.size
            if header.size != first:
                sizes = [f"{width} x {height}" for height, width in (first, header.size)]
                raise Refused(f"{name}: expected a frame of {sizes[0]} pixels, as the first, got {sizes[1]}")

    def frames(self, places):
        for place in places:
            yield self._files[place]


class FrameFolder(FrameFiles):
    """A folder of image files, in the natural order of their names: 2.png comes before 10.png."""

    def __init__(self, folder):
        try:
            files = frames_in(folder)
        except OSError as error:
            raise Refused(f"cannot be read: {error.strerror or error}") from None
        super().__init__(files)


class FrameArray(Video):
    """An array (T, H, W, C)."""

    def __init__(self, array):
        self._array = array
        super().__init__(np.arange(len(array)), len(array))

    def frames(self, places):
        for place in places:
            yield self._array[place]


def opened(source):
    """The `Video` of a path, of a file's bytes, of a list of frames' files, each by its path or its bytes, or
    of an array (T, H, W, C); raises `Refused`.
    """
    if isinstance(source, np.ndarray):
        return FrameArray(source)
    if isinstance(source, list):
        return FrameFiles(source)
    is_folder = not isinstance(source, bytes) and os.path.isdir(source)
    return FrameFolder(source) if is_folder else VideoFile(source)


def places_of(times, end, num_frames, every=None, seconds=None, share=0.5):
    """The places (num_frames,) of a clip's frames among those shown at `times` until `end`.

    By default the video is divided into as many equal segments, and the frame shown at the `share` of each is
    taken; with `every` each k-th frame, with `seconds` the frame shown each so many seconds, from a start
    that leaves `share` of the frames, or time, that are not needed before the clip. The last frame is
    repeated where a video is too short. A video of `num_frames` frames is a clip as it is.
    """
    steps, last = np.arange(num_frames), len(times) - 1
    if len(times) == num_frames:
        return steps
    if every is not None:
        return np.minimum(int(share * (max(0, last - (num_frames - 1) * every) + 1)) + steps * every, last)
    length = end - times[0]
    if seconds is None:
        moments = times[0] + (steps + share) * length / num_frames
    else:
        moments = times[0] + share * max(0.0, length - num_frames * seconds) + steps * seconds
    return np.clip(np.searchsorted(times, moments, "right") - 1, 0, last)


def clip_of(video, places, take):
    """The clip (T, H, W, C) of the frames at `places`, each as `take` resizes it."""
    chosen, numbers = np.unique(places, return_inverse=True)
    frames = [take(frame) for frame in video.frames(chosen)]
    return np.stack(frames)[numbers]


def shares_of(num_views):
    """The shares, as `places_of` takes them, of several clips of a video."""
    return (np.arange(num_views) + 0.5) / num_views


def frames_in(folder):
    """The paths of the frames in a folder, in the natural order of their names."""
    names = [name for name in os.listdir(folder) if not name.startswith(HIDDEN)]
    return [os.path.join(folder, name) for name in sorted(names, key=natural)]


def natural(name):
    """What a file's name is sorted by: its numbers by value."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _upright(frame):
    """A decoded frame as 8-bit RGB, turned as the file says: phones write their videos lying down."""
    return np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90))
