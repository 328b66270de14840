"""Poses are found: from images and clouds, in the data's unit, kept, exported, drawn and asked."""

import json

import keras
import numpy as np
import pytest

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.data import Joints, Poses, read_poses, write_poses
from keras_tfm.data.worlds.hands import drawn_hands, skeleton, write_drawn_hands
from keras_tfm.tasks import PoseEstimator
from keras_tfm.tasks.points.drawing import TURNS, upright
from keras_tfm.tasks.points.pose_measures import correct_joints

SMALL = {"dim": 16, "num_layers": 1, "num_heads": 2, "intermediate_dim": 16}
CLOUDS = SMALL | {"num_points": 24, "point_dims": (16,)}


def bent(size, seed=0):
    """Arms of two bones, of a shoulder, an elbow and a hand, in millimetres; they bend in the image alone."""
    rng = np.random.default_rng(seed)
    upper, lower = rng.uniform(-0.7, 0.7, (2, size, 1))
    elbow = 300 * np.concatenate([np.sin(upper), np.cos(upper), 0 * upper], axis=-1)
    both = upper + lower
    hand = elbow + 250 * np.concatenate([np.sin(both), np.cos(both), 0 * both], axis=-1)
    return np.stack([np.zeros_like(elbow), elbow, hand], axis=1) + rng.normal(0, 5, (size, 3, 3)) * [0, 0, 1]


def arms(size, seed=0, kind="hot-net"):
    """Examples: arms in an image whose pixels are half a millimetre, or as 40 points along their bones."""
    joints = bent(size, seed)
    if kind == "hot-net":
        return Poses(
            joints[..., :2] * 2 + 100, Joints(joints, ["shoulder", "elbow", "hand"], [(0, 1), (1, 2)])
        )
    rng = np.random.default_rng(seed + 100)
    joints = joints + rng.normal(0, 1000, (size, 1, 3))  # anywhere
    shares, bone = rng.uniform(size=(size, 40, 1)), np.arange(40) % 2
    return Poses(joints[:, bone] * (1 - shares) + joints[:, bone + 1] * shares, Joints(joints))


@pytest.fixture(scope="module", params=["hot-net", "hand-transformer"])
def learnt(request):
    """A task and its family."""
    keras.utils.set_random_seed(0)
    examples = arms(512, kind=request.param)
    task = PoseEstimator.from_poses(
        examples, request.param, changes=SMALL if request.param == "hot-net" else CLOUDS
    )
    task.fit(examples, arms(64, seed=9, kind=request.param), epochs=6, batch_size=16, learning_rate=5e-3)
    return task, request.param


def test_it_beats_the_mean_pose_on_poses_of_another_seed(learnt):
    task, kind = learnt
    examples = arms(100, seed=1, kind=kind)
    measures = task.evaluate(examples)
    assert measures["mean_error"] < 0.5 * measures["mean_pose_error"] and measures["poses"] == 100
    found, joints = task.predict(examples.points), np.asarray(examples.joints)
    errors = np.linalg.norm(found - joints, axis=-1)
    assert measures["mean_error"] == pytest.approx(errors.mean(), rel=1e-4)  # millimetres
    again = correct_joints(found, joints)
    assert {name: measures[name] for name in again} == pytest.approx(again, abs=1e-3)


def test_moved_clouds_have_moved_answers(learnt):
    task, kind = learnt
    points = arms(3, seed=2, kind=kind).points
    found = task.predict(points + 5000.0)
    expected = task.predict(points)
    if kind == "hot-net":
        assert np.abs(found - expected).max() > 100  # where a pose is in an image may say how far it is
    else:
        np.testing.assert_allclose(found, expected + 5000, atol=0.05)
        few = points[:, :24]
        np.testing.assert_allclose(task.predict(few), task.predict(few[:, ::-1]), atol=0.01)


