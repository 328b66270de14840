"""The card of a SavedModel, and what its graph raises for."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import serving
from keras_tfm.models import ViT
from keras_tfm.serving.readers import reader_of
from keras_tfm.serving.served import _decoded, inputs_of
from keras_tfm.tasks import Forecaster, ImageClassifier
from keras_tfm.training.folder import is_own_card
from tests.data.sources.test_image_formats import KINDS, REFUSED

SMALL = {"image_size": 8, "patch_size": 4, "num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 16}


def on_a_larger_canvas(webp):
    """An animated WebP whose images cover a part of the canvas."""
    sides = [int.from_bytes(webp[place : place + 3], "little") + 1 for place in (24, 27)]
    return webp[:24] + b"".join(side.to_bytes(3, "little") for side in sides) + webp[30:]


NOT_DECODED = {  # {how the card begins to name it: such files}
    "- BMP: compressed": [REFUSED[name][0] for name in ("a compressed BMP", "a BMP of 2 bits")],
    "- GIF: the first frame": [REFUSED["a small first frame"][0]],
    "- WebP: animated, and the first": [
        on_a_larger_canvas(KINDS[name]) for name in ("animated WebP", "animated WebP with losses and alpha")
    ],
    "- TIFF, AVIF, HEIC, all other": [REFUSED[name][0] for name in ("TIFF", "AVIF", "HEIC", "a cut BMP")],
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The SavedModel of a classifier of images."""
    keras.utils.set_random_seed(0)
    folder = tmp_path_factory.mktemp("saved") / "model"
    ImageClassifier(ViT.from_size("tiny", **SMALL), ["dark", "light"]).export(folder)
    return folder


@pytest.mark.parametrize("line", NOT_DECODED)
def test_what_the_graph_cannot_decode_raises_and_stands_in_the_card(exported, line):
    assert f"\n{line}" in (exported / "README.md").read_text("utf-8")
    answer = tf.saved_model.load(exported).signatures["serving_default"]
    assert answer(image_bytes=tf.constant([KINDS["animated WebP"]]))["label"].shape == (1,)
    for data in NOT_DECODED[line]:
        with pytest.raises(tf.errors.InvalidArgumentError):
            answer(image_bytes=tf.constant([data]))


def test_examples_that_the_graph_cannot_take_are_refused_by_their_row(exported):
    served, file = serving.load(exported), tf.io.encode_png(np.zeros((8, 8, 3), "uint8")).numpy()
    image = np.zeros((8, 8, 3), "uint8")
    for examples, problem in (
        (
            [image, np.zeros((9, 8, 3), "uint8")],
            r"expected an image of the shape \(8, 8, 3\), got \(9, 8, 3\)",
        ),
        ([image, "a.png"], "expected an array, as the first is, got 'a.png'"),
        ([file, image], "expected the path or the bytes of an image file, got ndarray of the shape"),
        (
            [{"image_bytes": file}, {"image_bytes": REFUSED["a large PNG"][0]}],
            "expected an image of 67,108,864",
        ),
        ([{"image_bytes": file}, file], r"expected \{input: value\} of image_bytes, got"),
    ):
        with pytest.raises(ValueError, match=f"^row 1: {problem}"):
            served(examples)
    inputs = {
        name: tf.TensorSpec([None], kind, name)
        for name, kind in (("image_bytes", "string"), ("camera", "int32"))
    }
    with pytest.raises(ValueError, match=r"^row 0: expected \{input: value\} of camera, image_bytes, got"):
        inputs_of(inputs, [file])


def test_paths_are_refused_where_none_is_to_be_opened(exported, tmp_path):
    """Also for pairs by name, and by an export that reads files itself."""
    file = tf.io.encode_png(np.zeros((8, 8, 3), "uint8")).numpy()
    (tmp_path / "x.png").write_bytes(file)
    task = ImageClassifier(ViT.from_size("tiny", **SMALL), ["dark", "light"])
    reader = reader_of(tmp_path, task.signature().reads, paths=False)
    served = serving.load(exported, paths=False)
    assert served([file])["label"].shape == (1,) and len(reader.read([file])) == 1
    for path in (tmp_path / "x.png", str(tmp_path / "x.png")):
        for ask in (served, lambda rows: served([{"image_bytes": row} for row in rows])):
            with pytest.raises(ValueError, match=r"^row 1: expected bytes or an array, no paths, got"):
                ask([file, path])
        assert "no paths" in str(reader.read([path])[0])


def test_large_images_are_refused_before_the_graph_as_the_card_says(exported):
    card = (exported / "README.md").read_text("utf-8")
    assert "67,108,864 pixels" in card and "268,435,456 in all frames" in card
    served = serving.load(exported)
    for name in ("a large PNG", "a large frame in a small screen", "400 frames"):
        data, problem = REFUSED[name]
        with pytest.raises(ValueError, match=f"^row 0: {problem}"):
            served([data])


def test_a_text_keeps_a_nul_at_its_end():
    x = np.array([[b"a\0", b"\xff"]], object)
    assert _decoded(x).tolist() == [["a\0", "\ufffd"]] and _decoded(x[:0]).shape == (0, 2)


def test_a_card_names_signatures_and_of_other_tasks_no_images(tmp_path):
    series = np.sin(np.arange(40) / 5)
    Forecaster.from_series(series, window=4).export(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert "| `serving_default` | `values` float64 (B, any) |" in card
    assert "forecast, as a SavedModel" in card and "image" not in card and "Texts" not in card
    Forecaster.from_series(series, window=4).export(tmp_path / "model", overwrite=True)
    assert is_own_card(tmp_path / "model" / "README.md")
