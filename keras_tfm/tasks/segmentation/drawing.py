"""Masks as files: over their pictures, in colours of their classes or of their own, or by themselves."""

import colorsys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_tfm.data.sources.mask_files import encoded_mask, encoded_numbers
from keras_tfm.tasks.images.drawing import COLOURS, Pictures, new_pictures, pillow, pixels_of
from keras_tfm.training.folder import new_file

GROUND = ("background", "ground")  # classes that are not drawn; nor is 0 if it has no name
OPACITY = 0.5
Part = tuple[np.ndarray, str, tuple[int, int, int]]  # pixels (H, W), boolean, what they are, their colour


def draw_masks(
    images: Any, found: Sequence[dict[str, Any]], names: Mapping[int, str], folder: Pictures
) -> None:
    """Write each of the images, with the mask that was `found` over it, to a PNG in the `folder`: see
    `drawing.draw_objects`. Each class has a colour and, once in a picture, its name; the ground has none.
    """

    def parts(answer: dict[str, Any]) -> Iterable[Part]:
        for number, (value, name) in enumerate(names.items()):
            if name not in GROUND and not name == str(value) == "0":
                yield answer["mask"] == value, name, colour_of(number)

    _draw(images, [parts(answer) for answer in found], folder)


def draw_segments(
    images: Any, found: Sequence[dict[str, Any]], masks: Sequence[np.ndarray], folder: Pictures
) -> None:
    """Write each of the images, with the segments that were `found` over it, to PNGs in the `folder`. Each of
    their `masks` (N, H, W) has a colour of its own, its name and its score.
    """

    def parts(answer: dict[str, Any], shown: np.ndarray) -> Iterable[Part]:
        rows = zip(shown, answer["labels"], answer["scores"], strict=True)
        for number, (mask, label, score) in enumerate(rows):
            yield mask, f"{label} {score:.2f}", colour_of(number)

    _draw(images, [parts(*pair) for pair in zip(found, masks, strict=True)], folder)


def _draw(images: Any, parts: Sequence[Iterable[Part]], folder: Pictures) -> None:
    """Write each of the images with its parts over it, one after the other, and then their names."""
    PIL = pillow()
    paths = new_pictures(images, folder)
    for image, own, path in zip(images, parts, paths, strict=True):
        pixels = pixels_of(image).astype("float32")
        labels = []
        for is_there, name, colour in own:
            if not is_there.any():
                continue
            mixed = (1 - OPACITY) * pixels + OPACITY * np.array(colour)
            pixels = np.where(is_there[..., None], mixed, pixels)
            labels.append((place_in(is_there), name, colour))
        picture = PIL.Image.fromarray(np.round(pixels).astype("uint8"))
        pen = PIL.ImageDraw.Draw(picture)
        for place, name, colour in labels:
            around = pen.textbbox(place, name, anchor="mm")
            pen.rectangle(around, fill=colour)
            pen.text(place, name, fill="white", anchor="mm")
        with new_file(path) as beside:
            picture.save(beside, "PNG")


def write_masks(images: Any, found: Sequence[dict[str, Any]], folder: Pictures) -> None:
    """Write each mask to a PNG of grey values in the `folder`, by its image's name."""
    _write(images, [encoded_mask(answer["mask"]) for answer in found], folder)


def write_numbers(images: Any, maps: Sequence[np.ndarray], folder: Pictures) -> None:
    """Write each map of numbers (H, W) to a PNG of colours in the `folder`, by its image's name."""
    _write(images, [encoded_numbers(numbers).numpy() for numbers in maps], folder)


def _write(images: Any, files: Sequence[bytes], folder: Pictures) -> None:
    for content, path in zip(files, new_pictures(images, folder), strict=True):
        with new_file(path) as beside:
            beside.write_bytes(content)


def colour_of(number: int) -> tuple[int, int, int]:
    """(Red, green, blue) of a class: `COLOURS` first, then hues that keep apart from each other."""
    if number < len(COLOURS):
        red, green, blue = (int(COLOURS[number][place : place + 2], 16) for place in (1, 3, 5))
        return red, green, blue
    hue = number * 0.618033988749895 % 1  # golden-ratio steps keep hues apart
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.75, 0.85))
    return red, green, blue


def place_in(is_there: np.ndarray) -> tuple[int, int]:
    """The (x, y) of a pixel of a class, the nearest to the mean of its pixels."""
    rows, columns = np.nonzero(is_there)
    nearest = np.argmin((rows - rows.mean()) ** 2 + (columns - columns.mean()) ** 2)
    return int(columns[nearest]), int(rows[nearest])
