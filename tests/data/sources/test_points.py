"""Clouds of points from folders and tables, and what is skipped."""

import numpy as np
import pytest

from keras_tfm.data import DataError, PointClouds, read_labelled_points
from keras_tfm.data.sources.points import read_points


@pytest.fixture
def folder(tmp_path):
    for name, size in (("chair/1.xyz", 5), ("chair/2.csv", 3), ("lamp/1.txt", 7)):
        path = tmp_path / "shapes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        separator = "," if path.suffix == ".csv" else " "
        np.savetxt(path, np.random.default_rng(size).normal(size=(size, 3)), delimiter=separator)
    return tmp_path / "shapes"


def test_a_folder_is_a_class(folder):
    data = read_labelled_points(folder, num_points=4)
    assert data.clouds.sizes == [5, 3, 7] and data.labels.tolist() == [0, 0, 1]
    assert data.class_names == ["chair", "lamp"]
    assert all(cloud[0].tolist() == [0, 0, 0] and cloud.dtype == np.float32 for cloud in data.clouds)
    there = read_labelled_points(folder, num_points=4, normalize=False)
    np.testing.assert_array_equal(there.clouds[0], np.loadtxt(folder / "chair" / "1.xyz").astype("float32"))


def test_a_table_has_paths_and_labels(folder, tmp_path):
    rows = "path,label\nshapes/lamp/1.txt,2\nshapes/chair/1.xyz,10\n"
    (tmp_path / "table.csv").write_text(rows)
    data = read_labelled_points(tmp_path / "table.csv", num_points=4)
    assert data.clouds.sizes == [7, 5] and data.class_names == ["10", "2"]
    (tmp_path / "table.tsv").write_text("shapes/lamp/1.txt\tx\nshapes/chair/1.xyz\ty\n")
    assert read_labelled_points(tmp_path / "table.tsv", 4, columns=[0, 1]).class_names == ["x", "y"]
    inputs = [source for source, _ in read_points(tmp_path / "table.csv")]
    assert inputs == [str(folder / "lamp" / "1.txt"), str(folder / "chair" / "1.xyz")]


def test_clouds_in_a_table_are_known_by_their_rows(folder, parquet, caplog):
    clouds = [path.read_bytes() for path in sorted(folder.rglob("*.*"))]
    path = parquet("clouds.parquet", {"cloud": [*clouds, b"what is this"], "label": ["x", "x", "y", "y"]})
    assert [place for _, place in read_points(path)] == [f"{path}, row {row}" for row in (1, 2, 3, 4)]
    data = read_labelled_points(path, num_points=4)
    assert data.clouds.sizes == [5, 3, 7] and data.clouds.place(2) == f"{path}, row 3"
    assert f"1 of 4 clouds are skipped: {path}, row 4 (" in caplog.text


def test_what_predict_reads(folder):
    names = [path[len(str(folder)) + 1 :] for path, _ in read_points(folder)]
    assert names == ["chair/1.xyz", "chair/2.csv", "lamp/1.txt"]
    assert [path for path, _ in read_points(folder / "chair" / "2.csv")] == [str(folder / "chair" / "2.csv")]
    (folder / "a.txt").write_text("what is this")
    with pytest.raises(DataError, match=r"a\.txt: expected points"):
        list(read_points(folder / "a.txt"))
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="the folder is empty"):
        list(read_points(folder / "empty"))


def test_what_cannot_be_read_is_skipped_unless_it_is_a_whole_class(folder, caplog):
    data = read_labelled_points(folder, num_points=4, least_points=5)
    assert data.clouds.sizes == [5, 7] and "2.csv" in caplog.text
    with pytest.raises(DataError, match=r"1\.xyz: expected 8 points or more, as many as the neighbours"):
        read_labelled_points(folder, num_points=4, least_points=8)
    with pytest.raises(DataError, match="expected a folder of clouds for each of two classes or more, got 0"):
        read_labelled_points(folder / "lamp", num_points=4)
    with pytest.raises(DataError, match="expected a folder with a folder of clouds per class"):
        read_labelled_points(folder / "lamp" / "1.txt", num_points=4)
    with pytest.raises(DataError, match="No such file"):
        read_labelled_points(folder / "nowhere", num_points=4)


def test_clouds_are_selected_and_known_again():
    clouds = PointClouds([np.eye(3), np.zeros((5, 3)), np.ones((2, 3))])
    assert clouds[1:].sizes == [5, 2] and clouds[np.array([2, 0])].sizes == [2, 3]
    assert clouds[np.int64(2)].shape == (2, 3) and clouds[1:].place(0) == "cloud 1"
    assert list(clouds.identity()) == list(PointClouds(list(clouds)).identity())
    assert len({*clouds.identity(), *PointClouds([2 * np.eye(3)]).identity()}) == 4
