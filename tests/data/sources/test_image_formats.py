"""Kinds of image files, in training, in a graph and in serving: as Pillow reads them, or refused by name."""

import io
import os
import resource
import struct
import zlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm.data import DataError, ImageFiles, Preprocessing
from keras_tfm.data.sources.image_files import decoded_or_problem
from keras_tfm.data.sources.images import read_images, read_labelled_images
from keras_tfm.data.sources.preprocessing import decode_pixels
from keras_tfm.serving import image_headers, image_readers
from keras_tfm.serving.examples import Refused
from keras_tfm.serving.image_readers import Images

in_graph = tf.function(lambda data: decode_pixels(data, 3), [tf.TensorSpec([], tf.string)], autograph=False)


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, "uint8")


def encoded(image, kind, **options):
    image = image if isinstance(image, PIL.Image.Image) else PIL.Image.fromarray(image)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def bmp(bits, rows, width, palette=(), masks=(), header=40, is_downwards=False, compression=0):
    """A BMP of rows of bytes, from the top; `header` is the length of its header."""
    table = b"".join(bytes([*colour, 0][: 3 if header == 12 else 4]) for colour in palette)
    table = struct.pack(f"<{len(masks)}I", *masks) + table
    body = b"".join(row + bytes(-len(row) % 4) for row in (rows if is_downwards else rows[::-1]))
    offset = 14 + header + len(table)
    height = -len(rows) if is_downwards else len(rows)
    sides = struct.pack("<IHHHH", 12, width, len(rows), 1, bits)
    if header == 40:
        used = len(palette) if len(palette) < 1 << bits else 0
        sides = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(body), 0, 0, used, 0)
    return b"BM" + struct.pack("<IHHI", offset + len(body), 0, 0, offset) + sides + table + body


def packed_rows(indices, bits):
    """Rows of indices as bytes, several to a byte, the first in the highest bits."""
    table = np.unpackbits(indices[..., None], axis=-1)[..., 8 - bits :]
    return [np.packbits(row.reshape(-1)).tobytes() for row in table]


COLOURS = [tuple(colour) for colour in noise(256, 3).tolist()]
SIXTEEN = [row.tobytes() for row in np.random.default_rng(1).integers(0, 1 << 16, (4, 5)).astype("<u2")]
SMOOTH = np.kron(noise(3, 4, 3), np.ones((4, 4, 1), "uint8"))
ALPHA = np.concatenate([SMOOTH, np.full((12, 16, 1), 200, "uint8")], axis=-1)
FRAMES = [PIL.Image.fromarray(ALPHA), PIL.Image.fromarray(ALPHA[::-1])]
OPAQUE = [frame.convert("RGB") for frame in FRAMES]
KINDS = {
    **{
        f"BMP of {bits} bits, {width} wide": bmp(
            bits, packed_rows(noise(4, width) >> 8 - bits, bits), width, COLOURS[: 1 << bits]
        )
        for bits in (1, 4, 8)
        for width in (1, 7, 9)
    },
    "BMP of fewer colours": bmp(8, packed_rows(noise(4, 5) % 9, 8), 5, COLOURS[:9]),
    "BMP of a grey palette, inverted": bmp(
        8, packed_rows(noise(4, 5), 8), 5, [(255 - x,) * 3 for x in range(256)]
    ),
    "BMP from the top": bmp(8, packed_rows(noise(4, 5), 8), 5, COLOURS, is_downwards=True),
    "BMP with an old header": bmp(4, packed_rows(noise(4, 5) % 16, 4), 5, COLOURS[:16], header=12),
    "BMP of 24 bits with an old header": bmp(24, [row.tobytes() for row in noise(4, 5, 3)], 5, header=12),
    "BMP of 15 bits": bmp(16, SIXTEEN, 5),
    "BMP of 16 bits": bmp(16, SIXTEEN, 5, masks=(0xF800, 0x7E0, 0x1F), compression=3),
    "BMP of 24 bits": encoded(SMOOTH, "BMP"),
    "BMP of 32 bits": bmp(32, [row.tobytes() for row in noise(4, 5, 4)], 5),
    "BMP of one bit by Pillow": encoded(OPAQUE[0].convert("1"), "BMP"),
    "WebP with alpha": encoded(FRAMES[0], "WEBP", lossless=True),
    "WebP with losses": encoded(OPAQUE[0], "WEBP", quality=90),
    "WebP with losses and alpha": encoded(FRAMES[0], "WEBP", quality=90),
    "animated WebP": encoded(OPAQUE[0], "WEBP", save_all=True, append_images=OPAQUE[1:], lossless=True),
    "animated WebP with alpha": encoded(
        FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:], lossless=True
    ),
    "animated WebP with losses and alpha": encoded(
        FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:], quality=90
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_are_read_as_by_pillow_wherever_they_are_decoded(name):
    data = KINDS[name]
    expected = np.asarray(PIL.Image.open(io.BytesIO(data)).convert("RGB"))
    trained = decoded_or_problem(data, lambda x: Preprocessing().decoded(x, *expected.shape))
    assert not isinstance(trained, str), trained
    np.testing.assert_array_equal(trained, expected)
    np.testing.assert_array_equal(in_graph(data), expected)
    served = Images(None, expected.shape, "bilinear", 1.0, False).row(data)
    np.testing.assert_array_equal(np.round(served * 255), expected)


def gif(*frames, screen):
    """A GIF of frames (left, top, width, height), each without pixels that count."""
    blocks = [b"\x2c" + struct.pack("<4HB", *frame, 0) + b"\x02\x02\x4c\x01\x00" for frame in frames]
    return b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + bytes(6) + b"".join(blocks) + b";"


