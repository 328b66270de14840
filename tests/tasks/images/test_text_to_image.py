"""The generator of images from texts: what it makes of a sentence and a seed, its files, its refusals."""

import json

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import data, serving, tasks
from keras_tfm.cli import main
from keras_tfm.data.tokenizers.characters import CharacterTokenizer
from keras_tfm.models import DiT, Imagen
from keras_tfm.tasks import ImageGenerator
from keras_tfm.tasks.images.generator_options import GeneratorOptions
from tests.tasks.refusals import refusals

UNET = {"dims": [8], "num_layers": [1], "attends": [False], "attends_to_context": [True]}
UNET |= {"num_heads": 2, "key_dim": 4, "condition_dim": 8, "num_time_tokens": 1, "kernels": [3]}
UNET |= {"num_latents": 0, "halves_first": False}
ENCODER = {"num_layers": 1, "dim": 16, "num_heads": 2, "intermediate_dim": 16, "dropout": 0.0}
SMALL = {"image_size": 4, "num_channels": 1, "unet_config": UNET, "encoder_config": ENCODER}
OPTIONS = GeneratorOptions("imagen", vocabulary_size=270, max_length=16)
TEXTS = ["all is dark", "all is light"]


def examples(size):
    """Images (N, 4, 4), nearly all dark or nearly all light, and a text that says which they are."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, size)
    images = rng.integers(0, 40, (size, 4, 4)) + 200 * labels[:, None, None]
    return data.ImageTexts(images.astype("uint8"), [TEXTS[label] for label in labels])


def write(examples, folder):
    """A new folder with a file for each image, and beside it one for its text."""
    folder.mkdir()
    for number, (image, text) in enumerate(zip(*examples, strict=True)):
        PIL.Image.fromarray(image).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(text, "utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The RUN of a generator that has learnt."""
    folder = tmp_path_factory.mktemp("generator") / "run"
    keras.utils.set_random_seed(0)
    task = ImageGenerator.make(examples(256), OPTIONS, SMALL)
    task.fit(examples(256), run=folder, epochs=8, batch_size=8, learning_rate=1e-2)
    return folder


@pytest.fixture(scope="module")
def task(run):
    return tasks.load(run)


def test_it_makes_the_picture_that_a_text_describes(task):
    assert task.record["results"]["val_loss"] < 0.5 * task.record["baselines"]["the mean"]
    pictures = task.generate(TEXTS * 4, steps=4)
    assert pictures.shape == (8, 4, 4, 1) and pictures.dtype == "uint8"
    light = pictures.reshape(8, -1).mean(-1)
    assert light[::2].max() < 100 and light[1::2].min() > 150
    assert len({picture.tobytes() for picture in pictures}) == 8
    assert task.generate(3, steps=4).shape == (3, 4, 4, 1)  # of no text


def test_a_text_and_a_seed_determine_a_picture(task):
    whole = task.generate([*TEXTS, TEXTS[0]], seed=3, steps=4)
    in_parts = task.predict([*TEXTS, TEXTS[0]], seed=3, steps=4, batch_size=2)
    assert [answer["seed"] for answer in in_parts] == [3, 4, 5]
    for picture, answer in zip(whole, in_parts, strict=True):
        assert np.abs(answer["picture"].astype(int) - picture).max() <= 1


def test_texts_of_one_image_are_held_out_together(task):
    images = np.repeat(np.arange(20, dtype="uint8"), 3 * 16).reshape(60, 4, 4)
    pairs = task.check_examples(data.ImageTexts(images, ["a text"] * 60))
    train, rest = task.hold_out(pairs, 0.25, 0)
    values = [set(part.images[:, 0, 0, 0].tolist()) for part in (train, rest)]
    assert not values[0] & values[1] and len(rest.texts) == 3 * len(values[1]) == 15


def test_what_small_pictures_taught_holds_for_larger_ones(task, run):
    some = examples(8)
    larger = data.ImageTexts(some.images.repeat(2, 1).repeat(2, 2), some.texts)
    more = ImageGenerator.start_from(run, larger, image_size=8, noise_factor=2.0)
    assert more.image_shape == (8, 8, 1) and more.config.noise_factor == 2.0
    weights = zip(more.model.backbone.weights, task.model.backbone.weights, strict=True)
    assert all(np.array_equal(new, old) for new, old in weights)
    dark, light = (more.generate([text] * 4, steps=4).mean() for text in TEXTS)
    assert dark < light - 50
    more.fit(larger, larger, epochs=1)


@pytest.mark.slow
def test_guidance_leads_further_to_the_text(task):
    def contrast(guidance):
        dark, light = (task.generate([text] * 8, steps=5, guidance=guidance).mean() for text in TEXTS[:2])
        return light - dark

    assert 0 < contrast(1) < contrast(3)


