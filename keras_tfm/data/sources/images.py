"""Labelled images from folders, tables and arrays; and images without labels."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources import image_arrays
from keras_tfm.data.sources.image_files import ImageFiles, readable
from keras_tfm.data.sources.lines import DataError, Inputs, Path, Paths, files_of
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.rows import (
    ColumnNames,
    Columns,
    Row,
    is_table,
    kind_of,
    one_of_each,
    parse_layout,
    read_all,
)
from keras_tfm.serving.examples import Refused
from keras_tfm.serving.image_headers import problem_of, read_bytes

IMAGES = ("image", "img", "picture", "path", "file", "filename", "file_name", "image_path", "filepath")
LABELS = ("label", "labels", "fine_label", "class", "category", "target", "class_name")
STRETCHED = Preprocessing()
HIDDEN = (".", "__MACOSX")  # how the names begin of what systems write beside images
KINDS = (
    "a folder of images by class; .npz, idx files (train-images-idx3-ubyte); .parquet or "
    "tfds:NAME[/CONFIG][:VERSION]#SPLIT; or a .csv, .tsv or .jsonl table of paths and labels"
)


class LabelledImages(NamedTuple):
    """Images (N, H, W, C), 8-bit, and labels (N,), which are indices of `class_names`.

    >>> images, labels = np.zeros((2, 8, 8, 3), "uint8"), np.array([1, 0])
    >>> data = keras_tfm.data.LabelledImages(images, labels, class_names=["cat", "dog"])
    >>> [data.class_names[label] for label in data.labels]
    ['dog', 'cat']
    """

    images: np.ndarray | ImageFiles
    labels: np.ndarray
    class_names: list[str]


def read_labelled_images(
    path: Paths,
    height: int,
    width: int,
    channels: int,
    columns: ColumnNames = None,
    preprocessing: Preprocessing = STRETCHED,
    in_memory: bool = True,
) -> LabelledImages:
    """Read labelled images from folders (see `read_image_folder`), arrays (see `image_arrays`), or tables.

    A table is a .parquet file, a pattern of them, or a data set of TFDS, with one column of encoded images
    and one of labels; or a .csv, .tsv or .jsonl file with one of paths, relative to the table, and one of
    labels. `columns` are their names, by default known ones. With `in_memory=False` files are decoded when
    they are needed, however few they are. Classes are sorted by name, numbers
    by value. Broken images are skipped, with a warning that counts them and names some.

    Raises:
        DataError: as in `read_image_folder`.

    >>> np.savez("digits.npz", images=np.zeros((3, 28, 28), "uint8"), labels=np.array([7, 1, 7]))
    >>> data = keras_tfm.data.read_labelled_images("digits.npz", height=28, width=28, channels=1)
    >>> data.images.shape, data.labels.tolist(), data.class_names
    ((3, 28, 28, 1), [1, 0, 1], ['1', '7'])
    """
    files = files_of(path)
    for file in files:
        refuse_special(file)
    if all(map(image_arrays.is_array_file, files)):
        return _read_arrays(files, (height, width, channels), columns, preprocessing)
    if not all(map(is_table, files)):
        if any(kind_of(file) or os.path.isfile(file) for file in files):
            raise DataError(files[0], None, f"expected {KINDS}")
        return _read_folders(files, (height, width, channels), preprocessing, in_memory)
    found, labels, places = [], [], []
    chosen = Columns(("image", "label"), one_of_each(IMAGES, LABELS), parse_layout(columns))
    for row in read_all(files, chosen, "images"):
        found.append(source_of(row))
        labels.append(label_of(row))
        places.append(place_of(row, found[-1]))
    images = ImageFiles(found, (height, width, channels), preprocessing, places)
    return _labelled(images, np.array(labels, object), files[0], in_memory)


def read_unlabelled_images(
    paths: Paths,
    shape: tuple[int, int, int],
    columns: ColumnNames = None,
    preprocessing: Preprocessing = STRETCHED,
) -> np.ndarray | ImageFiles:
    """Images (N, *shape), 8-bit, from what `read_labelled_images` reads, whose labels are ignored, and from
    folders, tables and arrays without labels.

    `columns` are one name, or two; the labels' column is ignored. Broken images are skipped, with a warning.
    DataError if there are none.

    >>> np.savez("digits.npz", images=np.zeros((3, 28, 28), "uint8"))
    >>> keras_tfm.data.read_unlabelled_images("digits.npz", shape=(14, 14, 1)).shape
    (3, 14, 14, 1)
    """
    files = files_of(paths)
    beside = {image_arrays.labels_beside(file) for file in files if image_arrays.is_idx(file)}
    files = [file for file in files if file not in beside] or files
    inputs = list(read_images(files, shape, columns, preprocessing))
    images, places = [image for image, _ in inputs], [place for _, place in inputs]
    are_arrays = {isinstance(image, np.ndarray) for image in images}
    if len(are_arrays) != 1:
        problem = "expected images, there are none" if not images else "expected arrays alone, or files alone"
        raise DataError(files[0], None, problem)
    if are_arrays.pop():
        return np.stack(images)
    return readable(ImageFiles(images, shape, preprocessing, places))[0]


def have_classes(path: Paths, columns: ColumnNames = None) -> bool:
    """Whether the images in these files have classes, as `read_labelled_images` reads them: arrays do beside
    labels, tables unless `columns` name one column alone, folders if there are two in them or more.

    >>> np.savez("digits.npz", images=np.zeros((3, 28, 28), "uint8"))
    >>> keras_tfm.data.sources.images.have_classes("digits.npz")
    False
    """
    files, layout = files_of(path), parse_layout(columns, counts=(1, 2))
    if layout.columns is not None and len(layout.columns) == 1:
        return False
    if all(map(is_table, files)):
        return True
    if all(map(image_arrays.is_array_file, files)):
        return image_arrays.read_arrays(files[0], layout.names_in(files[0])).labels is not None
    folders = [entry for file in files if os.path.isdir(file) for entry in visible(pathlib.Path(file))]
    return len({entry.name for entry in folders if entry.is_dir()}) > 1


def _labelled(images: Any, labels: np.ndarray, path: str, in_memory: bool = True) -> LabelledImages:
    """The images with their classes in order, numbers by value."""
    if isinstance(images, ImageFiles):
        images, rows = readable(images, labels, in_memory)
        labels = labels[rows]
    numbers, names = in_order(labels, path)
    return LabelledImages(images, numbers, names)


def in_order(labels: np.ndarray, path: Path, unit: str = "images") -> tuple[np.ndarray, list[str]]:
    """(The labels (N,) as indices of their names, these names in order, numbers by value); DataError for
    fewer than two.
    """
    names = sorted(set(labels.tolist()), key=lambda label: (isinstance(label, str), label))
    if len(names) < 2:
        raise DataError(path, None, f"expected {unit} of two classes or more, got {names!r:.60} alone")
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers[label] for label in labels.tolist()], "int32"), list(map(str, names))


def _read_arrays(
    files: list[str], shape: tuple[int, int, int], columns: Any, preprocessing: Preprocessing
) -> LabelledImages:
    beside = {image_arrays.labels_beside(file) for file in files if image_arrays.is_idx(file)}
    parts, labels = [], []
    for file in [file for file in files if file not in beside] or files:
        arrays = image_arrays.read_arrays(file, parse_layout(columns).names_in(file))
        if arrays.labels is None:
            raise DataError(file, None, "expected labels beside the images, there are none")
        if not len(arrays.images):
            raise DataError(file, None, "expected images, there are none")
        parts.append(image_arrays.fit_arrays(arrays.images, *shape, preprocessing))
        labels += [x.decode() if isinstance(x, bytes) else x for x in arrays.labels.tolist()]
    return _labelled(np.concatenate(parts), np.array(labels, object), files[0])


def label_of(row: Row) -> int | str:
    """The label in the second cell of the row; DataError for another value, and for none."""
    label = row.cells[1]
    if not isinstance(label, int | str) or not str(label).strip():
        row.refuse(f"expected a label, got {label!r:.60}")
    return label


def bytes_of(row: Row) -> bytes:
    """The image in the first cell of the row: bytes or, as in the library `datasets`, {"bytes": bytes}."""
    data = row.cells[0].get("bytes") if isinstance(row.cells[0], dict) else row.cells[0]
    if not isinstance(data, bytes):
        row.refuse(f"expected the bytes of an image as {row.names[0]}, got {row.cells[0]!r:.60}")
    return data


def source_of(row: Row, kind: str = "an image") -> bytes | str:
    """The image, or other `kind` of file, in the first cell of the row: its bytes, or its path, in a table
    relative to the table.
    """
    if not isinstance(row.cells[0], str):
        return bytes_of(row)
    path = os.path.join(os.path.dirname(row.path), row.text(0).strip())
    if row.may_be_header and not os.path.exists(path):
        names = ",".join(str(cell).strip() for cell in row.cells)
        row.refuse(
            f"expected the path of {kind}, relative to the table, and there is none at {path}; if the row "
            f"holds names, choose the columns of the paths and the labels: --columns {names[:80]}"
        )
    return path


def place_of(row: Row, source: Any) -> str:
    """Where a row's image, or other file, is: its path, else the row."""
    return source if isinstance(source, str) else f"{row.path}, {row.place}"


