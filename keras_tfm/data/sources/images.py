"""Labelled images out of folders, tables and arrays; and images without labels, to be answered."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources import image_arrays
from keras_tfm.data.sources.image_files import ImageFiles, problem_of, read_bytes, readable, without_bad
from keras_tfm.data.sources.lines import DataError, files_of
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.rows import Columns, Row, has_names, kind_of, parse_columns, read_all

IMAGES = ("image", "img", "picture")
LABELS = ("label", "labels", "fine_label", "class")
STRETCHED = Preprocessing()
KINDS = (
    "a folder of images by class, .npz, idx files (train-images-idx3-ubyte), .parquet or "
    "tfds:NAME[/CONFIG][:VERSION]#SPLIT"
)


class LabelledImages(NamedTuple):
    """Images (N, H, W, C), 8-bit, and labels (N,) that count into `class_names`."""

    images: np.ndarray | ImageFiles
    labels: np.ndarray
    class_names: list[str]


def read_labelled_images(
    path,
    height: int,
    width: int,
    channels: int,
    columns: Sequence[str | int] | None = None,
    preprocessing: Preprocessing = STRETCHED,
) -> LabelledImages:
    """Reads a folder as `read_image_folder` does, arrays as `image_arrays` does, or tables with a column of
    images, the bytes of image files, and one of labels: .parquet files, a pattern of them, or a set of TFDS.
    `columns` are their names, by default known ones. The classes are in order of name, numbers by size.
    Images that are broken are left out, with a warning that counts them and names some. DataError as there.
    """
    files = files_of(path)
    if all(map(image_arrays.is_array_file, files)):
        return _read_arrays(files, (height, width, channels), columns, preprocessing)
    if not all(map(has_names, files)):
        if any(kind_of(file) or os.path.isfile(file) for file in files):
            raise DataError(files[0], None, f"expected {KINDS}")
        return _read_folders(files, (height, width, channels), preprocessing)
    found, labels, places = [], [], []
    for row in read_all(files, Columns(("image", "label"), known_images, parse_columns(columns)), "images"):
        label = row.cells[1]
        if not isinstance(label, int | str) or not str(label).strip():
            row.refuse(f"expected a label, got {label!r:.60}")
        found.append(bytes_of(row))
        labels.append(label)
        places.append(f"{row.path}, {row.place}")
    images = ImageFiles(found, (height, width, channels), preprocessing, places)
    return _labelled(images, np.array(labels, object), files[0])


def read_unlabelled_images(
    paths,
    shape: tuple[int, int, int],
    columns: Sequence[str | int] | None = None,
    preprocessing: Preprocessing = STRETCHED,
) -> np.ndarray | ImageFiles:
    """Images (N, *shape), 8-bit, from what `read_labelled_images` reads, whose labels are passed over, and
    from folders of images, tables and arrays without any. `columns` are one name or, of arrays, two.

    Images that are broken are left out, with a warning. DataError where there are none.
    """
    files = files_of(paths)
    beside = {image_arrays.labels_beside(file) for file in files if image_arrays.is_idx(file)}
    files = [file for file in files if file not in beside] or files
    images, places = read_images(files, shape, columns, preprocessing)
    are_arrays = {isinstance(image, np.ndarray) for image in images}
    if len(are_arrays) != 1:
        problem = "expected images, there are none" if not images else "expected arrays alone, or files alone"
        raise DataError(files[0], None, problem)
    if are_arrays.pop():
        return np.stack(images)
    return readable(ImageFiles(images, shape, preprocessing, places))[0]


def _labelled(images: Any, labels: np.ndarray, path: str) -> LabelledImages:
    """With the classes in order, numbers by size."""
    if isinstance(images, ImageFiles):
        images, labels = without_bad(images, labels)
    names = sorted(set(labels.tolist()), key=lambda label: (isinstance(label, str), label))
    if len(names) < 2:
        raise DataError(path, None, f"expected images of two classes or more, got {names!r:.60} alone")
    numbers = {name: number for number, name in enumerate(names)}
    indices = np.array([numbers[label] for label in labels.tolist()], "int32")
    return LabelledImages(images, indices, list(map(str, names)))


def _read_arrays(
    files: list[str], shape: tuple[int, int, int], columns: Any, preprocessing: Preprocessing
) -> LabelledImages:
    beside = {image_arrays.labels_beside(file) for file in files if image_arrays.is_idx(file)}
    parts, labels = [], []
    for file in [file for file in files if file not in beside] or files:
        found = image_arrays.read_arrays(file, parse_columns(columns))
        if found.labels is None:
            raise DataError(file, None, "expected labels beside the images, there are none")
        if not len(found.images):
            raise DataError(file, None, "expected images, there are none")
        parts.append(image_arrays.fit_arrays(found.images, *shape, preprocessing))
        labels += [x.decode() if isinstance(x, bytes) else x for x in found.labels.tolist()]
    return _labelled(np.concatenate(parts), np.array(labels, object), files[0])


def known_images(cells: list[str]) -> tuple[int, ...] | None:
    """Where a table's images and labels stand; None if it lacks one."""
    found = [[cells.index(x) for x in names if x in cells][:1] for names in (IMAGES, LABELS)]
    return tuple(place for (place,) in found) if all(found) else None


