"""The Python of README, and of guides that take the reader's files as given, runs: each block in an empty
folder, with tiny stand-ins for the files.
"""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm import models
from keras_tfm.data import ImageTexts
from keras_tfm.tasks import ImageTextMatcher, Translator
from keras_tfm.tasks.image_text.matcher import MatcherOptions
from tests.docs.pages import ROOT, STAND_IN_PAGES, blocks, run_python

README = ROOT / "README.md"
PAGES = [README, *(ROOT / name for name in STAND_IN_PAGES), ROOT / "docs" / "guides" / "clusters.md"]
pytestmark = pytest.mark.skipif(not README.exists(), reason="README.md is not part of the wheel")

SIZES = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 32}
SHORTER = {"epochs=20": "epochs=1", "minutes=30": "minutes=0.01"}
QUICK = ("TokenAndPositionEmbedding(", 'strategy("mirrored")', "Checkpoint(", "cooccurrence(")
SLOW = (
    "read_pairs(", "read_texts(", "ImageTextMatcher.", "attention_page(", "plot_alignment(",
    "import tensorflow as tf, tensorflow_text",
)  # fmt: skip
IN_CLUSTERS = ("dataset.with_options(", "tf.data.experimental.service", ".distribute(")  # test_clusters.py


def python_blocks():
    """The Python of all pages, block by block."""
    return [part.code for page in PAGES for part in blocks(page) if part.language == "python"]


def block(words):
    """The one block of Python in which `words` occur, its trainings made shorter."""
    (code,) = (code for code in python_blocks() if words in code)
    for long, short in SHORTER.items():
        code = code.replace(long, short)
    return code


def test_every_block_is_run():
    codes = [code for code in python_blocks() if not any(words in code for words in IN_CLUSTERS)]
    assert len(codes) == len({block(words) for words in QUICK + SLOW}) == len(QUICK + SLOW)
    assert all(sum(long in code for code in codes) == 1 for long in SHORTER)


@pytest.fixture
def variables(tmp_path, monkeypatch):
    """The names that blocks take as given, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    x, y = np.arange(32, dtype="float32").reshape(8, 4), np.arange(8) % 2
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    inputs = keras.Input((4,))
    outputs = keras.layers.Dense(2, "softmax")(inputs)
    model = keras_tfm.Model(inputs, outputs)
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    return {"inputs": inputs, "outputs": outputs, "dataset": dataset, "model": model, "validation": dataset}


@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed")  # Keras says so of each fit(dataset)
@pytest.mark.parametrize("words", QUICK)
def test_a_quick_block_runs(words, variables):
    pathlib.Path("text.txt").write_text("the cat sat on the mat\n" * 10, "utf-8")
    # Other tests of this process have an object of MirroredStrategy, and TensorFlow allows but one.
    run_python(block(words).replace('"mirrored"', '"none"'), variables, words)
    if words == "cooccurrence(":
        assert variables["words"][:2] == ["the", "cat"] and variables["embedding"].input_dim == 7


def test_the_size_of_the_paper_is_told():
    assert f"{models.Transformer.from_size('base').count_params():,} parameters" in README.read_text("utf-8")


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A folder with everything that the blocks read."""
    folder = tmp_path_factory.mktemp("reader")
    rng = np.random.default_rng(0)
    pairs = [f"{a} {b} line" for a in "abc" for b in "abcd"], [f"{b} {a}" for a in "abc" for b in "abcd"]
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(*pairs, strict=True)), "utf-8")
    (folder / "input.txt").write_text("ROMEO: what light is it, and from where?\n" * 40, "utf-8")
    for name in ("photo.jpg", "other.png"):
        pixels = rng.integers(0, 256, (20, 30, 3)).astype("uint8")
        encode = tf.io.encode_jpeg if name.endswith("jpg") else tf.io.encode_png
        tf.io.write_file(str(folder / name), encode(pixels))
    texts = ["What time is it?", "Sunday, July 15, 1984", *pairs[0]]
    translator = Translator.from_pairs((texts, texts), size="tiny", vocabulary_size=300, **SIZES)
    translator.save(folder / "runs" / "mine")
    translator.save(folder / "runs" / "dates")
    translator.export(folder / "saved_models" / "mine")
    towers = {"num_image_layers": 1, "num_text_layers": 1, "image_size": 8, "patch_size": 4}
    images = ImageTexts(rng.integers(0, 256, (12, 8, 8, 3)).astype("uint8"), pairs[0])
    options = MatcherOptions(family="clip", vocabulary_size=600, max_length=12)
    ImageTextMatcher.make(images, options, towers | {"embedding_dim": 512}).save_huggingface(
        folder / "clip-vit-base-patch32"
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("words", SLOW)
def test_a_block_runs_on_stand_ins(words, reader, tmp_path, monkeypatch):
    if words == "plot_alignment(":
        pytest.importorskip("matplotlib", reason="the extra `plot` brings it")
    for path in reader.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    if words == "read_pairs(":  # it writes saved_models/mine itself
        (tmp_path / "saved_models").unlink()
    run_python(block(words), {}, words)