def read_image_folder(
    folder: Path, height: int, width: int, channels: int, preprocessing: Preprocessing = STRETCHED
) -> LabelledImages:
    """Read a folder that holds one folder of images per class; classes are sorted by name.

    All images become `height` x `width`: in memory or, if they exceed `image_files.MAX_BYTES`, each time they
    are needed. Hidden files are ignored; files that are broken or not images are skipped, with a warning that
    counts them and names some.

    Raises:
        DataError: if there are fewer than two classes, or a class has no image that can be decoded.

    >>> for name in ("cat", "dog"):
    ...     tf.io.write_file(f"pets/{name}/1.png", tf.io.encode_png(np.zeros((6, 4, 3), "uint8")))
    >>> data = keras_tfm.data.read_image_folder("pets", height=8, width=8, channels=3)
    >>> data.images.shape, data.labels.tolist(), data.class_names
    ((2, 8, 8, 3), [0, 1], ['cat', 'dog'])
    """
    return _read_folders([folder], (height, width, channels), preprocessing)


def _read_folders(
    folders: Sequence, shape: tuple[int, int, int], preprocessing: Preprocessing, in_memory: bool = True
) -> LabelledImages:
    """`read_image_folder` for several folders, whose classes are merged by name."""
    files, labels = in_class_folders(folders, "images")
    images = ImageFiles(files, shape, preprocessing)
    return _labelled(images, np.array(labels, object), folders[0], in_memory)