def test_the_command_line(task, run, loaded_once, tmp_path, capsys):
    (tmp_path / "asked.txt").write_text("all is dark\n" + "all is " * 9 + "\nall is light\n", "utf-8")
    asked = ["predict", str(run), "--data", str(tmp_path / "asked.txt"), "--steps", "4", "--seed", "5"]
    main([*asked, "--draw", str(tmp_path / "new")])
    output = capsys.readouterr()
    assert "line 2 gets an empty line: expected a text of at most 16 tokens, got" in output.err
    files = output.out.splitlines()
    assert files[1] == "" and np.asarray(PIL.Image.open(files[2])).shape == (4, 4)
    main([*asked, "--json"])
    answers = [json.loads(line)["answer"] for line in capsys.readouterr().out.splitlines()]
    assert answers == ["5", None, "6"]
    again = task.generate(["all is light"], seed=6, steps=4)[0, ..., 0]
    assert np.abs(again.astype(int) - np.asarray(PIL.Image.open(files[2]))).max() <= 1


@pytest.mark.slow
def test_pairs_are_read_from_the_files_of_captions(run, tmp_path):
    for number in range(4):
        PIL.Image.new("RGB", (6, 5), (200, 10, 30)).save(tmp_path / f"{number}.png")
    table = "image,text\n" + "".join(f"{number}.png,all is dark\n" for number in range(4))
    (tmp_path / "pairs.csv").write_text(table, "utf-8")
    pairs = ImageGenerator.read_files([tmp_path / "pairs.csv"], **ImageGenerator.reading(OPTIONS, SMALL))
    assert pairs.images.shape == (4, 4, 4, 1) and pairs.texts == ["all is dark"] * 4
    task = tasks.load(run)
    assert task.evaluate(task.read_examples([tmp_path / "pairs.csv"]))["images"] == 4
    more = ImageGenerator.start_from(run, pairs, guidance=3.0)
    assert more.config.guidance == 3.0 and more.tokenizer.tokens == task.tokenizer.tokens


def served_like(task, folder):
    """The signature of the task's export, which makes the same pictures, and two of its files."""
    task.export(folder, steps=2)
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    files = served(texts=tf.constant(TEXTS), seed=tf.constant([3, 8]))["png"]
    for file, text, seed in zip(files, TEXTS, (3, 8), strict=True):
        picture = tf.io.decode_png(file).numpy().astype(int)
        assert np.abs(picture - task.generate([text], seed=seed, steps=2)[0]).max() <= 1
    return served, files


@pytest.mark.slow
def test_a_saved_model_answers_texts_with_files(task, tmp_path):
    served, files = served_like(task, tmp_path / "export")
    by_name = serving.load(tmp_path / "export")([{"texts": TEXTS[0], "seed": 3}])["png"]
    np.testing.assert_array_equal(tf.io.decode_png(by_name[0]), tf.io.decode_png(files[0]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected texts of at most 16 tokens, got"):
        served(texts=tf.constant([TEXTS[0] * 9]), seed=tf.constant([3]))


test_what_is_wrong_is_refused_in_a_line = refusals(
    (lambda task: task.generate(["dark " * 20]), "row 0: expected a text of at most 16 tokens, got"),
    (lambda task: task.generate([" "]), "row 0: expected a text, got ' '"),
    (lambda task: task.generate("all is dark"), "expected a list, got a single one, 'all is dark'"),
    (lambda task: task.generate(TEXTS, steps=0), "`steps` must be at least 1; it is 0"),
    (lambda task: task.generate(TEXTS, steps=10_000), "`steps` must be at most 1,000; it is 10000"),
    (lambda task: task.generate(TEXTS, guidance=np.nan), "`guidance` must be a number; it is nan"),
    (lambda task: task.fit((examples(2).images[0], TEXTS)), r"`images` must have the shape \(B, H"),
    (lambda task: task.fit((np.zeros((2, 4, 4, 3), "uint8"), TEXTS)), r"`images` must have the shape"),
    (lambda task: task.fit((examples(2).images, TEXTS[:1])), "`texts` must be one for each of 2 images"),
    (lambda task: task.fit((examples(2).images, ["a", " "])), "row 1: expected a text, got ' '"),
    (lambda task: task.fit(examples(2).images), r"expected \(images, texts\), got ndarray"),
    (lambda task: ImageGenerator(task.model.backbone), "`tokenizer` must be given, as the model reads"),
    (
        lambda task: ImageGenerator(DiT.from_size("tiny"), tokenizer=CharacterTokenizer("ab")),
        "`tokenizer` must be left out, as the model reads no texts",
    ),
    (
        lambda task: ImageGenerator(
            Imagen.from_size("tiny", vocabulary_size=4), tokenizer=CharacterTokenizer("ab")
        ),
        "tokenizer",
    ),
)
