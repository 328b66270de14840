"""Tables of the paths of images and their labels."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import DataError, read_labelled_images
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.images import read_images
from tests.data.sources.parts import parts

SHAPE = (4, 4, 1)
NAMES = ["day/a.png", "b.png", "day/c, d.png"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "photos" / "day").mkdir(parents=True)
    for value, name in enumerate(NAMES):
        tf.io.write_file(str(tmp_path / "photos" / name), tf.io.encode_png(np.full(SHAPE, value, "uint8")))
    return tmp_path / "photos"


def write(path, header, rows):
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(header, row, strict=True))) for row in rows]
    else:
        separator = "," if path.suffix == ".csv" else "\t"
        quoted = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in [header, *rows]]
        lines = [separator.join(row) for row in quoted]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
@pytest.mark.parametrize(
    ("header", "columns"),
    [(("path", "label"), None), (("File_Name", "Class"), None), (("photo", "species"), ["photo", "species"])],
)
def test_images_are_read_from_paths_beside_the_table(suffix, header, columns, folder):
    if suffix == ".jsonl":
        header = tuple(name.lower() for name in header)
    labels = ["dog", "cat", "dog"]
    path = write(folder / f"table{suffix}", header, list(zip(NAMES, labels, strict=True)))
    read = read_labelled_images(path, *SHAPE, columns)
    assert read.class_names == ["cat", "dog"] and read.labels.tolist() == [1, 0, 1]
    assert read.images[:, 0, 0, 0].tolist() == [0, 1, 2]
    files = read_labelled_images(path, *SHAPE, columns, in_memory=False).images
    assert isinstance(files, ImageFiles) and files.place(2) == str(folder / NAMES[2])
    images, places = parts(read_images(path, SHAPE, columns))
    assert images == places == [str(folder / name) for name in NAMES]


def test_absolute_paths_and_broken_ones(folder, caplog):
    rows = [(str(folder / NAMES[0]), "a"), (NAMES[1], "b"), ("gone.png", "b")]
    read = read_labelled_images(
        write(
            folder.parent / "table.csv",
            ("path", "label"),
            rows[:1] + [(f"photos/{name}", label) for name, label in rows[1:]],
        ),
        *SHAPE,
    )
    assert len(read.images) == 2 and "gone.png" in caplog.text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [("photo", "kind"), ("b.png", "x")],
            "line 1: expected the path of an image.*--columns photo,kind",
        ),
        ([("path", "label"), ("b.png", "")], "line 2: expected a label"),
        ([("path", "label"), ("", "x")], "line 2: expected"),
        ([("path", "label"), ("gone.png", "x"), ("b.png", "y")], "gone.png: cannot be read"),
        ([("path", "label"), ("b.png", "y")], "expected images of two classes or more"),
    ],
)
def test_what_is_no_table_of_images_is_refused(rows, message, folder):
    path = folder / "table.csv"
    path.write_text("".join(f"{one},{other}\n" for one, other in rows))
    with pytest.raises(DataError, match=message):
        read_labelled_images(path, *SHAPE)
