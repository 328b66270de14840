"""Images: files, tables and bytes to 8-bit arrays."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.lines import DataError, files_of
from keras_tfm.data.sources.rows import Columns, Row, has_names, parse_columns, read_all

SUFFIXES = (".png", ".jpg", ".jpeg")
IMAGES = ("image", "img", "picture")
LABELS = ("label", "labels", "fine_label", "class")


class LabelledImages(NamedTuple):
    """Images (N, H, W, C), 8-bit, and labels (N,) that count into `class_names`."""

    images: np.ndarray
    labels: np.ndarray
    class_names: list[str]


def read_labelled_images(
    path, height: int, width: int, channels: int, columns: Sequence[str | int] | None = None
) -> LabelledImages:
    """Reads a folder as `read_image_folder` does, or tables with a column of images, the bytes of PNG or JPEG
    files, and one of labels: .parquet files, a pattern of them, or a set of TFDS. `columns` are their names,
    by default known ones. The classes are in order of name, numbers by size. DataError as there.
    """
    files = files_of(path)
    if not all(map(has_names, files)):
        return read_image_folder(path, height, width, channels)
    images, labels = [], []
    for row in read_all(files, Columns(("image", "label"), known_images, parse_columns(columns)), "images"):
        label = row.cells[1]
        if not isinstance(label, int | str) or not str(label).strip():
            row.refuse(f"expected a label, got {label!r:.60}")
        images.append(_decoded(row, height, width, channels))
        labels.append(label)
    names = sorted(set(labels), key=lambda label: (isinstance(label, str), label))
    if len(names) < 2:
        raise DataError(files[0], None, f"expected images of two classes or more, got {names!r:.60} alone")
    numbers = {name: number for number, name in enumerate(names)}
    indices = np.array([numbers[label] for label in labels], "int32")
    return LabelledImages(np.stack(images), indices, list(map(str, names)))


def known_images(cells: list[str]) -> tuple[int, ...] | None:
    """Where a table's images and labels stand; None if it lacks one."""
    found = [[cells.index(x) for x in names if x in cells][:1] for names in (IMAGES, LABELS)]
    return tuple(place for (place,) in found) if all(found) else None


def _known_image(cells: list[str]) -> tuple[int] | None:
    return next(((cells.index(name),) for name in IMAGES if name in cells), None)


def _decoded(row: Row, height: int, width: int, channels: int) -> np.ndarray:
    """The image in the row's first cell: bytes or, as the library `datasets` has it, {"bytes": them}."""
    data = row.cells[0].get("bytes") if isinstance(row.cells[0], dict) else row.cells[0]
    if not isinstance(data, bytes):
        row.refuse(f"expected the bytes of an image as {row.names[0]}, got {row.cells[0]!r:.60}")
    try:
        return decode_image(data, height, width, channels).numpy()
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        row.refuse("expected a whole PNG or JPEG image")


def read_image_folder(folder, height: int, width: int, channels: int) -> LabelledImages:
    """Reads a folder of PNG and JPEG images, one folder inside it a class; the classes are in order of name.

    Every image is resized to `height` x `width` and kept in memory. Hidden files are passed over. Raises
    DataError when there are not two classes, when a class is empty, when a file is no image or is cut short.
    """
    classes = [path for path in _visible(pathlib.Path(folder)) if path.is_dir()]
    if len(classes) < 2:
        raise DataError(
            folder, None, f"expected a folder of images for each class, got {len(classes)} folders"
        )
    images, labels = [], []
    for label, path in enumerate(classes):
        files = _visible(path)
        if not files:
            raise DataError(path, None, "expected images, the folder is empty")
        images += [_read_image(file, height, width, channels) for file in files]
        labels += [label] * len(files)
    return LabelledImages(np.stack(images), np.array(labels, "int32"), [path.name for path in classes])


def read_images(
    path, height: int, width: int, channels: int, columns: Sequence[str | int] | None = None
) -> tuple[np.ndarray, list[str]]:
    """The images (N, H, W, C) of PNG or JPEG files, which a path or a pattern names, or of a folder and the
    folders in it, in order of name, and their paths; or of tables as `read_labelled_images` takes them, and
    their rows. Resized and refused as there.
    """
    chosen = Columns(("image",), _known_image, parse_columns(columns, counts=(1,)))
    images, places = [], []
    for found in files_of(path):
        if has_names(found):
            for row in read_all(found, chosen, "images"):
                images.append(_decoded(row, height, width, channels))
                places.append(f"{found}, {row.place}")
            continue
        files = _image_files(pathlib.Path(found))
        images += [_read_image(file, height, width, channels) for file in files]
        places += map(str, files)
    return np.stack(images), places


def _image_files(path: pathlib.Path) -> list[pathlib.Path]:
    inside = _visible(path) if path.is_dir() else [path]
    files = [file for part in inside for file in (_visible(part) if part.is_dir() else [part])]
    if not files:
        raise DataError(path, None, "expected images, the folder is empty")
    return files


def _visible(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(folder, None, f"cannot be read: {error.strerror or error}") from None


def _read_image(path: pathlib.Path, height: int, width: int, channels: int) -> np.ndarray:
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        raise DataError(path, None, f"expected a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file")
    try:
        return decode_image(path.read_bytes(), height, width, channels).numpy()
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        raise DataError(path, None, "expected a whole PNG or JPEG image") from None


def decode_image(data, height, width, channels):
    """The bytes of a PNG or JPEG file, a string tensor (), to an 8-bit image (height, width, channels).

    `channels` is 1 (colours become their luminance) or 3 (an alpha channel is dropped). An orientation in
    EXIF is not followed. Raises InvalidArgumentError, also in a graph, where the bytes are no image.
    """
    image = tf.io.decode_image(data, channels=channels, expand_animations=False)
    image.set_shape((None, None, channels))
    return resize_images(image, height, width)


def decode_images(data, height, width, channels):
    """`decode_image` for each of the strings (B,): 8-bit images (B, height, width, channels)."""
    return tf.map_fn(
        lambda item: decode_image(item, height, width, channels),
        data,
        fn_output_signature=tf.TensorSpec((height, width, channels), tf.uint8),
    )


def resize_images(images, height, width):
    """Resizes images (..., H, W, C) by an antialiased bilinear filter; 8-bit ones are rounded to 8 bits."""
    if tuple(images.shape[-3:-1]) == (height, width):
        return images
    resized = tf.image.resize(images, (height, width), antialias=True)
    return tf.saturate_cast(tf.round(resized), tf.uint8) if images.dtype == tf.uint8 else resized
