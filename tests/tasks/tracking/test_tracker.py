"""The tracker: what both kinds learn, follow, measure, write and export; and what they refuse."""

import pathlib

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.data import read_mot
from keras_tfm.data.worlds.movements import tracked_clips, write_tracked_clips
from keras_tfm.heads import TargetDetector, TrackDetector
from keras_tfm.models import TransT, TransTConfig, TransTrack, TransTrackConfig
from keras_tfm.serving.tracks import associate, no_tracks
from keras_tfm.tasks import Tracker
from tests.contract import randomise
from tests.fresh_process import ask
from tests.parity.references.target import Target, moved

NETWORK = {"stem_dim": 4, "dims": (8, 8), "depths": (1, 1), "block": "basic"}
SHARED = {"backbone_config": NETWORK, "frozen_norms": False, "dim": 8, "num_layers": 1, "num_heads": 2}
MANY = TransTrackConfig(
    32,
    **SHARED,
    num_queries=5,
    num_decoder_layers=1,
    intermediate_dim=8,
    num_maps=1,
    num_levels=1,
    num_groups=2,
    num_points=2,
    num_decoder_points=2,
)
ONE = TransTConfig(32, **SHARED, template_size=16, intermediate_dim=8, dropout=0.0)
BOX = "20,20,16,16"


def made(kind, **options):
    keras.utils.set_random_seed(0)
    task = Tracker(TransTrack(MANY) if kind == "many" else TransT(ONE), **options)
    randomise(task.model, 1)
    return task


@pytest.fixture(scope="module", params=["many", "one"])
def task(request):
    return made(request.param, **({"threshold": 0.0} if request.param == "many" else {}))


@pytest.fixture(scope="module")
def many():
    return made("many", threshold=0.0)


@pytest.fixture(scope="module")
def one():
    return made("one")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two videos in MOT's layout."""
    folder = tmp_path_factory.mktemp("shapes") / "videos"
    write_tracked_clips(folder, 2, num_frames=4, seed=3, num_objects=(2, 2))
    return folder


def test_one_object_is_learnt_and_kept(tmp_path):
    task = Tracker(TransT(ONE))
    videos, boxes = tracked_clips(16, num_frames=4)
    history = task.fit((videos, boxes), 0.25, epochs=2, batch_size=8, max_gap=2, run=tmp_path / "run")
    assert history["loss"][-1] < history["loss"][0]
    answer, again = (x.predict(videos[:1], box=BOX)[0] for x in (task, tasks.load(tmp_path / "run")))
    np.testing.assert_allclose(again["boxes"], answer["boxes"], atol=1e-3)
    measures = task.evaluate((videos[:2], boxes[:2]))
    names = ("auc", "precision", "auc_of_a_still_box", "precision_of_a_still_box", "videos")
    assert tuple(measures) == names


@pytest.mark.slow
def test_many_objects_are_learnt_and_kept(tmp_path):
    task = Tracker(TransTrack(MANY), threshold=0.0)
    videos, boxes = tracked_clips(8, num_frames=4)
    history = task.fit((videos, boxes), 0.25, epochs=3, batch_size=6, run=tmp_path / "run")
    assert history["loss"][-1] < history["loss"][0]
    answer, again = (x.predict(videos[:1])[0] for x in (task, tasks.load(tmp_path / "run")))
    np.testing.assert_array_equal(again["ids"], answer["ids"])
    np.testing.assert_allclose(again["boxes"], answer["boxes"], atol=1e-3)


