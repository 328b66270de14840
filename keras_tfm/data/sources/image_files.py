"""Encoded images, on disk or from a table: checked once, and decoded when they are needed."""

import abc
import concurrent.futures
import copy
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.lines import DataError, tell_left_out
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.log import Bar
from keras_tfm.serving.image_headers import (
    HEADER,
    NOT_WHOLE,
    Size,
    Source,
    header_in,
    problem_of,
    read_bytes,
    regular,
)

LOG = logging.getLogger(__name__)
MAX_BYTES = 1 << 31  # decoded images up to this size stay in memory; more are decoded in each epoch
DARK = 1 << 4  # 12 bits stored in 16 stay below, in their upper 8


class EncodedImages(abc.ABC):
    """Encoded images, each a path or bytes, of which slices and arrays of rows can be taken. `places` name
    the sources that are bytes, for messages. Abstract.
    """

    dtype = np.dtype("uint8")  # by which columns of examples are known that take an array of rows

    def __init__(self, sources: Sequence[Source], places: Sequence[str] | None = None):
        self.sources = [source if isinstance(source, bytes) else os.fspath(source) for source in sources]
        self.places = places

    @property
    @abc.abstractmethod
    def form(self) -> str:
        """In what form images are decoded; other forms have other strings."""

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, rows: Any) -> Self:
        chosen = range(len(self))[rows] if isinstance(rows, slice) else rows
        some = copy.copy(self)
        some.sources = [self.sources[row] for row in chosen]
        some.places = None if self.places is None else [self.places[row] for row in chosen]
        return some

    def place(self, row: int) -> str:
        """Where an image comes from: its place, its path, or its index."""
        if self.places is not None:
            return self.places[row]
        source = self.sources[row]
        return f"image {row}" if isinstance(source, bytes) else source

    def identity(self) -> Iterator[str]:
        """Strings that change if the images change."""
        yield self.form
        yield from in_threads(source_identity, self.sources)

    def reader(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """A function of a row, int64 (), to the bytes of its image, for graphs."""
        sources = tf.constant(list(map(os.fsencode, self.sources)), tf.string)
        are_paths = tf.constant([isinstance(source, str) for source in self.sources], tf.bool)

        def read(row: tf.Tensor) -> tf.Tensor:
            source = sources[row]
            return tf.cond(are_paths[row], lambda: tf.io.read_file(source), lambda: source)

        return read


class ImageFiles(EncodedImages):
    """Encoded images, each a path or bytes, which can be read like an array (N, *shape) of 8-bit pixels.

    `files[3:5]` and `files[np.array([7, 2])]` select images, `np.asarray(files)` decodes them. `places` name
    the sources of images that are bytes, for messages.

    >>> tf.io.write_file("grey.png", tf.io.encode_png(np.full((6, 4, 1), 128, "uint8")))
    >>> files = keras_tfm.data.ImageFiles(["grey.png"] * 3, shape=(2, 2, 1))
    >>> files.shape, np.asarray(files[:1]).ravel().tolist()
    ((3, 2, 2, 1), [128, 128, 128, 128])
    """

    def __init__(
        self,
        sources: Sequence[Source],
        shape: tuple[int, int, int],
        preprocessing: Preprocessing | None = None,
        places: Sequence[str] | None = None,
    ):
        super().__init__(sources, places)
        self.pixels = shape
        self.preprocessing = preprocessing or Preprocessing()

    @property
    def form(self) -> str:
        return repr((self.pixels, self.preprocessing))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the decoded array: (N, height, width, channels)."""
        return len(self), *self.pixels

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        images, problems = self.read()
        for row, problem in problems.items():
            raise DataError(self.place(row), None, problem)
        return images if dtype is None else images.astype(dtype)

    @property
    def fits_memory(self) -> bool:
        """Whether all images, decoded, have at most `MAX_BYTES`."""
        return int(np.prod(self.shape)) <= MAX_BYTES

    def read(self, is_kept: bool = True) -> tuple[np.ndarray, dict[int, str]]:
        """(Images (N, H, W, C), {row: reason} of images that cannot be decoded and stay black).

        With `is_kept=False` the images are only checked, and the array has no rows.
        """
        images = np.zeros(self.shape if is_kept else (0, *self.pixels), "uint8")
        problems: dict[int, str] = {}
        dark: list[int] = []

        def one(row: int) -> None:
            decoded = decoded_or_problem(self.sources[row], self.decode)
            if isinstance(decoded, str):
                problems[row] = decoded
                return
            image = decoded.numpy()
            if is_kept:
                images[row] = image
            if 0 < image.max() < DARK and has_sixteen_bits(self.sources[row]):
                dark.append(row)

        with Bar(total=len(self), desc="reading", unit="image") as bar:
            for _ in in_threads(one, range(len(self))):
                bar.update()
        if dark:
            LOG.warning(
                "%s of %s images have 16 bits of which the upper four are 0, as 12 bits stored in 16: they "
                "are read as nearly black, unless their values are stored times 16: %s",
                f"{len(dark):,}",
                f"{len(self):,}",
                self.place(min(dark)),
            )
        return images, dict(sorted(problems.items()))

    def decode(self, data: tf.Tensor) -> tf.Tensor:
        """The bytes of a file as an image (H, W, C), 8-bit."""
        return self.preprocessing.decoded(data, *self.pixels)

    def dataset(self, rows: tf.data.Dataset) -> tf.data.Dataset:
        """A dataset of images (H, W, C) for a dataset of rows (), decoded in the graph."""
        read = self.reader()
        return rows.map(lambda row: self.decode(read(row)), os.cpu_count(), deterministic=True)


def source_identity(source: Source) -> str:
    """A string that changes if an encoded file, bytes or a path, changes. A file is known by its name without
    folders, its size and its beginning, so that a copy elsewhere counts as the same.
    """
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with open(source, "rb", opener=regular) as file:
        beginning = hashlib.sha256(file.read(HEADER)).hexdigest()
        return f"{os.path.basename(source)} {os.fstat(file.fileno()).st_size} {beginning}"


def in_threads(function: Callable[[Any], Any], items: Sequence) -> Iterator:
    """Yield `function` of each item, in order. The first is computed here, the others by a thread per core.

    TensorFlow sets itself up in its first operations, which several threads should not make at once. Each
    thread has one item at a time, so that memory stays bounded.
    """
    if len(items):
        yield function(items[0])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        yield from threads.map(function, items[1:])


def decoded_or_problem(source: Source, decode: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor | str:
    """What `decode` makes of the bytes of an image file, or the reason why it cannot be decoded."""
    try:
        data = read_bytes(source)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if problem := problem_of(data):
        return problem
    try:
        return decode(tf.constant(data))
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        return NOT_WHOLE


def size_in(source: Source) -> Size | None:
    """The (height, width) of the image in a file, upright; None if it is none, OSError if it cannot be
    read.
    """
    header = header_in(source)
    return header and header.size


def has_sixteen_bits(source: Source) -> bool:
    """Whether an image file is a PNG of 16 bits."""
    data = read_bytes(source)
    return data.startswith(b"\x89PNG") and data[24:25] == b"\x10"


def readable(
    files: ImageFiles, labels: np.ndarray | None = None, in_memory: bool = True
) -> tuple[np.ndarray | ImageFiles, np.ndarray]:
    """(Images, their rows) of the images that can be decoded; the others are reported. They are held in
    memory if they fit, unless `in_memory` is False.

    DataError if no image can be decoded or, with `labels` (N,), none of a class.
    """
    is_kept = in_memory and files.fits_memory
    decoded, problems = files.read(is_kept)
    good = kept_rows(problems, files.place, labels, len(files))
    images = decoded if is_kept else files
    return images[good] if problems else images, good


def kept_rows(
    problems: Mapping[int, str],
    place: Callable[[int], str],
    labels: np.ndarray | None,
    count: int,
    unit: str = "images",
) -> np.ndarray:
    """The rows, of `count`, without `problems`, which are reported with the `place` of each; DataError if
    there are none or, with `labels` (N,), none of a class.
    """
    good = np.array([row for row in range(count) if row not in problems], int)
    for row, problem in problems.items():
        if not len(good) or (labels is not None and not np.any(labels[good] == labels[row])):
            raise DataError(place(row), None, problem)
    tell_left_out({place(row): problem for row, problem in problems.items()}, count, unit)
    return good
