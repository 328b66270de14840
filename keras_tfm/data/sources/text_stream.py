"""Plain text that is larger than memory: its files, samples and held-out part, and its pieces in a graph."""

import hashlib
import math
import os
import re
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.lines import (
    DataError,
    Paths,
    files_of,
    numbered_lines,
    refuse_utf_16,
    text_files,
)
from keras_tfm.data.sources.rows import is_table

CHUNK = 1 << 16  # bytes read at once
TAIL = 1 << 11  # bytes at the end of a chunk in which a place to cut is sought
LONGEST = 1 << 20  # bytes after which text without such a place is cut anyway
LINES = 256  # lines of a compressed file read at once
NUM_PARTS, PART = 256, 1 << 20  # the number of parts of a stream, and their least size in bytes
PASSAGE = 1 << 14  # bytes of each passage in a sample
MANY = 20  # with this many files or more, whole files are held out instead of their ends
BREAK = b"\xff"  # replaces the separator in a graph; the byte does not occur in UTF-8
SPACE = r"\s\v\p{Z}\x{85}"
# A single space or newline inside a text, where a word begins for every tokenizer.
PAUSE = re.compile(r"(?<=\S)[ \n](?=\S)")


class Segment(NamedTuple):
    """The bytes from `begin` to `end` of a file of `size` bytes, and whether documents begin and end
    there.
    """

    path: str
    begin: int
    end: int
    size: int
    starts: bool = True
    ends: bool = True

    @property
    def num_bytes(self) -> int:
        """The number of its bytes."""
        return self.end - self.begin

    @property
    def is_compressed(self) -> bool:
        """Whether it is a whole .gz file, whose bytes are not the text's."""
        return self.path.lower().endswith(".gz")

    def read(self, begin: int, count: int) -> bytes:
        """`count` bytes from `begin`, fewer at the end of the file; DataError if it cannot be read."""
        try:
            with open(self.path, "rb") as file:
                file.seek(begin)
                return file.read(count)
        except OSError as error:
            raise DataError(self.path, None, f"cannot be read: {error.strerror or error}") from None


