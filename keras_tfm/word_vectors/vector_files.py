"""Files of word vectors: word2vec's text (a header) and .bin, GloVe's text (none), and .npz without pickled
objects.

What is wrong with a file is a ValueError of one line: the file, its line, what was expected, what came.
"""

import contextlib
import gzip
import json
import lzma
import os
import pathlib
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, BinaryIO, Literal

import numpy as np

from keras_tfm.configs import number_in

Path = str | os.PathLike[str]
Format = Literal["word2vec", "glove", "npz"]

COMPRESSED: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
MARK = b"\xef\xbb\xbf"  # the byte order mark that Windows writes
FASTTEXT = b"\xba\x16\x4f\x2f"  # a model of fastText's begins so
LONGEST_WORD, MOST_NUMBERS, CHUNK = 1 << 16, 1 << 20, 1 << 20
HEADER = re.compile(rb"\d+[ \t]\d+\s*")  # of word2vec: how many words, how many numbers


def read(path: Path) -> tuple[list[str], np.ndarray]:
    """(words, float32 array (V, D)) of a file: .npz by its name, else text or word2vec's .bin, also packed.

    A line of text is a word, a space, D numbers. One of two whole numbers at the top is word2vec's header. A
    file named .bin whose second line is none of text has D numbers of 4 bytes behind each word.
    """
    suffix = pathlib.Path(path).suffix.lower()
    if suffix == ".npz":
        return _read_npz(path)
    is_bin = re.search(r"\.bin(\.gz|\.xz)?$", str(path).lower())
    try:
        with COMPRESSED.get(suffix, open)(path, "rb") as file:
            if is_bin and not _is_text(file, path):
                file.seek(0)
                return _read_bin(file, path)
            file.seek(0)
            return _read_text(file, path)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: expected a whole compressed file: {error}") from None


def write(path: Path, words: list[str], matrix: np.ndarray, format: Format) -> None:
    """Writes a file of the `format`, which appears whole; numbers have as many digits as float32 needs."""
    if format == "npz":
        with _new_file(path) as file:
            np.savez(file, words=np.frombuffer(json.dumps(words).encode(), np.uint8), matrix=matrix)
        return
    if broken := next((word for word in words if not word or len(word.split()) != 1), None):
        raise ValueError(f"{path}: a text file holds words without white space; one is {broken!r}")
    with _new_file(path) as file:
        if format == "word2vec":
            file.write(f"{matrix.shape[0]} {matrix.shape[1]}\n".encode())
        for word, row in zip(words, matrix.astype(np.float32), strict=True):
            file.write(f"{word} {' '.join(map(str, row))}\n".encode())


def _read_text(file: BinaryIO, path: Path) -> tuple[list[str], np.ndarray]:
    promised = dim = None
    lines: dict[str, int] = {}
    rows: list[np.ndarray] = []
    for number, line in enumerate(file, 1):
        if number == 1:
            line = line.removeprefix(MARK)
        if number == 1 and HEADER.fullmatch(line):
            promised, dim = map(int, line.split())
            continue
        word, row = _row(line, dim, f"{path}, line {number}")
        dim = len(row)
        if word in lines:
            raise ValueError(
                f"{path}, line {number}: expected another word, got {word!r:.60} as in line {lines[word]}"
            )
        lines[word] = number
        rows.append(row)
    if promised is not None and promised != len(rows):
        raise ValueError(f"{path}: expected {promised:,} words, as line 1 says, got {len(rows):,}")
    if not rows:
        raise ValueError(f"{path}: expected lines of a word and its numbers, got none")
    return list(lines), np.stack(rows)


def _is_text(file: IO[bytes], path: Path) -> bool:
    """Whether the line behind word2vec's header is one of text; ValueError for a file without the header."""
    header = file.readline(LONGEST_WORD).removeprefix(MARK)
    if header.startswith(FASTTEXT):
        raise ValueError(f"{path}: expected word2vec's .bin, got a model of fastText's; read its .vec")
    if not HEADER.fullmatch(header):
        return True  # GloVe's, or what `_read_text` refuses
    dim = int(header.split()[1])
    if dim > MOST_NUMBERS:
        raise ValueError(f"{path}, line 1: expected {MOST_NUMBERS:,} numbers a word at most, got {dim:,}")
    try:
        _row(file.readline(LONGEST_WORD + 32 * dim), dim, "")
    except ValueError:
        return False
    return True


