"""Images, or videos, with a text each, from tables that name files or contain them."""

import functools
import hashlib
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.data.sources.image_files import ImageFiles, kept_rows, readable
from keras_tfm.data.sources.images import HIDDEN, IMAGES, STRETCHED, bytes_of
from keras_tfm.data.sources.lines import (
    DataError,
    Paths,
    by_stem,
    check_text,
    files_of,
    numbered_lines,
    tell_left_out,
)
from keras_tfm.data.sources.pictures import SUFFIXES as IMAGE_SUFFIXES
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.rows import ColumnNames, Columns, Row, one_of_each, parse_layout, read_all
from keras_tfm.data.sources.videos import VIDEOS, Sampling, VideoFiles, open_videos, video_in
from keras_tfm.serving.video_files import SUFFIXES as VIDEO_SUFFIXES

PATHS = (*IMAGES, "image_file")
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.tsv")  # a folder's table, named as in `datasets`
OF_TEXTS = (".txt", ".json")  # suffixes of what stands beside an image and is none
TEXTS = ("text", "caption", "sentence", "description", "title", "texts", "captions", "sentences")


class ImageTexts(NamedTuple):
    """Images (N, H, W, C), 8-bit or from 0 to 1, or their files, and the text of each.

    >>> pairs = keras_tfm.data.ImageTexts(np.zeros((2, 8, 8, 3), "uint8"), ["a cat", "a dog"])
    >>> pairs.images.shape, pairs.texts
    ((2, 8, 8, 3), ['a cat', 'a dog'])
    """

    images: Any
    texts: list[str]


class VideoTexts(NamedTuple):
    """Videos, `VideoFiles` or what makes them, and the text of each.

    >>> videos = keras_tfm.data.VideoFiles([np.zeros((4, 8, 8, 3), "uint8")] * 2, shape=(2, 8, 8, 3))
    >>> pairs = keras_tfm.data.VideoTexts(videos, ["a cat runs", "a dog sleeps"])
    >>> pairs.videos.shape, pairs.texts
    ((2, 2, 8, 8, 3), ['a cat runs', 'a dog sleeps'])
    """

    videos: Any
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
    sources, places, texts = _columns(_pairs(paths, "image", PATHS, columns))
    images, rows = readable(ImageFiles(sources, shape, preprocessing, places))
    return ImageTexts(images, [texts[row] for row in rows])


def read_video_texts(
    paths: Paths,
    shape: tuple[int, int, int, int],
    columns: ColumnNames = None,
    preprocessing: Preprocessing = STRETCHED,
    sampling: Sampling | None = None,
) -> VideoTexts:
    r"""Read pairs of a video and its text as `read_image_texts` does.

    A video is a file or a folder of frames, or in a data set of TFDS the list of its encoded frames, read as
    clips of the `shape` (frames, height, width, channels).
    Videos that cannot be read are skipped, with a warning.

    Raises:
        DataError: for a path that leads out of the folder, a blank text, and if no video can be read.

    >>> import pathlib, PIL.Image
    >>> pathlib.Path("clips").mkdir()
    >>> for number in range(2):
    ...     PIL.Image.new("RGB", (8, 8)).save(f"clips/{number}.png")
    >>> _ = pathlib.Path("pairs.csv").write_text("video,text\nclips,nothing happens\n")
    >>> pairs = keras_tfm.data.read_video_texts("pairs.csv", shape=(2, 8, 8, 3))
    >>> pairs.videos.shape, pairs.texts
    ((1, 2, 8, 8, 3), ['nothing happens'])
    """
    sources, places, texts = _columns(_pairs(paths, "video", VIDEOS, columns))
    sampling = sampling or Sampling()
    opened, problems = open_videos(sources, shape[0], sampling)
    videos = VideoFiles(sources, shape, preprocessing, sampling, opened, places)
    rows = kept_rows(problems, videos.place, None, len(sources), "videos")
    return VideoTexts(videos[rows], [texts[row] for row in rows])


def _pairs(
    paths: Paths, kind: str, names: tuple[str, ...], columns: ColumnNames
) -> Iterator[tuple[Any, str, str]]:
    """(An image or a video, as `kind` says, its place, its text) of each row of tables and folders."""
    chosen = Columns((kind, "text"), one_of_each(names, TEXTS), parse_layout(columns))
    for path in files_of(paths):
        table: str | None = path
        if os.path.isdir(path):
            tables = (os.path.join(path, name) for name in METADATA)
            table = next(filter(os.path.exists, tables), None)
        yield from _of_folder(path, kind) if table is None else _of_table(table, chosen, kind)


