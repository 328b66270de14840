"""The sizes that COCO and VOC state for their images, compared with the sizes of the files.

Images are often resized after they were annotated. Boxes and masks of the stated size are scaled to the file
where one number is the ratio of both sides, up to rounding to whole pixels; any other file is not the image
that was annotated.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.data.sources.ids import as_number
from keras_tfm.data.sources.lines import MOST_TOLD, DataError
from keras_tfm.serving.image_headers import Header, Size

LOG = logging.getLogger(__name__)


def stated_size(width: Any, height: Any, place: str) -> Size | None:
    """The size that a file states; None where a side is missing, or not positive, as tools write that do not
    know it. DataError for what is no whole number.
    """
    sides = [None if side in (None, "") else as_number(side) for side in (height, width)]
    for name, given, side in zip(("height", "width"), (height, width), sides, strict=True):
        if side is None and given not in (None, ""):
            raise DataError(place, None, f'expected a whole number as "{name}", got {brief(given)}')
    rows, columns = sides
    return None if rows is None or columns is None or min(rows, columns) < 1 else (rows, columns)


def misfit(stated: Size | None, size: Size) -> str | None:
    """Why an image of a `size` is not the one of the `stated` size; None if it is, perhaps resized."""
    if stated is None or stated == size:
        return None
    least = max((side - 1) / was for side, was in zip(size, stated, strict=True))
    most = min((side + 1) / was for side, was in zip(size, stated, strict=True))
    return None if least < most else f"expected an image of {_shown(stated)}, as stated, got {_shown(size)}"


def drawn_on(header: Header, stated: Size | None, fits: Callable = misfit) -> Header | str:
    """The pixels on which annotations are drawn: as they are stored, to be turned by an orientation, or as
    the image is shown. The `stated` size says so. Otherwise why the image is skipped.

    `fits(stated, size)` says why a size is not the stated one, or None.
    """
    problem, shown = fits(stated, header.size), Header(header.size)
    if header.orientation == 1:
        return problem or shown
    if header.size != header.stored and stated in (header.size, header.stored):
        return header if stated == header.stored else shown
    of_stored = fits(stated, header.stored)
    if problem and of_stored:
        return problem
    if problem is None and of_stored is None:
        return (
            f"turned by the orientation {header.orientation} in its EXIF, and no size says whether the "
            "annotations are turned too: save it upright, without the orientation"
        )
    return header if of_stored is None else shown


def tell_scaled(images: Sequence[tuple[str, Size | None, Size]]) -> None:
    """Warn, in one line, about the resized ones of images (place, stated size, size), if there are any."""
    resized = [
        f"{place} (stated {_shown(stated)}, got {_shown(size)})"
        for place, stated, size in images
        if stated not in (None, size)
    ]
    if resized:
        LOG.warning(
            "%s of %s images do not have the stated size, annotations of that size are scaled: %s",
            f"{len(resized):,}",
            f"{len(images):,}",
            ", ".join(resized[:MOST_TOLD]) + (", …" if len(resized) > MOST_TOLD else ""),
        )


def resized(values: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Masks (..., H, W) at a `size`, each pixel from the nearest one."""
    if values.shape[-2:] == tuple(size):
        return values
    rows, columns = (
        ((np.arange(side) + 0.5) * was / side).astype(int)
        for side, was in zip(size, values.shape[-2:], strict=True)
    )
    return values[..., rows[:, None], columns]


def _shown(size: Size | None) -> str:
    height, width = size or (0, 0)
    return f"{width} x {height}"