def _read_bin(file: IO[bytes], path: Path) -> tuple[list[str], np.ndarray]:
    """What word2vec writes with -binary 1: a word, a space, D numbers of 4 bytes and often a newline."""
    count, dim = map(int, file.readline().removeprefix(MARK).split())
    words: dict[str, int] = {}
    rows: list[np.ndarray] = []
    data, begin = b"", 0
    for number in range(1, count + 1):
        place = f"{path}, word {number}"
        while (space := data.find(b" ", begin)) < 0 or len(data) <= space + 4 * dim:
            if space < 0 and len(data) - begin > LONGEST_WORD:
                raise ValueError(f"{place}: expected a space behind a word of {LONGEST_WORD:,} bytes at most")
            more = file.read(CHUNK)
            if not more:
                raise ValueError(f"{path}: expected {count:,} words, as line 1 says, got {number - 1:,}")
            data, begin = data[begin:] + more, 0
        try:
            word = data[begin:space].lstrip(b"\n").decode("utf-8")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise ValueError(f"{place}: expected UTF-8, got byte 0x{byte:02x}") from None
        if not word or word in words:
            raise ValueError(f"{place}: expected another word, got {word!r:.60}")
        words[word] = number
        rows.append(np.frombuffer(data, "<f4", dim, space + 1).astype(np.float32))
        if not np.isfinite(rows[-1]).all():
            raise ValueError(f"{place}: expected finite numbers behind {word!r:.60}")
        begin = space + 1 + 4 * dim
    if not rows:
        raise ValueError(f"{path}: expected words, line 1 says that there are none")
    if (data[begin:] + file.read(CHUNK)).strip(b"\n"):
        raise ValueError(f"{path}: expected {count:,} words, as line 1 says, got more")
    return list(words), np.stack(rows)


def _row(line: bytes, dim: int | None, place: str) -> tuple[str, np.ndarray]:
    """The word and the numbers of a line; `dim` is how many there must be, if that is known."""
    try:
        fields = line.decode("utf-8").rstrip("\r\n \t").replace("\t", " ").split(" ")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{place}: expected UTF-8, got byte 0x{line[error.start]:02x} at position {error.start}"
        ) from None
    first = 1 if dim is None else max(len(fields) - dim, 1)
    if first > 1 and _is_number(fields[1]):
        first = 1  # too many numbers; else it is a word with spaces, of which published files have some
    word, numbers = " ".join(fields[:first]), fields[first:]
    if not word or not numbers or (dim is not None and len(numbers) != dim):
        expected = "numbers" if dim is None else f"{dim:,} numbers"
        raise ValueError(f"{place}: expected a word and {expected}, got {word!r:.60} and {len(numbers):,}")
    try:
        with np.errstate(over="ignore"):
            row = np.array(numbers, np.float32)
        if b"_" in line:  # which NumPy reads as Python does
            list(map(number_in, numbers))
    except ValueError:
        wrong = next(text for text in numbers if not _is_number(text))
        raise ValueError(f"{place}: expected numbers, got {wrong!r:.60}") from None
    if not np.isfinite(row).all():
        raise ValueError(f"{place}: expected finite numbers, got {numbers[int(np.isfinite(row).argmin())]}")
    return word, row


def _is_number(text: str) -> bool:
    with contextlib.suppress(ValueError):
        number_in(text)
        return True
    return False


def _read_npz(path: Path) -> tuple[list[str], np.ndarray]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            words: Any = json.loads(arrays["words"].tobytes())
            matrix = arrays["matrix"]
    except (ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path}: expected what WordVectors.write writes, the arrays words and matrix: {error}"
        ) from None
    is_table = matrix.ndim == 2 and matrix.dtype.kind == "f"
    if not isinstance(words, list) or not is_table or len(matrix) != len(words):
        raise ValueError(f"{path}: expected a row of numbers for each word, got the shape {matrix.shape}")
    if len(set(map(str, words))) < len(words) or not {str}.issuperset(map(type, words)):
        raise ValueError(f"{path}: expected words, each once, got other things or some twice")
    with np.errstate(over="ignore"):
        matrix = matrix.astype(np.float32)
    is_finite = np.isfinite(matrix).all(1)
    if not is_finite.all():
        spoilt = words[int(is_finite.argmin())]
        raise ValueError(f"{path}: expected finite numbers, got others in the row of {spoilt!r}")
    return words, matrix


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the name `path` when the block ends well."""
    path = pathlib.Path(path)
    work = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with COMPRESSED.get(path.suffix.lower(), open)(work, "wb") as file:
            yield file
        os.replace(work, path)
    finally:
        work.unlink(missing_ok=True)
