"""Pictures of their own sizes: what is read, skipped, and decoded with alpha."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm.data import DataError
from keras_tfm.data.sources.preprocessing import decode_opacity
from keras_tfm.data.sources.whole_images import WholeImages, encoded, read_whole_images

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 20, 4)).astype("uint8")


def file_of(picture, kind="PNG", **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def test_files_arrays_and_what_is_skipped(tmp_path, caplog):
    folder = tmp_path / "pictures"
    folder.mkdir()
    PIL.Image.fromarray(PIXELS[..., :3]).save(folder / "a.png")
    PIL.Image.fromarray(PIXELS[:5, :5, 0]).save(folder / "b.png")
    (folder / "c.jpg").write_bytes(b"text")
    images = read_whole_images([folder], channels=3, least=12)
    assert len(images) == 1 and images.place(0).endswith("a.png")
    assert "b.png (expected at least 12 x 12 pixels, got 5 x 5)" in caplog.text
    assert "c.jpg (expected a whole PNG or JPEG image)" in caplog.text
    np.testing.assert_array_equal(images.decoded(0), PIXELS[..., :3])
    np.testing.assert_array_equal(images.decoder()(tf.constant(0, tf.int64)), PIXELS[..., :3])
    both = read_whole_images([folder], channels=1)
    assert both.decoded(1).shape == (5, 5, 1) and both[np.array([1])].place(0).endswith("b.png")
    with pytest.raises(DataError, match=r"b\.png: expected at least 21 x 21 pixels, got 5 x 5"):
        read_whole_images([folder / "b.png"], channels=3, least=21)
    np.savez(tmp_path / "a.npz", images=PIXELS[None, ..., :3], labels=np.array([1]))
    stored = read_whole_images([tmp_path / "a.npz"], channels=3)
    np.testing.assert_array_equal(stored.decoded(0), PIXELS[..., :3])
    assert stored.place(0).endswith("a.npz, image 1")
    one, other = (list(x.identity()) for x in (stored, WholeImages([encoded(PIXELS)], channels=3)))
    assert one != other


def test_arrays_as_files():
    floats = PIXELS / 255
    for pixels in (PIXELS, PIXELS[..., :3], PIXELS[..., 0]):
        array = np.asarray(PIL.Image.open(io.BytesIO(encoded(pixels))))
        np.testing.assert_array_equal(array, pixels)
    assert encoded(floats) == encoded(PIXELS) and encoded("a.png") == "a.png"


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_alpha_is_turned_as_the_picture_is(kind):
    picture = PIL.Image.fromarray(PIXELS, "RGBA")
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # the right side is stored at the top
    plain = decode_opacity(file_of(picture, kind, lossless=True))
    np.testing.assert_array_equal(plain[..., 0], PIXELS[..., 3])
    turned = decode_opacity(file_of(picture, kind, lossless=True, exif=exif))
    np.testing.assert_array_equal(turned[..., 0], np.rot90(PIXELS[..., 3], -1))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "JPEG", "GIF", "BMP"])
def test_files_without_alpha_are_opaque(kind):
    alpha = decode_opacity(file_of(PIL.Image.fromarray(PIXELS[..., :3]), kind))
    assert alpha.shape == (12, 20, 1)
    np.testing.assert_array_equal(alpha, 255)


def test_a_transparent_colour_of_a_palette():
    picture = PIL.Image.fromarray(np.array([[0, 1], [1, 1]], "uint8"), "P")
    picture.putpalette([10, 20, 30, 40, 50, 60])
    assert decode_opacity(file_of(picture, transparency=1))[..., 0].numpy().tolist() == [[255, 0], [0, 0]]
