"""Matching images and texts: what is learnt, found, kept, exported, published, and what is refused."""

import json
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (the SavedModel's tokenizer)

from keras_tfm import tasks
from keras_tfm.convert import CheckpointError
from keras_tfm.convert.folder import read_max_length
from keras_tfm.data import BERTTokenizer, CLIPTokenizer, ImageTexts, SpecialTokens
from keras_tfm.heads import Contrastive
from keras_tfm.models import CLIP
from keras_tfm.tasks import ImageClassifier, ImageTextMatcher, ImageTextMatcherConfig
from keras_tfm.tasks.image_text.matcher import MatcherOptions
from keras_tfm.tasks.image_text.retrieval import recalls
from tests.fresh_process import ask
from tests.tasks.images.test_image_classifier import SMALL as CLASSIFIER

COLOURS = {"red": (250, 20, 20), "green": (20, 250, 20), "blue": (20, 20, 250), "white": (250, 250, 250)}
PLACES = {"top": np.s_[:4, :], "bottom": np.s_[4:, :], "left": np.s_[:, :4], "right": np.s_[:, 4:]}
CHANGES = {
    "image_size": 8, "patch_size": 4, "num_image_layers": 1, "image_dim": 16, "num_image_heads": 2,
    "image_intermediate_dim": 32, "num_text_layers": 1, "text_dim": 16, "num_text_heads": 2,
    "text_intermediate_dim": 32, "embedding_dim": 16,
}  # fmt: skip
LENGTHS = {"clip": 12, "siglip": 24}  # of so few sentences SentencePiece learns letters
SENTENCES = [f"The {colour} half is {place}." for colour in COLOURS for place in PLACES]


def drawn(sentences, seed=0):
    """Images (N, 8, 8, 3) with a half of the colour at the place that a sentence names."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 90, (len(sentences), 8, 8, 3), "uint8")
    for image, sentence in zip(images, sentences, strict=True):
        colour, place = sentence.split()[1], sentence.split()[-1].rstrip(".")
        image[PLACES[place]] = np.array(COLOURS[colour], "uint8")
    return ImageTexts(images, list(sentences))


def fresh(family="clip", **options):
    keras.utils.set_random_seed(0)
    options = MatcherOptions(family=family, vocabulary_size=600, max_length=LENGTHS[family], **options)
    return ImageTextMatcher.make(drawn(SENTENCES), options, CHANGES)


@pytest.fixture(scope="module", params=["clip", pytest.param("siglip", marks=pytest.mark.slow)])
def learnt(request, tmp_path_factory):
    """(A task that has learnt, its RUN)."""
    folder = tmp_path_factory.mktemp("runs") / request.param
    task = fresh(request.param)
    options = {"epochs": 8, "batch_size": 16, "learning_rate": 6e-3, "run": folder}
    task.history = task.fit(drawn(SENTENCES * 16), drawn(SENTENCES, seed=1), **options)
    return task, folder


def test_it_finds_the_text_of_an_image_and_the_image_of_a_text(learnt):
    task, folder = learnt
    assert task.history["val_loss"][-1] < task.history["val_loss"][0]
    examples = drawn(SENTENCES, seed=2)
    measures = task.evaluate(examples)
    assert measures["pairs"] == 16 and list(measures)[:3] == [f"text_recall_{k}" for k in (1, 5, 10)]
    assert measures["text_recall_5"] > 0.8 and measures["image_recall_5"] > 0.8  # 5 of 16 by chance
    assert type(tasks.load(folder)) is ImageTextMatcher


def test_recall_counts_each_image_and_each_text_once():
    images = np.eye(3, dtype="float32")[[0, 0, 1, 2]]
    texts = np.array([[1, 0.9, 0], [0.9, 1, 0], [0.9, 1, 0], [0, 0, 1]], "float32")
    # Image a has the texts x and y, image b the text y, image c the text z. x is a's, y nearer to b.
    found = recalls(images, texts, ["a", "a", "b", "c"], ["x", "y", "y", "z"])
    assert found["text_recall_1"] == 1.0 and found["image_recall_1"] == 1.0
    # Asked of b alone: x, of another image, is nearer to b than its own text.
    found = recalls(images[1:3], np.array([[0, 1, 0], [1, 0.5, 0]], "float32"), ["a", "b"], ["x", "y"])
    assert found["text_recall_1"] == 0.0 and found["text_recall_5"] == 1.0
    # Vectors that are all the same are told apart by none.
    same = recalls(np.ones((4, 2)), np.ones((4, 2)), range(4), range(4))
    assert same == {f"{side}_recall_{k}": float(k > 1) for side in ("text", "image") for k in (1, 5, 10)}
    lost = recalls(np.full((4, 2), np.nan), np.ones((4, 2)), range(4), range(4))
    assert lost == same


def test_vectors_similarity_and_probabilities(learnt):
    task, _ = learnt
    images, texts = drawn(SENTENCES[:5])
    one, other = task.encode_images(images), task.encode_texts(texts)
    assert one.shape == other.shape == (5, 16)
    np.testing.assert_allclose(np.linalg.norm(one, axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(task.similarity(images, texts), one @ other.T, atol=1e-6)
    np.testing.assert_array_equal(task.predict(images), one)
    logits = np.asarray(task({"images": images, "texts": texts}))
    found = task.probabilities(one, other)
    if task.model.logit_bias is None:
        shares = np.exp(logits - logits.max(1, keepdims=True))
        expected = shares / shares.sum(1, keepdims=True)
    else:
        expected = 1 / (1 + np.exp(-logits.astype("float64")))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert task.encode_images(images[:0]).shape == task.encode_texts([]).shape == (0, 16)
    assert len(task.as_line(one[0]).split()) == 16


def test_labels_are_means_over_templates(learnt):
    task, _ = learnt
    labels, templates = ["red", "blue"], ["The {} half.", "a {} one"]
    means = sum(task.encode_texts([t.replace("{}", label) for label in labels]) for t in templates)
    expected = means / np.linalg.norm(means, axis=-1, keepdims=True)
    np.testing.assert_allclose(task.encode_labels(labels, templates), expected, atol=1e-6)
    np.testing.assert_allclose(task.encode_labels(labels), task.encode_texts(labels), atol=1e-6)
    with pytest.raises(ValueError, match=r"`template` must have {} where the label goes; it is 'a photo'"):
        task.encode_labels(labels, ["a photo"])


def test_a_long_text_is_cut_and_counted(learnt, caplog):
    task, _ = learnt
    long, length = "red " * 80, task.max_length
    (row,) = np.asarray(task.text_inputs(tf.constant([long]))["token_ids"])
    pieces = task.tokenizer.tokenize([long])[0].numpy().tolist()
    before = [task.tokenizer.start_id] if isinstance(task.tokenizer, CLIPTokenizer) else []
    assert row.tolist() == [*before, *pieces[: length - len(before) - 1], task.tokenizer.end_id]
    with caplog.at_level(logging.WARNING):
        batches = task.batches(ImageTexts(drawn(SENTENCES[:2]).images, [long, "red"]), task.training)
    assert f"1 of 2 texts exceed {length} tokens and are cut there" in caplog.text
    caplog.clear()
    task.measure(ImageTexts(drawn(SENTENCES[:2]).images, [long, "red"]))
    assert f"1 of 2 texts exceed {length} tokens and are cut there" in caplog.text
    inputs, _ = next(iter(batches.dataset()))
    assert inputs["token_ids"].shape == (2, length) and set(inputs) == set(task.model.backbone.input)


@pytest.mark.slow
def test_siglip_reads_its_padding():
    task = fresh("siglip")
    (row,) = np.asarray(task.text_inputs(tf.constant(["red"]))["token_ids"])
    end = row.tolist().index(task.tokenizer.end_id)
    assert len(row) == 24 > end + 1 and (row[end + 1 :] == task.tokenizer.pad_id).all()
    assert task.model.logit_bias == -10 and "padding_mask" not in task.model.backbone.input


@pytest.mark.slow
def test_it_is_kept_and_exported(learnt, tmp_path):
    task, folder = learnt
    kept = tasks.load(folder)
    images, texts = drawn(SENTENCES[:3])
    expected = task.encode_images(images), task.encode_texts(texts)
    np.testing.assert_allclose(kept.encode_images(images), expected[0], atol=1e-6)
    np.testing.assert_allclose(kept.encode_texts(texts), expected[1], atol=1e-6)
    kept.export(tmp_path / "served")
    files = [tf.io.encode_png(image).numpy() for image in images]
    served = ask(tmp_path / "served", image_bytes=files)["vector"]
    np.testing.assert_allclose(served, expected[0], atol=1e-5)
    served = ask(tmp_path / "served", name="texts", text=texts)["vector"]
    np.testing.assert_allclose(served, expected[1], atol=1e-5)


@pytest.mark.slow
def test_folders_of_transformers(learnt, tmp_path):
    task, _ = learnt
    task.save_huggingface(tmp_path / "published")
    again = tasks.from_huggingface(tmp_path / "published")
    assert type(again) is ImageTextMatcher
    assert again.config.around == task.config.around_with(task.tokenizer)
    images, texts = drawn(SENTENCES[:3])
    np.testing.assert_allclose(again.similarity(images, texts), task.similarity(images, texts), atol=1e-5)
    fields = ImageTextMatcher.reading(MatcherOptions(), {}, tmp_path / "published")
    assert fields == {"image_shape": (8, 8, 3), "preprocessing": again.preprocessing}
    other = ImageTextMatcher.start_from(tmp_path / "published", None, interpolation="bicubic")
    assert other.config.interpolation == "bicubic" and other.config.around == again.config.around
    kind = "CLIP" if isinstance(task.tokenizer, CLIPTokenizer) else "Siglip"
    entries = json.loads((tmp_path / "published" / "preprocessor_config.json").read_text())
    assert entries["image_processor_type"] == f"{kind}ImageProcessor"
    with pytest.raises(ValueError, match="`image_size` must be 8"):
        ImageTextMatcher.from_huggingface(tmp_path / "published", image_size=16)


def test_a_folder_keeps_any_tokenizer_and_the_length_of_its_texts(tmp_path):
    tokenizer = BERTTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "half"])
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "max_length": 12, "end_id": tokenizer.end_id}
    around = SpecialTokens([tokenizer.start_id], [tokenizer.end_id])
    model = Contrastive(CLIP.from_size("B/32", **CHANGES, **sizes))
    task = ImageTextMatcher(model, tokenizer, ImageTextMatcherConfig(around=around))
    task.save_huggingface(tmp_path / "published")
    assert read_max_length(tmp_path / "published") == 12
    again = ImageTextMatcher.from_huggingface(tmp_path / "published")
    images, texts = drawn(SENTENCES[:2])
    np.testing.assert_allclose(again.similarity(images, texts), task.similarity(images, texts), atol=1e-5)


@pytest.mark.slow
def test_going_on(learnt, tmp_path):
    task, folder = learnt
    assert ImageTextMatcher.adopt(task, None) is task
    other = ImageTextMatcher.adopt(task, None, interpolation="bicubic")
    assert other.model is task.model and other.config.interpolation == "bicubic"
    assert ImageTextMatcher.training_of(is_given=True).learning_rate == pytest.approx(1e-5)
    reading = ImageTextMatcher.reading(MatcherOptions(), {}, folder)
    assert reading["image_shape"] == (8, 8, 3)
    classifier = ImageClassifier.from_size("tiny", ["a", "b"], **CLASSIFIER)
    with pytest.raises(ValueError, match="expected a 'match-images' task, got a 'classify-images' one"):
        ImageTextMatcher.adopt(classifier, None)
    with pytest.raises(ValueError, match="no encoder of images alone"):
        ImageClassifier.adopt(task, (None, np.array(["a", "b"])))
    classifier.save_huggingface(tmp_path / "vit")
    with pytest.raises(CheckpointError, match="clip or siglip"):
        ImageTextMatcher.from_huggingface(tmp_path / "vit")


@pytest.mark.slow
@pytest.mark.parametrize("parts", [{"num_frozen": 1}, {"lora_rank": 2}], ids=["frozen", "lora"])
def test_parts_of_both_towers_learn(parts):
    task = fresh()
    before = {weight.path: weight.numpy() for weight in task.model.weights}
    task.fit(drawn(SENTENCES), drawn(SENTENCES), epochs=1, batch_size=8, learning_rate=1e-2, **parts)
    changed = {w.path for w in task.model.weights if np.abs(w.numpy() - before[w.path]).max() > 0}
    assert {"head/logit_scale", "contrastive/head/logit_scale"} & changed
    in_blocks = [path for path in changed if "_block_0" in path]
    assert bool(in_blocks) == ("lora_rank" in parts) and all("kernel" in path for path in in_blocks)
    assert not [path for path in changed if "embedding" in path]


@pytest.mark.slow
def test_a_caption_of_100_kilobytes_is_cut(caplog):
    task = fresh()
    long = ["word " * 20_000, "x" * 100_000, "é!" * 50_000]
    with caplog.at_level(logging.WARNING):
        task.tell_cut([*long, "red"])
    assert f"3 of 4 texts exceed {task.max_length} tokens and are cut there" in caplog.text
    assert task.encode_texts(long).shape == (3, 16)


def test_an_image_is_held_out_with_all_its_texts():
    images, texts = drawn(SENTENCES[:5])
    examples = ImageTexts(images.repeat(3, axis=0), [f"{text} {i}" for text in texts for i in range(3)])
    train, held = fresh().hold_out(examples, 0.4, 0)
    sides = [{text.rpartition(" ")[0] for text in part.texts} for part in (train, held)]
    assert [len(part.texts) for part in (train, held)] == [9, 6] and len(held.images) == 6
    assert sides[0] | sides[1] == set(texts) and not sides[0] & sides[1]


def test_wrong_inputs_are_refused():
    task = fresh()
    images, texts = drawn(SENTENCES[:3])
    for wrong, message in (
        (images, r"examples: expected \(images, texts\), got ndarray of the shape"),
        ((images, texts[:2]), "`texts` must be one for each of 3 images; there are 2"),
        ((images, ["a", " ", "b"]), "row 1: expected a text, got ' '"),
        ((images, ["a", "b", 3]), "row 2: expected a text, got 3"),
        ((images[:0], []), "`images` must not be empty"),
        ((images[..., :1], texts), r"`images` must have the shape \(B, H, W, 3\)"),
    ):
        with pytest.raises(ValueError, match=message):
            task.fit(wrong)
    other = CLIPTokenizer(
        [*task.tokenizer.tokens[:-2], *task.tokenizer.tokens[:-3:-1]], task.tokenizer.content["merges"]
    )
    with pytest.raises(ValueError, match="ends texts with the token"):
        ImageTextMatcher(task.model, other)
    with pytest.raises(ValueError, match="`mean` must have 1 or 3 values"):
        ImageTextMatcher(task.model, task.tokenizer, ImageTextMatcherConfig(mean=(0.1, 0.2)))
    with pytest.raises(ValueError, match="CLIP has no size 'mini'"):
        MatcherOptions(size="mini").base()
    assert ImageTextMatcher.takes(task.model) and isinstance(task.model, Contrastive)
