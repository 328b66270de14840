"""Pictures with the boxes of detected objects over them, with Pillow, which the extra `plot` brings."""

import contextlib
import io
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_tfm.data.sources.image_files import ImageFiles, read_bytes
from keras_tfm.training.folder import Path

# Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")


def draw_objects(images: Any, found: Sequence[dict[str, Any]], class_names: list[str], folder: Path) -> None:
    """Write each of the images, with what was `found` in it, to a PNG in the `folder`: an image file's by its
    name, others by their number. ImportError where Pillow is missing.
    """
    PIL = pillow()
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for row, answer in enumerate(found):
        with PIL.Image.open(io.BytesIO(png_or_file(images, row))) as opened:
            picture = opened.convert("RGB")
        pen = PIL.ImageDraw.Draw(picture)
        line = max(1, round(min(picture.size) / 200))
        for box, label, score in zip(answer["boxes"], answer["labels"], answer["scores"], strict=True):
            colour = COLOURS[class_names.index(label) % len(COLOURS)]
            left, top, right, bottom = map(float, box)
            pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=line)
            text = f"{label} {score:.2f}"
            around = pen.textbbox((left, top), text)
            pen.rectangle(around, fill=colour)
            pen.text((left, top), text, fill="white")
        with whole(target / name_of(images, row, taken)) as path:
            picture.save(path, "PNG")


def pillow() -> Any:
    """The module; ImportError, saying what brings it, where it is missing."""
    try:
        import PIL.Image
        import PIL.ImageDraw
    except ImportError:
        raise ImportError('Pictures need Pillow: pip install "keras-tfm[plot]"') from None
    return PIL


@contextlib.contextmanager
def whole(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A path beside `path` to write to, which takes its place when all is written."""
    beside = path.with_name(f".{path.name}.part")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def png_or_file(images: Any, row: int) -> bytes:
    """An image file's bytes, or those of a PNG of an array."""
    if isinstance(images, ImageFiles):
        return read_bytes(images.sources[row])
    import PIL.Image

    pixels = np.asarray(images[row])
    pixels = pixels if pixels.dtype == np.uint8 else np.round(pixels * 255).astype("uint8")
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(buffer, "PNG")
    return buffer.getvalue()


def name_of(images: Any, row: int, taken: set[str]) -> str:
    """A file's name that is not `taken`."""
    source = images.sources[row] if isinstance(images, ImageFiles) else b""
    stem = pathlib.Path(os.fspath(source)).stem if isinstance(source, str) else f"{row:06}"
    name = f"{stem}.png" if f"{stem}.png" not in taken else f"{stem}-{row:06}.png"
    taken.add(name)
    return name
