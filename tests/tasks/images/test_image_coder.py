"""Pictures as codes: what is learnt, with a discriminator too, what is measured, files, exports, refusals."""

import dataclasses
import json
import random

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.cli import main
from keras_tfm.models.pictures.patch_discriminator import patch_discriminator
from keras_tfm.tasks import ImageCoder
from keras_tfm.tasks.images.coder_options import CoderOptions
from keras_tfm.training import AdversarialCodec
from tests.tasks.interrupting import interrupted_at

SMALL = {
    "image_size": 8,
    "dim": 8,
    "factors": [1, 1],
    "attends": [False, False],
    "num_channels": 1,
    "num_groups": 4,
    "num_codes": 16,
}
LEARNING = {"epochs": 6, "batch_size": 16, "learning_rate": 1e-2}
JOINING = LEARNING | {"epochs": 3, "adversarial_after": 4, "patches": 8}


def pictures(count, seed=0):
    """Each of four squares of 4 x 4 pixels dark or striped: (count, 8, 8), 8-bit."""
    squares = np.random.default_rng(seed).integers(0, 2, (count, 2, 2))
    stripes = np.arange(8) % 2
    return (40 + 170 * squares.repeat(4, 1).repeat(4, 2) * stripes).astype("uint8")


def fresh(**changes):
    return ImageCoder.make(None, CoderOptions(), {**SMALL, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The RUN of a task that has learnt."""
    folder = tmp_path_factory.mktemp("coder") / "run"
    keras.utils.set_random_seed(0)
    fresh().fit(pictures(256), pictures(32, 1), run=folder, **LEARNING)
    return folder


@pytest.fixture(scope="module")
def task(run):
    return tasks.load(run)


def test_pictures_are_made_again_of_their_codes(task):
    measures = task.evaluate(pictures(40, 2))
    assert measures["psnr"] > measures["bicubic_psnr"] + 3 > measures["mean_psnr"] + 3
    assert measures["ssim"] > 0.8 and measures["images"] == 40 and measures["codes"] == 16
    codes = task.codes_of(pictures(40, 2))
    assert measures["used_codes"] == len(np.unique(codes))
    assert 1 <= measures["perplexity"] <= measures["used_codes"] + 1e-4
    made = task.pictures_of(codes)
    error = np.mean((made[..., 0] - pictures(40, 2).astype("float64")) ** 2, (1, 2)) / 255**2
    assert np.mean(-10 * np.log10(error)) == pytest.approx(measures["psnr"], abs=1e-2)
    mean = np.mean((pictures(40, 2) - pictures(40, 2).mean(0)) ** 2, (1, 2)) / 255**2
    assert np.mean(-10 * np.log10(mean)) == pytest.approx(measures["mean_psnr"], abs=1e-2)
    baselines = task.record["baselines"]
    assert task.record["results"]["val_loss"] < min(v for k, v in baselines.items() if k != "metric")


def test_files_and_lines(task, run, tmp_path, capsys):
    old = tmp_path / "old"
    old.mkdir()
    for number, picture in enumerate(pictures(2)):
        PIL.Image.fromarray(picture).resize((11, 9), 0).save(old / f"{number}.png")
    data = ["predict", str(run), "--data", str(old)]
    expected = [f"{old}/{i}.png\t{tmp_path}/new/{i}.png" for i in range(2)]
    main([*data, "--draw", str(tmp_path / "new")])
    assert capsys.readouterr().out.splitlines() == expected
    main([*data, "--json"])
    codes = [json.loads(line)["answer"] for line in capsys.readouterr().out.splitlines()]
    assert np.shape(codes) == (2, 4, 4)
    made = np.asarray(PIL.Image.open(tmp_path / "new" / "1.png"))
    np.testing.assert_array_equal(task.pictures_of(codes)[1, ..., 0], made)
    main(data)
    assert capsys.readouterr().out.splitlines()[1].split("\t")[1] == " ".join(map(str, np.ravel(codes[1])))


def test_a_saved_model_makes_codes_and_files(task, tmp_path):
    task.export(tmp_path / "export")
    served = tf.saved_model.load(str(tmp_path / "export")).signatures
    files = [tf.io.encode_png(picture[..., None]).numpy() for picture in pictures(3, 4)]
    answer = served["serving_default"](image_bytes=tf.constant(files))
    codes = task.codes_of(pictures(3, 4))
    np.testing.assert_array_equal(answer["codes"], codes)
    again = served["decode"](codes=tf.constant(codes))["png"]
    for row, made in enumerate(task.pictures_of(codes)):
        np.testing.assert_array_equal(tf.io.decode_png(answer["png"][row]), made)
        np.testing.assert_array_equal(tf.io.decode_png(again[row]), made)
    with pytest.raises(ValueError, match="'image-codes' is exported as a SavedModel alone"):
        task.export(tmp_path / "other", format="onnx")


@pytest.mark.slow
def test_a_discriminator_joins_in_and_a_resumed_training_goes_on_the_same(tmp_path):
    def trained(folder, **options):
        keras.utils.set_random_seed(0)
        task = fresh()
        return task.fit(pictures(32), pictures(8, 1), run=folder, **JOINING, **options), task

    history, task = trained(tmp_path / "whole")
    assert history["adversarial_loss"][0] == history["discriminator_loss"][0] == 0 < len(history["steps"])
    assert history["steps"] == [2, 4, 6] and history["discriminator_loss"][2] > 0.3
    last = tasks.load(tmp_path / "whole")  # the last epoch, whose weights are the codec's alone
    np.testing.assert_array_equal(last.codes_of(pictures(4)), task.codes_of(pictures(4)))
    with interrupted_at(2):
        trained(tmp_path / "parts")
    again = tasks.load(tmp_path / "parts")
    again.fit(pictures(32), pictures(8, 1), run=tmp_path / "parts", resume=True, **JOINING)
    for one, other in zip(again.model.weights, task.model.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_the_adversarial_loss_by_hand():
    """Without movement of the weights, the gradients' norms at the last kernel balance both losses."""
    keras.utils.set_random_seed(1)
    codec = fresh().model
    model = AdversarialCodec(codec, patch_discriminator((8, 8, 1), 8), codec.last_kernel, after=0, weight=0.5)
    model.compile(
        keras.optimizers.SGD(1.0), keras.optimizers.SGD(0.0), loss={"images": "mae"}, jit_compile=False
    )
    x = pictures(4)[..., None].astype("float32") / 127.5 - 1
    before, kernel = codec.get_weights(), codec.last_kernel
    with tf.GradientTape(persistent=True) as tape:
        y = codec({"images": x})["images"]
        pixels = tf.reduce_mean(tf.abs(x - y))
        scores = -tf.reduce_mean(model.discriminator({"images": y})["scores"])
    first, second = tape.gradient(pixels, kernel.value), tape.gradient(scores, kernel.value)
    value = kernel.numpy()
    logs = model.train_on_batch({"images": x}, {"images": x}, return_dict=True)
    moved = value - first - 0.5 * tf.norm(first) / (tf.norm(second) + 1e-4) * second
    np.testing.assert_allclose(kernel, moved, atol=1e-5)
    assert float(logs["adversarial_loss"]) == pytest.approx(float(scores), abs=1e-5)
    assert np.abs(before[0] - codec.get_weights()[0]).max() > 0
    assert {weight.path for weight in model.weights} == {weight.path for weight in codec.weights}


def test_the_seed_of_a_training_draws_its_discriminator():
    task, state = fresh(), random.getstate()
    training = dataclasses.replace(task.training, adversarial_after=0, patches=8)
    first, again, other = (
        task.learner(dataclasses.replace(training, seed=seed)).discriminator.get_weights()[0]
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0 and random.getstate() == state


@pytest.mark.slow
def test_a_discrete_autoencoder_learns_too():
    sizes = {"image_size": 16, "dim": 8, "code_dim": 8, "num_codes": 8, "num_channels": 1}
    task = ImageCoder.make(None, CoderOptions("discrete-vae"), sizes)
    images = pictures(16).repeat(2, 1).repeat(2, 2)
    history = task.fit(images, images, epochs=2, batch_size=8)
    assert history["val_loss"][1] < history["val_loss"][0]
    assert task.codes_of(images).shape == (16, 2, 2) and task.config.mean == (0.0,)
    assert task.evaluate(images)["psnr"] > 5
    with pytest.raises(
        ValueError, match="`adversarial_after` must be left out, as discriminators are for vq"
    ):
        task.fit(images, images, epochs=1, adversarial_after=1)


@pytest.mark.slow
def test_dead_codes_are_counted_and_revived():
    task = fresh(dead_after=2)
    assert CoderOptions().base().dead_after == 100
    assert CoderOptions(local_codes=True).base().local_codes and not CoderOptions().base().local_codes
    codebook = task.model.quantizer.codebook
    codebook.assign(tf.concat([codebook[:1], codebook[1:] + 1e3], 0))  # one of them alone is near
    task.fit(pictures(64), pictures(8, 1), epochs=1, batch_size=16, learning_rate=1e-6)
    assert np.abs(codebook).max() < 900  # the averages of the weights remember some


COLOUR = np.zeros((2, 8, 8, 3), "uint8")
WRONG = [
    (r"the shape .*\(B, H, W, 1\); it is \(2, 8, 8, 3\)", lambda task: task.fit(COLOUR)),
    (r"`images` must not be empty", lambda task: task.fit(pictures(0))),
    (
        r"in \[0, 16\); it is int64 \(1, 4, 4\) up to 16",
        lambda task: task.pictures_of(np.full((1, 4, 4), 16)),
    ),
    (r"integers \(N, 4, 4\).* \(1, 3, 4\)", lambda task: task.pictures_of(np.zeros((1, 3, 4), int))),
    (r"multiple of 8; it is 3", lambda task: task.fit(pictures(8), pictures(2), **JOINING | {"patches": 3})),
    (
        r"a VQGAN or a DiscreteVAE; it is Activation",
        lambda task: ImageCoder(keras.layers.Activation("linear")),
    ),
    (
        r"`local_codes` must be left out, as discrete-vae has no local codes; it is True",
        lambda task: ImageCoder.make(None, CoderOptions("discrete-vae", local_codes=True), {}),
    ),
    (r"There is no family 'vqvae'", lambda task: ImageCoder.make(None, CoderOptions("vqvae"), {})),
    (r"`image_size` must be a multiple of 2; it is 9", lambda task: fresh(image_size=9)),
]


@pytest.mark.parametrize(("message", "of"), WRONG)
def test_bad_input_is_refused(message, of, task):
    with pytest.raises(ValueError, match=message):
        of(task)
