"""Pictures with what was found in images over them, with Pillow, which the extra `plot` brings."""

import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.preprocessing import decode_pixels, in_channels
from keras_tfm.serving.image_headers import read_bytes
from keras_tfm.tasks.images.decoded import is_file
from keras_tfm.training.folder import Path, new_file

LONGEST = 200  # bytes of a file's name that are those of what it is drawn of
LEAST_SIDE = 240  # pixels of a picture's shorter side, in which a few names have room
MOST_SIDE = 4096  # pixels of the longer side of a picture that is larger than its image
# Okabe and Ito's colours, which colour-blind people can distinguish.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")
BRIGHT = 100  # luma of a ground, from 0 to 255, on which black is easier to read than white

Pictures = Path | Sequence[Path]  # a folder, or the file of each picture


class Drawing(NamedTuple):
    """A picture, what draws on it, how many times as large as its image it is, and the width of a line."""

    picture: Any
    pen: Any
    scale: int
    line: int

    @classmethod
    def on(cls, pixels: np.ndarray, least_side: int = LEAST_SIDE) -> Self:
        """8-bit RGB (H, W, 3), several times as large where a side is shorter than `least_side`, unless the
        other is as long as `MOST_SIDE`; ImportError where Pillow is missing.
        """
        PIL = pillow()
        picture = PIL.Image.fromarray(np.ascontiguousarray(pixels))
        scale = max(1, min(-(-least_side // min(picture.size)), MOST_SIDE // max(picture.size)))
        picture = picture.resize([scale * side for side in picture.size], PIL.Image.Resampling.NEAREST)
        line = max(1, round(2 * min(picture.size) / least_side))
        return cls(picture, PIL.ImageDraw.Draw(picture), scale, line)

    def box(self, box: Iterable[float], text: str, colour: str) -> None:
        """A box, (left, top, right, bottom) in pixels of the image, with a text beside it."""
        left, top, right, bottom = (self.scale * float(side) for side in box)
        inside = left, top, max(left, right - 1), max(top, bottom - 1)
        self.pen.rectangle(inside, outline=colour, width=self.line)
        place = beside(self.size_of(text), (left, top, right, bottom), self.picture.size)
        self.text(text, place, colour)

    def text(self, text: str, place: tuple[float, float], colour: str) -> None:
        """A text on a ground of this colour."""
        self.pen.rectangle(self.pen.textbbox(place, text), fill=colour)
        self.pen.text(place, text, fill=ink_on(colour))

    def size_of(self, text: str) -> tuple[float, float]:
        """The (width, height) of a text."""
        return self.pen.textbbox((0, 0), text)[2:]


def draw_objects(
    images: Sequence[Any], found: Sequence[dict[str, Any]], class_names: list[str], folder: Pictures
) -> None:
    """Write each of the images, with what was `found` in it, to a PNG in the `folder`: an image file's by its
    name, others by their number; small ones several times as large, so that names can be read. ImportError
    where Pillow is missing.
    """
    for drawing, answer in zip(drawings(images, folder), found, strict=True):
        for box, label, score in zip(answer["boxes"], answer["labels"], answer["scores"], strict=True):
            colour = COLOURS[class_names.index(label) % len(COLOURS)]
            drawing.box(box, f"{label} {score:.2f}", colour)


def draw_lanes(images: Sequence[Any], found: Sequence[dict[str, Any]], folder: Pictures) -> None:
    """As `draw_objects`, of the "lanes" that were `found` in each image at the heights "h_samples"."""
    for (_, pen, scale, line), answer in zip(drawings(images, folder), found, strict=True):
        for number, lane in enumerate(answer["lanes"]):
            points = [
                (scale * x, scale * y) for x, y in zip(lane, answer["h_samples"], strict=True) if x >= 0
            ]
            pen.line(list(map(tuple, points)), fill=COLOURS[number % len(COLOURS)], width=2 * line)


def drawings(images: Sequence[Any], folder: Pictures, least_side: int = LEAST_SIDE) -> Iterator[Drawing]:
    """A `Drawing` on each of the images; it is written when the next one is asked for."""
    pillow()  # where it is missing, no folder is made
    for image, path in zip(images, new_pictures(images, folder), strict=True):
        drawing = Drawing.on(pixels_of(image), least_side)
        yield drawing
        with new_file(path) as work:
            drawing.picture.save(work, "PNG")


def ink_on(colour: str) -> str:
    """Black or white, whichever can be read on a ground of this colour."""
    red, green, blue = pillow().ImageColor.getrgb(colour)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > BRIGHT else "white"


def written(
    images: Sequence[Any], pictures: Iterable[Any], draw: Pictures | None
) -> Iterator[tuple[Any, pathlib.Path | None]]:
    """Each of the `pictures` that answer the `images`, 8-bit (H, W, C), and the PNG in `draw`, a folder or a
    file for each, to which it was written; None without `draw`.
    """
    files = itertools.repeat(None) if draw is None else new_pictures(images, draw)
    for picture, file in zip(pictures, files, strict=draw is not None):
        if file is not None:
            with new_file(file) as work:
                work.write_bytes(tf.io.encode_png(picture).numpy())
        yield picture, file


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
        import PIL.ImageColor
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
    files = {os.path.realpath(path) for path in map(path_of, images) if path is not None}
    for path in paths:
        if os.path.realpath(path) in files:
            raise ValueError(f"{path}: expected another folder than the images', which stay as they are")
    for parent in {path.parent for path in paths}:
        parent.mkdir(parents=True, exist_ok=True)
    return paths


def picture_paths(images: Any, folder: Path, suffix: str = ".png") -> list[pathlib.Path]:
    """A file in `folder` for each of the images: by the name of its file, others by their number."""
    stems: dict[str, None] = {}  # in order, each once
    for row, path in enumerate(map(path_of, images)):
        stem = f"{row:06}" if path is None else shortened(pathlib.Path(path).stem)
        while stem in stems:
            stem += f"-{row:06}"
        stems[stem] = None
    return [pathlib.Path(folder, f"{stem}{suffix}") for stem in stems]


def shortened(stem: str) -> str:
    """What fits into the name of a file, whose 255 bytes have a suffix too, and perhaps a number."""
    return stem.encode("utf-8", "surrogateescape")[:LONGEST].decode("utf-8", "ignore")


def path_of(image: Any) -> Path | None:
    """The path of an image, or of the "image" of several pictures by their names; None if it has none."""
    picture = image.get("image") if isinstance(image, Mapping) else image
    return picture if isinstance(picture, str | os.PathLike) else None