@pytest.mark.parametrize(
    "head", [lambda: TrackDetector(TransTrack(MANY), 3), lambda: TargetDetector(TransT(ONE), 3)]
)
def test_a_head_of_several_classes_is_kept(head, tmp_path):
    """In the folder, and for frames of another size."""
    made = Tracker(head())
    made.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    assert again.model.head_arguments == made.model.head_arguments == {"num_classes": 3}
    for a, b in zip(again.model.weights, made.model.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert Tracker.adopt(made, None, image_size=64).model.head_arguments == {"num_classes": 3}


def test_many_objects_are_measured_beside_what_true_boxes_give(many, folder):
    measures = many.evaluate(many.read_examples([folder]))
    assert measures["videos"] == 2 and measures["idf1_of_true_boxes"] > measures["idf1"]
    assert {"mota", "hota", "detection_accuracy", "association_accuracy", "id_switches"} < measures.keys()


def test_a_state_goes_from_frame_to_frame(many, tmp_path):
    """`predict` gives the same tracks as the exported step in a loop of a process without this package."""
    (video,), _ = tracked_clips(1, num_frames=4)
    answer = many.predict([video])[0]
    many.export(tmp_path / "served")
    data = [tf.io.encode_png(frame).numpy() for frame in video]
    state = {name: np.zeros(shape, "float32") for name, shape in many.kind.state_shapes.items()}
    tracks, before = no_tracks(), None
    served, found = serving.load(tmp_path / "served"), []
    for frame in data:
        (step,) = [served([{"image_bytes": frame, "previous_bytes": before or frame, **state}])]
        expected = None if before is None else step["expected_boxes"][0]
        tracks = associate(tracks, step["scores"][0], step["boxes"][0], expected, least_score=0.0)
        state, before = {name: step[name][0] for name in state}, frame
        found.append(tracks)
    np.testing.assert_array_equal(np.concatenate([x.ids[x.is_seen] for x in found]), answer["ids"])
    np.testing.assert_allclose(
        np.concatenate([x.boxes[x.is_seen] for x in found]), answer["boxes"], atol=1e-3
    )
    arrays = ask(
        tmp_path / "served",
        "images",
        images=video[:1, ::2, ::2] / np.float32(255),
        previous_images=video[:1, ::2, ::2] / np.float32(255),
        **{name: x[None] for name, x in state.items()},
    )
    assert arrays["boxes"].shape == (1, 5, 4) and arrays["track_states"].shape == (1, 5, 8)


@pytest.mark.slow
def test_a_box_goes_from_frame_to_frame(one, tmp_path):
    (video,), _ = tracked_clips(1, num_frames=4)
    answer = one.predict([video], box=BOX)[0]
    assert answer["frames"].tolist() == [1, 2, 3, 4] and answer["ids"].tolist() == [1] * 4
    assert answer["boxes"][0].tolist() == [20, 20, 36, 36]
    one.export(tmp_path / "served")
    data = [tf.io.encode_png(frame).numpy() for frame in video]
    first = box = np.array([20, 20, 36, 36], "float32")
    served, boxes = serving.load(tmp_path / "served"), [box]
    for frame in data[1:]:
        step = {"template_bytes": data[0], "template_boxes": first, "image_bytes": frame, "boxes": box}
        box = served([step])["boxes"][0]
        boxes.append(box)
    np.testing.assert_allclose(boxes, answer["boxes"], atol=1e-3)
    with pytest.raises(ValueError, match=r"row 0: expected \{input: value\} of boxes, image_bytes"):
        served([{"image_bytes": data[0]}])


def test_the_rules_of_one_object_are_the_published_ones(one):
    rng = np.random.default_rng(0)
    cells = len(one.kind.middle)
    scores, boxes = rng.random((1, cells)).astype("float32"), rng.random((1, cells, 4)).astype("float32")
    kind = one.kind

    class Fixed:
        def __call__(self, inputs, training):
            return {"scores": tf.constant(scores), "boxes": tf.constant(boxes)}

    whole, kind.model = kind.model, Fixed()
    try:
        last = np.array([[4.0, 8, 16, 28]], "float32")
        windows = tf.zeros((1, *kind.template_shape)), tf.zeros((1, *kind.image_shape))
        found = kind.found(*windows, last, np.array([[40, 50]]))
    finally:
        kind.model = whole
    target, score = moved(Target.of_box((4, 8, 12, 20)), scores[0], boxes[0], whole.backbone.grid, (40, 50))
    left, top, width, height = target.box
    np.testing.assert_allclose(found["boxes"][0], [left, top, left + width, top + height], atol=1e-4)
    np.testing.assert_allclose(found["scores"], [score], atol=1e-6)


def test_the_command_line(task, folder, tmp_path, monkeypatch, capsys):
    """Answers, MOT's files and moving pictures of each video, one line each."""
    task.save(tmp_path / "run")
    monkeypatch.setattr(tasks, "load", lambda *_, **__: task)
    options = ["--box", BOX] if task.kind.needs_box else []
    where = ["--draw", str(tmp_path / "drawn"), "--tracks", str(tmp_path / "tracks")]
    main(["predict", str(tmp_path / "run"), "--data", str(folder), *options, *where])
    lines = capsys.readouterr().out.splitlines()
    assert [pathlib.Path(line.split("\t")[0]).name for line in lines] == ["video-0000", "video-0001"]
    answer = task.predict([folder / "video-0001"], **({"box": BOX} if options else {}))[0]
    written = read_mot(tmp_path / "tracks" / "video-0001.txt")
    order = np.lexsort([answer["ids"], answer["frames"]])
    np.testing.assert_array_equal(written.ids, answer["ids"][order])
    np.testing.assert_allclose(written.boxes, answer["boxes"][order], atol=0.02)
    with PIL.Image.open(tmp_path / "drawn" / "video-0000.gif") as picture:
        assert picture.n_frames == 4 and picture.size == (256, 256)
    with pytest.raises(SystemExit):
        main(["predict", str(tmp_path / "run"), "--data", str(folder), *options, *where])
    assert "exists already" in capsys.readouterr().err


def test_the_first_box_stands_beside_the_frames(one, folder, tmp_path):
    video = tmp_path / "ball"
    (video / "img").mkdir(parents=True)
    for number in (1, 2, 3):
        frame = folder / "video-0000" / "img1" / f"{number:06}.png"
        (video / "img" / f"{number}.png").write_bytes(frame.read_bytes())
    (video / "groundtruth.txt").write_text("20 20 16 16\n0 0 0 0\n21\t20\t16\t16\n")
    expected = one.predict([video / "img"], box=(20, 20, 16, 16))[0]
    np.testing.assert_array_equal(one.predict([video])[0]["boxes"], expected["boxes"])
    examples = one.read_examples([video])
    assert examples.boxes[0].frames.tolist() == [1, 3] and one.evaluate(examples)["videos"] == 1
    with pytest.raises(ValueError, match=r"gt\.txt: expected one object in the first frame, got 2"):
        one.predict([folder / "video-0000"])


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ("1,2,3", "`box`: expected left, top, width and height of an area, four numbers with commas, got"),
        ("1,2,3,0", "`box`: expected left, top, width and height of an area"),
        ("1,2,x,3", "`box`: expected left, top, width and height of an area"),
        ("90,2,5,5", r"row 0: expected a box in the first frame of 64 x 64 pixels, got 90, 2, 5, 5"),
        (
            None,
            "row 0: expected the object's box in the first frame, as left, top, width and height, got none",
        ),
    ],
)
def test_a_box_that_is_none_is_refused(one, box, message):
    with pytest.raises(ValueError, match=message):
        one.predict(np.zeros((1, 3, 64, 64, 3), "uint8"), box=box)


