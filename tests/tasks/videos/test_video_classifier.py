"""The video classifier: from files, folders of frames and arrays to class names, kept, exported and asked."""

import dataclasses
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.convert import CheckpointError
from keras_tfm.data import VideoFiles
from keras_tfm.heads import Classifier
from keras_tfm.models import tiny_config
from keras_tfm.tasks import ImageClassifier, VideoClassifier, VideoClassifierConfig
from keras_tfm.tasks.videos.video_families import FAMILIES, VideoOptions
from tests.data.sources.made_videos import grey_frames, spoil, write_sound, write_video
from tests.fresh_process import ask

NAMES = ["brighter", "darker", "still"]
SMALL = {
    "num_frames": 4,
    "image_size": 8,
    "tubelet_size": (2, 8, 8),
    "num_layers": 1,
    "dim": 16,
    "num_heads": 2,
    "intermediate_dim": 16,
}


def examples(size, seed=0, length=6):
    """Videos (N, T, 8, 8, 3) that become brighter, darker, or neither; their middle frames are alike."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, size)
    slopes = np.array([1, -1, 0])[labels][:, None] * np.linspace(-60, 60, length)
    levels = rng.integers(80, 170, size)[:, None] + slopes
    videos = levels[:, :, None, None, None] + rng.integers(0, 20, (size, length, 8, 8, 3))
    return videos.astype("uint8"), labels


@pytest.fixture(scope="module")
def task():
    keras.utils.set_random_seed(0)
    task = VideoClassifier.from_size("tiny", NAMES, **SMALL)
    task.fit(examples(192), epochs=8, batch_size=32, learning_rate=1e-2)
    return task


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of class folders, in which are a file and a folder of frames each."""
    folder = tmp_path_factory.mktemp("videos")
    for name, values in (
        ("brighter", [60, 90, 110, 130, 150, 180]),
        ("darker", [180, 150, 130, 110, 90, 60]),
    ):
        (folder / name / "frames").mkdir(parents=True)
        frames = grey_frames(values, (16, 16))
        frames[:, :8, :8] = frames[:, 8:, 8:]
        write_video(folder / name / "video.mp4", frames)
        for number, frame in enumerate(frames):
            keras.utils.save_img(folder / name / "frames" / f"{number}.png", frame, scale=False)
    return folder


def test_the_head_of_a_given_model_is_kept(task, tmp_path):
    """Such as a published VideoMAE's, which normalises the mean of its tokens."""
    model = Classifier(task.encoder, 3, pooling="mean", norm_epsilon=1e-5)
    VideoClassifier(model, NAMES).save(tmp_path / "run")
    assert tasks.load(tmp_path / "run").model.head_arguments == model.head_arguments


def test_it_sees_what_no_still_frame_shows(task):
    videos, labels = examples(100, seed=1)
    measures = task.evaluate((videos, labels))
    assert measures["accuracy"] > 0.95 and measures["videos"] == 100 and "top_5_accuracy" not in measures
    stills = videos[:, 2:3].repeat(6, axis=1)
    assert task.evaluate((stills, labels))["accuracy"] < 0.6


def test_files_folders_and_arrays_have_one_answer(task, folder):
    names = ["brighter", "darker"]
    files = [str(folder / name / "video.mp4") for name in names]
    frames = [folder / name / "frames" for name in names]
    assert task.predict(files).tolist() == task.predict(frames).tolist() == names
    decoded = VideoFiles(frames, (6, 16, 16, 3))
    arrays = list(np.asarray(decoded))
    expected = task.predict(frames, probabilities=True)
    np.testing.assert_allclose(task.predict(arrays, probabilities=True), expected, atol=1e-6)
    contents = [pathlib.Path(file).read_bytes() for file in files]
    np.testing.assert_allclose(
        task.predict(contents, probabilities=True), task.predict(files, probabilities=True), atol=1e-6
    )
    assert task.predict(files[0]).tolist() == ["brighter"]  # a path alone