def test_a_run_answers_as_its_task_does_and_is_served(learnt, tmp_path):
    task, kind = learnt
    points = arms(3, seed=3, kind=kind).points
    expected = task.predict(points)
    task.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    assert again.config == task.config
    np.testing.assert_array_equal(again.predict(points), expected)
    kept = PoseEstimator.start_from(tmp_path / "run", None, vertical="-z")
    assert kept.config.reference == task.config.reference and kept.config.vertical == "-z"
    task.export(tmp_path / "export")
    served = serving.load(tmp_path / "export")
    answers = served(list(points))
    np.testing.assert_allclose(answers["joints"], expected, rtol=1e-4, atol=0.05)
    if kind == "hot-net":
        assert answers["labels"].tolist() == [["shoulder", "elbow", "hand"]] * 3
        with pytest.raises(ValueError, match="row 1: expected the places of 3 joints, got 2"):
            served([points[0], points[1][:2]])


def test_the_command_asks_an_export_by_files_of_clouds(tmp_path, capsys):
    examples = arms(2, kind="hand-transformer")
    task = PoseEstimator.from_poses(examples, "hand-transformer", changes=CLOUDS)
    task.export(tmp_path / "onnx", format="onnx")
    cloud = str(tmp_path / "cloud.xyz")
    np.savetxt(cloud, examples.points[0])
    main(["predict", str(tmp_path / "onnx"), "--data", cloud])
    file, answer = capsys.readouterr().out.strip().split("\t")
    assert file == cloud and np.shape(json.loads(answer)["joints"]) == (3, 3)


def test_what_is_no_pose_is_refused_by_its_row(learnt):
    task, kind = learnt
    examples = arms(2, seed=4, kind=kind)
    good, joints = examples.points[0], np.asarray(examples.joints)
    is_second = np.arange(len(good))[:, None] == 1
    bad = [
        (np.where(is_second, np.nan, good), "expected finite coordinates, point 1"),
        (np.ones_like(good), "expected points that differ"),
        (good[:0], "expected points, there are none"),
        (good[:2], "the places of 3 joints, got 2") if kind == "hot-net" else (good[:, :2], "an array"),
    ]
    for wrong, problem in bad:
        with pytest.raises(ValueError, match=rf"^row 1: .*{problem}"):
            task.predict([good, wrong])
    with pytest.raises(ValueError, match="expected 3 joints, as the model has them, got 4"):
        task.evaluate((np.ones((2, 4, 2)) * [[[1], [2], [3], [4]]], np.ones((2, 4, 3))))
    if kind == "hot-net":
        with pytest.raises(ValueError, match=r"`points`: expected the shape \(N, 3, 2\), got"):
            task.evaluate((joints, joints))
        with pytest.raises(ValueError, match="reads joints_2d"):
            PoseEstimator.from_poses((joints, joints))


def test_joints_are_measured_from_a_root():
    examples = arms(20)
    task = PoseEstimator.from_poses(examples, changes=SMALL, root=2)
    assert task.config.reference[2] == (0.0, 0.0, 0.0)
    moved = Poses(examples.points, Joints(examples.joints.places + 777))
    first, second = task.evaluate(examples), task.evaluate(moved)
    assert first["mean_pose_error"] == pytest.approx(second["mean_pose_error"], rel=1e-4)
    absolute = PoseEstimator.from_poses(examples, changes=SMALL)
    again = PoseEstimator.adopt(absolute, examples, root=2)
    assert again.config == task.config and again.model is absolute.model
    with pytest.raises(ValueError, match="`root` must be a joint, 0 to 2; it is 3"):
        PoseEstimator.from_poses(examples, changes=SMALL, root=3)
    with pytest.raises(ValueError, match="`num_joints` must be 3, the joints of the data; it is 4"):
        PoseEstimator.from_poses(examples, changes={"num_joints": 4})


def test_the_share_of_correct_joints():
    """A tenth of a pose of 10 is 1: errors of 0, 0.25, 1 and 2 are right but for the last."""
    joints = np.array([[[0.0, 0, 0], [10, 0, 0], [0, 4, 0], [0, 0, 1]]])
    found = joints + np.array([[[0.0, 0, 0], [0, 0.25, 0], [0, 0, 1.0], [2.0, 0, 0]]])
    assert correct_joints(found, joints) == {"pck": 75.0, "auc": 100 * (1 + 0.75) / 4}


