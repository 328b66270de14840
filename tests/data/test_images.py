"""Images: read, decoded, resized, scaled, batched; and every broken file named in one line."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm.data import DataError, ImageBatches, decode_image, read_image_folder
from keras_tfm.data.images import check_images, decode_images, resize_images, scale_images, shift_images


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, "uint8")


def encoded(image, kind="PNG"):
    buffer = io.BytesIO()
    PIL.Image.fromarray(image).save(buffer, kind)
    return buffer.getvalue()


# Files ------------------------------------------------------------------------------------------------


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


# Decoding and scaling ---------------------------------------------------------------------------------


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


def test_scaling():
    images = noise(2, 4, 4, 3)
    mean, std = (0.5, 0.4, 0.3), (0.5, 0.25, 1.0)
    scaled = scale_images(images, 4, 4, mean, std)
    np.testing.assert_allclose(scaled, (images / 255 - mean) / std, rtol=1e-5, atol=1e-6)
    of_floats = scale_images((images / 255).astype("float32"), 4, 4, mean, std)
    np.testing.assert_allclose(scaled, of_floats, rtol=1e-5, atol=1e-6)
    assert scale_images(images, 2, 8, (0.5,), (0.5,)).shape == (2, 2, 8, 3)


@pytest.mark.parametrize(
    ("images", "channels", "message"),
    [
        (noise(4, 4), 1, r"shape \(B, H, W\) or \(B, H, W, 1\); it is \(4, 4\)"),
        (noise(2, 4, 4), 3, r"shape \(B, H, W, 3\); it is \(2, 4, 4\)"),
        (noise(2, 4, 4, 1), 3, r"it is \(2, 4, 4, 1\)"),
        (noise(2, 0, 4, 1), 1, r"it is \(2, 0, 4, 1\)"),
        (noise(2, 4, 4).astype("int64"), 1, "uint8, 0 to 255, or floats, 0 to 1; they are int64"),
        (noise(2, 4, 4) * 1.0, 1, r"must lie in 0 \.\. 1; they span"),
        (np.full((1, 2, 2), np.nan), 1, "they span nan to nan"),
    ],
)
def test_arrays_that_are_no_images_are_refused(images, channels, message):
    with pytest.raises(ValueError, match=message):
        check_images(images, channels)


# Batches ----------------------------------------------------------------------------------------------


def batches_of(size=10, **options):
    """Images that hold their number, so that labels can be compared with them."""
    images = np.broadcast_to(np.arange(size, dtype="uint8")[:, None, None, None], (size, 2, 2, 1))
    return ImageBatches(images, np.arange(size), lambda x: x, batch_size=4, **options)


def labels_of(dataset):
    epoch = []
    for inputs, labels in dataset:
        np.testing.assert_array_equal(inputs["images"][:, 0, 0, 0], labels)
        epoch.append(labels.numpy().tolist())
    return epoch


def test_without_a_seed_all_come_in_order():
    batches = batches_of()
    assert labels_of(batches.dataset()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches.num_batches == len(batches.dataset()) == 3


def test_with_a_seed_epochs_differ_and_are_the_seed_s():
    batches = batches_of(42, seed=3)
    assert batches.num_batches == len(batches.dataset()) == 10  # two are left out, not a batch of their own
    drawn = labels_of(batches.epochs().take(30))
    epochs = [drawn[:10], drawn[10:20], drawn[20:]]
    assert [len(batch) for batch in drawn] == [4] * 30
    assert len({label for batch in epochs[0] for label in batch}) == 40
    assert epochs[0] != epochs[1] != epochs[2]
    assert labels_of(batches_of(42, seed=3).dataset(2)) == epochs[2]
    assert labels_of(batches_of(42, seed=4).dataset()) != epochs[0]
    assert labels_of(batches_of(2, seed=0).dataset())[0] in ([0, 1], [1, 0])


def test_shifts_move_black_in_and_follow_the_seed():
    images = noise(200, 4, 5, 2) | 1  # nothing in them is black
    shifted = shift_images(images, 1, seed=(0, 1)).numpy()
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    found = set()
    for image, frame in zip(shifted, padded, strict=True):
        places = [(y, x) for y in range(3) for x in range(3) if (image == frame[y : y + 4, x : x + 5]).all()]
        assert len(places) == 1
        found |= set(places)
    assert len(found) == 9
    np.testing.assert_array_equal(shift_images(images, 1, seed=(0, 1)), shifted)
    assert (shift_images(images, 1, seed=(0, 2)).numpy() != shifted).any()


def test_shifts_are_part_of_training_batches_alone():
    images = noise(8, 6, 6, 1)
    given = next(iter(ImageBatches(images, np.arange(8), lambda x: x, 8, max_shift=2).dataset()))[0]["images"]
    np.testing.assert_array_equal(given, images)
    inputs, labels = next(
        iter(ImageBatches(images, np.arange(8), lambda x: x, 8, seed=0, max_shift=2).dataset())
    )
    assert (inputs["images"].numpy() != images[labels]).any()
