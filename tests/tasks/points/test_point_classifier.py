"""The classifier of clouds of points: from files and arrays to names, kept, exported, drawn and asked."""

import keras
import numpy as np
import pytest

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.data import PointClouds
from keras_tfm.models import PCT, PointTransformer
from keras_tfm.serving.point_files import order_of
from keras_tfm.tasks import PointClassifier
from keras_tfm.tasks.points.point_classifier import normalized
from keras_tfm.tasks.points.point_families import FAMILIES, PointOptions
from tests.fresh_process import ask

NAMES = ["ball", "disc", "rod"]
SMALL = {
    "num_points": 24,
    "dim": 4,
    "counts": (8,),
    "num_neighbours": 6,
    "num_layers": 1,
    "fused_dim": 16,
    "head_dims": (16,),
}


def examples(size, seed=0, length=30):
    """Clouds (N, n, 3) that are round, flat or long, of any size and anywhere."""
    rng = np.random.default_rng(seed)
    labels = np.arange(size) % 3
    sides = np.array([[1, 1, 1], [1, 1, 0], [0, 0, 1]])[labels][:, None]
    clouds = rng.normal(size=(size, length, 3)) * (sides + 0.02) * rng.uniform(0.1, 10, (size, 1, 1))
    return clouds + rng.uniform(-100, 100, (size, 1, 3)), labels


@pytest.fixture(scope="module")
def task():
    keras.utils.set_random_seed(0)
    task = PointClassifier.from_size("tiny", NAMES, **SMALL)
    task.fit(examples(240), examples(48, seed=9), epochs=6, batch_size=16, learning_rate=1e-2)
    return task


def test_it_sees_shapes_wherever_they_are(task):
    clouds, labels = examples(90, seed=1)
    measures = task.evaluate((clouds, labels))
    assert measures["accuracy"] > 0.9 and measures["clouds"] == 90
    assert np.mean(task.predict(clouds) == np.array(NAMES)[labels]) == pytest.approx(
        measures["accuracy"], abs=1e-4
    )
    np.testing.assert_allclose(
        task.probabilities(clouds[:3] * 7 - 50), task.probabilities(clouds[:3]), atol=1e-3
    )
    found, judgements = task.judged((clouds, labels))
    assert found == measures and judgements.confusion.sum() == 90


def test_files_bytes_and_arrays_have_one_answer(task, tmp_path):
    clouds, _ = examples(3, seed=2, length=40)
    expected = task.probabilities(clouds)
    paths = []
    for cloud, name in zip(clouds, ("a.npz", "b.xyz", "c.csv"), strict=True):
        paths.append(tmp_path / name)
        if name == "a.npz":
            np.savez(paths[-1], points=cloud)
        else:
            np.savetxt(paths[-1], cloud, delimiter="," if name == "c.csv" else " ")
    for sources in (paths, [path.read_bytes() for path in paths], list(clouds), clouds.tolist()):
        np.testing.assert_allclose(task.probabilities(sources), expected, atol=1e-6)
    checked, _ = task.check_examples((paths, NAMES))
    np.testing.assert_allclose(task.probabilities(checked), expected, atol=1e-5)
    assert isinstance(checked, PointClouds) and checked.sizes == [40] * 3
    assert task.predict(paths[0]).tolist() == task.predict(clouds[:1]).tolist()  # a path alone
    cube = "OFF\n8 6 0\n" + "".join(f"{i % 2} {i // 2 % 2} {i // 4}\n" for i in range(8))
    cube += "4 0 1 3 2\n4 4 5 7 6\n4 0 1 5 4\n4 2 3 7 6\n4 0 2 6 4\n4 1 3 7 5\n"
    (tmp_path / "cube.off").write_text(cube)
    assert task.predict([tmp_path / "cube.off"]).tolist() == ["ball"]


def test_few_far_and_equal_points_are_answered(task):
    few = examples(3, seed=4, length=8)[0]  # which repeat
    repeated = [cloud[np.arange(24) % 8] for cloud in few[:, order_of(8, 24)]]
    np.testing.assert_allclose(task.probabilities(few), task.probabilities(repeated), atol=1e-6)
    same = task.probabilities([np.full((9, 3), 0.1), np.zeros((30, 3)), np.full((30, 3), 1e30)])
    np.testing.assert_allclose(same, same[:1].repeat(3, axis=0), atol=1e-6)
    assert np.isfinite(same).all()
    huge = normalized(np.array([[[3e38, 0, 0], [-3e38, 0, 0]]], "float32")).numpy()
    np.testing.assert_allclose(huge, [[[1, 0, 0], [-1, 0, 0]]])


def test_what_is_no_cloud_is_refused_by_its_row(task, tmp_path):
    good = examples(1)[0][0]
    for bad, problem in (
        (good[:5], "expected 6 points or more, as many as the neighbours that the model looks at; got 5"),
        (np.where(np.arange(3) == 1, np.nan, good), r"expected finite coordinates, point 0 is \(.*nan"),
        (good[:, :2], r"expected points, an array \(N, 3\)"),
        (tmp_path / "none.ply", "cannot be read: No such file"),
    ):
        assert list(task.refusals([good, bad])) == [1]
        with pytest.raises(ValueError, match=f"^row 1: .*{problem}"):
            task.predict([good, bad])
        with pytest.raises(ValueError, match=f"^`clouds`, row 1: .*{problem}"):
            task.evaluate(([good, bad], ["ball"] * 2))
    with pytest.raises(ValueError, match="`labels` must be one for each of 2 clouds"):
        task.evaluate(([good, good], ["ball"]))


