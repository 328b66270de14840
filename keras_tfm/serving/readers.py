"""What comes before the exported function: raw inputs as arrays of numbers."""

import io
import pathlib
from typing import Any

import numpy as np

from .packages import imported
from .tokens import by_tokenizers


class Texts:
    """Strings, or pairs of them, as ids of the tokens of tokenizer.json between `start` and `end`, and with
    those of `between` between two texts. More than `max_length` tokens are cut, of two texts from the longer.
    """

    def __init__(self, folder, inputs, max_length, start, end, pad, between, pairs=False):
        self.ids = by_tokenizers(folder)
        self._inputs, self._max_length, self._pairs = inputs, max_length, pairs
        self._start, self._end, self._pad, self._between = start, end, pad, between

    def row(self, example, place):
        """(token ids, how many of them belong to the first text)."""
        if not self._pairs:
            if not isinstance(example, str):
                raise ValueError(f"row {place}: expected a string, got {type(example).__name__}")
            room = self._max_length - 2
            ids = [self._start, *self.ids(example)[:room], self._end]
            return ids, len(ids)
        pair = example.split("\t") if isinstance(example, str) else tuple(example)
        if len(pair) != 2:
            raise ValueError(f"row {place}: expected two texts, got {len(pair)}")
        first, second = map(self.ids, pair)
        room = self._max_length - 2 - len(self._between)
        kept = min(len(first), max(room - len(second), room - room // 2))
        first, second = first[:kept], second[: room - kept]
        front = [self._start, *first, *self._between]
        return [*front, *second, self._end], len(front)

    def length(self, row):
        return len(row[0])

    def join(self, rows, widths=None):
        """Rows as {input: int32 (B, T)}."""
        width = fitting(max(map(self.length, rows)), widths)
        shape = len(rows), width
        inputs = {
            "token_ids": np.full(shape, self._pad, "int32"),
            "segment_ids": np.zeros(shape, "int32"),
            "padding_mask": np.zeros(shape, "int32"),
        }
        for number, (ids, first) in enumerate(rows):
            inputs["token_ids"][number, : len(ids)] = ids
            inputs["padding_mask"][number, : len(ids)] = 1
            inputs["segment_ids"][number, first : len(ids)] = int(self._pairs)
        return {name: inputs[name] for name in self._inputs}


class Words(Texts):
    """Lists of words, or strings split at white space: of each word's tokens the first is answered for.

    `before` is what a word is spelled with in front, `unknown` the id of a word without tokens.
    """

    def __init__(self, folder, unknown, before="", **options):
        super().__init__(folder, **options)
        self._unknown, self._before = unknown, before

    def row(self, example, place):
        """(token ids, their number, where the first token of each word stands, how many words there are)."""
        words = example.split() if isinstance(example, str) else list(example)
        ids: list[int] = []
        firsts: list[int] = []
        for word in words:
            firsts.append(1 + len(ids))
            ids += self.ids(self._before + word) or [self._unknown]
        room = self._max_length - 2
        ids = [self._start, *ids[:room], self._end]
        return ids, len(ids), [first for first in firsts if first <= room], len(words)

    def join(self, rows, widths=None):
        return super().join([row[:2] for row in rows], widths)


class Images:
    """Images as numbers from 0 to 1, (B, height, width, channels).

    Arrays of the function's size, 8-bit or from 0 to 1, are taken as they are; image files and 8-bit arrays
    of another size are resized by Pillow, as the task does within a grey level.
    """

    def __init__(self, folder, shape, interpolation, crop_fraction, keep_aspect):
        self._shape, self._crop_fraction, self._keep_aspect = tuple(shape), crop_fraction, keep_aspect
        self._interpolation = interpolation.upper()

    def row(self, example, place):
        if not isinstance(example, np.ndarray):
            return self._resized(_pixels(bytes_of(example), self._shape[2], place))
        image = example[..., None] if example.ndim == 2 else example
        if image.shape == self._shape:
            return from_0_to_1(image)
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != self._shape[2]:
            raise ValueError(f"row {place}: expected an image {self._shape}, or 8 bits, got {image.shape}")
        return self._resized(image)

    def _resized(self, image):
        pillow = imported("PIL.Image", "Pillow")
        size = np.array(image.shape[:2])
        whole = np.array([int(side / self._crop_fraction + 1e-6) for side in self._shape[:2]])
        if self._keep_aspect:
            longer = 1 if whole[0] * size[1] >= whole[1] * size[0] else 0
            whole[longer] = whole[1 - longer] * size[longer] // size[1 - longer]
        top, left = (whole - self._shape[:2]) // 2
        picture = pillow.fromarray(image[..., 0] if image.shape[2] == 1 else image)
        kernel = getattr(pillow.Resampling, self._interpolation)
        picture = picture.resize((int(whole[1]), int(whole[0])), kernel)
        box = left, top, left + self._shape[1], top + self._shape[0]
        return from_0_to_1(np.asarray(picture.crop(tuple(map(int, box)))).reshape(self._shape))

    def length(self, row):
        return 1

    def join(self, rows, widths=None):
        return {"images": np.stack(rows)}


def _pixels(data, channels, place):
    """The bytes of an image file as 8-bit pixels (H, W, channels): alpha and orientation are ignored."""
    pillow = imported("PIL.Image", "Pillow")
    try:
        picture = pillow.open(io.BytesIO(data))
        if picture.mode.startswith("I;16"):  # which Pillow would clip
            picture = pillow.fromarray((np.asarray(picture) >> 8).astype("uint8"))
        pixels = np.asarray(picture.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise ValueError(f"row {place}: expected a whole PNG or JPEG image ({error})") from None
    if channels == 3:
        return pixels
    grey = np.rint(pixels.astype("float32") @ np.array([0.299, 0.587, 0.114], "float32"))
    return np.clip(grey, 0, 255).astype("uint8")[..., None]


def fitting(length, widths):
    """The least of `widths`, sorted, that holds `length`; without any, `length` itself."""
    return next(width for width in widths if width >= length) if widths else length


def bytes_of(image):
    """The bytes of an image file, given by itself or by its path."""
    return image if isinstance(image, bytes) else pathlib.Path(image).read_bytes()


def from_0_to_1(image):
    image = image[..., None] if image.ndim == 2 else image
    return image.astype("float32") / (255.0 if image.dtype == np.uint8 else 1.0)


READERS: dict[str, Any] = {"texts": Texts, "words": Words, "images": Images}
