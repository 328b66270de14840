"""Pictures with what was found in images over them, with Pillow, which the extra `plot` brings."""

import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.preprocessing import decode_pixels, in_channels
from keras_tfm.serving.image_headers import read_bytes
from keras_tfm.tasks.images.decoded import is_file
from keras_tfm.training.folder import Path, new_file

LEAST_SIDE = 240  # pixels of a picture's shorter side, in which a few names have room
# Okabe and Ito's colours, which colour-blind people can distinguish.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")

Pictures = Path | Sequence[Path]  # a folder, or the file of each picture


def draw_objects(
    images: Sequence[Any], found: Sequence[dict[str, Any]], class_names: list[str], folder: Pictures
) -> None:
    """Write each of the images, with what was `found` in it, to a PNG in the `folder`: an image file's by its
    name, others by their number; small ones several times as large, so that names can be read. ImportError
    where Pillow is missing.
    """
    for (picture, pen, scale, line), answer in zip(_drawn(images, folder), found, strict=True):
        for box, label, score in zip(answer["boxes"], answer["labels"], answer["scores"], strict=True):
            colour = COLOURS[class_names.index(label) % len(COLOURS)]
            left, top, right, bottom = (scale * float(side) for side in box)
            pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=line)
            text = f"{label} {score:.2f}"
            place = beside(pen.textbbox((0, 0), text)[2:], (left, top, right, bottom), picture.size)
            pen.rectangle(pen.textbbox(place, text), fill=colour)
            pen.text(place, text, fill="white")


def draw_lanes(images: Sequence[Any], found: Sequence[dict[str, Any]], folder: Pictures) -> None:
    """As `draw_objects`, of the "lanes" that were `found` in each image at the heights "h_samples"."""
    for (_, pen, scale, line), answer in zip(_drawn(images, folder), found, strict=True):
        for number, lane in enumerate(answer["lanes"]):
            points = [
                (scale * x, scale * y) for x, y in zip(lane, answer["h_samples"], strict=True) if x >= 0
            ]
            pen.line(list(map(tuple, points)), fill=COLOURS[number % len(COLOURS)], width=2 * line)


def _drawn(images: Sequence[Any], folder: Pictures) -> Iterator[tuple[Any, Any, int, int]]:
    """(The picture, what draws on it, how many times as large as the image it is, the width of a line) for
    each of the images; a picture is written when the next one is asked for.
    """
    PIL = pillow()
    for image, path in zip(images, new_pictures(images, folder), strict=True):
        picture = PIL.Image.fromarray(pixels_of(image))
        scale = -(-LEAST_SIDE // min(picture.size))
        picture = picture.resize([scale * side for side in picture.size], PIL.Image.Resampling.NEAREST)
        yield picture, PIL.ImageDraw.Draw(picture), scale, max(1, round(min(picture.size) / 120))
        with new_file(path) as work:
            picture.save(work, "PNG")


def beside(
    size: tuple[float, float], box: tuple[float, float, float, float], picture: tuple[int, int]
) -> tuple[float, float]:
    """The left upper corner of a text of the `size` (width, height): above its box, or below or in it,
    and as far to the left as it takes to end within the picture.
    """
    (width, height), (left, top, _, bottom) = size, box
    room = [top - height, bottom, top]
    above_or_below = next((y for y in room if y >= 0 and y + height <= picture[1]), 0.0)
    return max(0.0, min(left, picture[0] - width)), above_or_below


def pillow() -> Any:
    """The module; ImportError, saying what brings it, where it is missing."""
    try:
        import PIL.Image
        import PIL.ImageDraw
    except ImportError:
        raise ImportError('Pictures need Pillow: pip install "keras-tfm[plot]"') from None
    return PIL


def pixels_of(image: Any) -> np.ndarray:
    """An image, a file or an array, at its own size, 8-bit RGB (H, W, 3), as a task reads it."""
    if is_file(image):
        return decode_pixels(tf.constant(read_bytes(image)), 3).numpy()
    pixels = np.asarray(image)
    pixels = pixels if pixels.dtype == np.uint8 else np.round(pixels * 255).astype("uint8")
    return in_channels(tf.constant(pixels if pixels.ndim == 3 else pixels[..., None]), 3).numpy()


def new_pictures(images: Sequence[Any], folder: Pictures, suffix: str = ".png") -> list[pathlib.Path]:
    """Where a picture of each of the images goes, into `folder`, which is made, or the given files;
    ValueError before anything is written if that is the file of an image itself.
    """
    if isinstance(folder, str | os.PathLike):
        paths = picture_paths(images, folder, suffix)
    else:
        paths = list(map(pathlib.Path, folder))
    files = {os.path.realpath(image) for image in images if isinstance(image, str | os.PathLike)}
    for path in paths:
        if os.path.realpath(path) in files:
            raise ValueError(f"{path}: expected another folder than the images', which stay as they are")
    for parent in {path.parent for path in paths}:
        parent.mkdir(parents=True, exist_ok=True)
    return paths


def picture_paths(images: Any, folder: Path, suffix: str = ".png") -> list[pathlib.Path]:
    """A file in `folder` for each of the images: by the name of its file, others by their number."""
    stems: dict[str, None] = {}  # in order, each once
    for row, image in enumerate(images):
        stem = pathlib.Path(image).stem if isinstance(image, str | os.PathLike) else f"{row:06}"
        while stem in stems:
            stem += f"-{row:06}"
        stems[stem] = None
    return [pathlib.Path(folder, f"{stem}{suffix}") for stem in stems]