def _known_image(cells: list[str]) -> tuple[int] | None:
    return next(((cells.index(name),) for name in IMAGES if name in cells), None)


def bytes_of(row: Row) -> bytes:
    """The image in the row's first cell: bytes or, as the library `datasets` has it, {"bytes": them}."""
    data = row.cells[0].get("bytes") if isinstance(row.cells[0], dict) else row.cells[0]
    if not isinstance(data, bytes):
        row.refuse(f"expected the bytes of an image as {row.names[0]}, got {row.cells[0]!r:.60}")
    return data


def read_image_folder(
    folder, height: int, width: int, channels: int, preprocessing: Preprocessing = STRETCHED
) -> LabelledImages:
    """Reads a folder of images, one folder inside it a class; the classes are in order of name.

    Every image becomes `height` x `width`, in memory or, where all of them exceed `image_files.MAX_BYTES`,
    each time that it is asked for. Hidden files are passed over; what is no image, or a broken one, is left
    out, with a warning that counts them and names some. Raises DataError when there are not two classes, when
    a class is empty or has no image that can be decoded.
    """
    return _read_folders([folder], (height, width, channels), preprocessing)


def _read_folders(
    folders: Sequence, shape: tuple[int, int, int], preprocessing: Preprocessing
) -> LabelledImages:
    """`read_image_folder` of several, whose classes are told by name."""
    classes = [path for folder in folders for path in _visible(pathlib.Path(folder)) if path.is_dir()]
    if (count := len({path.name for path in classes})) < 2:
        problem = f"expected a folder of images for each class, got {count} folders"
        raise DataError(folders[0], None, problem)
    files: list = []
    labels: list[str] = []
    for path in classes:
        inside = _visible(path)
        if not inside:
            raise DataError(path, None, "expected images, the folder is empty")
        files += inside
        labels += [path.name] * len(inside)
    return _labelled(ImageFiles(files, shape, preprocessing), np.array(labels, object), folders[0])


def read_images(
    path,
    shape: tuple[int, int, int],
    columns: Sequence[str | int] | None = None,
    preprocessing: Preprocessing = STRETCHED,
) -> tuple[list, list[str]]:
    """Images to be answered and their places: image files, which a path or a pattern names, or those of a
    folder and the folders in it, in order of name; or the rows of tables as `read_labelled_images` takes
    them; or .npz and idx files. Each is a path, or the bytes of a file, or an array of the `shape`.
    """
    chosen = Columns(("image",), _known_image, parse_columns(columns, counts=(1,)))
    images: list = []
    places: list[str] = []
    files = files_of(path)
    for found in files:
        if has_names(found):
            for row in read_all(found, chosen, "images"):
                images.append(bytes_of(row))
                places.append(f"{found}, {row.place}")
        elif image_arrays.is_array_file(found):
            arrays = image_arrays.read_arrays(found, parse_columns(columns, counts=(1, 2)))
            images += list(image_arrays.fit_arrays(arrays.images, *shape, preprocessing))
            places += [f"{found}, image {number}" for number in range(1, len(arrays.images) + 1)]
        else:
            inside = _image_files(pathlib.Path(found))
            if (
                inside == [pathlib.Path(found)]
                and len(files) == 1
                and (problem := problem_of(read_bytes(found)))
            ):
                raise DataError(
                    found, None, problem
                )  # what is asked for by its name alone is meant to be one
            images += inside
            places += map(str, inside)
    return images, places


def _image_files(path: pathlib.Path) -> list[pathlib.Path]:
    if not path.is_dir():
        if not path.exists():
            raise DataError(path, None, "cannot be read: No such file or directory")
        return [path]
    inside = _visible(path)
    files = [file for part in inside for file in (_visible(part) if part.is_dir() else [part])]
    if not files:
        raise DataError(path, None, "expected images, the folder is empty")
    return files


def _visible(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(folder, None, f"cannot be read: {error.strerror or error}") from None


def decode_image(data, height, width, channels, preprocessing: Preprocessing = STRETCHED):
    """The bytes of an image file, a string tensor (), to an 8-bit image (height, width, channels).

    See `preprocessing.decode_pixels`. Raises InvalidArgumentError, also in a graph, where they are none.
    """
    return preprocessing.decoded(data, height, width, channels)


def decode_images(data, height, width, channels, preprocessing: Preprocessing = STRETCHED):
    """`decode_image` for each of the strings (B,): 8-bit images (B, height, width, channels)."""
    return tf.map_fn(
        lambda item: decode_image(item, height, width, channels, preprocessing),
        data,
        fn_output_signature=tf.TensorSpec((height, width, channels), tf.uint8),
    )
