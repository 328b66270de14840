"""The reader of images: files and arrays as numbers of the model's size, by Pillow."""

import io
import math
import os
from typing import Literal

import numpy as np

from .examples import Refused, check, not_image
from .image_headers import FORMATS, MAX_PIXELS, NOT_WHOLE, Header, header_of, problem_of, read_bytes, turned
from .packages import imported
from .reading import Reader

MOST_VALUES = 1 << 26  # of images that are read at once


class Images(Reader):
    """Images as numbers from 0 to 1, (B, height, width, channels).

    Arrays of the function's size, 8-bit or from 0 to 1, are taken as they are; image files and 8-bit arrays
    of another size are resized by Pillow, as the task does within a grey level.
    """

    def __init__(
        self,
        folder,
        shape: tuple[int, int, int],
        interpolation: Literal["bilinear", "bicubic", "lanczos"],
        crop_fraction: float,
        keep_aspect: bool,
        rounds_crop: bool = False,
    ):
        self._shape, self._crop_fraction, self._keep_aspect = tuple(shape), crop_fraction, keep_aspect
        self._rounds_crop = rounds_crop
        self._interpolation = interpolation.upper()
        self.portion = portion_of(self._shape)

    def row(self, example):
        pixels, is_ready = self._pixels_of(example)
        return from_0_to_1(pixels) if is_ready else self._cropped(pixels)

    def _pixels_of(self, example):
        """(An image (H, W, channels), whether it is an array of the function's size); else it is 8-bit."""
        check(example, not_image)
        if isinstance(example, str | bytes | os.PathLike):
            return _pixels(bytes_of(example), self._shape[2]), False
        image = np.asarray(example)
        image = image[..., None] if image.ndim == 2 else image
        if image.shape == self._shape:
            return image, True
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != self._shape[2]:
            raise Refused(f"expected an image {self._shape}, or 8 bits, got {image.shape}")
        return image, False

    def _cropped(self, image):
        """The middle of an 8-bit image that covers the function's size."""
        size = np.array(image.shape[:2])
        whole = np.array([int(side / self._crop_fraction + 1e-6) for side in self._shape[:2]])
        if self._keep_aspect:
            longer = 1 if whole[0] * size[1] >= whole[1] * size[0] else 0
            whole[longer] = whole[1 - longer] * size[longer] // size[1 - longer]
        rest = whole - self._shape[:2]
        # rest % 4 // 3 is 1 for 3, 7, 11 ..., whose halves round up to an even number.
        corner = (rest + int(self._rounds_crop) * (rest % 4 // 3)) // 2
        if whole.prod() <= MAX_PIXELS:
            (top, left), (height, width, _) = corner, self._shape
            return from_0_to_1(self._resized(image, whole)[top : top + height, left : left + width])
        # Only the part of a panorama that is kept is computed; its pixels may differ by a grey level.
        ends = np.array([corner, corner + self._shape[:2]]) * (size / whole)
        return from_0_to_1(self._resized(image, self._shape[:2], np.minimum(ends, size)))

    def _resized(self, image, size, part=None):
        """An 8-bit image, or the `part` of it between two corners, as one of this (height, width)."""
        pillow = imported("PIL.Image", "Pillow")
        picture = pillow.fromarray(image[..., 0] if image.shape[2] == 1 else image)
        kernel, (rows, columns) = getattr(pillow.Resampling, self._interpolation), map(int, size)
        (top, left), (bottom, right) = np.array([(0, 0), image.shape[:2]] if part is None else part).tolist()
        # Columns first, as in training: Pillow 13 takes the rows first where many go, and rounds between.
        picture = picture.resize((columns, picture.height), kernel, (left, 0, right, picture.height))
        picture = picture.resize((columns, rows), kernel, (0, top, columns, bottom))
        return np.asarray(picture).reshape(rows, columns, self._shape[2])

    def join(self, rows, widths=None):
        return {"images": np.stack(rows)}


class ImagesOnCanvas(Images):
    """Whole images on a canvas of the function's size, beside their own "sizes" (B, 2): stretched to it or,
    with `keep_aspect`, resized until they fit and padded below and on the right.
    """

    def row(self, example):
        pixels, is_ready = self._pixels_of(example)
        size = pixels.shape[:2]
        return (from_0_to_1(pixels) if is_ready else self._padded(pixels)), size

    def _padded(self, image):
        (height, width), (rows, columns, _) = image.shape[:2], self._shape
        if self._keep_aspect and rows * width <= columns * height:
            columns = max(rows * width // height, 1)
        elif self._keep_aspect:
            rows = max(columns * height // width, 1)
        canvas = np.zeros(self._shape, "float32")
        canvas[:rows, :columns] = from_0_to_1(self._resized(image, (rows, columns)))
        return canvas

    def join(self, rows, widths=None):
        images, sizes = zip(*rows, strict=True)
        return {**super().join(images, widths), "sizes": np.array(sizes, "int64")}


def _pixels(data, channels):
    """The bytes of an image file as 8-bit pixels (H, W, channels), turned as its EXIF says, without alpha."""
    pillow = imported("PIL.Image", "Pillow")
    header = header_of(data) or Header((0, 0))
    try:
        picture = pillow.open(io.BytesIO(data), formats=FORMATS)
        if picture.mode.startswith("I;16"):  # which Pillow would clip
            picture = pillow.fromarray((np.asarray(picture) >> 8).astype("uint8"))
        pixels = np.asarray(picture.convert("RGB"))
        if picture.format == "GIF" and "transparency" in picture.info:  # which TensorFlow takes for black
            is_seen = np.asarray(picture) != picture.info["transparency"]
            pixels = pixels * is_seen[..., None].astype("uint8")
        pixels = turned(pixels, header.orientation)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise Refused(f"{NOT_WHOLE} ({error})") from None
    return pixels if channels == 3 else grey_of(pixels)


def grey_of(pixels):
    """8-bit pixels (H, W, 3) as their luminance (H, W, 1)."""
    grey = np.rint(pixels.astype("float32") @ np.array([0.299, 0.587, 0.114], "float32"))
    return np.clip(grey, 0, 255).astype("uint8")[..., None]


def bytes_of(image):
    """The bytes of an image file, given by itself or by its path; `Refused` for one that its header refuses,
    and for what is no file, which may be waited for in vain.
    """
    try:
        data = read_bytes(image)
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror or error}") from None
    if (problem := problem_of(data)) is not None:
        raise Refused(problem)
    return data


def portion_of(shape):
    """How many images of a `shape` are read at once: as many batches of 64 as fit `MOST_VALUES`, at least
    one.
    """
    return 64 * max(1, MOST_VALUES // (64 * math.prod(shape)))


def from_0_to_1(image):
    """An image (H, W), or one or many (..., H, W, C), 8-bit or from 0 to 1, as float32 from 0 to 1."""
    image = image[..., None] if image.ndim == 2 else image
    return image.astype("float32") / (255.0 if image.dtype == np.uint8 else 1.0)
