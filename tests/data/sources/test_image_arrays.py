"""Arrays of images in .npz and idx files: read, brought to a size, and refused in one line."""

import gzip
import struct

import numpy as np
import pytest

from keras_tfm.data import DataError, Preprocessing, read_labelled_images
from keras_tfm.data.sources.image_arrays import fit_arrays, read_arrays
from keras_tfm.data.sources.images import read_images
from tests.data.sources.parts import parts

SHAPE = 6, 6, 1


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, "uint8")


def idx(array):
    """An array of bytes in LeCun's format."""
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def save_pair(folder, images, labels, suffix=".gz"):
    pack = gzip.compress if suffix else bytes
    (folder / f"train-images-idx3-ubyte{suffix}").write_bytes(pack(idx(images)))
    (folder / f"train-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(labels)))
    return folder / f"train-images-idx3-ubyte{suffix}", folder / f"train-labels-idx1-ubyte{suffix}"


def test_npz_by_known_names_and_by_columns(tmp_path):
    images, labels = noise(4, 6, 6), np.array([[3], [12], [3], [3]])
    arrays = {"x_train": images, "y_train": labels, "x_test": images[:2], "y_test": labels[:2, 0]}
    np.savez_compressed(tmp_path / "a.npz", **arrays, other=np.zeros(3))
    read = read_labelled_images(tmp_path / "a.npz", *SHAPE)
    assert read.class_names == ["3", "12"] and read.labels.tolist() == [0, 1, 0, 0]  # numbers by size
    np.testing.assert_array_equal(read.images[..., 0], images)
    read = read_labelled_images(tmp_path / "a.npz", *SHAPE, columns=["x_test", "y_test"])
    assert read.labels.tolist() == [0, 1]
    found, _ = parts(read_images(tmp_path / "a.npz", (6, 6, 1), ["x_test", "y_test"]))
    np.testing.assert_array_equal(np.stack(found)[..., 0], images[:2])
    np.savez(tmp_path / "b.npz", images=(images / 255).astype("float32"), labels=["b", "a", "b", "c"])
    read = read_labelled_images([tmp_path / "b.npz", tmp_path / "a.npz"], *SHAPE)
    assert read.class_names == ["3", "12", "a", "b", "c"] and len(read.images) == 8
    np.testing.assert_array_equal(read.images[:4, ..., 0], images)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_find_their_labels(tmp_path, suffix):
    images, labels = noise(5, 6, 6), np.array([7, 0, 7, 1, 0], "uint8")
    pair = save_pair(tmp_path, images, labels, suffix)
    for paths in (pair[0], pair, pair[::-1]):
        read = read_labelled_images(paths, *SHAPE)
        assert read.class_names == ["0", "1", "7"] and read.labels.tolist() == [2, 0, 2, 1, 0]
        np.testing.assert_array_equal(read.images[..., 0], images)
    pair[1].unlink()
    assert read_arrays(str(pair[0])).labels is None
    with pytest.raises(DataError, match="expected labels beside the images, there are none"):
        read_labelled_images(pair[0], *SHAPE)


def test_sizes_and_channels_are_brought_to_the_model_s():
    grey, colour = noise(3, 6, 6, 1), noise(3, 6, 6, 4)
    one = Preprocessing()
    np.testing.assert_array_equal(fit_arrays(grey, 6, 6, 3, one), np.repeat(grey, 3, -1))
    np.testing.assert_array_equal(fit_arrays(colour, 6, 6, 3, one), colour[..., :3])
    luminance = colour[..., :3] @ np.array([0.299, 0.587, 0.114])
    assert np.abs(fit_arrays(colour, 6, 6, 1, one)[..., 0] - luminance).max() <= 0.51
    assert fit_arrays(grey, 9, 4, 1, one).shape == (3, 9, 4, 1)


@pytest.mark.parametrize(
    ("arrays", "columns", "message"),
    [
        (
            {"images": np.zeros((2, 6))},
            None,
            r"expected images (N, H, W) or (N, H, W, 1, 3 or 4), got (2, 6)",
        ),
        ({"images": noise(2, 6, 6)}, None, "expected labels beside the images, there are none"),
        ({"images": noise(2, 6, 6), "labels": [1]}, None, "expected 2 labels, integers or strings, got (1,)"),
        ({"images": noise(2, 6, 6), "labels": [0.5, 1]}, None, "got (2,) of float64"),
        (
            {"images": noise(2, 6, 6) * 300.0, "labels": [0, 1]},
            None,
            "expected pixels from 0 to 255, or floats",
        ),
        (
            {"images": noise(2, 6, 6), "labels": [1, 1]},
            None,
            "expected images of two classes or more, got [1]",
        ),
        ({"images": noise(0, 6, 6), "labels": np.zeros(0, int)}, None, "expected images, there are none"),
        ({"a": noise(2, 6, 6), "b": [0, 1]}, None, "expected arrays images and labels, got 'a, b'"),
        ({"a": noise(2, 6, 6), "b": [0, 1]}, ["a", "c"], "expected an array named 'c', got a, b"),
        ({"images": np.array([{}, {}]), "labels": [0, 1]}, None, "expected an .npz of images and labels: "),
    ],
)
def test_npz_that_are_none_are_refused(tmp_path, arrays, columns, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError) as caught:
        read_labelled_images(tmp_path / "a.npz", *SHAPE, columns=columns)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"text", "expected an idx file of bytes, got one that begins with b'text'"),
        (b"", "got one that begins with b''"),
        (bytes([0, 0, 13, 3]), "expected an idx file of bytes"),
        (idx(noise(2, 6, 6))[:9], "expected a whole idx file, it ends in its head"),
        (idx(noise(2, 6, 6))[:-1], "expected 72 bytes, as its head (2, 6, 6) says, got 71"),
        (idx(noise(2, 6, 6)) + b"x", "got more"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "expected at most 8,589,934,592 bytes, its head says"),
        (idx(noise(3)), "expected images (N, H, W)"),
    ],
)
def test_idx_files_that_are_none_are_refused(tmp_path, data, message):
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        read_labelled_images(path, *SHAPE)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)
    path.with_suffix(".gz").write_bytes(gzip.compress(data)[:-4])
    with pytest.raises(DataError):
        read_arrays(str(path.with_suffix(".gz")))


def test_broken_archives_and_labels_alone_are_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK text")
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(noise(3)))
    for name, message in (
        ("a.npz", "expected an .npz of images and labels: File is not a zip file"),
        ("b.npz", "cannot be read: No such file"),
        ("train-labels-idx1-ubyte", "expected an idx file of images, with images-idx3 in its name"),
    ):
        with pytest.raises(DataError, match=message):
            read_labelled_images(tmp_path / name, *SHAPE)
