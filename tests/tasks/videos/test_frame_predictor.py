"""The next frames of videos: what is learnt, how a prediction goes on, files, refusals."""

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.models import STTN, ConvTransformer
from keras_tfm.tasks import FramePredictor
from keras_tfm.tasks.videos.frame_predictor import FramePredictorOptions
from keras_tfm.tasks.videos.video_inpainter import write_frames
from tests.tasks.refusals import refusals

SMALL = {"image_size": 16, "num_frames": 3, "num_channels": 1, "num_layers": 1, "dim": 8, "num_heads": 2}


def moving_squares(count, seed=0, length=8):
    """Bright squares that move to the right over a dark still picture, (N, T, 16, 16, 1)."""
    rng = np.random.default_rng(seed)
    videos = np.repeat(rng.integers(0, 60, (count, 1, 16, 16, 1)).astype("uint8"), length, 1)
    for video in videos:
        top, left = rng.integers(0, 10), rng.integers(0, 4)
        for place, frame in enumerate(video):
            frame[top : top + 5, left + place : left + place + 5] = 220
    return videos


def fresh(**changes):
    """A task that has not learnt."""
    keras.utils.set_random_seed(0)
    return FramePredictor.make(None, FramePredictorOptions(), {**SMALL, **changes})


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A task that has learnt, loaded from its RUN."""
    run = tmp_path_factory.mktemp("predictor") / "run"
    options = {"epochs": 3, "learning_rate": 3e-3, "flip": False}
    fresh().fit(moving_squares(192), moving_squares(8, 1), run=run, **options)
    return tasks.load(run)


def test_it_predicts_better_than_the_last_frame(task):
    measures = task.evaluate(moving_squares(8, 2))
    assert measures["videos"] == 8 and measures == task.evaluate(moving_squares(8, 2))
    assert measures["psnr"] > measures["rule_psnr"] + 2
    assert task.record["results"]["val_loss"] < 0.6 * task.record["baselines"]["the last frame"]


def test_a_fresh_one_repeats_the_last_frame():
    videos = moving_squares(2)
    for video, answer in zip(videos, fresh().predict(videos, frames=2), strict=True):
        np.testing.assert_array_equal(answer["video"], np.repeat(video[-1:], 2, 0))


@pytest.mark.slow
def test_the_measures_of_several_frames_by_hand():
    task, videos = fresh(num_targets=2), moving_squares(2, length=5)
    measures = task.evaluate(videos)
    errors = (videos[:, 3:] / 255 - videos[:, 2:3] / 255) ** 2
    assert measures["rule_psnr"] == pytest.approx(
        np.mean(-10 * np.log10(errors.mean((1, 2, 3, 4)))), abs=1e-3
    )
    assert measures["psnr"] == pytest.approx(measures["rule_psnr"], abs=1e-3)
    assert task.predict(videos, frames=5)[1]["video"].shape == (5, 16, 16, 1)


def test_frames_that_follow_go_on_from_its_own(task):
    videos = moving_squares(2, 3)
    first, further = task.predict(videos)[0]["video"], task.predict(videos, frames=3)[0]["video"]
    assert first.shape == (1, 16, 16, 1) and further.shape == (3, 16, 16, 1)
    np.testing.assert_array_equal(first[0], further[0])
    known = np.concatenate([videos[:1, -2:], first[None]], 1)
    second = task.predict(known)[0]["video"]
    assert np.abs(second[0].astype(int) - further[1]).max() <= 1


def test_which_frames_are_the_last(task):
    video = moving_squares(1, 6, length=9)
    every_second = FramePredictor(task.model, task.config, frame_step=2)
    plain = task.predict(video[:, [4, 6, 8]])[0]["video"]
    np.testing.assert_array_equal(every_second.predict(video)[0]["video"], plain)
    short = task.predict(video[:, :2])[0]["video"]  # the first frame is repeated
    np.testing.assert_array_equal(short, task.predict(video[:, [0, 0, 1]])[0]["video"])


def test_a_gif_shows_what_is_known_and_what_follows(task, tmp_path):
    videos = moving_squares(2)
    answers = task.predict(videos, frames=2, draw=tmp_path)
    assert task.as_line(answers[0]) == str(tmp_path / "000000.gif")
    with PIL.Image.open(answers[0]["file"]) as gif:
        assert gif.n_frames == 5 and gif.size == (16, 16)


@pytest.mark.slow
def test_a_saved_model_answers_files_with_files(task, tmp_path):
    video = moving_squares(1, 5, length=3)
    task.export(tmp_path / "export")
    files = [tf.io.encode_png(frame).numpy() for frame in video[0]]
    pngs = serving.load(tmp_path / "export")([files])["png"]
    assert pngs.shape == (1, 1)
    (answer,) = task.predict(video)
    assert np.abs(tf.io.decode_png(pngs[0, 0]).numpy().astype(int) - answer["video"][0]).max() <= 1
    with pytest.raises(ValueError, match="'predict-frames' is exported as a SavedModel alone"):
        task.export(tmp_path / "other", format="onnx")


@pytest.mark.slow
def test_the_command_trains_and_writes_gifs(tmp_path, capsys):
    for number, video in enumerate(moving_squares(8)):
        write_frames(video, tmp_path / "videos" / str(number))
    (tmp_path / "small.json").write_text('{"image_size": 16, "dim": 8}', "utf-8")
    data, out = ["--data", str(tmp_path / "videos")], str(tmp_path / "run")
    options = ["--config", str(tmp_path / "small.json"), "--num-frames", "3", "--epochs", "1"]
    main(["train", "predict-frames", *data, "--out", out, *options])
    assert tasks.load(out).frame_shape == (16, 16, 3)
    capsys.readouterr()
    main(["predict", out, *data, "--frames", "2", "--draw", str(tmp_path / "new")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[0].endswith(f"{tmp_path / 'new' / '0.gif'}")
    main(["predict", out, *data])
    assert capsys.readouterr().out.splitlines()[0].endswith("\t1 frames of 16 x 16")


test_what_is_wrong_is_refused_in_a_line = refusals(
    (lambda task: task.predict(moving_squares(1), frames=0), "`frames` must be at least 1; it is 0"),
    (lambda task: task.predict(["no.mp4"]), "row 0: cannot be read: No such file"),
    (lambda task: task.predict([moving_squares(1)[0, :1]]), "row 0: expected two frames or more, got"),
    (lambda task: task.fit(moving_squares(4, length=3)), "video 0: expected at least 4 frames, got 3"),
    (lambda task: task.fit(moving_squares(1)), "At least 2 examples are needed"),
    (lambda task: task.evaluate([]), "`videos` must not be empty"),
    (lambda task: task.evaluate(moving_squares(1)[..., [0, 0, 0]]), r"row 0: expected \(T, H, W, 1\)"),
    (
        lambda task: FramePredictor(STTN.from_size("base", image_size=16, patch_sizes=[[4, 4]])),
        "`model` must be a ConvTransformer of videos alone; it is a STTN",
    ),
    (
        lambda task: FramePredictor(ConvTransformer.from_size("base", **{**SMALL, "image_size": 8})),
        "`model` must be one of frames of at least 11 x 11 pixels; it is one of 8 x 8",
    ),
    (
        lambda task: FramePredictor(
            ConvTransformer.from_size("base", **{**SMALL, "num_frames": 4}, target="between")
        ),
        "`model` must be one of the target 'next'; it is 'between'",
    ),
)
