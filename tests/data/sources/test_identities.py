"""Identities by the names of files, in Market-1501's layout and others, and the drawn people."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import DataError, read_identities
from keras_tfm.data.sources.identities import identity_of
from keras_tfm.data.worlds.people import drawn_people, write_drawn_people


def write(folder, *names):
    for name in names:
        tf.io.write_file(str(folder / name), tf.io.encode_png(np.full((8, 4, 3), len(name), "uint8")))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0002_c1s1_000451_03.jpg", ("0002", 1)),
        ("a/b/-1_c6s3_000451_03.JPG", ("-1", 6)),
        ("0005_c2_f0046302.png", ("0005", 2)),
        ("12_c12.jpeg", ("12", 12)),
        ("0002_c1s1_000451_03.txt", None),
        ("person_c1s1.jpg", None),
        ("0002.jpg", None),
    ],
)
def test_names_of_files(name, expected):
    assert identity_of(name) == expected


def test_parts_of_a_data_set(tmp_path):
    write(tmp_path / "market/bounding_box_train", "0002_c1s1_1_1.jpg", "0003_c2s1_1_1.jpg")
    write(tmp_path / "market/query", "0005_c1s1_1_1.jpg")
    write(tmp_path / "market/bounding_box_test", "0005_c3s1_1_1.jpg", "-1_c3s1_1_1.jpg", "0000_c3s1_1_2.jpg")
    (tmp_path / "market/query/Thumbs.db").write_bytes(b"x")
    data = read_identities(tmp_path / "market", (8, 4, 3))
    assert data.identities.tolist() == ["0002", "0003"] and data.are_queries is None
    data = read_identities(tmp_path / "market", (8, 4, 3), ("query", "gallery"))
    assert data.identities.tolist() == ["0005", "0000", "0005"] and data.cameras.tolist() == [1, 3, 3]
    assert data.are_queries.tolist() == [True, False, False]
    data = read_identities(tmp_path / "market/query", (8, 4, 3), ("query", "gallery"))  # no parts in it
    assert data.identities.tolist() == ["0005"] and data.are_queries is None


def test_what_is_wrong_is_named(tmp_path):
    write(tmp_path / "a/train", "0002_c1s1_1_1.jpg")
    with pytest.raises(DataError, match="expected a folder query or image_query, there is none"):
        read_identities(tmp_path / "a", (8, 4, 3), ("query", "gallery"))
    write(tmp_path / "b", "cat.png")
    with pytest.raises(DataError, match=r"cat\.png: expected a name such as 0002_c1s1_000451_03\.jpg"):
        read_identities(tmp_path / "b", (8, 4, 3))
    write(tmp_path / "c", "-1_c3s1_1_1.jpg")
    with pytest.raises(DataError, match="expected images of identities, there are none"):
        read_identities(tmp_path / "c", (8, 4, 3))
    with pytest.raises(DataError, match="expected a folder of images"):
        read_identities(tmp_path / "nowhere", (8, 4, 3))


def test_people_last_and_cameras_differ():
    data = drawn_people(3, seed=1, num_cameras=4, num_shots=2)
    assert data.images.shape == (24, 64, 32, 3) and data.images.dtype == np.uint8
    later = drawn_people(1, seed=1, num_cameras=2, num_shots=1, first=2)
    np.testing.assert_array_equal(later.images, data.images[[16, 18]])
    assert later.identities.tolist() == ["0003", "0003"] and later.cameras.tolist() == [1, 2]
    light = data.images.mean(axis=(1, 2, 3)).reshape(3, 4, 2)
    assert np.ptp(light, axis=1).min() > 2 * np.ptp(light, axis=2).max()  # cameras, not shots
    assert not np.array_equal(data.images[0], data.images[1])


def test_people_are_written_as_a_data_set(tmp_path):
    write_drawn_people(tmp_path / "people", 2, 1, seed=4, num_cameras=3, num_shots=1)
    train = read_identities(tmp_path / "people", (64, 32, 3))
    assert train.identities.tolist() == ["0001"] * 3 + ["0002"] * 3
    np.testing.assert_array_equal(train.images, drawn_people(2, seed=4, num_cameras=3, num_shots=1).images)
    tested = read_identities(tmp_path / "people", (64, 32, 3), ("query", "gallery"))
    assert tested.cameras.tolist() == [1, 2, 3] and tested.are_queries.tolist() == [True, False, False]