def png_of(width, height, data=b""):
    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )


MOST = "expected an image of 67,108,864 pixels at most, got "
WHOLE = "expected a GIF whose first frame is as large as the others and the screen"
REFUSED = {
    "a large PNG": (png_of(30_000, 30_000), MOST + "30,000 x 30,000"),
    "a large frame in a small screen": (gif((0, 0, 30_000, 30_000), screen=(1, 1)), MOST + "30,000 x 30,000"),
    "a large second frame": (gif((0, 0, 1, 1), (0, 0, 30_000, 30_000), screen=(1, 1)), "expected a GIF of "),
    "400 frames": (gif(*[(0, 0, 4096, 4096)] * 400, screen=(4096, 4096)), "expected a GIF of 268"),
    "a small first frame": (gif((2, 2, 4, 4), screen=(8, 8)), WHOLE),
    "a larger second frame": (gif((0, 0, 4, 4), (0, 0, 8, 8), screen=(4, 4)), WHOLE),
    "a GIF that is cut off": (gif((0, 0, 4, 4), screen=(4, 4))[:-3], image_headers.NOT_WHOLE),
    "TIFF": (encoded(SMOOTH, "TIFF"), "expected a PNG or JPEG image, got TIFF: convert it"),
    "TIFF, the other order": (b"MM\0*" + bytes(99), "expected a PNG or JPEG image, got TIFF: convert it"),
    "AVIF": (b"\0\0\0\x20ftypavif" + bytes(99), "expected a PNG or JPEG image, got AVIF: convert it"),
    "HEIC": (b"\0\0\0\x20ftypheic" + bytes(99), "expected a PNG or JPEG image, got HEIC: convert it"),
    "EPS": (encoded(SMOOTH, "EPS"), image_headers.NOT_WHOLE),
    "PCX": (encoded(SMOOTH, "PCX"), image_headers.NOT_WHOLE),
    "a compressed BMP": (bmp(8, [b"\0\1"], 2, COLOURS, compression=1), "expected a BMP without compression"),
    "a BMP of 2 bits": (bmp(2, [b"\0\1"], 2, COLOURS[:4]), "expected a BMP without compression"),
    "a cut BMP": (KINDS["BMP of 15 bits"][:-3], image_headers.NOT_WHOLE),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named_in_training_and_in_serving(name):
    data, problem = REFUSED[name]
    found = decoded_or_problem(data, lambda x: Preprocessing().decoded(x, 4, 4, 3))
    assert isinstance(found, str) and found.startswith(problem)
    (refused,) = Images(None, (4, 4, 3), "bilinear", 1.0, False).read([data])
    assert isinstance(refused, Refused) and str(refused).startswith(problem) and "\n" not in str(refused)


@pytest.mark.parametrize("name", ["a compressed BMP", "a BMP of 2 bits", "a cut BMP", "a small first frame"])
def test_a_graph_raises_for_what_it_cannot_decode(name):
    with pytest.raises(tf.errors.InvalidArgumentError):
        in_graph(REFUSED[name][0])


def test_a_panorama_is_not_resized_whole():
    """As a whole it would be 32 x 64,000,000."""
    data = png_of(2_000_000, 1, bytes(2_000_001))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert Images(None, (32, 32, 1), "bilinear", 1.0, True).row(data).shape == (32, 32, 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # KiB


@pytest.mark.parametrize("size", [(40, 90), (90, 40), (37, 50), (64, 64)])
def test_the_part_of_an_image_is_the_same_as_of_the_whole(size, monkeypatch):
    monkeypatch.setattr(image_readers, "MAX_PIXELS", 0)
    image = noise(*size, 3)
    served = Images(None, (16, 16, 3), "bicubic", 0.8, True).row(encoded(image, "PNG")) * 255
    short = 20 / min(size)
    width, height = (int(side * short + 1e-6) for side in size[::-1])
    whole = PIL.Image.fromarray(image).resize((width, size[0]), PIL.Image.Resampling.BICUBIC)
    whole = whole.resize((width, height), PIL.Image.Resampling.BICUBIC)  # columns first
    left, top = ((side - 16) // 2 for side in whole.size)
    off = np.abs(np.round(served) - np.asarray(whole)[top : top + 16, left : left + 16])
    assert off.max() <= 1 and (off > 0).mean() < 0.05


def test_twelve_bits_in_sixteen_are_said(caplog):
    values = np.random.default_rng(0).integers(0, 1 << 12, (2, 4, 4)).astype("uint16")
    dark, bright, black = values[0], values[1] * 16, np.zeros((4, 4), "uint16")
    ImageFiles([encoded(x, "PNG") for x in (dark, bright, black, noise(4, 4) % 9)], (4, 4, 1)).read()
    (said,) = caplog.messages
    assert said.startswith(
        "1 of 4 images have 16 bits of which the upper four are 0, as 12 bits stored in 16"
    )


@pytest.mark.parametrize("name", ["a.png", "a.npz", "train-images-idx3-ubyte", "a.parquet"])
@pytest.mark.parametrize(
    "read", [lambda *asked: list(read_images(*asked)), lambda path, shape: read_labelled_images(path, *shape)]
)
def test_pipes_are_not_waited_for(read, name, tmp_path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="expected a file or a folder, got a pipe or a device"):
        read(tmp_path / name, (4, 4, 3))
    with pytest.raises(Refused, match=r"^cannot be read: expected a regular file"):
        Images(None, (4, 4, 3), "bilinear", 1.0, False).row(tmp_path / name)
