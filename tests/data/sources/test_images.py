"""Image files: read, decoded, resized; and every broken one named in one line."""

import io
import os
import shutil
import struct
import sys
import threading

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm.data import (
    DataError,
    ImageBatches,
    ImageFiles,
    Preprocessing,
    decode_image,
    read_image_folder,
    read_labelled_images,
)
from keras_tfm.data.sources import image_files
from keras_tfm.data.sources.image_files import in_threads
from keras_tfm.data.sources.images import decode_images, read_images
from keras_tfm.data.sources.preprocessing import decode_pixels
from keras_tfm.log import begin
from keras_tfm.serving import image_headers


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, "uint8")


def encoded(image, kind="PNG", **options):
    image = image if isinstance(image, PIL.Image.Image) else PIL.Image.fromarray(image)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def folder_of(path, files):
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
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
        (
            {"a/1.png": encoded(noise(4, 4))},
            "",
            "expected a folder of images for each of two classes or more, got 1",
        ),
        ({"a/1.png": encoded(noise(4, 4)), "b/.x": b""}, "b", "expected images, the folder is empty"),
        (
            {"__MACOSX/a/._1.png": b"", "test/a/1.png": b"", "train/a/1.png": b""},
            "test",
            "expected images, got folders: name the folder whose own folders are the classes",
        ),
        ({"a/1.png": b"", "b/1.png": b""}, "a/1.png", "expected a whole PNG or JPEG image"),
        (
            {"a/1.jpg": encoded(noise(40, 40))[:900], "b/1.png": b""},
            "a/1.jpg",
            "expected a whole PNG or JPEG image",
        ),
        ({"a/1.txt": b"text", "b/1.png": b""}, "a/1.txt", "expected a whole PNG or JPEG image"),
    ],
)
def test_bad_folders_are_named(tmp_path, files, named, problem):
    with pytest.raises(DataError) as caught:
        read_image_folder(folder_of(tmp_path, files), 4, 4, 1)
    assert str(caught.value) == f"{tmp_path / named}: {problem}"


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="none: cannot be read: No such file or directory"):
        read_image_folder(tmp_path / "none", 4, 4, 1)


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
    halves = Preprocessing().fitted(tf.constant(image[None] / 255, tf.float32), 20, 30)
    assert halves.dtype == tf.float32 and halves.shape == (1, 20, 30, 3)


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