def test_videos_that_are_none_are_refused(task, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    sizes = tmp_path / "sizes"
    sizes.mkdir()
    for number, side in enumerate((8, 8, 9)):
        PIL.Image.new("RGB", (side, side)).save(sizes / f"{number}.png")
    for source, reason in (
        (tmp_path / "empty", "expected two frames or more, there are none"),
        (tmp_path / "broken.mp4", "expected a video"),
        (tmp_path / "missing.mp4", "cannot be read: No such file"),
        (sizes, "expected a frame of 8 x 8 pixels, as the first, got 9 x 9"),
        (np.zeros((1, 8, 8, 3), "uint8"), "expected two frames or more, got one"),
        (None, "expected a video, an array"),
    ):
        with pytest.raises(ValueError, match=f"row 0: .*{reason}"):
            task.predict([source])


def test_a_frame_that_is_cut_off_is_named(task, tmp_path):
    for number in range(3):
        data = tf.io.encode_png(np.random.default_rng(number).integers(0, 256, (64, 64, 3), "uint8")).numpy()
        (tmp_path / f"{number}.png").write_bytes(data if number < 2 else data[:999])
    options = {"box": BOX} if task.kind.needs_box else {}
    with pytest.raises(ValueError, match=r"^row 0: .*2\.png: .*") as error:
        task.predict([tmp_path], **options)
    assert "\n" not in str(error.value)


def test_options_of_the_other_kind_are_refused(one, many):
    video = np.zeros((1, 2, 32, 32, 3), "uint8")
    with pytest.raises(ValueError, match="`box` is of a family for one object"):
        many.predict(video, box=BOX)
    with pytest.raises(ValueError, match="`threshold` is of a family for many objects"):
        one.predict(video, threshold=0.5)
    with pytest.raises(ValueError, match="`keep_aspect` is of many objects"):
        Tracker(TransT(ONE), keep_aspect=True)
    with pytest.raises(ValueError, match="`backbone` must be a TransTrack, TransT, TrTr; it is"):
        Tracker(keras.Sequential())
    crowd = [[[1, i, i, 0, 4, 4] for i in range(6)]]
    with pytest.raises(
        ValueError, match="`boxes`: expected at most 5, the model's queries, in a frame; frame 1"
    ):
        many.evaluate((np.zeros((1, 2, 32, 32, 3), "uint8"), crowd))
    with pytest.raises(ValueError, match="`least_area` is of many objects"):
        one.fit(
            (video[:, :, :, :], [[[1, 1, 2, 2, 8, 8]]] * 1), (video, [[[1, 1, 2, 2, 8, 8]]]), least_area=0.5
        )
