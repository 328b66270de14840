"""Image files are decoded as in training, each once, in portions; arrays of any size stand beside them."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import Canvas, Preprocessing
from keras_tfm.data.sources import image_files
from keras_tfm.serving import image_readers
from keras_tfm.serving.answering import Answerer
from keras_tfm.serving.examples import Refused
from keras_tfm.tasks import ImageEncoder
from keras_tfm.tasks.images.decoded import DecodedImages
from keras_tfm.tasks.images.drawing import picture_paths
from tests.tasks.test_every_task import made, run_predict

OTHERS = ("detect", "image-vectors", "pretrain-images", "segment", "match-images", "caption")


def png(rng, *shape):
    return tf.io.encode_png(rng.integers(0, 256, shape, "uint8")).numpy()


@pytest.fixture
def decoded(monkeypatch):
    """The sources that were decoded, in order; at most 64 images are read at once."""
    sources, decode = [], image_files.decoded_or_problem

    def counted(source, *arguments):
        sources.append(source)
        return decode(source, *arguments)

    monkeypatch.setattr(image_files, "decoded_or_problem", counted)
    monkeypatch.setattr(image_readers, "MOST_VALUES", 1)
    return sources


@pytest.mark.parametrize(
    "name", ["classify-images", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_a_file_is_decoded_once(name, decoded, tmp_path, capsys, monkeypatch):
    """Also where others are broken, in more portions than one, from Python and on the command line."""
    rng = np.random.default_rng(0)
    task = made(name) if name != "image-vectors" else ImageEncoder.from_task(made("classify-images"))
    for number in range(70):
        (tmp_path / f"{number:02}.png").write_bytes(b"" if number in (3, 66) else png(rng, 9, 7, 3))
    files = sorted(tmp_path.iterdir())
    options = ("--max-new-tokens", "2") if name == "caption" else ()
    lines, said = run_predict(task, tmp_path, capsys, monkeypatch, *options)
    assert sorted(decoded) == list(map(str, files)) and len(lines) == 70
    assert lines[3].endswith("\t") and lines[66].endswith("\t")
    assert [f"{files[row]} gets an empty line" in said for row in (2, 3, 66)] == [False, True, True]
    decoded.clear()
    good = [files[number] for number in range(70) if number not in (3, 66)]
    answers = task.predict(good, **({"max_new_tokens": 2} if name == "caption" else {}))
    assert sorted(decoded) == list(map(str, good))
    assert [f"{task.as_line(answer)}" for answer in answers[:2]] == [
        line.partition("\t")[2] for line in lines[:2]
    ]
    assert list(task.refusals(files)) == [3, 66]
    with pytest.raises(ValueError, match="row 66: expected a whole PNG or JPEG image"):
        task.predict([*files[:3], files[0], *files[4:]])


def test_pictures_are_named_by_their_inputs(decoded, tmp_path, capsys, monkeypatch):
    """In all portions, beside one that is broken, and where two files have one name."""
    rng = np.random.default_rng(3)
    files = [tmp_path / "in" / folder / f"{number:02}.png" for folder in "ab" for number in range(35)]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"" if file is files[1] else png(rng, 9, 7, 3))
    out = tmp_path / "out"
    run_predict(made("detect"), tmp_path / "in", capsys, monkeypatch, "--draw", str(out))
    expected = picture_paths(files, out)
    assert sorted(out.iterdir()) == sorted(path for path in expected if path is not expected[1])
    assert len(set(expected)) == 70 and expected[69].name == "34-000069.png"


@pytest.mark.parametrize("preprocessing", [
    Preprocessing(interpolation="bicubic", keep_aspect=True, crop_fraction=0.8),
    Preprocessing(interpolation="lanczos"),
    Canvas(keep_aspect=True),
])  # fmt: skip
def test_images_become_what_training_makes_of_them(preprocessing):
    rng, shape = np.random.default_rng(1), (8, 10, 3)
    reader = DecodedImages(shape, preprocessing)
    files = [png(rng, *size, 3) for size in ((8, 10), (30, 20), (1, 9))]
    arrays = [rng.integers(0, 256, (12, 14, 3), "uint8"), rng.random((12, 14, 3)), rng.random(shape)]
    rows = [row for rows, _ in reader.read([*files, *arrays]) for row in rows]
    found = reader.join(rows)["images"]
    expected = [preprocessing.decoded(tf.constant(file), *shape).numpy() / 255 for file in files]
    for array in arrays:
        (fitted,) = preprocessing.fitted(tf.constant(array[None]), *shape[:2]).numpy()
        expected.append(fitted / (255 if array.dtype == np.uint8 else 1))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_array_equal(reader.join(rows[3:4] * 2)["images"], found[[3, 3]])


def test_what_is_no_image_is_refused():
    reader = DecodedImages((8, 8, 3), Preprocessing())
    grey, none = np.zeros((8, 8), "uint8"), np.zeros((0, 8, 3), "uint8")
    wrongs = [grey, none, None, "missing.png", b"", np.zeros((8, 8, 3), "int64") + 300]
    *_, right = read = reader.read([*wrongs, np.zeros((8, 8, 3))])
    assert all(isinstance(x, Refused) for x in read[:-1]) and right.rows[0].shape == (8, 8, 3)
    assert "expected an image of the shape (H, W, 3), got (8, 8)" in str(read[0])
    assert str(read[3]) == "cannot be read: No such file or directory"


def test_readers_of_images_hold_few_at_once(monkeypatch):
    """However many there are, 64 of a large size, and many of a small one."""
    assert image_readers.portion_of((800, 800, 3)) == 64 and image_readers.portion_of((32, 32, 3)) == 21_824
    monkeypatch.setattr(image_readers, "MOST_VALUES", 1)
    held, reader = [], DecodedImages((2, 2, 1), Preprocessing())
    read = reader.read
    monkeypatch.setattr(reader, "read", lambda part: held.append(len(part)) or read(part))
    answerer = Answerer(reader, lambda inputs: {"x": inputs["images"][:, 0, 0, 0]}, lambda x, *_: x[0]["x"])
    images = list(np.random.default_rng(2).random((150, 2, 2, 1)).astype("float32"))
    assert answerer.ask(images, 30) == [image[0, 0, 0] for image in images] and held == [60, 60, 30]
    with pytest.raises(ValueError, match="row 149: expected an image"):
        answerer.ask([*images[:-1], None], 30)
