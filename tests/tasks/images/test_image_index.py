"""The index of images: what it finds, how it grows, what of it is refused."""

import dataclasses
import json
import sys

import numpy as np
import pytest

from keras_tfm.tasks.images.image_index import Image, ImageIndex, IndexConfig, unknown_images
from keras_tfm.tasks.images.vector_graph import faiss, write_graph

CONFIG = IndexConfig("runs/mine", "abc", 8)


def unit(rng, count):
    vectors = rng.normal(size=(count, 8)).astype("float32")
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def images(*names):
    return [Image(f"/photos/{name}", 10, 20) for name in names]


@pytest.fixture
def index(tmp_path):
    return ImageIndex.create(tmp_path / "index", CONFIG)


def test_the_nearest_come_first(index):
    vectors = unit(np.random.default_rng(0), 50)
    names = [f"{number}.png" for number in range(50)]
    index.add(images(*names[:30]), vectors[:30])
    index.add(images(*names[30:]), vectors[30:])
    asked = unit(np.random.default_rng(1), 1)[0]
    cosines = vectors @ asked
    order = np.argsort(-cosines)[:7]
    for found in (index, ImageIndex(index.folder)):
        answers = found.search(asked, 7)
        assert [path for path, _ in answers] == [f"/photos/{number}.png" for number in order]
        np.testing.assert_allclose([cosine for _, cosine in answers], cosines[order], atol=1e-6)
    assert len(index.search(asked, 100)) == 50 and len(index) == 50


def test_vectors_that_are_not_finite_are_neither_taken_nor_ranked_first(index):
    vectors = unit(np.random.default_rng(0), 3)
    spoilt = vectors.copy()
    spoilt[1, 5] = np.nan
    with pytest.raises(
        ValueError, match="`vectors` must be finite numbers; the vector of /photos/b, row 1, is not"
    ):
        index.add(images("a", "b", "c"), spoilt)
    assert not len(index) and len(list(index.folder.iterdir())) == 1
    index.add(images("a", "b", "c"), vectors)
    with pytest.raises(ValueError, match="`vector` must be finite numbers; entry 5 is not"):
        index.search(spoilt[1])
    (part,) = index.folder.glob("*.npy")
    np.save(part, spoilt)
    with pytest.raises(ValueError, match="the vector of /photos/b is not finite: make a new index"):
        ImageIndex(index.folder).search(vectors[0], 1)


def test_it_grows_without_being_written_anew(index):
    vectors = unit(np.random.default_rng(0), 3)
    index.add(images("a", "b"), vectors[:2])
    before = {path: path.stat().st_mtime_ns for path in index.folder.iterdir()}
    again = ImageIndex(index.folder)
    again.add(images("c"), vectors[2:])
    again.add([], np.zeros((0, 8)))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list(index.folder.iterdir())) == len(before) + 2
    assert len(ImageIndex(index.folder)) == 3 and len(index) == 2


def test_an_image_that_changed_counts_once(index):
    vectors = unit(np.random.default_rng(0), 3)
    index.add(images("a", "b"), vectors[:2])
    newer = Image("/photos/a", 10, 99)
    assert images("a")[0] in index and newer not in index
    index.add([newer], vectors[2:])
    assert newer in index and images("a")[0] not in index and len(index) == 2
    for found in (index, ImageIndex(index.folder)):
        assert sorted(path for path, _ in found.search(vectors[0], 5)) == ["/photos/a", "/photos/b"]
        assert found.search(vectors[2], 1)[0][0] == "/photos/a"


def test_files_are_known_as_they_are(index, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"1")
    (image,) = unknown_images(index, [path, tmp_path / "gone.png"])
    index.add([image], unit(np.random.default_rng(0), 1))
    assert not unknown_images(index, [path])
    path.write_bytes(b"12")
    assert unknown_images(index, [path])[0].size == 2


def test_another_model_or_width_is_refused(index):
    index.check(CONFIG)
    index.check(dataclasses.replace(CONFIG, model="moved"))
    with pytest.raises(ValueError, match="made by another model, runs/mine, or by other weights of it"):
        index.check(dataclasses.replace(CONFIG, fingerprint="x"))
    with pytest.raises(ValueError, match="vectors of 8 numbers, the model makes 16: make a new one"):
        index.check(dataclasses.replace(CONFIG, width=16))
    with pytest.raises(ValueError, match=r"`vectors` must have the shape \(1, 8\); it is \(1, 9\)"):
        index.add(images("a"), np.zeros((1, 9)))
    with pytest.raises(ValueError, match=r"`vector` must have the shape \(8,\); it is \(9,\)"):
        index.search(np.zeros(9))
    assert index.search(np.zeros(8)) == []
    with pytest.raises(FileExistsError):
        ImageIndex.create(index.folder, CONFIG)


def test_what_was_stopped_leaves_no_half(index):
    index.add(images("a"), unit(np.random.default_rng(0), 1))
    (index.folder / "images-000001-x.jsonl").write_text("cut sh")  # its vectors were never written
    (index.folder / ".images-000002-x.npy.1").write_bytes(b"cut")
    assert len(ImageIndex(index.folder)) == 1


