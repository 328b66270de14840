"""What the first bytes of an image file say, read before anything is decoded, and which files are refused.

EXIF's orientation is the tag 0x0112 of the standard (CIPA DC-008): 1 stands for an image stored upright. A
JPEG has it in an APP1 segment, a PNG in an eXIf chunk before the pixels, a WebP in an EXIF chunk.
"""

import errno
import os
import stat
import struct
from typing import Any, NamedTuple

MAX_PIXELS = 1 << 26  # per image: 768 MB while it is resized; larger ones are mistakes or attacks
MAX_FRAMES = 1 << 28  # pixels of all frames of a GIF, each a byte in TensorFlow, which decodes all of them
MAX_FILE_BYTES = 1 << 28
MAX_PARTS = 4096  # segments or chunks that are passed over in search of an orientation
HEADER = 1 << 16  # bytes of a file that hold its size, unless much metadata stands before it

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")  # as Pillow names them
NOT_WHOLE = "expected a whole PNG or JPEG image"
OTHERS = {b"II*\0": "TIFF", b"MM\0*": "TIFF", b"II+\0": "TIFF", b"MM\0+": "TIFF"}  # by the first bytes
BRANDS = {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIC"}

JPEG_SIZES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF}  # frame headers
JPEG_END = {0xD9, 0xDA}  # the end of the image, and the scan that holds its pixels
EXIF = b"Exif\0\0"
TAG = 0x0112
TRANSPOSED, MIRRORED, FLIPPED = {5, 6, 7, 8}, {2, 3, 6, 7}, {3, 4, 7, 8}  # orientations; see `turned`
BMP_MASKS = {  # {bits: the masks of red, green and blue that are read}
    16: {(0xF800, 0x7E0, 0x1F), (0x7C00, 0x3E0, 0x1F)},
    24: {(0xFF0000, 0xFF00, 0xFF)},
    32: {(0xFF0000, 0xFF00, 0xFF)},
}

Source = bytes | str | os.PathLike  # an image file's content, or its path
Size = tuple[int, int]  # (height, width)


class Header(NamedTuple):
    """The (height, width) of the pixels in a file, and the orientation by which they are turned."""

    stored: Size
    orientation: int = 1

    @property
    def size(self) -> Size:
        """The (height, width) of the image, upright."""
        return self.stored[::-1] if self.orientation in TRANSPOSED else self.stored


def turned(pixels: Any, orientation: int) -> Any:
    """An array (H, W, ...) of stored pixels as the image is shown: with its axes swapped, then mirrored from
    left to right, then flipped upside down, as the orientation says.
    """
    pixels = pixels.swapaxes(0, 1) if orientation in TRANSPOSED else pixels
    pixels = pixels[:, ::-1] if orientation in MIRRORED else pixels
    return pixels[::-1] if orientation in FLIPPED else pixels


def read_bytes(source: Source) -> bytes:
    """The content of an image file, at most `MAX_FILE_BYTES` + 1 bytes; OSError if it cannot be read."""
    if isinstance(source, bytes):
        return source
    with open(source, "rb", opener=regular) as stream:
        return stream.read(MAX_FILE_BYTES + 1)


def regular(path: str, flags: int) -> int:
    """An opener of regular files alone: reading a pipe or a device may wait for ever. OSError for others."""
    file = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "expected a regular file, got a pipe, a device or a folder", path)
    return file


def problem_of(data: bytes) -> str | None:
    """Why an image file should not be decoded, as far as its header says; None if it can be."""
    if len(data) > MAX_FILE_BYTES:
        return f"expected an image file of {MAX_FILE_BYTES:,} bytes at most, it is larger"
    if name := OTHERS.get(data[:4]) or (data[4:8] == b"ftyp" and BRANDS.get(data[8:12])):
        return f"expected a PNG or JPEG image, got {name}: convert it"
    if (header := header_of(data)) is None:
        return NOT_WHOLE
    height, width = header.stored
    if height * width > MAX_PIXELS:
        return f"expected an image of {MAX_PIXELS:,} pixels at most, got {width:,} x {height:,}"
    if data.startswith(b"BM"):
        return _problem_of_bmp(data)
    return _problem_of_gif(data) if data.startswith(b"GIF8") else None


def header_in(source: Source) -> Header | None:
    """`header_of` an image file, of which only the beginning is read if that suffices; OSError if it cannot
    be read.
    """
    if isinstance(source, bytes):
        return header_of(source)
    with open(source, "rb", opener=regular) as stream:
        data = stream.read(HEADER)
        return header_of(data) or header_of(data + stream.read(MAX_FILE_BYTES - len(data)))