class TextStream:
    """The text of UTF-8 files (plain or .gz), given by paths, patterns or folders and read as needed.

    A file is one document, or several that `separator` separates. CRLF counts as LF, and malformed bytes
    become U+FFFD.

    Raises:
        DataError: for a missing file, a table, an .xz file, and if there is no text at all.

    >>> import pathlib
    >>> _ = pathlib.Path("text.txt").write_text("A cat sat. " * 9)
    >>> stream = keras_tfm.data.TextStream("text.txt")
    >>> stream.num_bytes, stream.sample(characters=10)
    (99, ['A cat sat.'])
    """

    def __init__(self, paths: Paths, separator: str | None = None) -> None:
        self.separator = separator
        files = [file for path in files_of(paths) for file in text_files(path)]
        self.segments = [segment for segment in map(_whole, files) if segment.num_bytes > 0]
        if not any(text.strip() for text in self.sample(1 << 16)):
            raise DataError(files[0], None, "expected text, the files hold none")

    @property
    def num_bytes(self) -> int:
        """The number of bytes on disk."""
        return sum(segment.num_bytes for segment in self.segments)

    def fingerprint(self) -> str:
        """A hash of the names, sizes and beginnings of the files, by which a later run recognises them."""
        digest = hashlib.sha256(repr(self.separator).encode())
        for segment in self.segments:
            digest.update(repr((os.path.basename(segment.path), *segment[1:])).encode())
            digest.update(segment.read(segment.begin, CHUNK))
        return digest.hexdigest()[:16]

    def sample(self, characters: int) -> list[str]:
        """Passages of about this many characters in total, to train a tokenizer on: evenly spaced in plain
        files, and from the beginnings of .gz files.
        """
        passages: list[str] = []
        for segment in self.segments:
            size = segment.num_bytes
            wanted = min(size, max(1, characters * size // self.num_bytes))
            if segment.is_compressed:
                passages.append(_beginning(segment, wanted))
                continue
            count = -(-wanted // PASSAGE)
            for start in np.linspace(segment.begin, segment.end - wanted // count, count).astype(int):
                data = segment.read(int(start), min(wanted // count, segment.end - int(start)))
                passages.append(data.decode("utf-8", "ignore").replace("\r\n", "\n"))
        return [passage for passage in passages if passage]

    def hold_out(
        self, share: float = 0.01, most: int = 1 << 20, seed: int = 0
    ) -> tuple["TextStream", list[str]]:
        """The stream without a `share` of its bytes (at most `most`), and the texts held out.

        With many files, whole files are held out, drawn by `seed`; otherwise the ends of plain files, from
        where a document begins there or, if none does, a word. Of .gz files alone that are all larger, the
        smallest is left out, and its beginning held out. ValueError if nothing can be held out.
        """
        budget = int(min(share * self.num_bytes, most))
        kept = list(self.segments)
        texts: list[str] = []
        plain = [segment for segment in kept if not segment.is_compressed]
        if len(kept) >= MANY or not plain:
            for number in np.random.default_rng(seed).permutation(len(kept))[: len(kept) // 2]:
                segment = self.segments[number]
                if segment.num_bytes <= (budget if texts else most) and (more := self._all_texts(segment)):
                    budget -= segment.num_bytes
                    kept.remove(segment)
                    texts += more
        if not texts and plain:
            whole = sum(segment.num_bytes for segment in plain)
            for number, segment in enumerate(kept):
                wanted = 0 if segment.is_compressed else budget * segment.num_bytes // whole
                place = self._border(segment, segment.end - wanted) if wanted else None
                if place is not None and segment.begin < place[0] < segment.end:
                    kept[number] = segment._replace(end=place[0], ends=place[1])
                    texts += self._texts(_decoded(segment.read(place[0], segment.end - place[0])))
        elif not texts and len(kept) > 1:
            smallest = min(kept, key=lambda segment: segment.num_bytes)
            kept.remove(smallest)
            texts = self._texts(_beginning(smallest, budget))
        if not texts:
            raise ValueError(f"share: of {self.num_bytes:,} bytes of text nothing can be held out")
        rest = object.__new__(TextStream)
        rest.separator, rest.segments = self.separator, kept
        return rest, texts

    def parts(self) -> list[list[Segment]]:
        """The stream in parts of about equal size that can be read independently.

        Small files are combined; large ones are cut where a document begins or, where none does nearby, where
        a word begins.
        """
        size = max(PART, self.num_bytes // NUM_PARTS)
        parts: list[list[Segment]] = [[]]
        room = size
        for segment in self.segments:
            while True:
                place = None
                if not segment.is_compressed and segment.num_bytes > room + size // 2:
                    place = self._border(segment, segment.begin + max(room, 1))
                if place is None or not segment.begin < place[0] < segment.end:
                    break
                parts[-1].append(segment._replace(end=place[0], ends=place[1]))
                parts.append([])
                room, segment = size, segment._replace(begin=place[0], starts=place[1])
            parts[-1].append(segment)
            room -= segment.num_bytes
            if room <= 0:
                parts.append([])
                room = size
        return [part for part in parts if part]

    def pieces(
        self, path: tf.Tensor, begin: tf.Tensor, end: tf.Tensor, size: tf.Tensor, starts, ends
    ) -> tf.data.Dataset:
        """The text of a segment as a dataset of pieces, (texts (P,), whether each begins a document (P,)), of
        about `CHUNK` bytes each. The cuts do not change the tokens. Runs in a graph.
        """
        last = tf.data.Dataset.from_tensors((tf.constant(b""), tf.constant(True)))
        chunks = _chunks(path, begin, end, size)
        if self.separator:  # malformed bytes may look like a `BREAK`
            chunks = chunks.map(
                lambda x: tf.strings.reduce_join(tf.strings.split(x, BREAK), separator="\ufffd")
            )
        chunks = chunks.map(lambda chunk: (chunk, tf.constant(False)))
        is_whole = end == size

        def cut(state, element):
            text, is_start = state[0] + element[0], state[1]
            text = tf.strings.regex_replace(text, "\r\n", "\n")
            is_unfinished = tf.strings.substr(text, tf.maximum(tf.strings.length(text) - 1, 0), 1) != b"\n"
            is_unfinished &= element[1] & is_whole & (text != b"")
            text = tf.where(is_unfinished, text + b"\n", text)
            if self.separator:
                text = tf.strings.regex_replace(text, _escaped(self.separator), BREAK)
            place = tf.where(element[1], tf.strings.length(text), self._place_to_cut(text))
            front = tf.strings.substr(text, 0, place)
            texts = tf.strings.split(front, BREAK) if self.separator else front[None]
            flags = tf.concat([[is_start], tf.ones_like(texts[1:], tf.bool)], axis=0)
            is_text = ~tf.strings.regex_full_match(texts, f"[{SPACE}]*")
            rest = tf.strings.substr(text, place, -1)
            texts, is_first = tf.boolean_mask(texts, is_text), tf.boolean_mask(flags, is_text)
            return (rest, flags[-1] & ~is_text[-1]), (texts, is_first)

        pieces = chunks.concatenate(last).scan((tf.constant(b""), tf.cast(starts, tf.bool)), cut)
        pieces = pieces.filter(lambda texts, _: tf.size(texts) > 0)
        return pieces.map(lambda texts, flags: (_well_formed(texts), flags))

    def _place_to_cut(self, text: tf.Tensor) -> tf.Tensor:
        """How many bytes of `text` can be passed on; 0 if there is no place to cut yet."""
        reserve = 8 + len((self.separator or "").encode())  # a separator or a character may be incomplete
        size = tf.strings.length(text)
        start = tf.maximum(size - TAIL, 0)
        region = tf.strings.substr(text, start, tf.maximum(size - reserve - start, 0))
        pattern = rf"([^{SPACE}])[ \n][^{SPACE}]\C*"
        front = tf.strings.length(tf.strings.regex_replace(region, pattern, r"\1", replace_global=False))
        forced = tf.where(size > LONGEST, _character_before(text, size - reserve), 0)
        return tf.where(front < tf.strings.length(region), start + front, forced)

    def _border(self, segment: Segment, place: int) -> tuple[int, bool] | None:
        """The first place from `place` on where the text may be cut, and whether a document begins there;
        None if there is none nearby.
        """
        data = segment.read(place, min(LONGEST, segment.end - place))
        if self.separator:
            mark = re.escape(self.separator.encode()).replace(b"\\\n", rb"\r?\n")  # CRLF counts as LF
            separator = re.search(mark, data)
            if separator is not None and place + separator.end() < segment.end:
                return place + separator.end(), True
        skipped = next((i for i, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
        # Malformed bytes stay as many as they are when the text is encoded again.
        pause = PAUSE.search(text := data[skipped:].decode("utf-8", "surrogateescape"))
        if pause is None:
            return None
        return place + skipped + len(text[: pause.start()].encode("utf-8", "surrogateescape")), False

    def _all_texts(self, segment: Segment) -> list[str]:
        if segment.is_compressed:
            return self._texts(_beginning(segment))
        return self._texts(_decoded(segment.read(segment.begin, segment.num_bytes)))

    def _texts(self, text: str) -> list[str]:
        parts = text.split(self.separator) if self.separator else [text]
        return [part for part in parts if part and not part.isspace()]


def _whole(path: str) -> Segment:
    if path == "-" or path.lower().endswith(".xz") or is_table(path):
        raise DataError(path, None, "expected a text file, plain or .gz, that can be read in parts")
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None
    segment = Segment(path, 0, size, size)
    refuse_utf_16(path, segment.read(0, 64))
    return segment._replace(begin=3) if segment.read(0, 3) == b"\xef\xbb\xbf" else segment


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _beginning(segment: Segment, count: float = math.inf) -> str:
    """The first lines of a compressed file, until they have `count` characters; by default all."""
    lines: list[str] = []
    for _, line in numbered_lines(segment.path, errors="replace"):
        lines.append(f"{line}\n")
        count -= len(line) + 1
        if count <= 0:
            break
    return "".join(lines)


def _chunks(path: tf.Tensor, begin: tf.Tensor, end: tf.Tensor, size: tf.Tensor) -> tf.data.Dataset:
    """The bytes of a segment in strings of `CHUNK`, the last one shorter; for a .gz file, groups of lines."""
    is_packed = tf.strings.regex_full_match(tf.strings.lower(path), r".*\.gz")
    plain, packed = (
        tf.boolean_mask(path[None], ~is_packed[None]),
        tf.boolean_mask(path[None], is_packed[None]),
    )
    middle = end - (end - begin) % CHUNK
    first = tf.data.FixedLengthRecordDataset(plain, CHUNK, begin, size - middle)
    last = tf.data.FixedLengthRecordDataset(plain, tf.maximum(end - middle, 1), middle, size - end)
    lines = tf.data.TextLineDataset(packed, "GZIP").batch(LINES)
    lines = lines.map(lambda x: tf.strings.reduce_join(x, separator="\n") + "\n")
    return first.concatenate(last).concatenate(lines)


def _character_before(text: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
    """The last position up to `place` where a UTF-8 character begins."""
    places = tf.maximum(place - tf.range(4), 0)
    values = tf.io.decode_raw(tf.strings.substr(tf.fill([4], text), places, tf.ones_like(places)), tf.uint8)
    goes_on = tf.bitwise.bitwise_and(values[:, 0], tf.constant(0xC0, tf.uint8)) == 0x80
    return place - tf.argmin(tf.cast(goes_on, tf.int32), output_type=tf.int32)


def _escaped(text: str) -> str:
    """`text` as a pattern for RE2."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)


def _well_formed(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", replace_control_characters=False)
