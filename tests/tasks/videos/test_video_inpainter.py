"""Holes of videos filled: what is learnt, masks of all kinds, files, refusals."""

import dataclasses
import pathlib

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.data import HoledVideos
from keras_tfm.data.sources.holed_videos import with_hole
from keras_tfm.models import STTN
from keras_tfm.tasks import VideoInpainter
from keras_tfm.tasks.videos.video_inpainter import VideoInpainterOptions, windows, write_frames
from tests.tasks.refusals import refusals
from tests.tasks.videos.test_frame_predictor import moving_squares

SMALL = {
    "image_size": 16, "num_frames": 4, "num_channels": 1, "num_layers": 1, "encoder_dims": [8, 8, 8, 16],
    "decoder_dims": [8, 8, 8], "patch_sizes": [[4, 4], [2, 2]],
}  # fmt: skip
MASK = np.zeros((16, 16), bool)
MASK[4:9, 5:12] = True


def fresh(motion="moving", **changes):
    """A task that has not learnt."""
    keras.utils.set_random_seed(0)
    return VideoInpainter.make(None, VideoInpainterOptions(), {**SMALL, **changes}, motion=motion)


def moving_masks(length=8):
    """A hole that moves downwards: (T, 16, 16)."""
    return np.stack([np.roll(MASK, place, 0) for place in range(length)])


