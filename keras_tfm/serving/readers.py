"""What comes before the exported function: raw inputs as arrays of numbers."""

import io
from typing import Any, Literal

import numpy as np

from .examples import (
    check_row,
    not_choices,
    not_image,
    not_pair,
    not_question,
    not_text,
    not_words,
    words_in,
)
from .image_headers import FORMATS, MAX_PIXELS, NOT_WHOLE, Header, header_of, problem_of, read_bytes, turned
from .packages import imported
from .tokens import by_tokenizers, spans_by_tokenizers

WASTE = 1.3  # texts share a batch if the longest is at most so many times as long as the shortest


class Reader:
    """Examples as rows, and rows as arrays; a subclass has `row`, or else `rows`."""

    def rows(self, example, place):
        """The rows of an example, which is number `place`."""
        return [self.row(example, place)]

    def row(self, example, place):
        raise NotImplementedError


class Texts(Reader):
    """Strings, or pairs of them, as ids of the tokens of tokenizer.json between `start` and `end`, and with
    those of `between` between two texts. More than `max_length` tokens are cut, of two texts from the longer.
    """

    def __init__(
        self,
        folder,
        inputs: list[Literal["token_ids", "segment_ids", "padding_mask"]],
        max_length: int,
        start: int,
        end: int,
        pad: int,
        between: list[int],
        pairs: bool = False,
    ):
        self.ids = by_tokenizers(folder)
        self._inputs, self._max_length, self._pairs = inputs, max_length, pairs
        self._start, self._end, self._pad, self._between = start, end, pad, between

    def row(self, example, place):
        """(token ids, how many of them belong to the first text)."""
        if not self._pairs:
            check_row(example, place, not_text)
            room = self._max_length - 2
            ids = [self._start, *self.ids(example)[:room], self._end]
            return ids, len(ids)
        check_row(example, place, not_pair)
        pair = example.split("\t") if isinstance(example, str) else example
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
    """Lists of words, or strings split by `words_in`: of each word's tokens the first is answered for.

    `marks` are words of their own at the ends of others, `before` is what a word is spelled with in front,
    `empty` what an empty word is read as, and `unknown` the id of a word without tokens.
    """

    def __init__(self, folder, unknown: int, before: str = "", empty: str = "", marks: str = "", **options):
        super().__init__(folder, **options)
        self._unknown, self._before, self._empty, self._marks = unknown, before, empty, marks

    def row(self, example, place):
        """(token ids, their number, where the first token of each word stands, how many words there are)."""
        check_row(example, place, not_words)
        words = words_in(example, self._marks) if isinstance(example, str) else list(example)
        ids: list[int] = []
        firsts: list[int] = []
        for word in words:
            firsts.append(1 + len(ids))
            ids += self.ids(self._before + word or self._empty) or [self._unknown]
        room = self._max_length - 2
        ids = [self._start, *ids[:room], self._end]
        return ids, len(ids), [first for first in firsts if first <= room], len(words)

    def join(self, rows, widths=None):
        return super().join([row[:2] for row in rows], widths)


class Choices(Texts):
    """(text, [choice, ...]), or one string with tabs between: a row for each choice, the pair of both."""

    def rows(self, example, place):
        check_row(example, place, not_choices)
        text, choices = as_choices(example)
        return [self.row((text, choice), place) for choice in choices]


def as_choices(example):
    """(text, [choice, ...]) of such a pair, or of one string with tabs between."""
    text, *choices = example.split("\t") if isinstance(example, str) else (example[0], *example[1])
    return text, choices


class Blanks(Texts):
    """Texts with blanks, the token `blank`: a row for every `most` of them, none for a text without.

    The input "mask_positions" (B, most) says where they stand.
    """

    def __init__(self, folder, blank: int, most: int, **options):
        super().__init__(folder, **options)
        self._blank, self._most = blank, most

    def rows(self, example, place):
        ids, length = self.row(example, place)
        places = [number for number, token_id in enumerate(ids) if token_id == self._blank]
        return [(ids, length, places[k : k + self._most]) for k in range(0, len(places), self._most)]

    def join(self, rows, widths=None):
        positions = np.zeros((len(rows), self._most), "int32")
        for number, (_, _, places) in enumerate(rows):
            positions[number, : len(places)] = places
        return {**super().join([row[:2] for row in rows], widths), "mask_positions": positions}


