"""Images of persons or cars whose identities and cameras are known, by the names of Market-1501's files.

    0002_c1s1_000451_03.jpg    identity 2, camera 1, sequence 1, frame 451, box 3

A data set has the folders train/, query/ and gallery/, or as Market-1501 has them bounding_box_train/,
query/ and bounding_box_test/. The identity -1 is of boxes that show nobody, which are left out; 0000 is of
other people, whom nobody looks for.
"""

import os
import pathlib
import re
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.data.sources.image_files import ImageFiles, readable
from keras_tfm.data.sources.images import refuse_special, visible
from keras_tfm.data.sources.lines import DataError, Paths, files_of
from keras_tfm.data.sources.preprocessing import Preprocessing

FOLDERS = {
    "train": ("train", "bounding_box_train", "image_train"),
    "query": ("query", "image_query"),
    "gallery": ("gallery", "bounding_box_test", "image_test"),
}
NAME = re.compile(r"(-?\d+)_c(\d+)(?!\d).*\.(jpe?g|png)$", re.IGNORECASE)
NOBODY = "-1"


class Identities(NamedTuple):
    """Images (N, H, W, C), the names (N,) of who is seen, and the numbers (N,) of the cameras.

    `are_queries` (N,) are True where an image is looked for among the others, the gallery; None, where each
    is looked for among all others.

    >>> images = np.zeros((2, 8, 4, 3), "uint8")
    >>> data = keras_tfm.data.Identities(images, np.array(["0002", "0007"]), cameras=np.array([1, 3]))
    >>> data.identities.tolist(), data.are_queries
    (['0002', '0007'], None)
    """

    images: Any
    identities: Any
    cameras: Any
    are_queries: Any = None


def identity_of(path: str | os.PathLike[str]) -> tuple[str, int] | None:
    """The (identity, camera) in a file's name, or None.

    >>> keras_tfm.data.sources.identities.identity_of("query/0002_c1s1_000451_03.jpg")
    ('0002', 1)
    """
    match = NAME.match(pathlib.Path(path).name)
    return match and (match[1], int(match[2]))


def read_identities(
    paths: Paths,
    shape: tuple[int, int, int],
    parts: tuple[str, ...] = ("train",),
    preprocessing: Preprocessing | None = None,
) -> Identities:
    """Read the images of the `parts`, of "train", "query" and "gallery", of data sets; or of folders that
    have no such parts, the images in them. Their names say who is seen by which camera.

    `are_queries` is None unless a folder has a query/ that is read. Broken images, and identity -1, are left
    out.

    Raises:
        DataError: if there is no image, one has another name, or a part is missing.

    >>> for name in ("0002_c1s1_000451_03.png", "0007_c3s2_000100_01.png", "-1_c3s2_000100_02.png"):
    ...     tf.io.write_file(f"people/{name}", tf.io.encode_png(np.zeros((8, 4, 3), "uint8")))
    >>> data = keras_tfm.data.read_identities("people", shape=(8, 4, 3))
    >>> data.identities.tolist(), data.cameras.tolist()
    (['0002', '0007'], [1, 3])
    """
    found: list[tuple[pathlib.Path, str, int, bool]] = []
    for folder in files_of(paths):
        refuse_special(folder)
        for place, is_query in _places(pathlib.Path(folder), parts):
            for file in visible(place):
                if file.is_dir() or file.suffix.lower() not in (".jpg", ".jpeg", ".png"):
                    continue
                if (known := identity_of(file)) is None:
                    expected = "expected a name such as 0002_c1s1_000451_03.jpg: identity, camera and others"
                    raise DataError(file, None, expected)
                if known[0] != NOBODY:
                    found.append((file, *known, is_query))
    if not found:
        raise DataError(files_of(paths)[0], None, "expected images of identities, there are none")
    files, identities, cameras, are_queries = map(list, zip(*found, strict=True))
    images, rows = readable(ImageFiles(files, shape, preprocessing), np.array(identities))
    queries = np.array(are_queries)[rows] if any(are_queries) else None
    return Identities(images, np.array(identities)[rows], np.array(cameras, "int32")[rows], queries)


def _places(folder: pathlib.Path, parts: tuple[str, ...]) -> list[tuple[pathlib.Path, bool]]:
    """The folders of images of a data set, each with whether it holds queries."""
    if not folder.is_dir():
        raise DataError(folder, None, "expected a folder of images, or one with train/, query/ and gallery/")
    inside = {entry.name for entry in visible(folder) if entry.is_dir()}
    if not inside & {name for names in FOLDERS.values() for name in names}:
        return [(folder, False)]
    found = []
    for part in parts:
        name = next((name for name in FOLDERS[part] if name in inside), None)
        if name is None:
            raise DataError(folder, None, f"expected a folder {' or '.join(FOLDERS[part])}, there is none")
        found.append((folder / name, part == "query"))
    return found
