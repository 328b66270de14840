"""Tables of images and texts: what is read, left out and refused."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_tfm.data import DataError, ImageFiles, read_image_texts
from keras_tfm.data.batches.image_texts import ImageTextBatches
from keras_tfm.data.sources import image_files, image_texts
from keras_tfm.data.sources.image_texts import identities
from keras_tfm.data.sources.lines import by_stem

SHAPE = (4, 4, 3)


@pytest.fixture
def folder(tmp_path):
    """Three images, of grey 10, 20 and 30, one of them in a folder."""
    home = tmp_path / "data"
    (home / "more").mkdir(parents=True)
    for value, name in ((10, "a.png"), (20, "b.png"), (30, "more/c.png")):
        image = np.full((5, 6, 3), value, "uint8")
        (home / name).write_bytes(tf.io.encode_png(image).numpy())
    return home


def written(folder, rows, name="pairs.tsv"):
    path = folder / name
    path.write_text("".join(f"{row}\n" for row in rows), "utf-8")
    return path


def test_tables_name_images_beside_them(folder, monkeypatch, tmp_path):
    table = written(folder, ["a.png\tone", "more/c.png\tthree", "./a.png\tone again"])
    monkeypatch.chdir(tmp_path)  # paths are relative to the table's folder, not to the working one
    found = read_image_texts("data/pairs.tsv", SHAPE)
    assert found.images[:, 0, 0, 0].tolist() == [10, 30, 10] and found.images.shape == (3, *SHAPE)
    assert found.texts == ["one", "three", "one again"]
    rows = [{"caption": "two", "id": 3, "file_name": "b.png"}]
    table = written(folder, map(json.dumps, rows), "pairs.jsonl")
    assert read_image_texts(table, SHAPE).texts == ["two"]
    table = written(folder, ["id,title,picture", "1,x,a.png"], "pairs.csv")
    assert read_image_texts(table, SHAPE, ["picture", "title"]).texts == ["x"]
    assert read_image_texts([table, folder / "pairs.jsonl"], SHAPE).texts == ["x", "two"]


def test_an_image_has_a_list_of_texts(folder):
    rows = [
        {"image": "a.png", "captions": ["one", "one again"]},
        {"image": "b.png", "captions": [{"id": 3, "text": "two"}, {"id": 4, "text": "two again"}]},
        {"image": "more/c.png", "captions": "three"},
    ]
    found = read_image_texts(written(folder, map(json.dumps, rows), "pairs.jsonl"), SHAPE)
    assert found.texts == ["one", "one again", "two", "two again", "three"]
    assert found.images[:, 0, 0, 0].tolist() == [10, 10, 20, 20, 30]
    for texts, message in (
        ([], "line 1: expected a text, the 'captions' is an empty list"),
        (["one", " "], "line 1: expected a text, the 'captions' is empty"),
        (["one", 3], "line 1: expected a string as 'captions', got 3"),
        ({"id": 3}, "line 1: expected a string as 'captions'"),
    ):
        line = json.dumps({"image": "a.png", "captions": texts})
        with pytest.raises(DataError, match=message):
            read_image_texts(written(folder, [line], "pairs.jsonl"), SHAPE)


def test_sets_of_tfds_hold_images_and_their_texts(folder, prepared):
    text = tfds.features.Text()
    captions = tfds.features.Sequence({"id": tf.int64, "text": text})  # as in coco_captions
    features = {"image": tfds.features.Image(shape=(5, 6, 3)), "captions": captions}
    examples = [
        {"image": str(folder / name), "captions": [{"id": i, "text": x} for i, x in enumerate(texts)]}
        for name, texts in (("a.png", ["one", "one again"]), ("b.png", ["two"]))
    ]
    path = prepared("tiny_captions", features, examples)
    found = read_image_texts(path, SHAPE)
    assert found.texts == ["one", "one again", "two"] and found.images[:, 0, 0, 0].tolist() == [10, 10, 20]
    features = {"title": text, "photo": tfds.features.Image(shape=(5, 6, 3))}
    path = prepared("tiny_titles", features, [{"title": "x", "photo": str(folder / "b.png")}])
    assert read_image_texts(path, SHAPE, ["photo", "title"]).texts == ["x"]


def test_folders_hold_a_table_or_texts_beside_their_images(folder, caplog):
    for name, text in (("a", "one\none again"), ("more/c", "three\n"), ("none", "nothing")):
        (folder / f"{name}.txt").write_text(text)
    found = read_image_texts(folder, SHAPE)
    assert found.texts == ["one", "one again", "three"]
    assert found.images[:, 0, 0, 0].tolist() == [10, 10, 30] and len(set(identities(found.images))) == 2
    assert "1 of 4 images are skipped: none (cannot be read: No such file" in caplog.text
    written(folder, ["file_name,text", "b.png,two"], "metadata.csv")
    assert read_image_texts([folder, folder / "metadata.csv"], SHAPE).texts == ["two", "two"]


def test_images_stand_beside_texts_of_their_own_name_alone(folder, caplog):
    for name, source in (("x.png", "a"), ("x.1.png", "b"), ("y.PNG", "b")):
        (folder / name).write_bytes((folder / f"{source}.png").read_bytes())
    for name in ("x.txt", "x.1.txt", "y.txt"):
        (folder / name).write_text(name)
    for name in ("x.json", "y.json", "y.npz"):  # as crawlers write
        (folder / name).write_text("{}")
    (folder / "._y.txt").write_bytes(b"\0\5\x16\7")  # as a Mac does
    found = read_image_texts(folder, SHAPE)
    assert found.texts == ["x.1.txt", "x.txt", "y.txt"] and "skipped" not in caplog.text
    assert found.images[:, 0, 0, 0].tolist() == [20, 10, 20]


def test_blank_texts_beside_images_are_counted_and_left_out(folder, caplog):
    for name, text in (("a", ""), ("b", "two\n\n"), ("more/c", " \nthree")):
        (folder / f"{name}.txt").write_text(text)
    assert read_image_texts(folder, SHAPE).texts == ["two", "three"]
    expected = "3 of 5 texts are skipped: {0}/a.txt (the file is empty), {0}/b.txt, line 2 (blank)"
    assert caplog.text.count("skipped") == 1 and expected.format(folder) in caplog.text
    for name in ("b", "more/c"):
        (folder / f"{name}.txt").write_text("\n")
    with pytest.raises(DataError, match="expected texts, all files are empty"):
        read_image_texts(folder, SHAPE)


def test_hidden_folders_are_not_read_and_others_are_listed_once(folder, monkeypatch):
    (folder / ".ipynb_checkpoints").mkdir()
    for name in ("a", "b", "more/c", ".ipynb_checkpoints/a-checkpoint"):
        (folder / f"{name}.txt").write_text(name)
    listed = []
    monkeypatch.setattr(image_texts, "by_stem", lambda path: listed.append(path) or by_stem(path))
    assert read_image_texts(folder, SHAPE).texts == ["a", "b", "more/c"]
    assert listed == [folder, folder / "more"]


def test_folders_without_texts_and_links_out_of_one_are_refused(folder):
    with pytest.raises(DataError, match=r"expected metadata\.jsonl or .*, or a \.txt beside each image"):
        read_image_texts(folder, SHAPE)
    (folder.parent / "outside.png").write_bytes((folder / "a.png").read_bytes())
    (folder / "more" / "d.png").symlink_to(folder.parent / "outside.png")
    (folder / "more" / "d.txt").write_text("four")
    with pytest.raises(DataError, match=r"d\.txt: expected an image inside .*, 'd\.png' leads elsewhere"):
        read_image_texts(folder, SHAPE)


def test_missing_and_broken_images_are_counted_and_left_out(folder, caplog):
    (folder / "broken.png").write_bytes(b"\x89PNG")
    table = written(folder, ["none.png\tx", "a.png\tone", "broken.png\ty", "more\tz"])
    found = read_image_texts(table, SHAPE)
    assert found.texts == ["one"] and len(found.images) == 1
    assert "3 of 4 images are skipped: none.png (cannot be read: No such file" in caplog.text
    table = written(folder, ["none.png\tx", "broken.png\ty"])
    with pytest.raises(DataError, match=r"none\.png: cannot be read: No such file"):
        read_image_texts(table, SHAPE)


def test_images_that_are_too_many_stay_on_the_disk(folder, monkeypatch):
    monkeypatch.setattr(image_files, "MAX_BYTES", 1)
    table = written(folder, ["a.png\tone", "none.png\tx", "b.png\ttwo", "a.png\tthree"])
    found = read_image_texts(table, SHAPE)
    assert isinstance(found.images, ImageFiles) and found.texts == ["one", "two", "three"]
    assert len(set(identities(found.images))) == 2
    assert len(set(identities(np.asarray(found.images)))) == 2
    texts = {"token_ids": tf.constant([[1], [2], [3]])}
    batches = ImageTextBatches(found.images, texts, lambda x: tf.cast(x, tf.float32), 2)
    (one, _), (two, _) = batches.dataset()
    assert one["images"][:, 0, 0, 0].numpy().tolist() == [10, 20] and two["token_ids"].numpy() == [[3]]
    batches = ImageTextBatches(found.images, texts, lambda x: tf.cast(x, tf.float32), 3, seed=0)
    ((inputs, targets),) = batches.dataset()
    grey = {1: 10, 2: 20, 3: 10}
    assert [grey[row] for row in inputs["token_ids"][:, 0].numpy()] == inputs["images"][
        :, 0, 0, 0
    ].numpy().tolist()
    assert targets.shape == (3,)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("../outside.png\tx", r"line 1: expected the path of an image inside .*, got '\.\./outside\.png'"),
        ("{outside}\tx", "expected the path of an image inside"),
        ("link.png\tx", "expected the path of an image inside"),
        ("a\0.png\tx", "expected the path of an image, got"),
        ("a.png\t ", "line 1: expected a text, the text is empty"),
        ("\tx", "line 1: expected a text, the image is empty"),
        ("a.png", "expected 2 columns, image and text, got 1"),
    ],
)
def test_paths_out_of_the_folder_and_empty_cells_are_refused(row, message, folder):
    outside = folder.parent / "outside.png"
    outside.write_bytes((folder / "a.png").read_bytes())
    (folder / "link.png").symlink_to(outside)
    with pytest.raises(DataError, match=message):
        read_image_texts(written(folder, [row.format(outside=outside)]), SHAPE)


def test_other_files_are_refused(folder):
    with pytest.raises(DataError, match=r"expected a \.tsv, \.csv, \.jsonl"):
        read_image_texts(folder / "a.png", SHAPE)
    with pytest.raises(DataError, match="expected images and texts, the file is empty"):
        read_image_texts(written(folder, []), SHAPE)
    with pytest.raises(DataError, match="expected the bytes of an image"):
        read_image_texts(written(folder, ['{"image": 3, "text": "x"}'], "a.jsonl"), SHAPE)
