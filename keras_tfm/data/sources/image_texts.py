"""Images and the text of each, out of tables that name image files or hold them."""

import hashlib
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.data.sources.image_files import ImageFiles, readable
from keras_tfm.data.sources.images import IMAGES, STRETCHED, bytes_of
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.rows import Columns, Row, parse_columns, read_all

PATHS = (*IMAGES, "image_path", "path", "file", "filename", "file_name", "image_file")
TEXTS = ("text", "caption", "sentence", "description", "title")


class ImageTexts(NamedTuple):
    """Images (N, H, W, C), 8-bit or from 0 to 1, or the files of them, and the text of each."""

    images: Any
    texts: list[str]


def read_image_texts(
    paths,
    shape: tuple[int, int, int],
    columns: Sequence[str | int] | None = None,
    preprocessing: Preprocessing = STRETCHED,
) -> ImageTexts:
    """Reads .tsv, .csv and .jsonl files of an image's path and its text, and .parquet files and sets of TFDS
    with the bytes of images. `columns` are the two names, or positions, by default known ones.

    A path is one from the table's folder, and leads to a file in it. Images that are missing or broken are
    left out, with a warning that counts them and names some. DataError for a path that leads elsewhere, for a
    text that is blank, and where no image can be read.
    """
    sources: list[bytes | str] = []
    places, texts = [], []
    for row in read_all(
        paths, Columns(("image", "text"), _known, parse_columns(columns)), "images and texts"
    ):
        source = row.cells[0]
        sources.append(_inside(row) if isinstance(source, str) else bytes_of(row))
        places.append(source if isinstance(source, str) else f"{row.path}, {row.place}")
        texts.append(row.text(1))
    images, rows = readable(ImageFiles(sources, shape, preprocessing, places))
    return ImageTexts(images, [texts[row] for row in rows])


def _known(cells: list[str]) -> tuple[int, int] | None:
    found = [[cells.index(name) for name in names if name in cells][:1] for names in (PATHS, TEXTS)]
    return (found[0][0], found[1][0]) if all(found) else None


def _inside(row: Row) -> str:
    """The path of the row's image; DataError where it leads out of the table's folder."""
    home, name = pathlib.Path(row.path).resolve().parent, row.text(0)
    try:
        path = (home / name).resolve()
    except (ValueError, OSError, RuntimeError):  # NUL in it, or links in a circle
        row.refuse(f"expected the path of an image, got {name!r:.60}")
    if not path.is_relative_to(home):
        row.refuse(f"expected the path of an image inside {home}, got {name!r:.60}")
    return os.fspath(path)


def identities(images: np.ndarray | ImageFiles) -> list:
    """What is equal for two images that are the same file, the same bytes, or the same pixels."""
    if isinstance(images, ImageFiles):
        return list(images.sources)
    return [hashlib.sha256(image.tobytes()).digest() for image in np.asarray(images)]
