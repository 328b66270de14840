"""Pictures written token by token: by class and text, the same of a seed, completed, measured, exported."""

import dataclasses

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.cli import main
from keras_tfm.data import ImageTexts
from keras_tfm.generation import Sample
from keras_tfm.models import GPT2, VQGAN
from keras_tfm.tasks import ImageGenerator, ImageWriter
from keras_tfm.tasks.images.generator_options import GeneratorOptions
from keras_tfm.tasks.images.picture_tokens import Colours, Values, colours_of

SIZES = {"num_layers": 1, "dim": 32, "num_heads": 2, "intermediate_dim": 64}
LEARNING = {"epochs": 30, "batch_size": 16, "learning_rate": 1e-2}


def examples(size):
    """Images (N, 8, 8) of dark and light stripes across, of as many down, and which they are."""
    rng = np.random.default_rng(0)
    labels, shift = rng.integers(0, 2, (2, size))
    stripes = 200 * ((np.arange(8)[None] // 2 + shift[:, None]) % 2)[:, None].repeat(8, 1)
    images = np.where(labels[:, None, None] == 1, stripes, stripes.swapaxes(1, 2))
    return images.astype("uint8"), np.array(["across", "down"])[labels]


@pytest.fixture(scope="module")
def codes(tmp_path_factory):
    """The RUN of a codec that nobody has trained, whose codes are random: what it makes is all the same."""
    folder = tmp_path_factory.mktemp("codes") / "run"
    keras.utils.set_random_seed(0)
    sizes = {"image_size": 8, "dim": 4, "factors": [1, 1], "attends": [False, False], "num_groups": 2}
    sizes |= {"num_channels": 1, "latent_dim": 4, "code_dim": 4, "num_codes": 8}
    tasks.ImageCoder(VQGAN.from_size("tiny", **sizes), keep_aspect=True).save(folder)
    return str(folder)


def made(family, data, **options):
    fields = {"image_size": 8} if family == "imagegpt" else {}
    changes = dict(SIZES)
    if family == "image-transformer":
        changes |= {"image_size": [8, 8], "num_channels": 1, "block_length": 16}
    keras.utils.set_random_seed(0)
    return ImageGenerator.make(data, GeneratorOptions(family, **options), changes, **fields)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The RUN of an ImageGPT that has learnt stripes."""
    folder = tmp_path_factory.mktemp("writer") / "run"
    images, labels = examples(160)
    data = images[..., None].repeat(3, -1), labels
    made("imagegpt", data, colours=4).fit(data, run=folder, **LEARNING)
    return folder


@pytest.fixture(scope="module")
def task(run):
    return tasks.load(run)


def is_across(pictures):
    """Whether the rows of pictures (N, 8, 8, C) are more even than their columns."""
    pictures = pictures[..., 0].astype("float64")
    return pictures.var(2).mean(1) < pictures.var(1).mean(1)


def test_it_writes_pictures_of_the_class_that_is_asked_for(task):
    assert isinstance(task, ImageWriter) and task.alphabet.count == 2  # there are two colours alone
    assert task.record["results"]["val_loss"] < 0.5 * task.record["baselines"]["the frequencies of tokens"]
    images, labels = examples(40)
    measures = task.evaluate((images[..., None].repeat(3, -1), labels))
    assert measures["bits_per_pixel"] < 0.5 < measures["unigram_bits_per_pixel"] <= 1
    pictures = task.generate(["across", "down"] * 8, seed=1)
    right = is_across(pictures) == ([True, False] * 8)
    assert pictures.dtype == "uint8" and set(np.unique(pictures)) <= {0, 200} and right.mean() > 0.8
    assert task.generate(2, seed=1).shape == (2, 8, 8, 3)  # of no class


def test_a_class_and_a_seed_determine_a_picture(task):
    whole = task.generate(["across", "down", "across"], seed=2**31 - 2)
    in_parts = task.predict(["across", "down", "across"], seed=2**31 - 2, batch_size=2)
    assert [answer["seed"] for answer in in_parts] == [2**31 - 2, 2**31 - 1, 0]
    for picture, answer in zip(whole, in_parts, strict=True):
        np.testing.assert_array_equal(picture, answer["picture"])
    np.testing.assert_array_equal(task.generate(["down"], seed=2**31 - 1)[0], whole[1])


def test_draws_of_a_row_depend_on_its_seed_alone():
    logits = np.random.default_rng(0).normal(size=(3, 50)).astype("float32")
    drawn = [Sample(tf.constant([4, 5, 4]))(logits[[0, 1, 0]], number).numpy() for number in range(20)]
    alone = [Sample(tf.constant([5]))(logits[[1]], number).numpy() for number in range(20)]
    assert all(row[0] == row[2] for row in drawn) and len({row[0] for row in drawn}) > 5
    assert [row[1] for row in drawn] == [row[0] for row in alone]
    draws = np.concatenate([Sample(tf.range(2000))(np.tile(np.log([0.2, 0.8]), (2000, 1)), 3).numpy()])
    assert 0.77 < draws.mean() < 0.83


def test_the_upper_half_is_kept_and_completed(task, run, tmp_path, capsys):
    picture = examples(8)[0][1]
    PIL.Image.fromarray(picture).save(tmp_path / "begun.png")
    completed = task.generate(["across", "across"], complete=tmp_path / "begun.png", seed=3)
    np.testing.assert_array_equal(completed[:, :4, :, 0], [picture[:4]] * 2)
    changed = picture.copy()
    changed[4:] = 100
    np.testing.assert_array_equal(
        completed, task.generate(["across"] * 2, complete=np.dstack([changed] * 3), seed=3)
    )
    (tmp_path / "asked.txt").write_text("across\nacross\n", "utf-8")
    asked = ["predict", str(run), "--data", str(tmp_path / "asked.txt"), "--seed", "3", "--complete"]
    main([*asked, str(tmp_path / "begun.png"), "--draw", str(tmp_path / "new")])
    second = np.asarray(PIL.Image.open(capsys.readouterr().out.splitlines()[1]))
    np.testing.assert_array_equal(second, completed[1])


def test_options_of_drawing(task):
    greedy = task.generate(["down"] * 3, top_k=1, seed=1)
    assert len({picture.tobytes() for picture in greedy}) == 1
    np.testing.assert_array_equal(greedy, task.generate(["down"] * 3, temperature=1e-3, seed=7))
    np.testing.assert_array_equal(greedy, task.generate(["down"] * 3, top_p=1e-6, seed=7))
    far = task.generate(["down"] * 4, guidance=5.0, seed=1)
    assert not is_across(far).any()


def test_a_saved_model_writes_files(task, tmp_path):
    task.export(tmp_path / "export", guidance=2.0)
    served = tf.saved_model.load(str(tmp_path / "export")).signatures["serving_default"]
    files = served(classes=tf.constant(["down", "across"]), seed=tf.constant([3, 8]))["png"]
    for file, name, seed in zip(files, ("down", "across"), (3, 8), strict=True):
        np.testing.assert_array_equal(
            tf.io.decode_png(file), task.generate([name], seed=seed, guidance=2.0)[0]
        )


@pytest.mark.parametrize("family", ["gpt", pytest.param("dall-e", marks=pytest.mark.slow)])
def test_codes_of_a_run_are_written(family, codes, tmp_path):
    images, labels = examples(32)
    data = (images, labels) if family == "gpt" else ImageTexts(images, [f"stripes {x}" for x in labels])
    more = {} if family == "gpt" else {"max_length": 6, "vocabulary_size": 300}
    task = made(family, data, codes=codes, **more)
    before = [weight.numpy() for weight in task.model.codec.weights]
    learning = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3, "precision": "mixed_bfloat16"}
    task.fit(data, **learning, run=tmp_path / "run")
    again = tasks.load(tmp_path / "run")  # which needs the RUN of the codec no more
    for one, other in zip(again.model.codec.weights, before, strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.preprocessing.keep_aspect  # as the codec reads them
    np.testing.assert_array_equal(again.tokens_of(images[..., None]), task.tokens_of(images[..., None]))
    asked = ["down", "across"] if family == "gpt" else ["stripes down", "stripes across"]
    np.testing.assert_array_equal(again.generate(asked, seed=1), task.generate(asked, seed=1))
    measures = again.evaluate(data)
    assert measures["bits_per_code"] > 0 and measures["unigram_bits_per_code"] <= 3
    more = ImageGenerator.start_from(tmp_path / "run", data)
    np.testing.assert_array_equal(more.generate(asked, seed=1), task.generate(asked, seed=1))


@pytest.mark.slow
def test_values_of_channels_are_written_without_classes(caplog):
    task = made("image-transformer", examples(32))
    assert "classes of the images are left out" in caplog.text
    task.fit(examples(32)[0], epochs=1, batch_size=8, flip=True)
    assert task.evaluate(examples(32)[0]).keys() == {
        "bits_per_dimension",
        "unigram_bits_per_dimension",
        "images",
    }
    assert task.generate(2).shape == (2, 8, 8, 1)
    with pytest.raises(ValueError, match="`guidance` must be left out"):
        task.generate(2, guidance=2.0)


def test_images_of_another_size_are_written():
    sizes = {"num_channels": 1, "block_length": 16, **SIZES}
    task = ImageGenerator.make(examples(4), GeneratorOptions("image-transformer"), sizes, image_size=12)
    assert task.image_shape == (12, 12, 1)


def test_whole_codes_are_kept_where_rows_are_odd():
    """What stands in half a row of codes is drawn with its other half."""
    keras.utils.set_random_seed(0)
    sizes = {"image_size": 12, "dim": 4, "factors": [1, 1, 1], "attends": [False] * 3, "num_groups": 2}
    codec = VQGAN.from_size("tiny", **sizes, num_channels=1, latent_dim=4, code_dim=4, num_codes=8)
    writer = ImageWriter(GPT2.from_size("tiny", vocabulary_size=9, max_length=10, **SIZES), codec=codec)
    picture = np.full((12, 12, 1), 255, "uint8")
    (completed,) = writer.generate(1, complete=picture)
    assert (completed[:4] == 255).all() and not (completed[4:] == 255).any()


def test_tokens_there_and_back():
    images = tf.constant(np.random.default_rng(0).integers(0, 2, (3, 4, 4, 3)), tf.float32)
    colours = colours_of(images, 8)
    np.testing.assert_array_equal(
        np.unique(colours, axis=0), np.unique(2 * images.numpy().reshape(-1, 3) - 1, axis=0)
    )
    for alphabet in (Colours(colours, 4), Values((4, 4, 3))):
        tokens = alphabet.encode(images)
        assert tokens.shape == (3, alphabet.length)
        np.testing.assert_allclose(alphabet.decode(tokens), images, atol=1e-6)
    few = colours_of(np.random.default_rng(0).random((2, 8, 8, 3)), 5)
    assert few.shape == (5, 3) and np.abs(few).max() <= 1


@pytest.mark.parametrize("name, value", [("steps", 4), ("noise_factor", 2.0), ("prediction", "clean")])
def test_what_only_diffusion_has_a_use_for_is_refused(task, name, value):
    config = dataclasses.replace(task.config, **{name: value})
    with pytest.raises(ValueError, match=f"`{name}` must be left out, as the model writes tokens"):
        ImageWriter.of_parts(None, config, task.describe_model())


def test_bad_input_is_refused(task, codes):
    refusals = [
        ("expected one of the classes across, down", lambda: task.generate(["sideways"])),
        ("`guidance` must be .*nan", lambda: task.generate(["down"], guidance=float("nan"))),
        ("`steps` must be left out, as the model writes tokens", lambda: task.generate(["down"], steps=4)),
        ("`temperature` must be", lambda: task.generate(["down"], temperature=-1.0)),
        ("`codes` must be a RUN of image-codes, whose codes gpt writes", lambda: made("gpt", examples(4))),
        ("`codes` must be left out", lambda: made("imagegpt", examples(4), codes=codes)),
    ]
    codec = tasks.load(codes).model
    gpt = GPT2.from_size("tiny", vocabulary_size=10, max_length=17, **SIZES)
    refusals.append(("a model of 9 tokens, 17 places", lambda: ImageWriter(gpt, codec=codec)))
    refusals.append(
        ("`tokenizer` must be left out", lambda: ImageWriter(gpt, tokenizer=object(), codec=codec))
    )
    refusals.append(
        (
            "`image_size` must be 8",
            lambda: ImageWriter(
                task.model.backbone, task.config, colours=task.alphabet.palette.colors, image_size=9
            ),
        )
    )
    diffusion = ImageGenerator.make(
        examples(4), GeneratorOptions(), {"image_size": 8, "patch_size": 4, "num_channels": 1, **SIZES}
    )
    refusals.append(
        (
            "`top_k` must be left out, as the model makes pictures of noise",
            lambda: diffusion.generate(["down"], top_k=3),
        )
    )
    for message, call in refusals:
        with pytest.raises(ValueError, match=message):
            call()
