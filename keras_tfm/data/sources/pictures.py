"""Images that files describe one by one, with what is annotated in each: what fits, what is left out.

Where the EXIF of an image turns it, the size that a file states, or the size of a mask, says whether
annotations are drawn on the stored pixels or on the image as it is shown; see `stated_sizes.drawn_on`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.image_files import ImageFiles, in_threads, readable
from keras_tfm.data.sources.lines import DataError, tell_left_out
from keras_tfm.data.sources.stated_sizes import drawn_on, tell_scaled
from keras_tfm.serving.image_headers import Header, Size, header_in

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")


class Picture(NamedTuple):
    """An image as a file describes it: its path or its bytes, None where there is none; its place; what is
    annotated; and the size of the image if the file states it, which annotations have then.
    """

    source: str | bytes | None
    place: str
    annotation: Any
    stated: Size | None = None


class Checked(NamedTuple):
    """A picture's parts, boxes for example, as they are on the image as it is shown, and {place: reason} of
    the skipped parts.
    """

    parts: list
    problems: dict[str, str] = {}


Check = Callable[[Picture, Header], Checked | str]  # str: why the whole picture is skipped


def checked_pictures(pictures: Sequence[Picture], path: str, check: Check) -> list[Checked | str]:
    """What `check` says of each of the pictures in the file at the `path`, in several threads. What is no
    image has no parts, and is reported when images are read. DataError if there are no pictures.
    """
    if not pictures:
        raise DataError(path, None, "expected images, there are none")

    def one(picture: Picture) -> Checked | str:
        if picture.source is None:
            return "there is no image"
        if picture.annotation is None:
            return "there is no mask"
        try:
            header = header_in(picture.source)
        except OSError:
            header = None
        return Checked([]) if header is None else check(picture, header)

    return list(in_threads(one, pictures))


def read_pictures(
    pictures: Sequence[Picture],
    checked: Sequence[Checked | str],
    path: str,
    shape: tuple[int, int, int],
    canvas: Canvas,
    unit: str,
) -> tuple[np.ndarray | ImageFiles, np.ndarray, list[list]]:
    """(Images of this `shape`, or decoded when needed; their own (height, width) (N, 2); the parts of each).

    Pictures that did not pass, images that cannot be decoded, and parts, so many of a `unit`, are skipped,
    with warnings that count them and name some. DataError if no picture, or no part, is left.
    """
    outcomes = list(zip(pictures, checked, strict=True))
    problems = {picture.place: outcome for picture, outcome in outcomes if isinstance(outcome, str)}
    good = [(picture, outcome) for picture, outcome in outcomes if isinstance(outcome, Checked)]
    if not good:
        place, problem = next(iter(problems.items()))
        raise DataError(place, None, problem)
    tell_left_out(problems, len(pictures))
    sources = [picture.source or "" for picture, _ in good]
    places = [
        picture.place if isinstance(picture.source, bytes) else picture.source or "" for picture, _ in good
    ]
    images, rows = readable(ImageFiles(sources, shape, canvas, places))
    good = [good[row] for row in rows]
    headers = [header_in(sources[row]) or Header((0, 0)) for row in rows]
    tell_parts([outcome for _, outcome in good], unit)
    if not any(outcome.parts for _, outcome in good):
        raise DataError(path, None, f"expected {unit}, there are none")
    scaled = []
    for header, (picture, _) in zip(headers, good, strict=True):
        drawn = drawn_on(header, picture.stated)
        scaled.append((picture.place, picture.stated, (header if isinstance(drawn, str) else drawn).stored))
    tell_scaled(scaled)
    return (
        images,
        np.array([header.size for header in headers], "int64"),
        [outcome.parts for _, outcome in good],
    )


def tell_parts(checked: Sequence[Checked], unit: str) -> None:
    """Warn, in one line, about skipped parts, if there are any."""
    problems = {place: problem for outcome in checked for place, problem in outcome.problems.items()}
    tell_left_out(problems, len(problems) + sum(len(outcome.parts) for outcome in checked), unit)
