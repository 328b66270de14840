"""Finding lanes: a finder that learns some roads by heart, its folder and export, wrong examples."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.cli import main
from keras_tfm.data import Lanes, read_lanes, write_lanes
from keras_tfm.data.worlds.roads import drawn_roads, write_drawn_roads
from keras_tfm.heads import LaneDetector
from keras_tfm.models import LSTR
from keras_tfm.tasks import LaneFinder
from keras_tfm.tasks.images import lane_measures
from keras_tfm.tasks.images.lane_finder import LaneOptions
from tests.fresh_process import ask

SMALL = {
    "image_size": (24, 40),
    "backbone_config": {"stem_dim": 8, "dims": (16,), "depths": (1,), "block": "basic"},
    "dim": 16,
    "num_heads": 2,
    "num_layers": 1,
    "intermediate_dim": 32,
}


def columns(data, rows=slice(None)):
    """The examples as a user has them: in pixels."""
    heights = [(rows * 90).tolist() for rows in data.heights[rows]]
    return data.images[rows], heights, [(np.where(x < 0, -2, x * 160)).tolist() for x in data.lanes[rows]]


@pytest.fixture(scope="module")
def roads():
    return drawn_roads(4, seed=1)


@pytest.fixture(scope="module")
def task(roads):
    keras.utils.set_random_seed(0)
    task = LaneFinder.make(roads, LaneOptions(), SMALL)
    repeated = Lanes(*(np.concatenate([x] * 64) for x in roads[:2]), *(x * 64 for x in roads[2:]))
    task.fit(repeated, roads, epochs=8, batch_size=8, learning_rate=1e-2, flip=False)
    return task


def test_roads_are_learnt(task, roads, monkeypatch):
    """With three times TuSimple's tolerance, since a pixel of this model is four of the images."""
    monkeypatch.setattr(lane_measures, "TOLERANCE", 60.0)
    found, fresh = (
        one.evaluate(columns(roads)) for one in (task, LaneFinder.make(roads, LaneOptions(), SMALL))
    )
    assert found["images"] == 4 and found["accuracy"] > 70 > fresh["accuracy"], (found, fresh)
    assert found == task.evaluate(roads)
    base = task.record["baselines"]
    assert base["metric"] == "accuracy" and 0 < base["the mean lanes"] < 100


def test_an_answer(task, roads):
    answers = task.predict(roads.images)
    sure = task.predict(roads.images, threshold=0.0)
    assert [len(answer["lanes"]) for answer in sure] == [7] * 4
    for answer, other in zip(answers, sure, strict=True):
        count = len(answer["lanes"])
        assert (answer["scores"] >= 0.5).all() and (other["scores"][count:] < 0.5).all()
        np.testing.assert_allclose(answer["h_samples"], np.arange(30, 90, 5), rtol=1e-5)
        is_there = answer["lanes"] >= 0
        assert (answer["lanes"][~is_there] == -2).all() and (answer["lanes"] <= 160).all()
    line = json.loads(task.as_line(answers[0]))
    assert list(line) == ["lanes", "h_samples", "scores"] and len(line["lanes"]) == len(answers[0]["lanes"])


def test_other_heights_of_the_truth(task, roads):
    """Measures take the lanes at the heights of each image, whatever the task's are."""
    fewer = roads._replace(heights=[x[::2] for x in roads.heights], lanes=[x[:, ::2] for x in roads.lanes])
    assert abs(task.evaluate(fewer)["accuracy"] - task.evaluate(roads)["accuracy"]) < 15


def test_folder(task, roads, tmp_path):
    task.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    expected = task.predict(roads.images[:3], threshold=0.0)
    for answer, other in zip(expected, again.predict(roads.images[:3], threshold=0.0), strict=True):
        np.testing.assert_allclose(answer["lanes"], other["lanes"], atol=1e-3)


def test_a_head_of_several_kinds_of_lanes_is_kept(roads, tmp_path):
    """In the folder, and for images of another size."""
    backbone = LSTR(dataclasses.replace(LaneOptions().base(), **SMALL))
    made = LaneFinder(LaneDetector(backbone, 3), heights=[0.5, 1.0])
    made.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    found, kept = (x(roads.images[:1])["logits"] for x in (again, made))
    np.testing.assert_allclose(found, kept, atol=1e-5)
    assert LaneFinder.adopt(made, None, image_size=32).model.head_arguments == {"num_classes": 3}


@pytest.mark.slow
def test_the_export_answers_as_the_task(task, roads, tmp_path):
    expected = task.predict(roads.images[:3], threshold=0.0)
    task.export(tmp_path / "export")
    files = [tf.io.encode_png(image).numpy() for image in roads.images[:3]]
    found = ask(tmp_path / "export", of_text=False, image_bytes=files)
    assert sorted(found) == ["curves", "h_samples", "lanes", "scores"] and found["curves"].shape == (3, 7, 8)
    for row, answer in enumerate(expected):
        np.testing.assert_allclose(found["scores"][row], answer["scores"], atol=1e-4)
        np.testing.assert_allclose(found["lanes"][row], answer["lanes"], atol=1e-2)


@pytest.mark.slow
def test_command_line(task, tmp_path, capsys):
    write_drawn_roads(tmp_path / "roads", 12, seed=1)
    (tmp_path / "small.json").write_text(json.dumps({**SMALL, "num_layers": 1}))
    data, out = str(tmp_path / "roads/lanes.json"), str(tmp_path / "run")
    main(
        [
            "train",
            "find-lanes",
            "--data",
            data,
            "--config",
            str(tmp_path / "small.json"),
            "--epochs",
            "1",
            "--out",
            out,
        ]
    )
    task.save(tmp_path / "learnt")
    capsys.readouterr()
    run = str(tmp_path / "learnt")
    main(["evaluate", run, "--data", data])
    assert "accuracy" in capsys.readouterr().out
    main(["predict", run, "--data", data, "--draw", str(tmp_path / "drawn")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12 == len(list((tmp_path / "drawn").glob("*.png")))
    files = [line.split("\t")[0] for line in lines]
    answers = [json.loads(line.split("\t")[1]) for line in lines]
    write_lanes(tmp_path / "roads/answers.json", files, answers)
    assert len(read_lanes(tmp_path / "roads/answers.json", (24, 40, 3)).images) == 12


def test_wrong_examples(task, roads):
    images, heights, lanes = columns(roads, slice(0, 2))
    for examples, message in (
        ((images, heights, [[], []]), "expected lanes, there are none in 2 images"),
        ((images, heights[:1], lanes), "expected images, heights and lanes of one length, got 2, 1 and 2"),
        ((images, heights, [[[1.0]], []]), "image 0: expected an x for each of 12 heights, got 1 in lane 1"),
        ((images, heights, [lanes[0] * 8, lanes[1]]), "expected at most 7, the model's queries, in an image"),
    ):
        with pytest.raises(ValueError, match=message):
            task.fit(examples, 0.5)
    with pytest.raises(ValueError, match="`heights` must be two or more, ascending"):
        LaneFinder(task.model, heights=[0.5, 0.25])
    with pytest.raises(ValueError, match="expected a 'find-lanes' task"):
        LaneFinder.adopt(object.__new__(type("Other", (), {"name": "detect"})), roads)


def test_sizes():
    assert LSTR.from_size("tiny").input["images"].shape == (None, 90, 160, 3)
    assert LaneOptions(num_queries=5).base().num_queries == 5