@pytest.fixture
def connected(index):
    """An index of 400 images in four parts, the first three of which a graph connects."""
    vectors = unit(np.random.default_rng(0), 400)
    for first in range(0, 400, 100):
        if first == 300:
            assert index.connect(least=300) == 300
        index.add(images(*map(str, range(first, first + 100))), vectors[first : first + 100])
    return index, vectors


def test_a_graph_finds_the_nearest(connected):
    index, vectors = connected
    assert index.num_connected == 300 and index.connect() == 0  # what is left is too little
    for found in (index, ImageIndex(index.folder)):
        assert found.num_connected == 300
        for asked in unit(np.random.default_rng(1), 5):
            answers, exact = found.search(asked, 7), found.search(asked, 7, exact=True)
            assert [path for path, _ in answers] == [path for path, _ in exact]
            np.testing.assert_allclose([x for _, x in answers], [x for _, x in exact], atol=1e-6)
    before = {path: path.stat().st_mtime_ns for path in index.folder.iterdir()}
    assert index.connect(least=100) == 100
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert ImageIndex(index.folder).num_connected == 400
    assert index.search(vectors[350], 1)[0][0] == "/photos/350"


def test_a_graph_does_not_find_images_that_changed(connected):
    index, vectors = connected
    newer = [Image(f"/photos/{row}", 10, 99) for row in range(150)]
    index.add(newer, -vectors[:150])
    for found in (index, ImageIndex(index.folder)):
        answers = found.search(vectors[7], 400)
        assert len({path for path, _ in answers}) == len(answers) > 250
        assert dict(answers)["/photos/7"] == pytest.approx(-1)
        assert found.search(-vectors[7], 1)[0][0] == "/photos/7"


def test_a_graph_of_other_rows_is_left(connected):
    index, vectors = connected
    part = index.folder / "images-000001-0.npy"  # of a process that added at the same time
    np.save(part, vectors[:100])
    lines = (json.dumps(image._asdict()) for image in images(*map(str, range(400, 500))))
    part.with_suffix(".jsonl").write_text("\n".join(lines))
    again = ImageIndex(index.folder)
    assert again.num_connected == 0 and len(again) == 500
    assert {path for path, _ in again.search(vectors[7], 2)} == {"/photos/7", "/photos/407"}


def test_damaged_graphs_are_refused(connected):
    index, _ = connected
    (path,) = index.folder.glob("graph-*")
    whole = path.read_bytes()
    for content in (b"", b"no graph", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="expected a graph of vectors by Faiss"):
            ImageIndex(index.folder)
    write_graph(path, [np.ones((9, 8), "float32")], 8)
    with pytest.raises(ValueError, match="a graph of 300 vectors of 8 numbers, got IndexHNSWFlat of 9 of 8"):
        ImageIndex(index.folder)


def test_without_faiss_all_are_compared(connected, monkeypatch, caplog):
    index, vectors = connected
    monkeypatch.setitem(sys.modules, "faiss", None)
    faiss.cache_clear()
    try:
        again = ImageIndex(index.folder)
        assert again.num_connected == 0 and again.search(vectors[7], 1)[0][0] == "/photos/7"
        assert 'Faiss is not installed, so a search compares all vectors: pip install "keras' in caplog.text
        with pytest.raises(ImportError, match=r'pip install "keras-tfm\[search\]"'):
            again.connect(1)
    finally:
        faiss.cache_clear()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("index.json", "[1]", "index.json"),
        ("index.json", '{"model": "a", "fingerprint": "b"}', "needs width"),
        ("index.json", '{"model": "a", "fingerprint": "b", "width": 9}', "expected 1 vectors of 9 numbers"),
        ("npy", b"no array", "expected vectors in NumPy's format"),
        ("jsonl", "", r"expected 0 vectors of 8 numbers, got the shape \(1, 8\)"),
        ("jsonl", '{"path": "a"}', "expected a path, a size and a time a line"),
        ("jsonl", '{"path": 1, "size": 1, "modified": 2}', "expected a path, a size and a time a line"),
    ],
)
def test_damaged_files_are_refused(name, content, message, index):
    index.add(images("a"), unit(np.random.default_rng(0), 1))
    (path,) = index.folder.glob(f"*{name}")
    path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
    with pytest.raises(ValueError, match=message):
        ImageIndex(index.folder)


def test_a_pickle_is_never_read(index):
    path = index.folder / "images-000000-a.npy"
    np.save(path, np.array([{}], object), allow_pickle=True)
    path.with_suffix(".jsonl").write_text(json.dumps(images("a")[0]._asdict()) + "\n")
    with pytest.raises(ValueError, match="expected vectors in NumPy's format"):
        ImageIndex(index.folder)
    with pytest.raises(ValueError, match=r"no index of images, it has no index\.json"):
        ImageIndex(index.folder.parent)