def pictures_of(masks):
    """Masks (T, H, W) as 8-bit pictures (T, H, W, 1)."""
    return np.where(masks, 255, 0).astype("uint8")[..., None]


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A task that has learnt, loaded from its RUN."""
    run = tmp_path_factory.mktemp("inpainter") / "run"
    options = {"epochs": 6, "learning_rate": 3e-3, "flip": False}
    fresh().fit(moving_squares(192), moving_squares(8, 1), run=run, **options)
    return tasks.load(run)


def test_it_fills_better_than_the_mean_of_what_is_seen(task):
    measures = task.evaluate(moving_squares(16, 2))
    assert measures["videos"] == 16 and measures == task.evaluate(moving_squares(16, 2))
    assert measures["psnr"] > measures["rule_psnr"] + 1.5
    assert task.record["results"]["val_loss"] < 0.8 * task.record["baselines"]["the mean of what is seen"]


def test_a_fresh_one_answers_by_the_rule():
    videos, masks = moving_squares(2, length=4), moving_masks(4)
    is_seen = ~masks.all(0)
    for answer, video in zip(fresh().predict(videos, holes=[masks] * 2), videos, strict=True):
        np.testing.assert_array_equal(answer["video"][~masks], video[~masks])
        mean = np.ma.array(video[..., 0], mask=masks).mean(0)
        expected = np.broadcast_to(mean[is_seen], (4, is_seen.sum()))
        filled = answer["video"][..., 0][:, is_seen]
        hole = masks[:, is_seen]
        np.testing.assert_allclose(filled[hole], expected[hole], atol=0.51)


def test_a_static_background_is_filled_exactly():
    video = np.repeat(moving_squares(1)[:, :1], 8, 1)
    answer = fresh().predict(video, holes=[moving_masks()])[0]["video"]
    np.testing.assert_array_equal(answer, video[0])


def test_what_is_in_a_hole_does_not_matter(task):
    videos, masks = moving_squares(1, 3), moving_masks()
    spoilt = np.where(masks[..., None], 255 - videos, videos)
    one, same = (task.predict(each, holes=[masks])[0]["video"] for each in (videos, spoilt))
    np.testing.assert_array_equal(one, same)


def test_masks_with_the_videos_are_measured(task):
    videos, masks = moving_squares(4, 5, length=4), moving_masks(4)
    measures = task.evaluate((videos, [masks] * 4))
    answers = [answer["video"] for answer in task.predict(videos, holes=[masks] * 4)]
    errors = [((a / 255 - v / 255) ** 2)[masks].mean() for a, v in zip(answers, videos, strict=True)]
    assert measures["psnr"] == pytest.approx(np.mean(-10 * np.log10(errors)), abs=0.02)
    holed = HoledVideos([(video, masks) for video in videos], (4, 16, 16, 2))
    assert task.evaluate(holed) == measures
    np.testing.assert_array_equal(task.predict(holed)[2]["video"], answers[2])


def test_a_video_of_another_size_keeps_its_own(task):
    large = moving_squares(1, 4).repeat(2, 2).repeat(3, 3)[0]  # (8, 32, 48, 1)
    mask = MASK.repeat(2, 0).repeat(3, 1)
    (answer,) = task.predict([large], holes=[mask])
    assert answer["video"].shape == large.shape and answer["file"] is answer["frames"] is None
    assert task.as_line(answer) == "8 frames of 48 x 32"
    np.testing.assert_array_equal(answer["video"][:, ~mask], large[:, ~mask])
    spoilt = np.where(mask[..., None], 255 - large, large)  # resizing mixes nothing of a hole into its frame
    np.testing.assert_array_equal(task.predict([spoilt], holes=[mask])[0]["video"], answer["video"])
    dark = np.full_like(large, 40)
    filled = fresh().predict([np.where(mask[..., None], 255, dark)], holes=[mask])[0]["video"]
    np.testing.assert_array_equal(filled, dark)


def test_windows_overlap_and_cover_all_frames():
    assert [each.tolist() for each in windows(7, 4, 1)] == [[0, 1, 2, 3], [2, 3, 4, 5], [3, 4, 5, 6]]
    assert [each.tolist() for each in windows(5, 3, 2)] == [[0, 2, 4], [1, 3, 3]]
    assert [each.tolist() for each in windows(2, 3, 1)] == [[0, 1, 1]]
    assert [each.tolist() for each in windows(1, 1, 5)] == [[0]]


def test_files_of_all_kinds(task, tmp_path, monkeypatch):
    """Masks beside the videos, for all, and by name; GIFs, and frames that are videos themselves."""
    video, masks = moving_squares(1, 3)[0], moving_masks()
    write_frames(video, tmp_path / "videos" / "a")
    write_frames(pictures_of(masks), tmp_path / "masks" / "a")
    asked = [str(tmp_path / "videos" / "a")]
    (answer,) = task.predict(asked, draw=tmp_path / "drawn", filled=tmp_path / "filled")
    assert task.as_line(answer) == str(tmp_path / "filled" / "a")
    with PIL.Image.open(answer["file"]) as gif:
        assert gif.n_frames == 8 and gif.size == (32, 16)
    np.testing.assert_array_equal(answer["video"], task.predict(video[None], holes=[masks])[0]["video"])
    for holes in (tmp_path / "masks", tmp_path / "masks" / "a"):
        np.testing.assert_array_equal(answer["video"], task.predict(asked, holes=holes)[0]["video"])
    (again,) = task.predict([answer["frames"]], holes=[np.zeros((16, 16))])
    np.testing.assert_array_equal(again["video"], answer["video"])
    monkeypatch.setattr(task, "_filled", None)  # it is refused before anything is computed
    with pytest.raises(FileExistsError, match="filled/a exists already"):
        task.predict(asked, filled=tmp_path / "filled")
    with pytest.raises(tf.errors.InvalidArgumentError):
        write_frames([*video, np.zeros(3)], tmp_path / "part")
    assert not (tmp_path / "part").exists()


@pytest.mark.slow
def test_the_papers_network_begins_with_empty_holes():
    task = fresh(num_hints=0, masks_holes=True)
    assert set(task.model.input) == {"videos", "holes"}
    before = task.evaluate(moving_squares(8, 2))
    task.fit(moving_squares(64), moving_squares(8, 1), epochs=3, learning_rate=3e-3)
    assert task.evaluate(moving_squares(8, 2))["psnr"] > before["psnr"] + 1


@pytest.mark.slow
def test_an_interrupted_training_goes_on_as_if_it_had_not_been(tmp_path):
    options = {"learning_rate": 3e-3, "schedule": "constant"}
    whole, part = fresh(), fresh()
    whole.fit(moving_squares(16), moving_squares(4, 1), epochs=2, **options)
    part.fit(moving_squares(16), moving_squares(4, 1), epochs=1, run=tmp_path / "run", **options)
    part = tasks.load(tmp_path / "run")
    part.fit(moving_squares(16), moving_squares(4, 1), epochs=2, run=tmp_path / "run", resume=True, **options)
    for one, same in zip(whole.model.get_weights(), part.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, same, atol=1e-6)


@pytest.mark.slow
def test_a_saved_model_answers_files_with_files(task, tmp_path):
    video, masks = moving_squares(1, 5, length=4), moving_masks(4)
    task.export(tmp_path / "export")
    pixels = video[0], pictures_of(masks)
    frames, holes = ([tf.io.encode_png(each).numpy() for each in part] for part in pixels)
    pngs = serving.load(tmp_path / "export")([{"frame_bytes": frames, "mask_bytes": holes}])["png"]
    assert pngs.shape == (1, 4)
    (answer,) = task.predict(video, holes=[masks])
    for png, frame in zip(pngs[0], answer["video"], strict=True):
        assert np.abs(tf.io.decode_png(png).numpy().astype(int) - frame).max() <= 1
    with pytest.raises(ValueError, match="'inpaint-videos' is exported as a SavedModel alone"):
        task.export(tmp_path / "other", format="onnx")


def test_an_export_s_holes_are_those_of_training():
    """A hole that is much smaller than a pixel of the model's."""
    task = fresh()
    frames = np.full((4, 128, 128, 1), 40, "uint8")
    frames[:2, 34:37, 50:53] = 255  # seen in the other frames
    masks = np.zeros((4, 128, 128), bool)
    masks[:2, 34:37, 50:53] = True
    answer, _ = task.export_endpoints()["serving_default"]
    files = [
        tf.constant([[tf.io.encode_png(x).numpy() for x in each]]) for each in (frames, pictures_of(masks))
    ]
    filled = np.stack([tf.io.decode_png(x).numpy() for x in answer(*files)["png"][0].numpy()])
    pairs = [with_hole(pair, (16, 16, 2), task.preprocessing) for pair in zip(frames, masks, strict=True)]
    resized, holes = np.split(np.stack(pairs), 2, -1)
    assert holes[0].any() and not holes[2].any()
    np.testing.assert_array_equal(filled[holes == 0], resized[holes == 0])
    np.testing.assert_array_equal(filled[holes > 0], 40)


