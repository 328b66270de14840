"""Cascades: an Imagen that enlarges the pictures of another; what it is shown, its files, its refusals."""

import json

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import data, tasks
from keras_tfm.cli import main
from keras_tfm.layers.noise_schedules import cosine_betas, rates_of_betas
from keras_tfm.tasks import ImageGenerator
from keras_tfm.tasks.images.enlarging import Enlarging
from keras_tfm.tasks.images.generator_options import GeneratorOptions
from tests.tasks.images.test_text_to_image import (
    ENCODER,
    OPTIONS,
    SMALL,
    TEXTS,
    UNET,
    examples,
    served_like,
    write,
)

LARGE = {"image_size": 8, "num_channels": 1, "unet_config": UNET}


def enlarged(size):
    """Images (N, 8, 8) of 4 x 4 cells, whose lower half is darker by a quarter, and texts."""
    images = np.random.default_rng(0).integers(0, 256, (size, 4, 4)).repeat(2, 1).repeat(2, 2)
    images[:, 1::2] = images[:, 1::2] // 4 * 3
    return data.ImageTexts(images.astype("uint8"), examples(size).texts)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The RUN of a generator of small pictures, untrained."""
    folder = tmp_path_factory.mktemp("cascade") / "small"
    keras.utils.set_random_seed(0)
    ImageGenerator.make(examples(64), OPTIONS, SMALL, steps=3).save(folder)
    return folder


@pytest.fixture(scope="module")
def options(small):
    return GeneratorOptions("imagen", small=str(small))


@pytest.fixture(scope="module")
def run(options, tmp_path_factory):
    """The RUN of a generator that has learnt to enlarge them."""
    folder = tmp_path_factory.mktemp("cascade") / "large"
    keras.utils.set_random_seed(1)
    task = ImageGenerator.make(enlarged(256), options, LARGE, prediction="clean", steps=4, small_noise=0.02)
    task.fit(enlarged(256), run=folder, epochs=5, batch_size=8, learning_rate=1e-2)
    return folder


@pytest.fixture(scope="module")
def task(run):
    return tasks.load(run)


def by_hand(images, steps, noise):
    """Noisy small pictures (B, 4, 6, 2) and the logarithms of their signal-to-noise ratios."""
    rates = [rate[steps] for rate in rates_of_betas(cosine_betas(1000))]
    large = np.array(tf.image.resize(images, (8, 12)))
    signal, rate = (x[:, None, None, None] for x in rates)
    return signal * large + rate * noise, np.clip(2 * np.log(rates[0] / rates[1]), *np.log([1e-5, 1e5]))


def test_small_pictures_are_shown_with_noise_that_is_told():
    rng = np.random.default_rng(0)
    enlarging = Enlarging((4, 6, 2), (8, 12, 2), "cosine", 1000)
    small = rng.uniform(-1, 1, (5, 4, 6, 2)).astype("float32")
    shown = enlarging.of_small(tf.constant(small), 0.25, tf.range(5))
    clean = enlarging.of_small(tf.zeros((5, 4, 6, 2)), 0.25, tf.range(5))["low_resolution"]
    rates = rates_of_betas(cosine_betas(1000))
    noise = clean / rates.noise[250]
    assert abs(np.std(noise) - 1) < 0.1 and len(np.unique(noise)) > 900
    expected, log_snr = by_hand(small, np.full(5, 250), noise)
    np.testing.assert_allclose(shown["low_resolution"], expected, atol=1e-5)
    np.testing.assert_allclose(shown["low_resolution_log_snr"], log_snr, atol=1e-5)


def test_in_training_large_pictures_are_shrunk_and_levels_are_drawn():
    enlarging = Enlarging((4, 6, 1), (8, 12, 1), "cosine", 1000)
    small = np.random.default_rng(0).uniform(-1, 1, (400, 4, 6, 1)).astype("float32")
    shown = enlarging.of_large(tf.constant(small.repeat(2, 1).repeat(2, 2)), tf.constant([1, 2]))
    levels = np.sort(shown["low_resolution_log_snr"])
    assert len(np.unique(levels)) > 300 and levels[0] < -9 and levels[-1] > 7
    least = np.argmax(shown["low_resolution_log_snr"])
    expected, _ = by_hand(small[least : least + 1], np.zeros(1, int), 0.0)
    np.testing.assert_allclose(shown["low_resolution"][least], expected[0], atol=0.2)
    again = enlarging.of_large(tf.constant(small.repeat(2, 1).repeat(2, 2)), tf.constant([1, 2]))
    np.testing.assert_array_equal(shown["low_resolution"], again["low_resolution"])


def test_it_begins_with_the_encoder_of_the_small_pictures(small, options):
    large = ImageGenerator.make(enlarged(8), options, LARGE)
    own = tasks.load(small)
    assert large.tokenizer.tokens == own.tokenizer.tokens and large.condition.max_length == 16
    for part in (large, large.small):
        weights = part.model.backbone.encoder.get_weights()
        assert all(map(np.array_equal, weights, own.model.backbone.encoder.get_weights()))
    assert not large.model.small.trainable_weights and large.model.trainable_weights
    assert large.model.backbone.config.trains_encoder
    still = ImageGenerator.make(enlarged(8), options, {**LARGE, "trains_encoder": False})
    assert not still.model.backbone.config.trains_encoder


def test_it_follows_the_small_picture(task, small):
    assert task.record["results"]["val_loss"] < 0.5 * task.record["baselines"]["the mean"]
    own = tasks.load(small)
    assert all(map(np.array_equal, task.small.model.get_weights(), own.model.get_weights()))
    pictures = task.generate(TEXTS * 3, seed=7, steps=3, guidance=1).astype(float)
    assert pictures.shape == (6, 8, 8, 1)
    shrunk = pictures.reshape(6, 4, 2, 4, 2, 1).mean((2, 4))
    asked = own.generate(TEXTS * 3, seed=7, steps=3, guidance=1).astype(float)
    assert np.corrcoef(shrunk.ravel(), asked.ravel())[0, 1] > 0.8
    assert pictures[:, 1::2].mean() < 0.9 * pictures[:, ::2].mean()


def test_its_files_hold_both(task, run, small, tmp_path):
    config = json.loads((run / "config.json").read_text("utf-8"))["model"]["small"]
    assert config["config"]["steps"] == 3 and config["model"]["config"]["image_size"] == 4
    more = ImageGenerator.start_from(run, enlarged(8), small_noise=0.3)
    assert more.config.small_noise == 0.3
    more.fit(enlarged(8), enlarged(8), epochs=1)
    assert all(map(np.array_equal, more.small.model.get_weights(), tasks.load(small).model.get_weights()))
    assert task.evaluate(enlarged(8))["percent_of_mean"] < 60


@pytest.mark.slow
def test_a_saved_model_makes_large_pictures(task, tmp_path):
    served_like(task, tmp_path / "export")


@pytest.mark.slow
def test_the_command_line(small, tmp_path, capsys):
    write(enlarged(8), tmp_path / "data")
    (tmp_path / "large.json").write_text(json.dumps(LARGE), "utf-8")
    train = ["train", "generate-images", "--data", str(tmp_path / "data"), "--family", "imagen"]
    train += ["--config", str(tmp_path / "large.json"), "--epochs", "1", "--out", str(tmp_path / "run")]
    main([*train, "--small", str(small)])
    (tmp_path / "asked.txt").write_text(TEXTS[0], "utf-8")
    asked = ["--data", str(tmp_path / "asked.txt"), "--draw", str(tmp_path / "new"), "--steps", "2"]
    main(["predict", str(tmp_path / "run"), *asked])
    (file,) = (tmp_path / "new").iterdir()
    assert np.asarray(PIL.Image.open(file)).shape == (8, 8)
    for words, expected in (
        (["--small", str(tmp_path / "run")], "--small must be of smaller pictures than 8 x 8 pixels in 1"),
        (["--small", str(small), "--max-length", "5"], "--max-length must be left out, as texts are read as"),
        (["--small", str(small), "--family", "dit"], "--small must be left out for the family dit"),
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main([*train, "--overwrite", *words])
        assert expected in capsys.readouterr().err


def test_what_does_not_fit_is_refused(small, options, task):
    own = tasks.load(small)
    parts = {"tokenizer": own.tokenizer}
    with pytest.raises(ValueError, match="`small` must be given, as the model enlarges; it is None"):
        ImageGenerator(task.model.backbone, **parts)
    with pytest.raises(ValueError, match="`small` must be left out, as the model does not enlarge"):
        ImageGenerator(own.model.backbone, small=own, **parts)
    with pytest.raises(ValueError, match="`small` must be of smaller pictures than 4 x 4 pixels in 1"):
        ImageGenerator.make(examples(8), options, {**LARGE, "image_size": 4})
    with pytest.raises(ValueError, match="`encoder_config` must be left out, as the encoder is that of"):
        ImageGenerator.make(enlarged(8), options, {**LARGE, "encoder_config": ENCODER})
    with pytest.raises(ValueError, match="`small` must be left out for the family dit"):
        GeneratorOptions("dit", small=str(small)).base()
    with pytest.raises(ValueError, match="`small_noise` must be left out, as the model does not"):
        ImageGenerator(own.model.backbone, small_noise=0.2, **parts)
    with pytest.raises(ValueError, match="`codes` must be left out for the family dit"):
        GeneratorOptions("dit", codes=str(small)).base()


def test_it_needs_an_imagen(tmp_path):
    images = np.zeros((8, 8, 8, 3), "uint8")
    sizes = {"image_size": 8, "patch_size": 4, "num_layers": 1, "dim": 8, "num_heads": 1}
    other = ImageGenerator.make(images, GeneratorOptions("dit"), sizes)
    other.save(tmp_path / "dit")
    with pytest.raises(ValueError, match="`small` must be a RUN of generate-images by the family imagen"):
        ImageGenerator.make(enlarged(8), GeneratorOptions("imagen", small=str(tmp_path / "dit")), LARGE)
