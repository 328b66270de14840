"""Image files: read, decoded, resized; and every broken one named in one line."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm.data import DataError, decode_image, read_image_folder
from keras_tfm.data.sources.images import decode_images, resize_images


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, "uint8")


def encoded(image, kind="PNG"):
    buffer = io.BytesIO()
    PIL.Image.fromarray(image).save(buffer, kind)
    return buffer.getvalue()


def folder_of(path, files):
    for name, content in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
    return path


def test_a_folder_of_images_by_class(tmp_path):
    colour, grey = noise(6, 8, 3), noise(6, 8)
    files = {
        "dog/b.png": encoded(colour),
        "cat/2.PNG": encoded(grey),
        "cat/1.jpg": encoded(colour, "JPEG"),
        "cat/.DS_Store": b"no image",
        ".cache/x.png": b"no image",
    }
    read = read_image_folder(folder_of(tmp_path, files), 6, 8, 3)
    assert read.class_names == ["cat", "dog"]
    np.testing.assert_array_equal(read.labels, [0, 0, 1])
    assert read.images.shape == (3, 6, 8, 3) and read.images.dtype == np.uint8
    np.testing.assert_array_equal(read.images[1], np.repeat(grey[..., None], 3, -1))
    np.testing.assert_array_equal(read.images[2], colour)
    assert np.abs(read.images[0].astype(int) - colour).mean() < 60  # JPEG keeps noise roughly


@pytest.mark.parametrize(
    ("files", "named", "problem"),
    [
        ({"a/1.png": encoded(noise(4, 4))}, "", "expected a folder of images for each class, got 1 folders"),
        ({"a/1.png": encoded(noise(4, 4)), "b/.x": b""}, "b", "expected images, the folder is empty"),
        ({"a/1.png": b"", "b/1.png": b""}, "a/1.png", "expected a whole PNG or JPEG image"),
        (
            {"a/1.jpg": encoded(noise(40, 40))[:900], "b/1.png": b""},
            "a/1.jpg",
            "expected a whole PNG or JPEG image",
        ),
        ({"a/1.txt": b"text", "b/1.png": b""}, "a/1.txt", "expected a .png, .jpg or .jpeg file"),
    ],
)
def test_bad_folders_are_named(tmp_path, files, named, problem):
    with pytest.raises(DataError) as caught:
        read_image_folder(folder_of(tmp_path, files), 4, 4, 1)
    assert str(caught.value) == f"{tmp_path / named}: {problem}"


def test_a_missing_folder_and_a_folder_for_an_image_are_refused(tmp_path):
    with pytest.raises(DataError, match="none: cannot be read: No such file or directory"):
        read_image_folder(tmp_path / "none", 4, 4, 1)
    folder_of(tmp_path, {"a/1.png": encoded(noise(4, 4)), "b/2.png": encoded(noise(4, 4))})
    (tmp_path / "b/1.png").mkdir()
    with pytest.raises(DataError, match=r"b/1\.png: expected a \.png"):
        read_image_folder(tmp_path, 4, 4, 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_png_images_of_the_size_come_as_they_are(channels):
    image = noise(5, 7, 3) if channels == 3 else noise(5, 7)
    decoded = decode_image(encoded(image), 5, 7, channels)
    np.testing.assert_array_equal(decoded, image.reshape(5, 7, channels))


def test_resizing_is_that_of_pillow():
    image = noise(40, 60, 3)
    for height, width in ((13, 17), (80, 90)):
        expected = PIL.Image.fromarray(image).resize((width, height), PIL.Image.Resampling.BILINEAR)
        difference = decode_image(encoded(image), height, width, 3).numpy().astype(int) - np.array(expected)
        assert np.abs(difference).max() <= 1
    halves = resize_images(tf.constant(image / 255, tf.float32), 20, 30)
    assert halves.dtype == tf.float32 and halves.shape == (20, 30, 3)


def test_decoding_stands_in_a_graph_and_refuses_what_is_no_image():
    images = noise(3, 4, 4, 1)
    decode = tf.function(
        lambda data: decode_images(data, 4, 4, 1), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    np.testing.assert_array_equal(decode([encoded(image[..., 0]) for image in images]), images)
    assert decode(tf.constant([], tf.string)).shape == (0, 4, 4, 1)
    for data in (b"", b"text", encoded(images[0, ..., 0])[:50]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            decode([data])