def test_models_that_read_other_points_are_refused():
    with pytest.raises(ValueError, match=r"expected a model of `points` \(B, N, 3\) alone"):
        PointClassifier(PointTransformer.from_size("tiny", num_features=3), NAMES)
    with pytest.raises(ValueError, match=r"There is no family 'pc'.*pct"):
        PointOptions(family="pc").base()
    assert PointOptions(num_points=512).model({}).config.num_points == 512
    assert PointOptions(num_points=32).model({"counts": [8]}).config.counts == (8,)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_one_vector_of_a_cloud(family):
    backbone = PointOptions(family=family, num_points=128).model({})
    assert backbone.input["points"].shape == (None, 128, 3) and type(backbone) in (PCT, PointTransformer)
    assert PointClassifier(backbone, NAMES).model.output.shape == (None, 3)


def test_a_run_answers_as_its_task_does_and_trains_on(task, tmp_path):
    task.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    assert again.config == task.config
    clouds, _ = examples(4, seed=5)
    np.testing.assert_array_equal(again.probabilities(clouds), task.probabilities(clouds))
    kept = PointClassifier.start_from(tmp_path / "run", (clouds, np.array(["rod", "disc"] * 2)), vertical="y")
    assert kept.config.vertical == "y" and kept.class_names.tolist() == NAMES
    other = PointClassifier.start_from(tmp_path / "run", (clouds, np.array(["x", "y"] * 2)))
    assert other.class_names.tolist() == ["x", "y"] and other.encoder is not None
    with pytest.raises(ValueError, match="--from: expected a 'classify-points' task"):
        PointClassifier.checked(object.__new__(tasks.ImageClassifier))


def test_a_saved_model_answers_without_this_package(task, tmp_path):
    task.export(tmp_path / "export")
    clouds, _ = examples(3, seed=6, length=24)
    expected = task.probabilities(clouds)
    found = ask(tmp_path / "export", of_text=False, points=(clouds - clouds[:, :1]).astype("float32"))
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-3)
    assert found["label"].tolist() == task.predict(clouds).tolist()
    longer, _ = examples(3, seed=6, length=50)
    np.savetxt(tmp_path / "cloud.xyz", longer[2])
    served = serving.load(tmp_path / "export")
    answers = served([*longer[:2], tmp_path / "cloud.xyz"])
    np.testing.assert_allclose(answers["probabilities"], task.probabilities(longer), atol=1e-2)
    far = longer + np.array([5e5, 4.6e6, 100])  # a map's coordinates, of which float32 keeps half a metre
    np.testing.assert_allclose(served(list(far))["probabilities"], task.probabilities(far), atol=1e-4)
    for bad, problem in ((np.zeros((2, 2)), "expected points"), (longer[0][:5], "expected 6 points or more")):
        with pytest.raises(ValueError, match=f"row 1: {problem}"):
            served([longer[0], bad])
    with pytest.raises(ValueError, match=r"a loop or a branch .*: export a SavedModel"):
        task.export(tmp_path / "onnx", format="onnx")


def test_clouds_are_drawn_from_three_sides(task, tmp_path):
    PIL = pytest.importorskip("PIL.Image")
    clouds, _ = examples(2, seed=7)
    records = task.records(clouds, draw=tmp_path / "pictures")
    assert [record["answer"] for record in records] == task.predict(clouds).tolist()
    for number in range(2):
        picture = np.asarray(PIL.open(tmp_path / "pictures" / f"{number:06}.png"))
        assert picture.shape == (264, 720, 3)
        views = (picture[30:235] < 200).all(axis=2)  # without texts
        assert all(views[:, left : left + 240].any() for left in (0, 240, 480))
    disc = (picture[30:235, :240] < 200).any(axis=2)
    height, width = np.ptp(np.nonzero(disc), axis=1)
    assert width > 5 * height  # seen from the front


@pytest.mark.slow
def test_the_command_line_trains_predicts_and_evaluates(tmp_path, capsys):
    clouds, labels = examples(24)
    for number, (cloud, label) in enumerate(zip(clouds, labels, strict=True)):
        (tmp_path / "data" / NAMES[label]).mkdir(parents=True, exist_ok=True)
        np.savetxt(tmp_path / "data" / NAMES[label] / f"{number}.xyz", cloud)
    config = tmp_path / "model.json"
    config.write_text('{"counts": [8], "num_neighbours": 6, "num_layers": 1, "dim": 4, "fused_dim": 16}')
    train = [
        "train",
        "classify-points",
        "--data",
        tmp_path / "data",
        "--out",
        tmp_path / "run",
        "--epochs",
        2,
    ]
    options = ["--num-points", 24, "--config", config, "--turns", "all", "--vertical", "y"]
    main(list(map(str, [*train, *options])))
    assert tasks.load(tmp_path / "run").config.vertical == "y"
    capsys.readouterr()
    run, data = str(tmp_path / "run"), str(tmp_path / "data")
    main(["predict", run, "--data", data, "--draw", str(tmp_path / "pictures")])
    assert len(capsys.readouterr().out.splitlines()) == len(list((tmp_path / "pictures").iterdir())) == 24
    main(["evaluate", run, "--data", data])
    assert "accuracy" in capsys.readouterr().out
    main(["export", run, "--out", str(tmp_path / "export")])
    capsys.readouterr()
    main(["predict", str(tmp_path / "export"), "--data", data])
    assert len(capsys.readouterr().out.splitlines()) == 24
