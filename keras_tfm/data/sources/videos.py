"""Videos on disk or as arrays: opened once, which counts and times their frames, and decoded clip by clip."""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.configs import Between, Config, Count, Field, FieldError, Option
from keras_tfm.data.sources.image_files import (
    MAX_BYTES,
    decoded_or_problem,
    in_threads,
    kept_rows,
    source_identity,
)
from keras_tfm.data.sources.images import (
    asked_files,
    bytes_of,
    in_class_folders,
    in_order,
    label_of,
    not_of_a_kind,
    place_of,
    refuse_special,
    source_of,
)
from keras_tfm.data.sources.lines import MOST_TOLD, DataError, Inputs, Paths, files_of, numbered_lines
from keras_tfm.data.sources.preprocessing import Preprocessing, in_channels
from keras_tfm.data.sources.rows import (
    ColumnNames,
    Columns,
    Row,
    is_table,
    one_of_each,
    parse_layout,
    read_all,
    without_labels,
)
from keras_tfm.log import Bar
from keras_tfm.serving.examples import Refused
from keras_tfm.serving.video_files import FRAMES, Video, clip_of, frames_in, opened, places_of

LOG = logging.getLogger(__name__)
VIDEOS = (
    "video", "path", "file", "filename", "file_name", "video_path", "filepath", "youtube_id", "clip",
    "image_sequence", "frames",
)  # fmt: skip
LABELS = ("label", "labels", "class", "category", "target", "class_name", "action")
KINDS = (
    "a folder of videos by class; a .csv, .tsv or .jsonl table of paths and labels; .parquet or "
    "tfds:NAME[/CONFIG][:VERSION]#SPLIT; or a .txt list with a path and a label in each line"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrameSpacing(Config):
    """Which frames of a video make a clip, by default frames spread over the whole video.

    Args:
        frame_step: every how many frames one is taken.
        seconds_per_frame: every how many seconds one is taken, by the times at which frames are shown.
    """

    frame_step: Annotated[
        Count | None,
        Option(
            "take every Nth frame, instead of frames spread over the whole video", default="spread frames"
        ),
    ] = None
    seconds_per_frame: Annotated[
        Annotated[float, Between(0, 3600, is_above=True)] | None,
        Option(
            "take a frame every S seconds, by the times at which frames are shown", default="spread frames"
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frame_step is not None and self.seconds_per_frame is not None:
            raise FieldError(
                "{} says which frames are taken: leave out {}.",
                Field("frame_step"),
                Field("seconds_per_frame"),
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling(FrameSpacing):
    """`FrameSpacing`, and how many clips of a video are answered.

    Args:
        frame_step, seconds_per_frame: as in `FrameSpacing`.
        num_views: how many clips of a video are answered; the answer is their mean.

    >>> keras_tfm.data.Sampling(frame_step=2).places(np.arange(9), 9, num_frames=3).tolist()
    [2, 4, 6]
    """

    num_views: Annotated[
        Count, Option("clips of a video that predict and evaluate look at; the answer is their mean")
    ] = 1

    def places(self, times: np.ndarray, end: float, num_frames: int, share: float = 0.5) -> np.ndarray:
        """The places (num_frames,) of a clip's frames; see `serving.video_files.places_of`."""
        return places_of(times, end, num_frames, self.frame_step, self.seconds_per_frame, share)


class LabelledVideos(NamedTuple):
    """Videos and the indices (N,) of their labels in `class_names`.

    >>> videos = keras_tfm.data.VideoFiles([np.zeros((4, 8, 8, 3), "uint8")] * 2, shape=(2, 8, 8, 3))
    >>> data = keras_tfm.data.LabelledVideos(videos, np.array([1, 0]), class_names=["left", "right"])
    >>> [data.class_names[label] for label in data.labels]
    ['right', 'left']
    """

    videos: "VideoFiles"
    labels: np.ndarray
    class_names: list[str]


class VideoFiles:
    """Videos, each a file's path or bytes, a folder of frames, a list of the frames' files, or an array (T,
    H, W, C), which can be read like an array (N, *shape) of 8-bit clips; the shape is (frames, height, width,
    channels).

    `videos[3:5]` and `videos[np.array([7, 2])]` select videos, `np.asarray(videos)` decodes a clip of each.
    `places` name the sources, for messages; by default paths do, and the numbers of others.

    >>> ramp = np.arange(8, dtype="uint8").repeat(12).reshape(8, 2, 2, 3)
    >>> videos = keras_tfm.data.VideoFiles([ramp, ramp[:4]], shape=(4, 2, 2, 3))
    >>> np.asarray(videos)[:, :, 0, 0, 0].tolist()
    [[1, 3, 5, 7], [0, 1, 2, 3]]
    """

    dtype = np.dtype("uint8")
    open = staticmethod(opened)

    def __init__(
        self,
        sources: Sequence[Any],
        shape: tuple[int, int, int, int],
        preprocessing: Preprocessing | None = None,
        sampling: Sampling | None = None,
        videos: Sequence[Video] | None = None,
        places: Sequence[str] | None = None,
    ):
        self.sources = list(map(_path_or_content, sources))
        self.pixels = shape
        self.preprocessing, self.sampling = preprocessing or Preprocessing(), sampling or Sampling()
        self._videos, self._places = videos, places

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the decoded array: (N, frames, height, width, channels)."""
        return len(self), *self.pixels

    def __getitem__(self, rows: Any) -> "VideoFiles":
        chosen = range(len(self))[rows] if isinstance(rows, slice) else rows
        sources = [self.sources[row] for row in chosen]
        videos = None if self._videos is None else [self._videos[row] for row in chosen]
        places = None if self._places is None else [self._places[row] for row in chosen]
        return type(self)(sources, self.pixels, self.preprocessing, self.sampling, videos, places)

    def as_clips(
        self, shape: tuple[int, int, int, int], preprocessing: Preprocessing, sampling: Sampling
    ) -> "VideoFiles":
        """The same videos as clips of another shape, and of other frames."""
        return type(self)(self.sources, shape, preprocessing, sampling, self._videos, self._places)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        clips = np.zeros(self.shape, "uint8")

        def one(row: int) -> None:
            video = self.videos[row]
            clips[row] = self.clip(row, self.sampling.places(video.times, video.end, self.pixels[0]))

        self._each(one)
        return clips if dtype is None else clips.astype(dtype)

    def place(self, row: int) -> str:
        """Where a video comes from: its place, its path, or its index."""
        if self._places is not None:
            return self._places[row]
        source = _parts(self.sources[row])[0]
        return source if isinstance(source, str) else f"video {row}"

    def identity(self) -> Iterator[str]:
        """Strings that change if the videos change."""
        yield repr((self.pixels, self.preprocessing, self.sampling))
        parts = (part for each in self.sources for whole in _parts(each) for part in _parts(whole))
        files = [file for part in parts for file in _files_of(part)]
        yield from in_threads(
            lambda file: source_identity(file.tobytes() if isinstance(file, np.ndarray) else file), files
        )

    @property
    def videos(self) -> Sequence[Video]:
        """The opened videos; DataError for the first that is none."""
        if self._videos is None:
            videos, problems = open_videos(self.sources, self.pixels[0], self.sampling, self.open)
            for row, problem in problems.items():
                raise DataError(self.place(row), None, problem)
            self._videos = videos
        return self._videos

    @property
    def num_frames(self) -> list[int]:
        """How many frames each video has."""
        return list(map(len, self.videos))

    @property
    def fits_memory(self) -> bool:
        """Whether all frames of all videos, resized, have at most `MAX_BYTES`."""
        return sum(self.num_frames) * int(np.prod(self.pixels[1:])) <= MAX_BYTES

    def frames(self) -> np.ndarray:
        """All frames of all videos one after another, (frames, H, W, C), resized."""
        firsts = np.cumsum([0, *self.num_frames])
        found = np.zeros((firsts[-1], *self.pixels[1:]), "uint8")

        def one(row: int) -> None:
            for place, frame in enumerate(self.videos[row].frames(range(len(self.videos[row])))):
                found[firsts[row] + place] = self.fitted(frame)

        self._each(one)
        return found

    def clip(self, row: int, places: np.ndarray) -> np.ndarray:
        """The frames at `places` of a video, resized: (T, H, W, C)."""
        return clip_of(self.videos[row], places, self.fitted)

    def fitted(self, frame: Any) -> np.ndarray:
        """A frame, or an image file, as 8-bit pixels (H, W, C) of the shape."""
        return fitted(frame, self.pixels[1:], self.preprocessing)

    def _each(self, decode: Any) -> None:
        """Call `decode` for each row, in threads; DataError for a video that cannot be decoded."""

        def one(row: int) -> None:
            try:
                decode(row)
            except Refused as refused:
                raise DataError(self.place(row), None, str(refused)) from None

        with Bar(total=len(self), desc="reading", unit="video") as bar:
            for _ in in_threads(one, range(len(self))):
                bar.update()
        tell_lost(
            {self.place(row): video.num_lost for row, video in enumerate(self.videos) if video.num_lost}
        )


def fitted(frame: Any, shape: tuple[int, int, int], preprocessing: Preprocessing) -> np.ndarray:
    """A frame, an array or an image file, by its path or its bytes, as pixels (H, W, C) of a `shape`; floats
    from 0 to 1 become 8-bit. `Refused` if it is no image, or has another number of channels.
    """
    if isinstance(frame, str | bytes):
        image = decoded_or_problem(frame, lambda data: preprocessing.decoded(data, *shape))
        if isinstance(image, str):
            raise Refused(image if isinstance(frame, bytes) else f"{frame}: {image}")
        return image.numpy()
    frame = frame[..., None] if frame.ndim == 2 else frame
    frame = frame if frame.dtype == np.uint8 else np.rint(frame * 255).astype("uint8")
    if frame.shape == shape:
        return frame
    return preprocessing.fitted(in_channels(tf.constant(frame[None]), shape[-1]), *shape[:2])[0].numpy()


def _path_or_content(source: Any) -> Any:
    """A path as a string, bytes and arrays as they are; of a tuple or a list each."""
    if isinstance(source, tuple | list):
        return type(source)(map(_path_or_content, source))
    return source if isinstance(source, bytes | np.ndarray) else os.fspath(source)


def _parts(source: Any) -> Sequence:
    return source if isinstance(source, tuple | list) else (source,)


def _files_of(part: Any) -> Sequence:
    """The frames in a folder; else the part, an array or an encoded file, alone."""
    return frames_in(part) if isinstance(part, str) and os.path.isdir(part) else [part]


def open_videos(
    sources: Sequence[Any], num_frames: int, sampling: Sampling, open: Callable[[Any], Video] = opened
) -> tuple[list[Video], dict[int, str]]:
    """(The videos that `open` makes of the sources, {row: why this source is no video}). Each video has at
    least one frame that can be decoded.
    """
    found: dict[int, Video] = {}
    problems: dict[int, str] = {}

    def one(row: int) -> None:
        try:
            found[row] = open(sources[row])
            if sampling.seconds_per_frame is not None and len(found[row]) != num_frames:
                found[row].needs_clock()
            next(iter(found[row].frames([0])))
        except Refused as refused:
            problems[row] = str(refused)

    with Bar(total=len(sources), desc="opening", unit="video") as bar:
        for _ in in_threads(one, range(len(sources))):
            bar.update()
    return [found.get(row) for row in range(len(sources))], dict(sorted(problems.items()))  # type: ignore[misc]


def tell_lost(lost: dict[str, int]) -> None:
    """Warn, in one line, about parts of files that could not be decoded, if there are any."""
    if lost:
        few = [f"{place} ({count})" for place, count in list(lost.items())[:MOST_TOLD]]
        few += [f"{len(lost) - len(few):,} more"] * (len(lost) > len(few))
        LOG.warning(
            "%s parts of %s videos cannot be decoded and are skipped; the frame before each is repeated: %s",
            f"{sum(lost.values()):,}",
            f"{len(lost):,}",
            ", ".join(few),
        )


def read_labelled_videos(
    paths: Paths,
    shape: tuple[int, int, int, int],
    columns: ColumnNames = None,
    preprocessing: Preprocessing | None = None,
    sampling: Sampling | None = None,
) -> LabelledVideos:
    """Read labelled videos from folders with a folder of videos per class; from .csv, .tsv or .jsonl tables
    with one column of paths and one of labels, chosen by `columns`; from .parquet files and data sets of TFDS
    with a column of videos, files or lists of encoded frames; or from .txt lists, such as UCF-101's and
    Kinetics', with a path, a space and a label in each line. Paths are relative to the table or list.

    A video is a file, or a folder of frames. Classes are sorted by name, numbers by value. Videos that cannot
    be read are skipped, with a warning.

    Raises:
        DataError: if there are fewer than two classes, or a class has no video that can be read.

    >>> import pathlib, PIL.Image
    >>> for frame in ("left/first/0", "left/first/1", "right/first/0", "right/first/1"):
    ...     pathlib.Path("clips", frame).parent.mkdir(parents=True, exist_ok=True)
    ...     PIL.Image.new("RGB", (8, 8)).save(f"clips/{frame}.png")
    >>> data = keras_tfm.data.read_labelled_videos("clips", shape=(2, 8, 8, 3))
    >>> len(data.videos), data.labels.tolist(), data.class_names
    (2, [0, 1], ['left', 'right'])
    """
    files = files_of(paths)
    for file in files:
        refuse_special(file)
    sources: list[Any] = []
    labels: list[Any] = []
    places: list[str] | None = None
    if all(map(os.path.isdir, files)):
        sources, labels = in_class_folders(files, "videos")
    elif all(is_table(file) or is_list(file) for file in files):
        chosen = Columns(("video", "label"), one_of_each(VIDEOS, LABELS), parse_layout(columns))
        places = []
        for file in files:
            for row in _listed(file) if is_list(file) else read_all(file, chosen, "videos"):
                source, place = video_in(row)
                sources.append(source)
                places.append(place)
                labels.append(label_of(row))
        if not sources:
            raise DataError(files[0], None, "expected videos, the file is empty")
    else:
        raise not_of_a_kind(files, KINDS)
    sampling = sampling or Sampling()
    opened_videos, problems = open_videos(sources, shape[0], sampling)
    videos = VideoFiles(sources, shape, preprocessing, sampling, opened_videos, places)
    rows = kept_rows(problems, videos.place, np.array(labels, object), len(sources), "videos")
    numbers, names = in_order(np.array(labels, object)[rows], files[0], "videos")
    return LabelledVideos(videos[rows], numbers, names)


def read_unlabelled_videos(
    paths: Paths,
    shape: tuple[int, int, int, int],
    columns: ColumnNames = None,
    preprocessing: Preprocessing | None = None,
    sampling: Sampling | None = None,
) -> VideoFiles:
    """The videos that `read_labelled_videos` and `read_videos` take, whose labels are ignored. Videos that
    cannot be read are skipped, with a warning.

    Raises:
        DataError: if no video can be read.

    >>> import pathlib, PIL.Image
    >>> pathlib.Path("clip").mkdir()
    >>> for number in range(4):
    ...     PIL.Image.new("RGB", (8, 6)).save(f"clip/{number}.png")
    >>> keras_tfm.data.sources.videos.read_unlabelled_videos("clip", shape=(2, 8, 8, 3)).shape
    (1, 2, 8, 8, 3)
    """
    inputs = list(read_videos(paths, columns))
    if not inputs:
        raise DataError(files_of(paths)[0], None, "expected videos, there are none")
    sources, places = ([pair[i] for pair in inputs] for i in range(2))
    sampling = sampling or Sampling()
    opened_videos, problems = open_videos(sources, shape[0], sampling)
    videos = VideoFiles(sources, shape, preprocessing, sampling, opened_videos, places)
    return videos[kept_rows(problems, videos.place, None, len(sources), "videos")]


def read_videos(paths: Paths, columns: ColumnNames = None) -> Inputs:
    """Videos to answer, each with its place: video files, folders of frames, folders of either (and the
    folders in them, sorted by name), rows of tables and lines of lists as in `read_labelled_videos`.
    """
    chosen = without_labels(("video", "label"), 1, one_of_each(VIDEOS), columns)
    files = files_of(paths)
    for file in files:
        refuse_special(file)
        if is_list(file) or is_table(file):
            for row in _listed(file) if is_list(file) else read_all(file, chosen, "videos"):
                yield video_in(row)
        else:
            yield from asked_files(file, files, "videos", opened, _are_frames)


def video_in(row: Row) -> tuple[Any, str]:
    """(The video in the first cell of a row, its place): a path, the bytes of a file, or the encoded frames
    in a list. DataError for anything else.
    """
    cell = row.cells[0]
    if isinstance(cell, list):
        source: Any = [bytes_of(row._replace(cells=(frame,))) for frame in cell]
    else:
        source = source_of(row, "a video")
    return source, place_of(row, source)


def is_list(path: str) -> bool:
    """Whether it is a list of paths and labels with spaces between."""
    return path.lower().endswith(".txt")


def _listed(path: str) -> Iterator[Row]:
    """The lines of a list as rows of a path and a label, "" where a line has none."""
    for number, text in numbered_lines(path):
        if not text.strip():
            continue
        source, label = [*text.strip().rsplit(None, 1), ""][:2]
        if not os.path.exists(os.path.join(os.path.dirname(path), source)):  # a path alone, which has spaces
            whole = os.path.join(os.path.dirname(path), text.strip())
            source, label = (text.strip(), "") if os.path.exists(whole) else (source, label)
        yield Row(path, number, ("the path of a video", "a label"), (source, label))


def _are_frames(inside: list[pathlib.Path]) -> bool:
    return any(path.suffix.lower() in FRAMES for path in inside)
