"""Objects in videos: what is learnt, how masks of all frames are compared, files, refusals."""

import json

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.data import SegmentedClipBatches, VideoFiles, VideoSegments, read_video_segments
from keras_tfm.data.worlds.movements import segmented_clips, write_segmented_clips
from keras_tfm.models import VisTR, ViViT
from keras_tfm.tasks import VideoSegmenter
from keras_tfm.tasks.videos.video_segmenter import VideoSegmenterOptions
from tests.tasks.refusals import refusals

SMALL = {
    "image_size": 16, "num_channels": 1, "num_frames": 2, "num_queries": 4, "dim": 48, "num_layers": 1,
    "num_decoder_layers": 1, "num_heads": 8, "intermediate_dim": 16,
    "backbone_config": {"stem_dim": 8, "dims": [8], "depths": [1], "block": "basic"},
}  # fmt: skip


def squares(count, seed=0, length=3):
    """A bright or a dark square on grey moves right: (videos (N, T, 16, 16, 1), masks, labels)."""
    rng = np.random.default_rng(seed)
    videos = np.full((count, length, 16, 16, 1), 120, "uint8")
    masks = np.zeros((count, 1, length, 16, 16), bool)
    labels = []
    for number, video in enumerate(videos):
        top, left, is_bright = rng.integers(0, 8), rng.integers(0, 8 - length), number % 2
        for place in range(length):
            part = slice(top, top + 8), slice(left + place, left + place + 8)
            video[place][part] = 250 * is_bright
            masks[number, 0, place][part] = True
        labels.append(["bright" if is_bright else "dark"])
    return videos, list(masks), labels


def fresh(**changes):
    """A task that has not learnt."""
    keras.utils.set_random_seed(0)
    examples = VideoSegments.of(VideoFiles(list(squares(2)[0]), (2, 16, 16, 1)), *squares(2)[1:])
    return VideoSegmenter.make(examples, VideoSegmenterOptions(), {**SMALL, **changes})


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A task that has learnt, loaded from its RUN."""
    run = tmp_path_factory.mktemp("segmenter") / "run"
    options = {"epochs": 3, "learning_rate": 1e-2, "clip_norm": 1.0, "batch_size": 4}
    fresh().fit(squares(128), squares(8, 1), run=run, **options)
    return tasks.load(run)


def test_it_learns_what_and_where(task):
    measures = task.evaluate(squares(8, 2))
    assert measures["videos"] == 8 and measures["ap50"] > 60
    videos, masks, labels = squares(2, 3)
    answers = task.predict(videos, threshold=0.0)
    assert [answer["labels"][0] for answer in answers] == [names[0] for names in labels]
    assert answers[0]["masks"].shape[1:] == (2, 16, 16)
    places = answers[0]["frames"] - 1
    found, truth = answers[0]["masks"][0], masks[0][0, places]
    assert (found & truth).sum() / (found | truth).sum() > 0.4


def test_an_object_of_which_the_model_is_wholly_sure_is_found():
    """Rounded sums of the classes' probabilities may be a little above 1."""
    task = fresh()
    scores = np.float32([[1.0, 1.2e-7], [0.0, 0.0]])
    found = {"scores": scores[None], "masks": np.ones((1, 2, 2, *task.model.grid), "float32")}
    task.graphs["clip"] = lambda _: {name: tf.constant(x) for name, x in found.items()}
    (answer,) = task.predict(squares(1)[0], threshold=0.5)
    assert answer["labels"] == [task.class_names[0]] and scores[0].sum() > 1


def test_masks_of_all_frames_are_compared_at_once():
    """Right in two frames of three, wrong in one as large: two thirds over four thirds is one half."""
    task, (videos, masks, labels) = fresh(num_frames=3, num_queries=3), squares(2)
    answers = []
    for mask, names in zip(masks, labels, strict=True):
        wrong = mask.copy()
        wrong[:, 2] = np.roll(wrong[:, 2], 8, axis=1)  # another place, as the square has 8 rows of 16
        answers.append({"labels": names, "scores": np.ones(1), "masks": wrong, "frames": np.arange(3) + 1})
    task._found = lambda videos, threshold: iter(answers)
    measures = task.measure(task.check_examples((videos, masks, labels)))
    assert measures == {"ap": pytest.approx(10.0), "ap50": pytest.approx(100.0), "ap75": 0.0}


