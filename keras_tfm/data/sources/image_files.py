"""Encoded images, on disk or from a table: checked once, and decoded when they are needed."""

import concurrent.futures
import errno
import hashlib
import logging
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.lines import DataError, tell_left_out
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.log import Bar

LOG = logging.getLogger(__name__)
MAX_PIXELS = 1 << 26  # per image: 768 MB while it is resized; larger ones are mistakes or attacks
MAX_FILE_BYTES = 1 << 28
HEADER = 1 << 16  # bytes of a file that tell its size, unless much metadata stands before it
MAX_BYTES = 1 << 31  # decoded images up to this size stay in memory; more are decoded in each epoch
JPEG_SIZES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}  # frame headers

NOT_WHOLE = "expected a whole PNG or JPEG image"

Source = bytes | str | os.PathLike  # an image file's content, or its path


class ImageFiles:
    """Encoded images, each a path or bytes, which can be read like an array (N, *shape) of 8-bit pixels.

    `files[3:5]` and `files[np.array([7, 2])]` select images, `np.asarray(files)` decodes them. `places` name
    the sources of images that are bytes, for messages.

    >>> tf.io.write_file("grey.png", tf.io.encode_png(np.full((6, 4, 1), 128, "uint8")))
    >>> files = keras_tfm.data.ImageFiles(["grey.png"] * 3, shape=(2, 2, 1))
    >>> files.shape, np.asarray(files[:1]).ravel().tolist()
    ((3, 2, 2, 1), [128, 128, 128, 128])
    """

    dtype = np.dtype("uint8")

    def __init__(
        self,
        sources: Sequence[Source],
        shape: tuple[int, int, int],
        preprocessing: Preprocessing | None = None,
        places: Sequence[str] | None = None,
    ):
        self.sources = [source if isinstance(source, bytes) else os.fspath(source) for source in sources]
        self.pixels = shape
        self.preprocessing = preprocessing or Preprocessing()
        self.places = places

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the decoded array: (N, height, width, channels)."""
        return len(self), *self.pixels

    def __getitem__(self, rows: Any) -> "ImageFiles":
        chosen = range(len(self))[rows] if isinstance(rows, slice) else rows
        places = None if self.places is None else [self.places[row] for row in chosen]
        return ImageFiles([self.sources[row] for row in chosen], self.pixels, self.preprocessing, places)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        images, problems = self.read()
        for row, problem in problems.items():
            raise DataError(self.place(row), None, problem)
        return images if dtype is None else images.astype(dtype)

    def place(self, row: int) -> str:
        """Where an image comes from: its place, its path, or its index."""
        if self.places is not None:
            return self.places[row]
        source = self.sources[row]
        return f"image {row}" if isinstance(source, bytes) else source

    def identity(self) -> Iterator[str]:
        """Strings that change if the images change."""
        yield repr((self.pixels, self.preprocessing))
        for source in self.sources:
            if isinstance(source, bytes):
                yield hashlib.sha256(source).hexdigest()
            else:
                status = os.stat(source)
                yield f"{source} {status.st_size} {status.st_mtime_ns}"

    @property
    def fits_memory(self) -> bool:
        """Whether all images, decoded, have at most `MAX_BYTES`."""
        return int(np.prod(self.shape)) <= MAX_BYTES

    def read(self, is_kept: bool = True) -> tuple[np.ndarray, dict[int, str]]:
        """(Images (N, H, W, C), {row: reason} of those that cannot be decoded and stay black).

        With `is_kept=False` the images are only checked, and the array has no rows.
        """
        images = np.zeros(self.shape if is_kept else (0, *self.pixels), "uint8")
        problems: dict[int, str] = {}

        def one(row: int) -> None:
            found = decoded_or_problem(self.sources[row], self.pixels, self.preprocessing)
            if isinstance(found, str):
                problems[row] = found
            elif is_kept:
                images[row] = found

        with Bar(total=len(self), desc="reading", unit="image") as bar:
            for _ in in_threads(one, range(len(self))):
                bar.update()
        return images, dict(sorted(problems.items()))

    def dataset(self, rows: tf.data.Dataset) -> tf.data.Dataset:
        """A dataset of images (H, W, C) for a dataset of rows (), decoded in the graph."""
        sources = tf.constant(self.sources, tf.string)
        are_paths = tf.constant([isinstance(source, str) for source in self.sources], tf.bool)

        def decode(row: tf.Tensor) -> tf.Tensor:
            source = sources[row]
            data = tf.cond(are_paths[row], lambda: tf.io.read_file(source), lambda: source)
            return self.preprocessing.decoded(data, *self.pixels)

        return rows.map(decode, os.cpu_count(), deterministic=True)


def in_threads(function: Callable[[Any], Any], items: Sequence) -> Iterator:
    """Yield `function` of each item, in order. The first is computed here, the others by a thread per core.

    TensorFlow sets itself up in its first operations, which several threads should not make at once. Each
    thread has one item at a time, so that memory stays bounded.
    """
    if len(items):
        yield function(items[0])
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        yield from threads.map(function, items[1:])


def decoded_or_problem(
    source: Source, shape: tuple[int, int, int], preprocessing: Preprocessing
) -> np.ndarray | str:
    """An image (H, W, C), 8-bit, or the reason why it cannot be decoded."""
    try:
        data = read_bytes(source)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if problem := problem_of(data):
        return problem
    try:
        return preprocessing.decoded(tf.constant(data), *shape).numpy()
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        return NOT_WHOLE


def read_bytes(source: Source) -> bytes:
    """The content of an image file, at most `MAX_FILE_BYTES` + 1 bytes; OSError if it cannot be read."""
    if isinstance(source, bytes):
        return source
    with open(source, "rb", opener=regular) as stream:
        return stream.read(MAX_FILE_BYTES + 1)


def regular(path: str, flags: int) -> int:
    """An opener of regular files alone: reading a pipe or a device may wait for ever. OSError for others."""
    file = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "expected a regular file, got a pipe or a device", path)
    return file


def problem_of(data: bytes) -> str | None:
    """Why an image file should not be decoded, as far as its header tells; None if it can be."""
    if len(data) > MAX_FILE_BYTES:
        return f"expected an image file of {MAX_FILE_BYTES:,} bytes at most, it is larger"
    if (size := size_of(data)) is None:
        return NOT_WHOLE
    height, width = size
    if height * width > MAX_PIXELS:
        return f"expected an image of {MAX_PIXELS:,} pixels at most, got {width:,} x {height:,}"
    return None


def size_of(data: bytes) -> tuple[int, int] | None:
    """The (height, width) in the header of a PNG, JPEG, GIF, BMP or WebP file; None for other data."""
    try:
        if data.startswith(b"\x89PNG"):
            width, height = struct.unpack_from(">II", data, 16)
        elif data.startswith(b"GIF8"):
            width, height = struct.unpack_from("<HH", data, 6)
        elif data.startswith(b"BM"):
            width, height = map(abs, struct.unpack_from("<ii", data, 18))
        elif data.startswith(b"\xff\xd8"):
            return _size_of_jpeg(data)
        elif data[8:16] == b"WEBPVP8X":
            width, height = (1 + int.from_bytes(data[place : place + 3], "little") for place in (24, 27))
        elif data[8:16] == b"WEBPVP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        elif data[8:16] == b"WEBPVP8 ":
            width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
        else:
            return None
    except struct.error:
        return None
    return height, width


def size_in(source: Source) -> tuple[int, int] | None:
    """`size_of` the content of an image file, of which only the beginning is read if that suffices; OSError
    if it cannot be read.
    """
    if isinstance(source, bytes):
        return size_of(source)
    with open(source, "rb", opener=regular) as stream:
        data = stream.read(HEADER)
        return size_of(data) or size_of(data + stream.read(MAX_FILE_BYTES - len(data)))


def _size_of_jpeg(data: bytes) -> tuple[int, int] | None:
    """The size in the first frame header, after segments that each state their length."""
    place = 2
    while place < len(data) - 1:
        if data[place] != 0xFF:
            return None
        marker = data[place + 1]
        if marker == 0xFF:  # padding
            place += 1
        elif marker in JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return height, width
        else:
            place += 2 + struct.unpack_from(">H", data, place + 2)[0]
    return None


def without_bad(
    files: ImageFiles, labels: np.ndarray, in_memory: bool = True
) -> tuple[np.ndarray | ImageFiles, np.ndarray]:
    """(Images, labels) of the images that can be decoded; the others are reported. They are held in memory if
    they fit, unless `in_memory` is False.

    DataError for a class none of whose images can be decoded.
    """
    images, good, problems = _read_good(files, in_memory)
    for row, problem in problems.items():
        if not np.any(labels[good] == labels[row]):
            raise DataError(files.place(row), None, problem)
    _tell(files, problems)
    return images, labels[good]


def readable(files: ImageFiles) -> tuple[np.ndarray | ImageFiles, np.ndarray]:
    """(Images, their rows) of the images that can be decoded, in memory if they fit; the others are reported.

    DataError if no image can be decoded.
    """
    images, good, problems = _read_good(files)
    if problems and not len(good):
        row, problem = next(iter(problems.items()))
        raise DataError(files.place(row), None, problem)
    _tell(files, problems)
    return images, good


def _read_good(
    files: ImageFiles, in_memory: bool = True
) -> tuple[np.ndarray | ImageFiles, np.ndarray, dict[int, str]]:
    """(The decodable images, in memory if all fit; their rows; {row: reason} of the others)."""
    is_kept = in_memory and files.fits_memory
    images, problems = files.read(is_kept)
    good = np.array([row for row in range(len(files)) if row not in problems], int)
    if not is_kept:
        return files[good] if problems else files, good, problems
    return images[good] if problems else images, good, problems


def _tell(files: ImageFiles, problems: Mapping[int, str]) -> None:
    tell_left_out({files.place(row): problem for row, problem in problems.items()}, len(files))