@pytest.mark.slow
def test_the_command_trains_and_writes_frames(tmp_path, capsys):
    for number, video in enumerate(moving_squares(8)):
        for kind, frames in (("videos", video), ("masks", pictures_of(moving_masks()))):
            write_frames(frames, tmp_path / "data" / kind / str(number))
    sizes = '{"image_size": 16, "num_layers": 1, "patch_sizes": [[4, 4], [2, 2]]}'
    (tmp_path / "small.json").write_text(sizes, "utf-8")
    options = ["--config", str(tmp_path / "small.json"), "--num-frames", "3", "--epochs", "1"]
    for run, data in (("drawn", "data/videos"), ("given", "data")):
        out = str(tmp_path / run)
        main(["train", "inpaint-videos", "--data", str(tmp_path / data), "--out", out, *options])
        assert tasks.load(out).frame_shape == (16, 16, 3)
        main(["evaluate", out, "--data", str(tmp_path / data)])
        assert "rule_psnr" in capsys.readouterr().out
    asked = ["predict", out, "--data", str(tmp_path / "data" / "videos")]
    main([*asked, "--filled", str(tmp_path / "new")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[0].endswith(f"{tmp_path / 'new' / '0'}")
    assert len(list(pathlib.Path(tmp_path / "new" / "0").iterdir())) == 8
    main([*asked, "--holes", str(tmp_path / "data" / "masks" / "0" / "0000.png")])
    assert capsys.readouterr().out.splitlines()[0].endswith("\t8 frames of 16 x 16")


test_what_is_wrong_is_refused_in_a_line = refusals(
    (lambda task: task.predict(moving_squares(1)), "row 0: expected the masks of its holes"),
    (lambda task: task.predict(["no.mp4"], holes=[MASK]), "row 0: cannot be read: No such file"),
    (lambda task: task.predict(moving_squares(2), holes=[MASK]), "`holes` must be of 2 videos; they are 1"),
    (
        lambda task: task.predict(moving_squares(1), holes=[MASK[:8]]),
        "row 0: expected masks of 16 x 16 pixels, as the video's frames, got 16 x 8",
    ),
    (
        lambda task: task.predict(moving_squares(1), holes="none/here"),
        "`holes`: expected masks, got no file or folder: none/here",
    ),
    (lambda task: task.fit(moving_squares(4, length=3)), "video 0: expected at least 4 frames, got 3"),
    (
        lambda task: task.evaluate((moving_squares(2), [MASK])),
        "expected videos and masks of one length, got 2 and 1",
    ),
    (
        lambda task: task.evaluate((moving_squares(1), [MASK[:2]])),
        "video 0: expected masks of 16 x 16 pixels",
    ),
    (
        lambda task: VideoInpainter(STTN.from_size("base", **{**SMALL, "num_hints": 3})),
        "`model` must be one whose `num_hints` are 7, or 0; it is one of 3",
    ),
    (
        lambda task: VideoInpainter(task.model, dataclasses.replace(task.config, keep_aspect=True)),
        "`keep_aspect` must be False",
    ),
)