def test_masks_stay_on_their_objects():
    """In whatever clip, moved or mirrored: masks are where the pixels are bright."""
    videos = np.zeros((4, 5, 8, 8, 1), "uint8")
    videos[:, :, 2:4, 1:4] = 255
    videos[:, 3:, 2:4, 1:4] = 0
    masks = [video[None, ..., 0] > 0 for video in videos]
    examples = VideoSegments.of(VideoFiles(list(videos), (3, 8, 8, 1)), masks, [["cat"]] * 4, ["dog", "cat"])
    batches = SegmentedClipBatches(examples, ["dog", "cat"], lambda x: x, 4, seed=0, max_shift=2, flips=True)
    seen = [(inputs["videos"].numpy(), masks.numpy()) for inputs, masks in batches.dataset()]
    clips, targets = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    np.testing.assert_array_equal(targets[:, :, 0], 2 * (clips[..., 0] > 0))
    columns = [clip[0, ..., 0].max(0) for clip in clips]
    assert len({tuple(x > 0) for x in columns}) > 1
    assert targets.shape == (4, 3, 1, 8, 8)


def test_a_resized_video_has_resized_masks():
    videos, masks, labels = squares(1)
    small = VideoFiles(list(videos), (2, 8, 8, 1))
    batches = SegmentedClipBatches(VideoSegments.of(small, masks, labels), labels[0], lambda x: x, 1)
    ((_, targets),) = batches.dataset()
    whole = masks[0][0, [0, 2]][:, ::2, ::2] | masks[0][0, [0, 2]][:, 1::2, 1::2]
    assert targets.shape == (1, 2, 1, 8, 8)
    assert np.abs(targets.numpy()[0, :, 0].astype(int) - whole).sum() <= 16  # at the edges


def test_files_in_youtube_vis_s_layout(tmp_path):
    write_segmented_clips(tmp_path / "made", count=2, num_frames=3, seed=5)
    data = read_video_segments(tmp_path / "made" / "instances.json", (3, 64, 64, 3))
    videos, masks, labels = segmented_clips(2, 5, 3)
    np.testing.assert_array_equal(np.asarray(data.videos), videos)
    for (found, names), mask, truth in zip(data.segments, masks, labels, strict=True):
        np.testing.assert_array_equal(found, mask.reshape(len(mask), -1, 64))
        assert names == truth


def change(path, edit):
    content = json.loads(path.read_text("utf-8"))
    edit(content)
    path.write_text(json.dumps(content), "utf-8")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda x: x.pop("videos"), 'expected a list of objects as "videos", got None'),
        (
            lambda x: x["videos"][0]["file_names"].pop(),
            "expected all frames of .*0000 in their order, 2, got 1 names",
        ),
        (lambda x: x["videos"][0].update(id={}), 'expected an "id" of its own for each of the "videos"'),
        (
            lambda x: x["videos"][0].update(file_names=3),
            'expected the names of frames as "file_names", got 3',
        ),
        (
            lambda x: x["videos"].insert(0, {"id": 99, "file_names": ["none/0.png"]}),
            "expected frames in .*JPEGImages/none, there is no such folder",
        ),
        (lambda x: x["videos"][0].update(file_names=["../a.png"]), "expected a path within"),
        (lambda x: x["annotations"][0].update(video_id=9), "annotation 1 has none"),
        (
            lambda x: x["annotations"][0]["segmentations"].pop(),
            'expected 2 "segmentations" of an object, got 1',
        ),
        (lambda x: x["annotations"].clear(), "expected objects with masks, there are none"),
        (
            lambda x: x["annotations"][0].update(segmentations=[{"size": [8, 8], "counts": [64]}] * 2),
            "an RLE of 8 x 8, the image has 64 x 64",
        ),
    ],
)
def test_mistakes_in_files_are_refused_in_a_line(tmp_path, edit, message):
    write_segmented_clips(tmp_path / "made", count=1, num_frames=2, num_objects=(1, 1))
    path = tmp_path / "made" / "instances.json"
    change(path, edit)
    with pytest.raises(ValueError, match=message) as caught:
        read_video_segments(path, (2, 64, 64, 3))
    assert "\n" not in str(caught.value)


