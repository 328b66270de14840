"""Images stored as arrays: .npz files, and idx files (ubyte, plain or .gz) such as MNIST's."""

import gzip
import math
import os
import pathlib
import re
import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.sources.npz import MAX_BYTES, read_npz
from keras_tfm.data.sources.preprocessing import Preprocessing, in_channels

# Names of the arrays of images and labels in .npz files of Keras, MedMNIST and others.
NAMES = (
    ("images", "labels"), ("x_train", "y_train"), ("train_images", "train_labels"), ("x", "y"),
    ("x_test", "y_test"), ("test_images", "test_labels"), ("image", "label"), ("data", "labels"),
)  # fmt: skip
AT_ONCE = 1 << 24  # how many values are resized at once
UBYTE = 0x08  # the code for unsigned bytes in an idx file
IDX = re.compile(r"idx\d[-.]ubyte(\.gz)?$")


class ImageArrays(NamedTuple):
    """Images (N, H, W, C), 8-bit, and labels (N,), numbers or strings, or None."""

    images: np.ndarray
    labels: np.ndarray | None


def is_array_file(path: str) -> bool:
    """Whether `read_arrays` reads a file of this name."""
    return path.lower().endswith(".npz") or is_idx(path)


def is_idx(path: str) -> bool:
    """Whether the name is an idx file's, such as "train-images-idx3-ubyte.gz"."""
    return IDX.search(path.lower()) is not None


def read_arrays(path: str, columns: Sequence[str] | None = None) -> ImageArrays:
    """The images and labels in an .npz file, or in an idx file and the idx file of labels in the same folder.

    `columns` are the names of the arrays in the .npz, by default known ones. DataError for arrays that are
    not images or labels, or do not fit together.
    """
    images, labels = _read_npz(path, columns) if path.lower().endswith(".npz") else _read_idx_pair(path)
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3, 4) or 0 in images.shape[1:]:
        raise DataError(path, None, f"expected images (N, H, W) or (N, H, W, 1, 3 or 4), got {images.shape}")
    if labels is not None:
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if labels.shape != images.shape[:1] or labels.dtype.kind not in "iuSU":
            expected = f"expected {len(images)} labels, integers or strings"
            raise DataError(path, None, f"{expected}, got {labels.shape} of {labels.dtype}")
    return ImageArrays(_in_eight_bits(images, path), labels)


def fit_arrays(
    images: np.ndarray, height: int, width: int, channels: int, preprocessing: Preprocessing
) -> np.ndarray:
    """8-bit images (N, H, W, C) of any size and number of channels as (N, height, width, channels)."""
    resized = np.zeros((len(images), height, width, channels), "uint8")
    step = max(1, AT_ONCE // max(math.prod(images.shape[1:]), height * width * channels))
    for first in range(0, len(images), step):
        part = in_channels(tf.constant(images[first : first + step]), channels)
        resized[first : first + step] = preprocessing.fitted(part, height, width)
    return resized


def _in_eight_bits(images: np.ndarray, path: str) -> np.ndarray:
    if images.dtype == np.uint8 or not images.size:
        return images.astype("uint8", copy=False)
    if images.dtype.kind == "f" and images.min() >= 0 and images.max() <= 1:
        return np.round(images * 255).astype("uint8")
    if images.dtype.kind in "iu" and images.min() >= 0 and images.max() <= 255:
        return images.astype("uint8")
    got = f"{images.dtype}" if images.dtype.kind not in "iuf" else f"{images.min()} to {images.max()}"
    raise DataError(path, None, f"expected pixels from 0 to 255, or floats from 0 to 1, got {got}")


def _read_npz(path: str, columns: Sequence[str] | None) -> tuple[np.ndarray, np.ndarray | None]:
    images, *labels = read_npz(path, lambda names: _chosen(path, names, columns), "images and labels")
    return images, labels[0] if labels else None


def _chosen(path: str, names: list[str], columns: Sequence[Any] | None) -> Sequence[str]:
    if columns is None:
        whole = (pair for pair in NAMES if set(pair) <= set(names))
        pair: Sequence[str] | None = next(whole, next((pair[:1] for pair in NAMES if pair[0] in names), None))
        if pair is None:
            raise DataError(path, None, f"expected arrays images and labels, got {', '.join(names)[:200]!r}")
        return pair
    for name in columns:
        if name not in names:
            raise DataError(path, None, f"expected an array named {name!r}, got {', '.join(names)[:200]}")
    return columns


def labels_beside(path: str) -> str:
    """The name of the idx file with the labels for an idx file of images."""
    name = os.path.basename(path).replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")
    return os.path.join(os.path.dirname(path), name)


def _read_idx_pair(path: str) -> tuple[np.ndarray, np.ndarray | None]:
    labels = labels_beside(path)
    if labels == path:
        raise DataError(path, None, "expected an idx file of images, with images-idx3 in its name")
    return _read_idx(path), _read_idx(labels) if pathlib.Path(labels).exists() else None


def _read_idx(path: str) -> np.ndarray:
    """LeCun's format: 0, 0, the code of the data type, the number of axes, 4 bytes for each axis, the
    values.
    """
    is_compressed = path.lower().endswith(".gz")
    try:
        opened: Any = gzip.open(path) if is_compressed else open(path, "rb")  # noqa: SIM115
        with opened as stream:
            head = stream.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] != UBYTE or not 1 <= head[3] <= 4:
                raise DataError(
                    path, None, f"expected an idx file of bytes, got one that begins with {head!r}"
                )
            axes = stream.read(4 * head[3])
            if len(axes) < 4 * head[3]:
                raise DataError(path, None, "expected a whole idx file, it ends in its head")
            shape = struct.unpack(f">{head[3]}I", axes)
            count = math.prod(shape)
            if count > MAX_BYTES:
                raise DataError(path, None, f"expected at most {MAX_BYTES:,} bytes, its head says {shape}")
            data = stream.read(count + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(path, None, f"expected a whole compressed file: {error}") from None
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None
    if len(data) != count:
        got = "more" if len(data) > count else f"{len(data):,}"
        raise DataError(path, None, f"expected {count:,} bytes, as its head {shape} says, got {got}")
    return np.frombuffer(data, "uint8").reshape(shape)