def test_the_answer_is_the_mean_of_the_views(task):
    videos, _ = examples(5, seed=3, length=12)
    three = VideoClassifier(task.model, NAMES, num_views=3, frame_step=2)
    clips = [[video[start : start + 7 : 2] for start in (1, 3, 5)] for video in videos]
    expected = np.stack([task.predict(views, probabilities=True).mean(0) for views in clips])
    np.testing.assert_allclose(three.predict(videos, probabilities=True), expected, atol=1e-6)
    np.testing.assert_allclose(  # a video of a clip's length is one, whatever the sampling
        three.predict(videos[:, :4], probabilities=True),
        task.predict(videos[:, :4], probabilities=True),
        atol=1e-6,
    )
    opened = VideoFiles(videos, (4, 8, 8, 3))
    np.testing.assert_allclose(three.predict(opened, probabilities=True), expected, atol=1e-6)


def test_top_5_counts_the_five_likeliest(monkeypatch):
    task = VideoClassifier.from_size("tiny", list("abcdefg"), **SMALL)
    chances = np.array([[0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1], [0.05, 0.3, 0.25, 0.2, 0.1, 0.06, 0.04]])
    monkeypatch.setattr(task, "probabilities", lambda *_: chances)
    for labels, share in (("aa", 0.5), ("eb", 1.0), ("fg", 0.0)):
        measures = task.evaluate((np.zeros((2, 4, 8, 8, 3), "uint8"), list(labels)))
        assert measures["top_5_accuracy"] == share


def test_a_run_answers_as_its_task_does_and_trains_on(task, tmp_path):
    task.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    assert again.config == task.config
    videos, _ = examples(4, seed=5)
    np.testing.assert_array_equal(again.probabilities(videos), task.probabilities(videos))
    kept = VideoClassifier.start_from(
        tmp_path / "run", (videos, np.array(["darker", "still"] * 2)), num_views=2
    )
    assert kept.model.head is not None and kept.config.num_views == 2
    np.testing.assert_allclose(kept.model.head.get_weights()[0], task.model.head.get_weights()[0])
    other = VideoClassifier.start_from(tmp_path / "run", (videos, np.array(["x", "y"] * 2)))
    assert other.class_names.tolist() == ["x", "y"]