SMOOTH = np.kron(noise(4, 6, 3), np.ones((8, 8, 1), "uint8"))
PICTURE = PIL.Image.fromarray(SMOOTH)
PALETTE = PICTURE.convert("P", palette=PIL.Image.Palette.ADAPTIVE)
FORMATS = {
    "CMYK": encoded(PICTURE.convert("CMYK"), "JPEG"),
    "progressive": encoded(PICTURE, "JPEG", progressive=True),
    "alpha": encoded(np.concatenate([SMOOTH, noise(32, 48, 1)], axis=-1)),
    "grey and alpha": encoded(PICTURE.convert("LA")),
    "palette": encoded(PALETTE),
    "palette with a transparent colour": encoded(PALETTE, transparency=0),
    "one bit": encoded(PICTURE.convert("1")),
    "GIF": encoded(PICTURE, "GIF"),
    "animated GIF": encoded(PICTURE, "GIF", save_all=True, append_images=[PICTURE.rotate(90)]),
    "animated PNG": encoded(PICTURE, save_all=True, append_images=[PICTURE.rotate(90)]),
    "BMP": encoded(PICTURE, "BMP"),
    "WebP": encoded(PICTURE, "WEBP", lossless=True),
    "one pixel": encoded(SMOOTH[:1, :1]),
    "20,000 pixels wide": encoded(np.tile(SMOOTH[:2], (1, 417, 1))),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_what_pillow_sees(name):
    data = FORMATS[name]
    picture = PIL.Image.open(io.BytesIO(data))
    assert image_headers.problem_of(data) is None
    assert image_files.size_in(data) == picture.size[::-1]
    for channels, mode in ((3, "RGB"), (1, "L")):
        expected = np.asarray(picture.convert(mode)).reshape(*picture.size[::-1], channels)
        pixels = decode_pixels(data, channels).numpy().astype(int)
        assert np.abs(pixels - expected).max() <= 8  # of JPEG; the others differ by 1 at most


def test_sizes_are_told_by_the_beginnings_of_files(tmp_path):
    jpeg, file = encoded(SMOOTH, "JPEG"), tmp_path / "a"
    comment = b"\xff\xfe\xff\xff" + bytes(65_533)
    for data, size in ((jpeg, (32, 48)), (jpeg[:2] + comment * 2 + jpeg[2:], (32, 48)), (b"text", None)):
        file.write_bytes(data)
        assert image_files.size_in(file) == image_files.size_in(data) == size


def test_sixteen_bits_are_their_upper_eight():
    image = np.random.default_rng(0).integers(0, 2**16, (5, 7)).astype("uint16")
    np.testing.assert_array_equal(decode_pixels(encoded(image), 1)[..., 0], image >> 8)


def claiming(data, place, kind, *sides):
    """An image file whose header names other sides."""
    data = bytearray(data)
    struct.pack_into(kind, data, place, *sides)
    return bytes(data)


def test_what_is_broken_is_told_by_its_header_or_by_decoding():
    huge = claiming(encoded(SMOOTH), 16, ">II", 100_000, 100_000)
    assert image_headers.problem_of(huge).endswith("pixels at most, got 100,000 x 100,000")
    jpeg = encoded(SMOOTH, "JPEG")
    frame = jpeg.index(b"\xff\xc0") + 5
    assert "got 65,000 x 60,000" in image_headers.problem_of(claiming(jpeg, frame, ">HH", 60_000, 65_000))
    for data in (b"", b"text", b"\x89PNG", b"\xff\xd8", b"\xff\xd8\xff\xe0\0\x02"):
        assert image_headers.problem_of(data) == image_headers.NOT_WHOLE
    for data in (jpeg[:-30], encoded(SMOOTH)[:-40], FORMATS["WebP"][:60]):
        assert image_headers.problem_of(data) is None
        found = image_files.decoded_or_problem(data, lambda x: Preprocessing().decoded(x, 4, 4, 3))
        assert isinstance(found, str) and found == image_headers.NOT_WHOLE


def test_broken_images_are_left_out_and_counted(tmp_path, capsys):
    good, cut = encoded(SMOOTH), encoded(SMOOTH, "JPEG")[:-30]
    files = {
        "a/1.png": good,
        "a/2.jpg": cut,
        "b/1.txt": b"text",
        "b/2.png": good,
        "b/3.png": b"",
        "b/4.png": b"x",
    }
    folder_of(tmp_path, files)
    (tmp_path / "b/5.png").mkdir()
    begin()
    read = read_image_folder(tmp_path, 4, 4, 3)
    assert read.labels.tolist() == [0, 1] and read.images.shape == (2, 4, 4, 3)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("5 of 7 images are skipped: ") and "2 more" in said
    assert f"{tmp_path / 'a/2.jpg'} (expected a whole PNG or JPEG image), {tmp_path / 'b/1.txt'} (" in said
    (tmp_path / "a/1.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"a/1\.png: expected a whole PNG or JPEG image"):
        read_image_folder(tmp_path, 4, 4, 3)


def test_pipes_and_devices_among_images_are_left_out(tmp_path, capsys):
    """Reading them would wait for ever, or never end."""
    folder_of(tmp_path, {"a/1.png": encoded(noise(4, 4)), "b/1.png": encoded(noise(4, 4))})
    os.mkfifo(tmp_path / "a/2.png")
    (tmp_path / "b/2.png").symlink_to("/dev/zero")
    begin()
    assert len(read_image_folder(tmp_path, 4, 4, 1).images) == 2
    told = capsys.readouterr().err
    assert "2 of 4 images are skipped" in told and "2.png (cannot be read: expected a regular file" in told
    with pytest.raises(OSError, match="expected a regular file, got a pipe, a device"):
        image_files.size_in(str(tmp_path / "a/2.png"))


def test_several_folders_are_one_set(tmp_path):
    good = encoded(SMOOTH)
    for folder, names in (("one", ("a", "b")), ("two", ("b", "c"))):
        folder_of(tmp_path / folder, {f"{name}/1.png": good for name in names})
    read = read_labelled_images([tmp_path / "one", tmp_path / "two"], 4, 4, 3)
    assert read.class_names == ["a", "b", "c"] and read.labels.tolist() == [0, 1, 1, 2]


def test_a_folder_that_exceeds_the_memory_is_decoded_when_asked_for(tmp_path, monkeypatch):
    images = noise(6, 5, 5, 3)
    folder_of(tmp_path, {f"{'ab'[i % 2]}/{i}.png": encoded(image) for i, image in enumerate(images)})
    whole = read_image_folder(tmp_path, 5, 5, 3)
    monkeypatch.setattr(image_files, "MAX_BYTES", 100)
    files = read_image_folder(tmp_path, 5, 5, 3)
    assert isinstance(files.images, ImageFiles) and files.labels.tolist() == whole.labels.tolist()
    assert files.images.shape == whole.images.shape and len(files.images) == 6
    np.testing.assert_array_equal(files.images, whole.images)
    np.testing.assert_array_equal(files.images[2:4], whole.images[2:4])
    rows = np.array([5, 0])
    np.testing.assert_array_equal(files.images[rows], whole.images[rows])
    for size in (4, 6):
        batches = [
            ImageBatches(x, whole.labels, lambda x: x, size, seed=3) for x in (whole.images, files.images)
        ]
        for one, other in zip(*(batch.dataset(1) for batch in batches), strict=True):
            np.testing.assert_array_equal(one[0]["images"], other[0]["images"])
            np.testing.assert_array_equal(one[1], other[1])
    before = list(files.images.identity())
    shutil.copytree(tmp_path, tmp_path / "staged", copy_function=shutil.copyfile)  # with times of their own
    assert list(read_image_folder(tmp_path / "staged", 5, 5, 3).images.identity()) == before
    (tmp_path / "a/0.png").write_bytes(encoded(images[1]) + b" ")
    assert sum(x != y for x, y in zip(before, files.images.identity(), strict=True)) == 1
    (tmp_path / "a/0.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"a/0\.png: expected a whole"):
        np.asarray(files.images)


def test_paths_and_bytes_are_read_side_by_side(tmp_path):
    images = noise(3, 4, 4, 3)
    folder_of(tmp_path, {"0.png": encoded(images[0]), "2.png": encoded(images[2])})
    files = ImageFiles([tmp_path / "0.png", encoded(images[1]), tmp_path / "2.png"], (4, 4, 3))
    np.testing.assert_array_equal(np.stack(list(files.dataset(tf.data.Dataset.range(3)))), images)


def test_images_to_be_answered_are_not_decoded(tmp_path):
    folder_of(tmp_path, {"a/1.png": b"x", "a/.hidden": b"", "2.png": b"y"})
    images, places = zip(*read_images(tmp_path, (4, 4, 3)), strict=True)
    assert [*map(str, images)] == [*places] == [str(tmp_path / "2.png"), str(tmp_path / "a/1.png")]
    np.savez(tmp_path / "all.npz", images=noise(2, 8, 8))
    images, places = zip(*read_images(tmp_path / "all.npz", (4, 4, 3)), strict=True)
    assert images[0].shape == (4, 4, 3) and places[1] == f"{tmp_path / 'all.npz'}, image 2"


def test_threads_begin_when_the_first_image_is_there():
    here = threading.current_thread()
    found = in_threads(lambda item: (item, threading.current_thread() is here), range(50))
    assert list(found) == [(item, item == 0) for item in range(50)]
    assert list(in_threads(str, ())) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that not even root can read")
def test_a_single_file_that_cannot_be_read_is_named():
    with pytest.raises(DataError, match=r"^/proc/self/mem: cannot be read: "):
        next(read_images("/proc/self/mem", (4, 4, 3)))


@pytest.mark.skipif(sys.platform == "darwin", reason="names are UTF-8 there")
def test_names_outside_utf_8_are_read_in_a_graph(tmp_path):
    path = tmp_path / "caf\udce9.png"
    PIL.Image.new("L", (2, 2), 9).save(path)
    (read,) = ImageFiles([path], (2, 2, 1)).dataset(tf.data.Dataset.range(1))
    assert np.ravel(read).tolist() == [9] * 4