def header_of(data: bytes) -> Header | None:
    """The header of a PNG, JPEG, GIF, BMP or WebP file; None for other data, and where it is cut off."""
    try:
        if data.startswith(b"\x89PNG"):
            return _header_of_png(data)
        if data.startswith(b"\xff\xd8"):
            return _header_of_jpeg(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _header_of_webp(data)
        if data.startswith(b"GIF8"):
            return Header(frames_of_gif(data, 1)[0][2:])
        if data.startswith(b"BM"):
            is_old = struct.unpack_from("<I", data, 14) == (12,)
            width, height = struct.unpack_from("<HH" if is_old else "<ii", data, 18)
            return Header((abs(height), abs(width)))
    except (struct.error, IndexError):
        pass
    return None


def _header_of_jpeg(data: bytes) -> Header | None:
    """The segments before the pixels each state their length; bytes between them are passed over."""
    place, size, exif = 2, None, b""
    for _ in range(MAX_PARTS):
        if data[place] != 0xFF or data[place + 1] in (0, 0xFF):
            place += 1
            continue
        marker = data[place + 1]
        if marker in JPEG_END:
            return None if size is None else Header(size, orientation_of(exif))
        (length,) = struct.unpack_from(">H", data, place + 2)
        if marker in JPEG_SIZES and size is None:
            size = struct.unpack_from(">HH", data, place + 5)
        elif marker == 0xE1 and not exif and data[place + 4 : place + 10] == EXIF:
            exif = data[place + 4 : place + 2 + length]
        place += 2 + length
    return None


def _header_of_png(data: bytes) -> Header | None:
    width, height = struct.unpack_from(">II", data, 16)
    place = 8
    for _ in range(MAX_PARTS):
        length, kind = struct.unpack_from(">I4s", data, place)
        if kind == b"eXIf":
            return Header((height, width), orientation_of(data[place + 8 : place + 8 + length]))
        if kind in (b"IDAT", b"IEND"):
            break
        place += 12 + length
    return Header((height, width))


def _header_of_webp(data: bytes) -> Header | None:
    if data[12:16] == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return Header(((bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1))
    if data[12:16] == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
        return Header((height, width))
    if data[12:16] != b"VP8X":
        return None
    flags, *sides = struct.unpack_from("<I3s3s", data, 20)
    width, height = (1 + int.from_bytes(side, "little") for side in sides)
    place = 12
    for _ in range(MAX_PARTS if flags & 8 else 0):
        kind, length = struct.unpack_from("<4sI", data, place)
        if kind == b"EXIF":
            return Header((height, width), orientation_of(data[place + 8 : place + 8 + length]))
        place += 8 + length + length % 2
    return Header((height, width))


def orientation_of(exif: bytes) -> int:
    """The orientation, 1 to 8, that a block of EXIF states; 1 where it states none."""
    tiff = exif.removeprefix(EXIF)
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None or len(tiff) < 8:
        return 1
    (place,) = struct.unpack_from(f"{order}I", tiff, 4)
    entries = tiff[place + 2 :]
    count = struct.unpack_from(f"{order}H", tiff, place)[0] if len(entries) else 0
    for begin in range(0, min(12 * count, len(entries) - 11), 12):
        tag, kind, _, value = struct.unpack_from(f"{order}HHIH", entries, begin)
        if (tag, kind) == (TAG, 3):  # a number of 16 bits
            return value if 1 <= value <= 8 else 1
    return 1


def frames_of_gif(data: bytes, most: int | None = None) -> list[tuple[int, int, int, int]]:
    """(Top, left, height, width) of each frame of a GIF, or of its first ones; struct.error or IndexError
    where the file is cut off.
    """
    place = 13 + _colours_of_gif(data[10])
    frames: list[tuple[int, int, int, int]] = []
    while data[place] != 0x3B and (most is None or len(frames) < most):
        if data[place] == 0x2C:
            left, top, width, height, flags = struct.unpack_from("<4HB", data, place + 1)
            frames.append((top, left, height, width))
            place += 11 + _colours_of_gif(flags)
            if len(frames) == most:
                break
        elif data[place] == 0x21:
            place += 2
        else:
            raise IndexError(place)
        while length := data[place]:  # blocks of at most 255 bytes
            place += 1 + length
        place += 1
    return frames


def _colours_of_gif(flags: int) -> int:
    """The bytes of a table of colours."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _problem_of_gif(data: bytes) -> str | None:
    try:
        frames = frames_of_gif(data)
    except (struct.error, IndexError):
        return NOT_WHOLE
    if sum(height * width for *_, height, width in frames) > MAX_FRAMES:
        return f"expected a GIF of {MAX_FRAMES:,} pixels at most in all frames, got {len(frames):,} frames"
    top, left, *first = frames[0]
    screen = struct.unpack_from("<HH", data, 6)[::-1]
    sides = [max(lengths) for lengths in zip(screen, *(frame[2:] for frame in frames), strict=True)]
    if (top, left) != (0, 0) or first != sides:
        return "expected a GIF whose first frame is as large as the others and the screen"
    return None


def _problem_of_bmp(data: bytes) -> str | None:
    """BMPs without compression are read: of 1, 4 and 8 bits with a palette, of 16, 24 and 32 bits."""
    try:
        (header,) = struct.unpack_from("<I", data, 14)
        bits, compression = (*struct.unpack_from("<H", data, 24), 0)
        if header != 12:
            bits, compression = struct.unpack_from("<HI", data, 28)
        masks = struct.unpack_from("<III", data, 54) if compression == 3 else None
    except struct.error:
        return NOT_WHOLE
    if bits not in (1, 4, 8, 16, 24, 32) or (compression and masks not in BMP_MASKS.get(bits, ())):
        return f"expected a BMP without compression, got one of the kind {compression} with {bits} bits"
    return None