def test_folders_of_transformers(task, folder, tmp_path):
    """Written, read with their classes, and a start for others."""
    task.save_huggingface(tmp_path / "theirs")
    again, (videos, _) = tasks.from_huggingface(tmp_path / "theirs"), examples(5, seed=2)
    assert isinstance(again, VideoClassifier) and again.class_names.tolist() == NAMES
    np.testing.assert_allclose(again.probabilities(videos), task.probabilities(videos), atol=1e-6)
    with pytest.raises(CheckpointError, match="expected a model of images, got ViViT"):
        ImageClassifier.from_huggingface(tmp_path / "theirs")
    fields = VideoClassifier.reading(VideoOptions(), {}, tmp_path / "theirs")
    clips, labels = VideoClassifier.read_files([folder], **fields)
    assert clips.shape == (len(labels), 4, 8, 8, 3)
    other = VideoClassifier.start_from(tmp_path / "theirs", (clips, ["on", "off"] * (len(labels) // 2)))
    assert other.class_names.tolist() == ["off", "on"]
    np.testing.assert_array_equal(other.encoder.get_weights()[0], again.encoder.get_weights()[0])


def test_exports_answer_without_this_package(task, folder, tmp_path):
    task.export(tmp_path / "saved_model")
    videos, _ = examples(3, seed=6, length=4)
    expected = task.predict(videos, probabilities=True)
    encoded = [[tf.io.encode_png(frame).numpy() for frame in video] for video in videos]
    found = ask(tmp_path / "saved_model", of_text=False, frame_bytes=np.array(encoded, object))
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    served = serving.load(tmp_path / "saved_model")
    np.testing.assert_allclose(served(list(videos))["probabilities"], expected, atol=1e-5)
    np.testing.assert_allclose(served(encoded)["probabilities"], expected, atol=1e-5)
    for wrong in ("video.mp4", encoded[0][:2]):
        with pytest.raises(ValueError, match="row 1: expected an array, or a list of 4 image files"):
            served([encoded[0], wrong])


@pytest.mark.slow
def test_other_formats_read_files_by_pyav_and_pillow(task, folder, tmp_path):
    task = VideoClassifier(task.model, NAMES, num_views=2)
    task.export(tmp_path / "onnx", format="onnx")
    served = serving.load(tmp_path / "onnx")
    sources = [str(folder / "darker" / name) for name in ("video.mp4", "frames")]
    found = served([*sources, *examples(2, seed=6)[0]])
    assert found["label"][:2].tolist() == ["darker", "darker"]
    expected = task.predict([*sources, *examples(2, seed=6)[0]], probabilities=True)
    np.testing.assert_allclose(found["probabilities"], expected, atol=0.02)  # a grey level apart
    with pytest.raises(ValueError, match="row 0: cannot be read: No such file"):
        served(["nowhere.mp4"])


@pytest.mark.slow
def test_the_command_line_trains_predicts_and_evaluates(folder, tmp_path, capsys):
    config = tmp_path / "model.json"
    config.write_text(
        '{"image_size": 8, "tubelet_size": [2, 8, 8], "num_layers": 1, "dim": 16, "num_heads": 2}'
    )
    train = ["train", "classify-videos", "--data", folder, "--out", tmp_path / "run", "--epochs", 2]
    options = ["--num-frames", 4, "--config", config, "--frame-step", 1, "--num-views", 2]
    main(list(map(str, [*train, *options])))
    assert tasks.load(tmp_path / "run").config.frame_step == 1
    capsys.readouterr()
    main(["predict", str(tmp_path / "run"), "--data", str(folder)])
    assert len(capsys.readouterr().out.splitlines()) == 4
    main(["evaluate", str(tmp_path / "run"), "--data", str(folder)])
    assert "accuracy" in capsys.readouterr().out


def test_what_cannot_be_read_is_refused_by_its_row(task, folder, tmp_path):
    write_sound(tmp_path / "sound.mp4")
    write_video(tmp_path / "one.mp4", grey_frames([9]))
    good = str(folder / "darker" / "video.mp4")
    for bad, problem in (
        (tmp_path / "sound.mp4", "got sound alone"),
        (tmp_path / "one.mp4", "expected two frames or more, got one"),
        (tmp_path / "none.mp4", "cannot be read: No such file"),
        (np.zeros((4, 8, 8), "int32"), "expected an image of uint8"),
        (np.zeros((0, 8, 8, 3), "uint8"), "expected two frames or more"),
        (np.zeros((8, 8), "uint8"), "expected a video, an array"),
    ):
        assert list(task.refusals([good, bad])) == [1]
        with pytest.raises(ValueError, match=f"row 1: .*{problem}"):
            task.predict([good, bad])


def test_a_corrupt_video_is_answered(task, tmp_path):
    write_video(tmp_path / "video.mkv", grey_frames([60, 80, 100, 120, 140, 160, 180, 200], (16, 16)))
    spoil(tmp_path / "video.mkv", 3)
    assert task.predict([tmp_path / "video.mkv"]).tolist() == ["brighter"]


def test_sizes_that_do_not_fit_are_refused(task):
    with pytest.raises(ValueError, match="`image_size` must be 8, the side of the model's videos; it is 16"):
        VideoClassifier(task.model, NAMES, image_size=16)
    with pytest.raises(ValueError, match="`mean` must have 1 or 3 values"):
        VideoClassifier(task.model, NAMES, mean=(0.5, 0.5))
    with pytest.raises(ValueError, match=r"`videos`, row 0: expected \(T, H, W, 3\), got \(4, 8, 8, 1\)"):
        task.evaluate((np.zeros((2, 4, 8, 8, 1), "uint8"), ["still"] * 2))
    with pytest.raises(ValueError, match="`labels` must be one for each of 2 videos"):
        task.evaluate((np.zeros((2, 4, 8, 8, 3), "uint8"), ["still"]))


def test_every_family_has_a_tiny_size():
    for name, family in FAMILIES.items():
        config = VideoOptions(family=name, num_frames=8).base()
        tiny = family.sizes.get("tiny") or tiny_config(family)
        assert config == dataclasses.replace(tiny, num_frames=8)
    with pytest.raises(ValueError, match="has no size 'XX'"):
        VideoOptions(size="XX").base()
    with pytest.raises(ValueError, match="There is no family 'resnet'"):
        VideoOptions(family="resnet").base()
    assert VideoClassifierConfig(NAMES, frame_step=2).frame_step == 2
