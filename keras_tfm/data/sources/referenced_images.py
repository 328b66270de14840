"""Pictures with a reference each: another picture that shows the like."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_tfm.data.sources.image_files import in_threads, kept_rows
from keras_tfm.data.sources.images import IMAGES, place_of, source_of
from keras_tfm.data.sources.lines import Inputs, Paths, files_of
from keras_tfm.data.sources.preprocessing import decode_pixels
from keras_tfm.data.sources.rows import (
    ColumnNames,
    Columns,
    Row,
    is_table,
    names_in_first_row,
    one_of_each,
    parse_layout,
    read_all,
)
from keras_tfm.data.sources.whole_images import (
    WholeImages,
    encoded,
    read_sources,
    read_whole_images,
    too_small,
    undecodable,
)
from keras_tfm.log import Bar
from keras_tfm.serving.image_headers import Size, Source, read_bytes

REFERENCES = ("reference", "references", "ref", "reference_image", "reference_path")
KNOWN = one_of_each(IMAGES, REFERENCES)
COLOURLESS = "expected a reference in colour, as the picture is, got one without colours"


class ReferencedImages(NamedTuple):
    """Pictures, and the reference of each.

    >>> whole = keras_tfm.data.sources.whole_images
    >>> pictures = whole.WholeImages([whole.encoded(np.eye(8))], channels=3)
    >>> pairs = keras_tfm.data.sources.referenced_images.ReferencedImages(pictures, pictures)
    >>> list(pairs.rows()[0])
    ['image', 'reference']
    """

    images: WholeImages
    references: WholeImages

    def rows(self) -> list[dict[str, Any]]:
        """{"image", "reference"} of each picture, both a path or bytes."""
        sources = self.images.sources, self.references.sources
        return [{"image": image, "reference": other} for image, other in zip(*sources, strict=True)]

    def problems(self, least: int) -> dict[int, str]:
        """{row: reason} of pictures that are `unusable`."""
        with Bar(total=len(self.images), desc="reading", unit="image") as bar:

            def one(row: dict[str, Any]) -> str | None:
                bar.update()
                return unusable(row["image"], row["reference"], least, least)

            found = list(in_threads(one, self.rows()))
        return {row: problem for row, problem in enumerate(found) if problem}


def unusable(image: Source, reference: Source, least: int, least_reference: int) -> str | None:
    """Why a picture with its reference cannot be used: one of them cannot be decoded or has a side below so
    many pixels, or the reference has no colours where the picture has some; None if it can.
    """
    for name, source, side in (("", image, least), ("its reference: ", reference, least_reference)):
        if problem := undecodable(source) or too_small(source, side):
            return f"{name}{problem}"
    return COLOURLESS if is_colourless(reference) and not is_colourless(image) else None


def is_colourless(source: Source) -> bool:
    """Whether all channels of an image are the same."""
    pixels = decode_pixels(tf.constant(read_bytes(source)), 3)
    return bool(tf.reduce_all(pixels == pixels[..., :1]))


def read_rows_with_references(paths: Paths, columns: ColumnNames = None) -> Inputs:
    """({"image", "reference"}, its place) of each row of tables with both columns, each a path or bytes; of
    other files (image, its place), as `read_sources` reads them.
    """
    if not have_references(paths, columns):
        yield from read_sources(paths, columns)
        return
    layout = Columns(("image", "reference"), KNOWN, parse_layout(columns))
    for row in read_all(paths, layout, "images and references"):
        image, reference = (source_of(cell) for cell in _cells(row))
        yield {"image": image, "reference": reference}, place_of(row, image)


def _cells(row: Row) -> Iterator[Row]:
    """The row with the image alone, and with the reference alone."""
    for place in range(2):
        yield row._replace(cells=row.cells[place : place + 1], names=row.names[place : place + 1])


def have_references(paths: Paths, columns: ColumnNames = None) -> bool:
    """Whether the files are tables with columns of images and of references: two that are chosen by
    `columns`, or known names.
    """
    files, layout = files_of(paths), parse_layout(columns, counts=(1, 2))
    if not all(map(is_table, files)):
        return False
    if layout.columns is not None:
        return len(layout.columns) == 2
    return all(KNOWN([name.lower() for name in names_in_first_row(file, layout)]) for file in files)


def read_referenced_images(
    paths: Paths, side: int, columns: ColumnNames = None
) -> ReferencedImages | WholeImages:
    """The pictures in colour in these files, with a reference each, both of at least `side` x `side` pixels;
    or pictures alone that have `room_for_two`. Others are skipped, with a warning. DataError if none is left.

    >>> np.savez("photographs.npz", images=np.zeros((2, 40, 64, 3), "uint8"))
    >>> len(keras_tfm.data.sources.referenced_images.read_referenced_images("photographs.npz", side=32))
    2
    """
    if not have_references(paths, columns):
        return read_whole_images(paths, 3, columns, room_for_two(side))
    inputs = list(read_rows_with_references(paths, columns))
    pairs = pairs_of([row for row, _ in inputs], [place for _, place in inputs])
    if problems := pairs.problems(side):
        rows = kept_rows(problems, pairs.images.place, None, len(inputs))
        return ReferencedImages(*(part[rows] for part in pairs))
    return pairs


def pairs_of(rows: Sequence[Mapping[str, Any]], places: Sequence[str] | None = None) -> ReferencedImages:
    """Rows {"image", "reference"} as `ReferencedImages`."""
    parts = ([encoded(row[name]) for row in rows] for name in ("image", "reference"))
    return ReferencedImages(*(WholeImages(part, 3, places) for part in parts))


def room_for_two(side: int) -> Size:
    """The least sides of a picture that has room for two squares."""
    return side, 2 * side


def in_halves(images: WholeImages) -> ReferencedImages:
    """The first halves of pictures along their longer sides, the second halves as their references."""
    halves = [_halves(images.decoded(row)) for row in range(len(images))]
    places = [images.place(row) for row in range(len(images))]
    return ReferencedImages(
        *(WholeImages(part, images.channels, places) for part in zip(*halves, strict=True))
    )


def _halves(pixels: tf.Tensor) -> tuple[Source, Source]:
    axis = int(pixels.shape[1] > pixels.shape[0])
    half = pixels.shape[axis] // 2
    first, second, _ = tf.split(pixels, [half, half, pixels.shape[axis] - 2 * half], axis)
    return encoded(first.numpy()), encoded(second.numpy())