def in_class_folders(folders: Sequence, unit: str) -> tuple[list[pathlib.Path], list[str]]:
    """(What stands in the folders in `folders`, the names of these folders, which are labels)."""
    classes = [path for folder in folders for path in visible(pathlib.Path(folder)) if path.is_dir()]
    if (count := len({path.name for path in classes})) < 2:
        problem = f"expected a folder of {unit} for each of two classes or more, got {count}"
        raise DataError(folders[0], None, problem)
    files: list[pathlib.Path] = []
    labels: list[str] = []
    for path in classes:
        inside = visible(path)
        if not inside:
            raise DataError(path, None, f"expected {unit}, the folder is empty")
        if unit == "images" and all(entry.is_dir() for entry in inside):
            problem = "expected images, got folders: name the folder whose own folders are the classes"
            raise DataError(path, None, problem)
        files += inside
        labels += [path.name] * len(inside)
    return files, labels


def read_images(
    path: Paths,
    shape: tuple[int, int, int],
    columns: ColumnNames = None,
    preprocessing: Preprocessing = STRETCHED,
) -> Inputs:
    """Images to answer, each with its place: image files, given by paths, patterns or folders (and the
    folders in them, sorted by name); rows of tables as in `read_labelled_images`; .npz and idx files.

    Each image is a path, the bytes of a file, or an array of the `shape`. If `columns` are two, as for
    training, the labels' column is ignored.
    """
    layout = parse_layout(columns, counts=(1, 2))
    layout = dataclasses.replace(layout, columns=layout.columns and layout.columns[:1])
    chosen = Columns(("image",), one_of_each(IMAGES), layout)
    files = files_of(path)
    for file in files:
        refuse_special(file)
        if is_table(file):
            for row in read_all(file, chosen, "images"):
                source = source_of(row)
                yield source, place_of(row, source)
        elif image_arrays.is_array_file(file):
            arrays = image_arrays.read_arrays(file, layout.names_in(file))
            fitted = image_arrays.fit_arrays(arrays.images, *shape, preprocessing)
            yield from ((image, f"{file}, image {number}") for number, image in enumerate(fitted, start=1))
        else:
            inside = _image_files(pathlib.Path(file))
            is_alone = inside == [pathlib.Path(file)] and len(files) == 1
            if is_alone:  # a single path that is no folder is meant to be an image
                try:
                    problem = problem_of(read_bytes(file))
                except OSError as error:
                    problem = f"cannot be read: {error.strerror or error}"
                if problem:
                    raise DataError(file, None, problem)
            yield from ((file, str(file)) for file in inside)