def test_a_gif_shows_the_masks(task, tmp_path):
    answers = task.predict(squares(2)[0], threshold=0.0, draw=tmp_path)
    with PIL.Image.open(tmp_path / "000001.gif") as gif:
        assert gif.n_frames == len(answers[1]["frames"]) and gif.size == (16, 16)
    line = json.loads(task.as_line(answers[0]))
    assert line["labels"] == answers[0]["labels"] and np.shape(line["areas"]) == (len(line["labels"]), 2)


@pytest.mark.slow
def test_a_saved_model_answers_files(task, tmp_path):
    clips = squares(2, 5, length=2)[0]
    task.export(tmp_path / "export")
    files = [[tf.io.encode_png(frame).numpy() for frame in clip] for clip in clips]
    found = serving.load(tmp_path / "export")(files)
    answers = task.answered(tf.constant(clips))
    for name in ("scores", "masks"):
        np.testing.assert_allclose(found[name], answers[name], atol=1e-4)
    with pytest.raises(ValueError, match="'segment-videos' is exported as a SavedModel alone"):
        task.export(tmp_path / "other", format="onnx")


def test_the_default_size_has_a_head():
    """Its widths are multiples of the groups that the head's norms have."""
    task = VideoSegmenter(VisTR(VideoSegmenterOptions(num_frames=2).base()), ["x", "y"])
    assert task.most == 6


@pytest.mark.slow
def test_the_command_trains_and_draws(tmp_path, capsys):
    write_segmented_clips(tmp_path / "made", count=8, num_frames=2)
    small = {name: value for name, value in SMALL.items() if name not in ("num_channels", "num_frames")}
    small["num_queries"] = 8  # four objects in each of two frames
    (tmp_path / "small.json").write_text(json.dumps(small), "utf-8")
    data, out = ["--data", str(tmp_path / "made" / "instances.json")], str(tmp_path / "run")
    options = ["--config", str(tmp_path / "small.json"), "--num-frames", "2", "--epochs", "1"]
    main(["train", "segment-videos", *data, "--out", out, *options])
    capsys.readouterr()
    videos = ["--data", str(tmp_path / "made" / "JPEGImages"), "--draw", str(tmp_path / "new")]
    main(["predict", out, *videos, "--threshold", "0"])
    assert len(capsys.readouterr().out.splitlines()) == 8 and (tmp_path / "new" / "0000.gif").is_file()


VIDEOS, MASKS, LABELS = squares(2)


test_what_is_wrong_is_refused_in_a_line = refusals(
    (lambda task: task.predict(["no.mp4"]), "row 0: cannot be read: No such file"),
    (lambda task: task.evaluate((VIDEOS, MASKS[:1], LABELS)), "of one length, got 2, 1 and 2"),
    (
        lambda task: task.evaluate((VIDEOS, [x[:, :2] for x in MASKS], LABELS)),
        r"video 0: expected masks of shape \(M, 3, 16, 16\), 0 or 1, got bool \(1, 2, 16, 16\)",
    ),
    (lambda task: task.evaluate((VIDEOS, [x * 2 for x in MASKS], LABELS)), "0 and 1, got 0 to 2"),
    (lambda task: task.evaluate((VIDEOS, MASKS, [["dark"], []])), "video 1: expected a name for each"),
    (lambda task: task.evaluate((VIDEOS, [x & False for x in MASKS], LABELS)), "mask 0 has none"),
    (lambda task: task.evaluate((VIDEOS, MASKS, [["cat"]] * 2)), "be among .* 'cat' is not"),
    (
        lambda task: task.evaluate((VIDEOS, [x.repeat(3, 0) for x in MASKS], [["dark"] * 3] * 2)),
        "video 0: expected at most 2 objects, the model's, got 3",
    ),
    (lambda task: task.evaluate(([], [], [])), "`videos` must not be empty"),
    (lambda task: VideoSegmenter(task.model, ["one"]), "must be 2, as the head has; it is 1"),
    (
        lambda task: VideoSegmenter(task.model, task.class_names, keep_aspect=True),
        "`keep_aspect` must be False: masks are of whole frames, which are stretched; it is True",
    ),
    (
        lambda task: VideoSegmenter(ViViT.from_size("B/16x2", image_size=16, num_frames=2), ["one"]),
        "`backbone` must be a VisTR; it is a ViViT",
    ),
)