def _columns(triples: Iterator[tuple[Any, str, str]]) -> tuple[list, list, list]:
    """The sources, the places and the texts."""
    columns: tuple[list, list, list] = [], [], []
    for triple in triples:
        for column, value in zip(columns, triple, strict=True):
            column.append(value)
    return columns


def _of_table(path: str, columns: Columns, kind: str) -> Iterator[tuple[Any, str, str]]:
    for row in read_all(path, columns, f"{kind}s and texts"):
        source: Any = row.cells[0]
        if isinstance(source, str):
            source, place = _inside(row, kind), source
        else:
            source, place = video_in(row) if kind == "video" else (bytes_of(row), f"{row.path}, {row.place}")
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


def _beside(file: pathlib.Path, named_alike: Sequence[pathlib.Path], kind: str) -> pathlib.Path:
    """The image or the video, as `kind` says, that has the name of a .txt file: of a known suffix before
    another one, or else a folder, of frames.
    """
    known = {"image": IMAGE_SUFFIXES, "video": VIDEO_SUFFIXES}[kind]
    alike = [path for path in named_alike if path.suffix.lower() not in ("", *OF_TEXTS)]
    alike.sort(key=lambda path: (path.suffix.lower() not in known, path))
    return alike[0] if alike else file.with_suffix("")


def _of_folder(path: str, kind: str) -> Iterator[tuple[str, str, str]]:
    """The same for each line of the .txt files in a folder and its subfolders."""
    home = pathlib.Path(path).resolve()
    inside = (file.relative_to(home) for file in home.rglob("*.txt"))
    files = sorted(home / file for file in inside if not any(x.startswith(HIDDEN) for x in file.parts))
    if not files:
        names = " or ".join(METADATA)
        raise DataError(path, None, f"expected {names}, or a .txt beside each {kind}, there is none")
    listed = functools.cache(by_stem)
    empty: dict[str, str] = {}
    count = 0
    for file in files:
        image = _beside(file, listed(file.parent).get(file.stem, []), kind)
        if not image.resolve().is_relative_to(home):
            raise DataError(
                file, None, f"expected {_one(kind)} inside {home}, {image.name!r:.60} leads elsewhere"
            )
        if not file.stat().st_size:
            empty[f"{file}"] = "the file is empty"
        for number, text in numbered_lines(os.fspath(file)):
            if not text.strip():
                empty[f"{file}, line {number}"] = "blank"
                continue
            count += 1
            yield (
                os.fspath(image),
                os.fspath(image.relative_to(home)),
                check_text(text, os.fspath(file), number, "text"),
            )
    if not count:
        raise DataError(path, None, "expected texts, all files are empty")
    tell_left_out(empty, len(empty) + count, "texts")


def _inside(row: Row, kind: str) -> str:
    """The path of the row's image or video; DataError if it leads out of the table's folder."""
    home, name = pathlib.Path(row.path).resolve().parent, row.text(0)
    try:
        path = (home / name).resolve()
    except (ValueError, OSError, RuntimeError):  # a NUL character, or circular links
        row.refuse(f"expected the path of {_one(kind)}, got {name!r:.60}")
    if not path.is_relative_to(home):
        row.refuse(f"expected the path of {_one(kind)} inside {home}, got {name!r:.60}")
    return os.fspath(path)


def _one(kind: str) -> str:
    return f"an {kind}" if kind == "image" else f"a {kind}"


def identities(images: np.ndarray | ImageFiles | VideoFiles) -> list:
    """Values that are equal for two images, or videos, if they are the same file, the same bytes, or the same
    pixels.
    """
    sources = images.sources if isinstance(images, ImageFiles | VideoFiles) else np.asarray(images)
    return list(map(_identity, sources))


def _identity(source: Any) -> Any:
    """A value that equal images or videos share, and that a dictionary takes."""
    if isinstance(source, np.ndarray):
        return hashlib.sha256(source.tobytes()).digest()
    return tuple(source) if isinstance(source, list) else source