def refuse_special(path: str) -> None:
    """Raise DataError for a pipe or a device, which may be waited for in vain."""
    if os.path.exists(path) and not os.path.isdir(path) and not os.path.isfile(path):
        raise DataError(path, None, "expected a file or a folder, got a pipe or a device")


def not_of_a_kind(files: Sequence[str], kinds: str) -> DataError:
    """What is wrong with `files` that are neither of these `kinds`, which are words for the user."""
    lost = next((file for file in files if not os.path.exists(file)), None)
    if lost is not None:
        return DataError(lost, None, "cannot be read: No such file or directory")
    return DataError(files[0], None, f"expected {kinds}")


def asked_files(
    file: str,
    files: Sequence[str],
    unit: str,
    check: Callable[[str], Any],
    is_one: Callable[[list[pathlib.Path]], bool] = lambda inside: False,
) -> Inputs:
    """The files to answer in one of the `files`, each with its place: itself, or the files in a folder and in
    its folders; a folder with things inside of which `is_one` holds stands for itself.

    A path that is alone is meant to be one of these `unit`: what `check` raises, `Refused`, is a DataError.
    """

    def within(path: pathlib.Path) -> Iterator[str]:
        inside = visible(path) if path.is_dir() else None
        if inside is None or (inside and is_one(inside)):
            yield str(path)
        elif not inside:
            raise DataError(path, None, f"expected {unit}, the folder is empty")
        else:
            for each in inside:
                yield from within(each)

    inside = list(within(pathlib.Path(file)))
    if inside == files:
        try:
            check(file)
        except Refused as refused:
            raise DataError(file, None, str(refused)) from None
    yield from ((path, path) for path in inside)


def _image_files(path: pathlib.Path) -> list[pathlib.Path]:
    if not path.is_dir():
        if not path.exists():
            raise DataError(path, None, "cannot be read: No such file or directory")
        return [path]
    inside = visible(path)
    files = [file for part in inside for file in (visible(part) if part.is_dir() else [part])]
    if not files:
        raise DataError(path, None, "expected images, the folder is empty")
    return files


def visible(folder: pathlib.Path) -> list[pathlib.Path]:
    """What stands in a folder, sorted by name, without hidden files; DataError if it cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith(HIDDEN))
    except OSError as error:
        raise DataError(folder, None, f"cannot be read: {error.strerror or error}") from None


def decode_image(
    data: tf.Tensor, height: int, width: int, channels: int, preprocessing: Preprocessing = STRETCHED
) -> tf.Tensor:
    """The bytes of an image file, a string tensor (), as an 8-bit image (height, width, channels).

    See `preprocessing.decode_pixels`. InvalidArgumentError, also in a graph, if the bytes are not an image.

    >>> data = tf.io.encode_png(np.zeros((6, 4, 3), "uint8"))
    >>> keras_tfm.data.decode_image(data, height=8, width=8, channels=3).shape
    TensorShape([8, 8, 3])
    """
    return preprocessing.decoded(data, height, width, channels)


def decode_images(
    data: tf.Tensor, height: int, width: int, channels: int, preprocessing: Preprocessing = STRETCHED
) -> tf.Tensor:
    """`decode_image` for strings (B,): 8-bit images (B, height, width, channels)."""
    return tf.map_fn(
        lambda item: decode_image(item, height, width, channels, preprocessing),
        data,
        fn_output_signature=tf.TensorSpec((height, width, channels), tf.uint8),
    )