@pytest.mark.parametrize("vertical", TURNS)
def test_drawings_are_turned_and_not_mirrored(vertical):
    turned = upright(np.eye(3), vertical)  # a row for each axis
    assert np.linalg.det(turned) == pytest.approx(1)
    sign = -1 if vertical.startswith("-") else 1
    np.testing.assert_array_equal(turned["xyz".index(vertical[-1])], [0, 0, sign])


def test_poses_are_drawn_and_recorded(learnt, tmp_path):
    PIL = pytest.importorskip("PIL.Image")
    task, kind = learnt
    points = arms(2, seed=5, kind=kind).points
    records = task.records(points, draw=tmp_path / "drawn")
    answer, expected = records[1]["answer"], task.predict(points)[1]
    found = list(answer.values()) if kind == "hot-net" else answer
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
    assert kind != "hot-net" or list(answer) == ["shoulder", "elbow", "hand"]
    picture = np.asarray(PIL.open(tmp_path / "drawn" / "000001.png")).astype(int)
    assert picture.shape == (264, 720, 3)
    dark = (picture[:235, :240] < 110).all(axis=2)
    assert dark.sum() > 20 and (kind != "hot-net" or np.ptp(np.nonzero(dark)[0]) > 150)  # y points upwards


def test_files_of_poses(tmp_path):
    write_drawn_hands(tmp_path / "a.npz", 3, seed=1)
    write_drawn_hands(tmp_path / "b.npz", 2, seed=2)
    poses = read_poses([tmp_path / "a.npz", tmp_path / "b.npz"])
    drawn = drawn_hands(3, seed=1)
    np.testing.assert_array_equal(poses.joints.places[:3], drawn.joints)
    np.testing.assert_allclose(poses.points[:3], drawn.places)
    assert (poses.joints.names, poses.joints.edges) == skeleton() and len(poses.points) == 5
    assert read_poses(tmp_path / "a.npz", 3).points.shape == (3, 128, 3)
    write_drawn_hands(tmp_path / "c.npz", 2, has_box=True)
    with pytest.raises(ValueError, match=r"c.npz: expected the 21 joints.* as in .*a.npz; got 29 others"):
        read_poses([tmp_path / "a.npz", tmp_path / "c.npz"])
    with pytest.raises(FileExistsError):
        write_poses(tmp_path / "a.npz", {})
    first, second = (next(poses.joints[rows].identity()) for rows in (slice(0, 2), slice(1, 3)))
    assert first != second


@pytest.mark.slow
@pytest.mark.parametrize("family", ["hot-net", "hand-transformer"])
def test_the_command_line_trains_resumes_and_answers(family, tmp_path, capsys):
    write_drawn_hands(tmp_path / "hands.npz", 40, seed=1)
    run, data = str(tmp_path / "run"), str(tmp_path / "hands.npz")
    (tmp_path / "small.json").write_text(json.dumps(SMALL))
    train = ["train", "keypoints", "--data", data, "--out", run, "--schedule", "constant"]
    more = ["--config", str(tmp_path / "small.json"), "--family", family]
    main([*train, *more, "--epochs", "2", "--batch-size", "8"])
    main([*train, "--epochs", "3", "--resume"])
    capsys.readouterr()
    main(["predict", run, "--data", data, "--json", "--draw", str(tmp_path / "drawn")])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(list((tmp_path / "drawn").iterdir())) == 40
    assert lines[3]["file"] == "row 3" and next(iter(lines[3]["answer"])) == "wrist"
    main(["evaluate", run, "--data", data])
    assert "mean_pose_error" in capsys.readouterr().out
    main(["export", run, "--out", str(tmp_path / "export")])
    if family == "hand-transformer":
        np.savetxt(tmp_path / "cloud.xyz", drawn_hands(1).points[0])
        capsys.readouterr()
        main(["predict", run, "--data", str(tmp_path / "cloud.xyz")])
        file, answer = capsys.readouterr().out.strip().split("\t")
        assert file.endswith("cloud.xyz") and len(answer.split(" ")) == 21