class Questions(Texts):
    """(question, context), or one string with a tab between: a row for each window of the context.

    A window begins every `stride` tokens. Special tokens that are `ordinary` (`tokens.tokenizer_of`) are text
    in a context. A row is (ids, how many of them belong to the question, the first character of each token in
    the context, and the one after its last).
    """

    def __init__(self, folder, stride: int, ordinary: bool | list[str] = True, **options):
        super().__init__(folder, pairs=True, **options)
        self._stride, self._spans = stride, spans_by_tokenizers(folder, ordinary)

    def rows(self, example, place):
        check_row(example, place, not_question)
        pair = example.split("\t") if isinstance(example, str) else example
        question, (ids, spans) = self.ids(pair[0]), self._spans(pair[1])
        most = self._max_length - self._stride - 2 - len(self._between)
        if len(question) > most:
            raise ValueError(
                f"row {place}: expected at most {most} tokens of a question, as {self._stride} of its "
                f"context are read beside it; got {len(question)}"
            )
        room = most + self._stride - len(question)
        front = [self._start, *question, *self._between]
        rows = []
        for number in range(max(1, 1 - (room - len(ids)) // self._stride)):
            part = slice(number * self._stride, number * self._stride + room)
            edges = [(0, 0)] * len(front) + spans[part] + [(0, 0)]
            starts, ends = zip(*edges, strict=True)
            rows.append(([*front, *ids[part], self._end], len(front), starts, ends))
        return rows

    def join(self, rows, widths=None):
        return super().join([row[:2] for row in rows], widths)


class Images(Reader):
    """Images as numbers from 0 to 1, (B, height, width, channels).

    Arrays of the function's size, 8-bit or from 0 to 1, are taken as they are; image files and 8-bit arrays
    of another size are resized by Pillow, as the task does within a grey level.
    """

    def __init__(
        self,
        folder,
        shape: tuple[int, int, int],
        interpolation: Literal["bilinear", "bicubic"],
        crop_fraction: float,
        keep_aspect: bool,
    ):
        self._shape, self._crop_fraction, self._keep_aspect = tuple(shape), crop_fraction, keep_aspect
        self._interpolation = interpolation.upper()

    def row(self, example, place):
        check_row(example, place, not_image)
        if not isinstance(example, np.ndarray):
            return self._resized(_pixels(bytes_of(example, place), self._shape[2], place))
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
        if whole.prod() <= MAX_PIXELS:
            picture = picture.resize((int(whole[1]), int(whole[0])), kernel)
            box = left, top, left + self._shape[1], top + self._shape[0]
            return from_0_to_1(np.asarray(picture.crop(tuple(map(int, box)))).reshape(self._shape))
        # Of a panorama only the part that is kept is computed, whose pixels may differ by a grey level.
        scale = size / whole
        ends = np.array([left, top, left + self._shape[1], top + self._shape[0]]) * np.tile(scale[::-1], 2)
        box = tuple(np.minimum(ends, np.tile(size[::-1], 2)).tolist())
        picture = picture.resize((self._shape[1], self._shape[0]), kernel, box)
        return from_0_to_1(np.asarray(picture).reshape(self._shape))

    def length(self, row):
        return 1

    def join(self, rows, widths=None):
        return {"images": np.stack(rows)}


def _pixels(data, channels, place):
    """The bytes of an image file as 8-bit pixels (H, W, channels), turned as its EXIF says, without alpha."""
    pillow = imported("PIL.Image", "Pillow")
    header = header_of(data) or Header((0, 0))
    try:
        picture = pillow.open(io.BytesIO(data), formats=FORMATS)
        if picture.mode.startswith("I;16"):  # which Pillow would clip
            picture = pillow.fromarray((np.asarray(picture) >> 8).astype("uint8"))
        pixels = turned(np.asarray(picture.convert("RGB")), header.orientation)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
        raise ValueError(f"row {place}: {NOT_WHOLE} ({error})") from None
    if channels == 3:
        return pixels
    grey = np.rint(pixels.astype("float32") @ np.array([0.299, 0.587, 0.114], "float32"))
    return np.clip(grey, 0, 255).astype("uint8")[..., None]


def by_length(lengths, most):
    """The places of the rows that are computed together, `most` at most: of about the same length."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) == most or lengths[place] > WASTE * lengths[batch[0]] + 2):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def fitting(length, widths):
    """The least of `widths`, sorted, that holds `length`; without any, `length` itself."""
    return next(width for width in widths if width >= length) if widths else length


def bytes_of(image, place):
    """The bytes of an image file, given by itself or by its path; ValueError, naming its `place`, for one
    that its header refuses, and for what is no file, which may be waited for in vain.
    """
    try:
        data = read_bytes(image)
    except OSError as error:
        raise ValueError(f"row {place}: cannot be read: {error.strerror or error}") from None
    if (problem := problem_of(data)) is not None:
        raise ValueError(f"row {place}: {problem}")
    return data


def from_0_to_1(image):
    """An image (H, W) or (H, W, C), 8-bit or from 0 to 1, as float32 from 0 to 1: (H, W, C)."""
    image = image[..., None] if image.ndim == 2 else image
    return image.astype("float32") / (255.0 if image.dtype == np.uint8 else 1.0)


READERS: dict[str, Any] = {
    "texts": Texts,
    "words": Words,
    "choices": Choices,
    "blanks": Blanks,
    "questions": Questions,
    "images": Images,
}
