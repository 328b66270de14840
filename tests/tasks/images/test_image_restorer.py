"""The mender of pictures: what it learns, what it makes of pictures of any kind, its files, its refusals."""

import io

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.data import DataError
from keras_tfm.models import IPT, MDSR
from keras_tfm.tasks import ImageRestorer
from keras_tfm.tasks.images.likeness import likeness
from keras_tfm.tasks.images.restorer_options import ImageRestorerConfig, RestorerOptions
from tests.tasks.interrupting import interrupted_at
from tests.tasks.refusals import refusals

OPTIONS = RestorerOptions(size="tiny")
FIELDS = {"restore": "x2,denoise30", "crop": 8}
LARGE = np.zeros((5000, 5000), "uint8")
LEARNING = {"epochs": 4, "crops": 32, "batch_size": 8, "learning_rate": 5e-3}


def pictures(count, seed=0, size=(40, 36)):
    """Coloured rectangles, 8-bit (count, H, W, 3)."""
    rng = np.random.default_rng(seed)
    images = np.empty((count, *size, 3), "uint8")
    for image in images:
        image[:] = rng.integers(0, 256, 3)
        for _ in range(8):
            top, left = rng.integers(0, size[0] - 8), rng.integers(0, size[1] - 8)
            height, width = rng.integers(6, 20, 2)
            image[top : top + height, left : left + width] = rng.integers(0, 256, 3)
    return images


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The RUN of a task that has learnt."""
    folder = tmp_path_factory.mktemp("restorer") / "run"
    keras.utils.set_random_seed(0)
    task = ImageRestorer.make(pictures(24), OPTIONS, {}, **FIELDS)
    task.fit(pictures(24), pictures(4, 1), run=folder, **LEARNING)
    return folder


@pytest.fixture(scope="module")
def task(run):
    return tasks.load(run)


def test_it_mends_better_than_the_rule(task):
    measures = task.evaluate(pictures(4, 2))
    assert measures == task.evaluate(pictures(4, 2))  # the same noise
    assert measures["images"] == 4
    assert measures["x2_psnr"] > measures["x2_rule_psnr"] + 0.15
    assert measures["denoise30_psnr"] > measures["denoise30_rule_psnr"] + 4
    assert measures["denoise30_ssim"] > measures["denoise30_rule_ssim"] + 0.1
    assert task.record["results"]["val_loss"] < task.record["baselines"]["mending by rule"]


def test_a_fresh_one_mends_by_the_rule():
    task = ImageRestorer.make(None, OPTIONS, {}, restore="x3,inpaint", crop=8)
    measures = task.evaluate([pictures(1)[0], pictures(1, 3, (30, 70))[0]])
    for name in ("x3", "inpaint"):
        assert measures[f"{name}_psnr"] == pytest.approx(measures[f"{name}_rule_psnr"], abs=0.1)
        assert measures[f"{name}_ssim"] == pytest.approx(measures[f"{name}_rule_ssim"], abs=0.01)
    image = pictures(1)[0, :10, :12]
    theirs = PIL.Image.fromarray(image).resize((36, 30), PIL.Image.Resampling.BICUBIC)
    mended = task.predict([image], restore="x3")[0]["picture"]
    inner = np.abs(mended.astype(int) - np.asarray(theirs))[6:24, 6:30]  # around stands the mirror image
    assert inner.max() <= 2


def test_likeness_by_hand():
    good = tf.constant(np.random.default_rng(0).random((1, 16, 16, 3)), tf.float32)
    psnr, ssim = likeness(good, good + 0.1)
    assert psnr.numpy() == pytest.approx([20], abs=1e-3) and 0.5 < ssim.numpy()[0] < 1
    assert [float(x[0]) for x in likeness(good, good)] == pytest.approx([100, 1], abs=1e-4)


@pytest.mark.parametrize("shape", [(1, 1), (5, 130, 3), (97, 40, 1)])
def test_pictures_of_any_size(task, shape):
    image = np.random.default_rng(0).integers(0, 256, shape).astype("uint8")
    (enlarged,) = task.predict([image], restore="x2")
    (denoised,) = task.predict([image], restore="denoise30")
    assert enlarged["picture"].shape == (2 * shape[0], 2 * shape[1], 3) and enlarged["file"] is None
    assert denoised["picture"].shape == (*shape[:2], 3) and denoised["picture"].dtype == "uint8"
    if shape[2:] != (3,):  # grey stays grey
        assert np.ptp(enlarged["picture"], axis=-1).max() == 0
    else:
        assert np.ptp(denoised["picture"], axis=-1).max() > 0


def test_alpha_goes_on(task):
    image = np.dstack([pictures(1)[0], np.full((40, 36), 255)]).astype("uint8")
    assert task.predict([image], restore="x2")[0]["picture"].shape == (80, 72, 3)  # wholly opaque
    image[:, :18, 3] = 100
    mended = task.predict([image], restore="x2")[0]["picture"]
    assert mended.shape == (80, 72, 4)
    assert (mended[:, :30, 3] == 100).all() and (mended[:, -30:, 3] == 255).all()
    plain = task.predict([image[..., :3]], restore="x2")[0]["picture"]
    np.testing.assert_array_equal(mended[..., :3], plain)


def test_transparent_pixels_are_holes_to_be_filled():
    task = ImageRestorer.make(None, OPTIONS, {}, restore="inpaint", crop=8)
    image = np.dstack([np.full((20, 30, 3), 77), np.full((20, 30), 255)]).astype("uint8")
    image[5:12, 10:20] = 0
    (mended,) = task.predict([image])
    np.testing.assert_array_equal(mended["picture"], 77)
    whole = pictures(1)[0]
    np.testing.assert_array_equal(task.predict([whole])[0]["picture"], whole)  # there is nothing to mend


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_attention_reads_tiles_of_one_size(channels):
    mean = [0.5] * channels
    task = ImageRestorer.make(None, RestorerOptions("ipt", "tiny"), {"mean": mean}, restore="x2")
    assert task.image_shape == (12, 12, channels)
    (mended,) = task.predict([pictures(1)[0]])
    assert mended["picture"].shape == (80, 72, channels)
    assert ImageRestorer.make(None, RestorerOptions("ipt", "tiny"), {}, restore="x2", crop=18).tile == 18


@pytest.mark.slow
def test_a_training_of_files(tmp_path, caplog):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, image in enumerate(pictures(5)):
        PIL.Image.fromarray(image).save(folder / f"{number}.png")
    PIL.Image.fromarray(pictures(1)[0, :12]).save(folder / "small.png")
    (folder / "broken.png").write_bytes(b"text")
    out = tmp_path / "run"
    options = ["--restore", "denoise50", "--crop", "16", "--crops", "2", "--size", "tiny", "--epochs", "1"]
    main(["train", "restore-images", "--data", str(folder), "--out", str(out), *options])
    assert "2 of 7 images are skipped" in caplog.text
    assert "small.png (expected at least 16 x 16 pixels, got 36 x 12)" in caplog.text
    task = tasks.load(out)
    assert task.config == ImageRestorerConfig(restore="denoise50", crop=16)
    more = ImageRestorer.start_from(out, None)
    for one, other in zip(more.model.weights, task.model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="--from: it mends denoise50, and not x2"):
        ImageRestorer.start_from(out, None, restore="x2")


@pytest.mark.slow
def test_the_command_writes_files(run, tmp_path, capsys):
    folder = tmp_path / "asked"
    folder.mkdir()
    PIL.Image.fromarray(pictures(1)[0]).save(folder / "a.jpg")
    (folder / "b.png").write_bytes(b"text")
    PIL.Image.fromarray(LARGE).save(folder / "c.png")  # not too large to be denoised
    asked = ["predict", str(run), "--data", str(folder), "--restore", "x2"]
    main([*asked, "--draw", str(tmp_path / "new")])
    output = capsys.readouterr()
    file = tmp_path / "new" / "a.png"
    assert output.out.splitlines() == [f"{folder}/a.jpg\t{file}", f"{folder}/b.png\t", f"{folder}/c.png\t"]
    assert "c.png gets an empty line: expected at most 16,777,216 pixels to be enlarged" in output.err
    assert "b.png gets an empty line: expected a whole PNG or JPEG image" in output.err
    task = tasks.load(run)
    (again,) = task.predict([str(folder / "a.jpg")], restore="x2")
    np.testing.assert_array_equal(np.asarray(PIL.Image.open(file)), again["picture"])
    main(asked)
    assert capsys.readouterr().out.splitlines()[0] == f"{folder}/a.jpg\t72 x 80"
    with pytest.raises(SystemExit):
        main([*asked[:-1], "x4"])
    assert "--restore must be one of x2, denoise30, as the model was trained for" in capsys.readouterr().err


def test_a_saved_model_answers_files_with_files(task, tmp_path):
    task.export(tmp_path / "export")
    buffer = io.BytesIO()
    PIL.Image.fromarray(pictures(1)[0]).save(buffer, "PNG")
    small = tf.io.encode_png(pictures(1)[0, :9, :7]).numpy()
    asked = [buffer.getvalue(), small]
    served = serving.load(tmp_path / "export")
    for file, picture in zip(served(asked)["png"], task.predict(asked, restore="x2"), strict=True):
        np.testing.assert_array_equal(tf.io.decode_png(file), picture["picture"])
    signatures = served._signatures
    assert set(signatures) == {"serving_default", "x2", "denoise30"}
    (denoised,) = signatures["denoise30"](image_bytes=tf.constant([small]))["png"]
    (expected,) = task.predict([small], restore="denoise30")
    np.testing.assert_array_equal(tf.io.decode_png(denoised), expected["picture"])
    with pytest.raises(ValueError, match="'restore-images' is exported as a SavedModel alone"):
        task.export(tmp_path / "other", format="onnx")


test_what_is_wrong_is_refused_in_a_line = refusals(
    (lambda task: task.predict(pictures(1)), "`restore` must be one of x2, denoise30, as the model was"),
    (lambda task: task.predict(pictures(1), restore="x4"), "was trained for; it is 'x4'"),
    (lambda task: task.predict(pictures(1)[0, :, :, 0], restore="x2"), "expected a list of pictures, or"),
    (lambda task: task.predict([b"text"], restore="x2"), "row 0: expected a whole PNG or JPEG image"),
    (lambda task: task.predict(["no.png"], restore="x2"), "row 0: cannot be read: No such file"),
    (lambda task: task.predict([LARGE], restore="x2"), "expected at most 16,777,216 pix"),
    (lambda task: task.fit(pictures(1)), "At least 2 examples are needed"),
    (lambda task: task.fit(pictures(4, size=(15, 40))), "image 0: expected at least 16 x 16 pixels, got"),
    (lambda task: task.evaluate(pictures(1, size=(11, 40))), "image 0: expected at least 12 x 12 pixels"),
    (lambda task: task.evaluate([]), "`images` must not be empty"),
    (lambda task: ImageRestorerConfig(restore="x2,x5"), r"`restore` must be some of x2, .*; it is 'x5'"),
    (lambda task: ImageRestorerConfig(restore="x2,x2"), "`restore` must be different names"),
    (lambda task: ImageRestorerConfig(crop=4), "`crop` must be at least 8; it is 4"),
    (lambda task: ImageRestorer(task.model, restore="x2"), "`model` must be one of the tasks {'x2': 2}"),
    (lambda task: RestorerOptions("unet").base(), "There is no family 'unet'"),
    (
        lambda task: ImageRestorer(IPT.from_size("tiny"), restore="x2", crop=8),
        "`model` must be one of the tasks",
    ),
    (
        lambda task: ImageRestorer(MDSR.from_size("tiny", tasks=["x2"], scales=[2], mean=[0.5, 0.5])),
        "`model` must be one of 1 channel or of 3; it is one of 2",
    ),
    (
        lambda task: ImageRestorer(IPT.from_size("tiny", tasks=["x2"], scales=[2]), crop=8),
        "`crop` must be the side of the model's images, 12; it is 8",
    ),
)


def test_files_without_a_good_picture(tmp_path):
    PIL.Image.fromarray(pictures(1)[0, :9]).save(tmp_path / "1.png")
    with pytest.raises(DataError, match=r"1\.png: expected at least 96 x 96 pixels, got 36 x 9"):
        ImageRestorer.read_training([tmp_path])
    with pytest.raises(DataError, match=r"1\.png: expected at least 96 x 96 pixels, got 36 x 9"):
        ImageRestorer.read_validation([tmp_path])
    with pytest.raises(DataError, match=r"1\.png: expected at least 12 x 12 pixels, got 36 x 9"):
        ImageRestorer.read_files([tmp_path])


@pytest.mark.slow
def test_a_loss_that_is_no_number_stops(tmp_path):
    task = ImageRestorer.make(None, OPTIONS, {}, restore="x2", crop=8)
    task.model.weights[0].assign(tf.fill(task.model.weights[0].shape, np.nan))
    with pytest.raises(FloatingPointError, match="weights are not finite after step 0"):
        task.fit(pictures(4), epochs=2, run=tmp_path / "run")


@pytest.mark.slow
def test_an_interrupted_training_goes_on_as_if_it_had_not_been(tmp_path):
    def trained(name, **options):
        keras.utils.clear_session()  # a checkpoint names seed generators, which Keras numbers in a process
        keras.utils.set_random_seed(0)
        task = ImageRestorer.make(None, OPTIONS, {}, **FIELDS)
        task.fit(pictures(4), run=tmp_path / name, **{**LEARNING, "crops": 8}, **options)
        return task

    whole = trained("whole")
    with interrupted_at(2):
        trained("broken")
    resumed = trained("broken", resume=True)
    for one, other in zip(resumed.model.trainable_variables, whole.model.trainable_variables, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)  # convolutions add in any order
