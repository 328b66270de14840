"""Images with a text each, from tables that name image files or contain them."""

import glob
import hashlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.data.sources.image_files import ImageFiles, readable
from keras_tfm.data.sources.images import IMAGES, STRETCHED, bytes_of
from keras_tfm.data.sources.lines import DataError, Paths, check_text, files_of, numbered_lines
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.rows import ColumnNames, Columns, Row, one_of_each, parse_layout, read_all

PATHS = (*IMAGES, "image_file")
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.tsv")  # a folder's table, named as in `datasets`
TEXTS = ("text", "caption", "sentence", "description", "title", "texts", "captions", "sentences")


class ImageTexts(NamedTuple):
    """Images (N, H, W, C), 8-bit or from 0 to 1, or their files, and the text of each.

    >>> pairs = keras_tfm.data.ImageTexts(np.zeros((2, 8, 8, 3), "uint8"), ["a cat", "a dog"])
    >>> pairs.images.shape, pairs.texts
    ((2, 8, 8, 3), ['a cat', 'a dog'])
    """

    images: Any
    texts: list[str]


def read_image_texts(
    paths: Paths,
    shape: tuple[int, int, int],
    columns: ColumnNames = None,
    preprocessing: Preprocessing = STRETCHED,
) -> ImageTexts:
    r"""Read pairs of an image and its text from tables.

    A .tsv, .csv or .jsonl file has paths of images, relative to the table's folder and inside it; a .parquet
    file or a data set of TFDS has encoded images. A list of texts gives as many pairs. `columns` are the two
    names, or positions, by default known ones. Missing and broken images are skipped, with a warning that
    counts them and names some.

    Raises:
        DataError: for a path that leads out of the folder, a blank text, and if no image can be read.

    >>> import pathlib
    >>> tf.io.write_file("grey.png", tf.io.encode_png(np.full((6, 4, 3), 128, "uint8")))
    >>> _ = pathlib.Path("pairs.csv").write_text("image,text\ngrey.png,a grey square\n")
    >>> pairs = keras_tfm.data.read_image_texts("pairs.csv", shape=(8, 8, 3))
    >>> pairs.images.shape, pairs.texts
    ((1, 8, 8, 3), ['a grey square'])
    """
    chosen = Columns(("image", "text"), one_of_each(PATHS, TEXTS), parse_layout(columns))
    sources: list[bytes | str] = []
    places, texts = [], []
    for path in files_of(paths):
        table: str | None = path
        if os.path.isdir(path):
            tables = (os.path.join(path, name) for name in METADATA)
            table = next(filter(os.path.exists, tables), None)
        triples = _of_folder(path) if table is None else _of_table(table, chosen)
        for source, place, text in triples:
            sources.append(source)
            places.append(place)
            texts.append(text)
    images, rows = readable(ImageFiles(sources, shape, preprocessing, places))
    return ImageTexts(images, [texts[row] for row in rows])


def _of_table(path: str, columns: Columns) -> Iterator[tuple[bytes | str, str, str]]:
    """(Image, its place, text) of each row."""
    for row in read_all(path, columns, "images and texts"):
        source: bytes | str = row.cells[0]
        if isinstance(source, str):
            source, place = _inside(row), source
        else:
            source, place = bytes_of(row), f"{row.path}, {row.place}"
        texts = _texts(row.cells[1])
        if not texts:
            row.refuse(f"expected a text, the {row.names[1]} is an empty list")
        for text in texts:
            yield source, place, check_text(text, row.path, row.number, row.names[1], row.unit)


def _texts(cell: Any) -> list:
    """The text of a cell, or the texts of a list; a record has it under a known name: {"text": "a dog"}."""
    if isinstance(cell, dict):
        cell = next((cell[name] for name in TEXTS if name in cell), cell)
    return [text for part in cell for text in _texts(part)] if isinstance(cell, list) else [cell]


def _of_folder(path: str) -> Iterator[tuple[str, str, str]]:
    """(Image, its place, text) of each line of the .txt files in a folder and its subfolders."""
    home = pathlib.Path(path).resolve()
    files = sorted(home.rglob("*.txt"))
    if not files:
        names = " or ".join(METADATA)
        raise DataError(path, None, f"expected {names}, or a .txt beside each image, there is none")
    for file in files:
        named_alike = sorted(file.parent.glob(f"{glob.escape(file.stem)}.*"))
        image = next((image for image in named_alike if image != file), file.with_suffix(""))
        if not image.resolve().is_relative_to(home):
            raise DataError(
                file, None, f"expected an image inside {home}, {image.name!r:.60} leads elsewhere"
            )
        for number, text in numbered_lines(os.fspath(file)):
            yield (
                os.fspath(image),
                os.fspath(image.relative_to(home)),
                check_text(text, os.fspath(file), number, "text"),
            )
        if not file.stat().st_size:
            raise DataError(file, None, "expected a text, the file is empty")


def _inside(row: Row) -> str:
    """The path of the row's image; DataError if it leads out of the table's folder."""
    home, name = pathlib.Path(row.path).resolve().parent, row.text(0)
    try:
        path = (home / name).resolve()
    except (ValueError, OSError, RuntimeError):  # a NUL character, or circular links
        row.refuse(f"expected the path of an image, got {name!r:.60}")
    if not path.is_relative_to(home):
        row.refuse(f"expected the path of an image inside {home}, got {name!r:.60}")
    return os.fspath(path)


def identities(images: np.ndarray | ImageFiles) -> list:
    """Values that are equal for two images if they are the same file, the same bytes, or the same pixels."""
    if isinstance(images, ImageFiles):
        return list(images.sources)
    return [hashlib.sha256(image.tobytes()).digest() for image in np.asarray(images)]
