"""Lanes in TuSimple's format: read, written, outside of the picture, wrong; and the drawn roads."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import DataError, read_lanes, write_lanes
from keras_tfm.data.worlds.roads import drawn_roads, write_drawn_roads
from keras_tfm.heads import lane_positions

SHAPE = (10, 20, 3)


def write(folder, *rows):
    """TuSimple's file of these rows, whose images are 40 x 20, black."""
    for row in rows:
        tf.io.write_file(str(folder / row["raw_file"]), tf.io.encode_png(np.zeros((20, 40, 3), "uint8")))
    path = folder / "lanes.json"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_a_file_of_tusimple(tmp_path):
    rows = [
        {"raw_file": "clips/1.png", "h_samples": [10, 15, 20], "lanes": [[-2, 10, 20], [40, 30, 20]]},
        {"raw_file": "clips/2.png", "h_samples": [20, 10], "lanes": [[8, 16]]},
        {"raw_file": "clips/3.png", "h_samples": [10, 20], "lanes": []},
    ]
    data = read_lanes(write(tmp_path, *rows), SHAPE)
    assert data.images.shape == (3, *SHAPE) and data.sizes.tolist() == [[20, 40]] * 3
    np.testing.assert_allclose(data.heights[0], [0.5, 0.75, 1])
    np.testing.assert_allclose(data.lanes[0], [[-1, 0.25, 0.5], [1, 0.75, 0.5]])
    np.testing.assert_allclose(data.heights[1], [0.5, 1])  # ascending
    np.testing.assert_allclose(data.lanes[1], [[0.4, 0.2]])
    assert len(data.lanes[2]) == len(data.heights[2]) == 0


def test_images_may_be_missing_the_first_too(tmp_path, caplog):
    row = {"h_samples": [10, 15, 20], "lanes": [[-2, 10, 20]]}
    path = write(tmp_path, {"raw_file": "1.png", **row}, {"raw_file": "2.png", **row})
    (tmp_path / "1.png").unlink()
    (tmp_path / "images").mkdir()
    (tmp_path / "2.png").rename(tmp_path / "images" / "2.png")
    data = read_lanes(path, SHAPE)
    np.testing.assert_allclose(data.lanes, [[[-1, 0.25, 0.5]]])
    assert "1 of 2 images are skipped" in caplog.text


def test_lanes_outside_the_picture_are_skipped(tmp_path, caplog):
    lanes = [[-2, 10, 20], [-2, -2, -2], [50, 41, 40], [45, 30, 20]]
    data = read_lanes(
        write(tmp_path, {"raw_file": "1.png", "h_samples": [10, 15, 20], "lanes": lanes}), SHAPE
    )
    np.testing.assert_allclose(data.lanes[0], [[-1, 0.25, 0.5], [-1, 0.75, 0.5]])
    (said,) = caplog.messages
    assert "2 of 4 lanes" in said and "fewer than 2 points in the image" in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lanes": []}, "expected lanes, there are none"),
        ({"lanes": [[1, 2]]}, "line 1: expected an x for each of 3 heights, got 2 in lane 1"),
        ({"lanes": [[1, 2, "3"]]}, 'line 1: expected lists of numbers as "lanes", got'),
        ({"lanes": [[1, 2, 10**400]]}, 'line 1: expected lists of numbers as "lanes", got'),
        ({"lanes": 3}, 'line 1: expected a list of lanes as "lanes", got 3'),
        ({"h_samples": {"a": 1}}, 'line 1: expected lists of numbers as "h_samples", got'),
        ({"raw_file": "../1.png"}, "1.png"),
        ({"raw_file": None}, 'line 1: expected an object with a path as "raw_file"'),
    ],
)
def test_wrong_files(change, message, tmp_path):
    row = {"raw_file": "1.png", "h_samples": [10, 15, 20], "lanes": [[-2, 10, 20]]}
    path = write(tmp_path, row)
    path.write_text(json.dumps({**row, **change}))
    with pytest.raises(DataError, match=r"(?s)^[^\n]*$") as error:
        read_lanes(path, SHAPE)
    assert message in str(error.value)


def test_what_is_written_is_read_again(tmp_path):
    write_drawn_roads(tmp_path / "roads", 6, seed=3, empty=0.3)
    data, again = drawn_roads(6, seed=3, empty=0.3), read_lanes(tmp_path / "roads/lanes.json", (90, 160, 3))
    assert sorted(map(len, data.lanes))[0] == 0
    np.testing.assert_array_equal(again.images, data.images)
    for lanes, others in zip(data.lanes, again.lanes, strict=True):
        np.testing.assert_allclose(lanes.shape, others.shape if len(lanes) else lanes.shape)
        np.testing.assert_allclose(lanes, others.reshape(lanes.shape), atol=1e-4)
    answer = {"h_samples": np.float32([10, 15.5]), "lanes": np.float32([[-2, 3.25]])}
    write_lanes(tmp_path / "answers.json", [tmp_path / "a/b.png"], [answer])
    line = (tmp_path / "answers.json").read_text()
    assert line == '{"raw_file": "a/b.png", "h_samples": [10, 15.5], "lanes": [[-2, 3.25]]}\n'
    with pytest.raises(FileExistsError):
        write_lanes(tmp_path / "answers.json", [], [])


def test_drawn_roads_are_curves_of_the_model():
    """Each line is a `lane_positions` of the road's own numbers, and lies on bright pixels."""
    data, other = drawn_roads(8, seed=1), drawn_roads(4, seed=1)
    np.testing.assert_array_equal(data.images[:4], other.images)
    assert not np.array_equal(data.images, drawn_roads(8, seed=2).images)
    assert all(1 <= len(lanes) <= 5 for lanes in data.lanes)
    from keras_tfm.data.worlds.roads import Road

    road = Road.drawn(np.random.default_rng(0))
    y = np.linspace(road.horizon + 0.1, 1, 5)
    for number in range(road.num_lines):
        slope = road.breadth * (number - road.middle)
        curve = [0, 1, road.twist, road.horizon, road.bend, road.turn, slope, slope * road.horizon]
        expected = lane_positions(np.float32(curve), np.float32(y))
        np.testing.assert_allclose(road.positions(y, np.array(number)), expected, atol=1e-4)
        np.testing.assert_allclose(road.numbers(y, expected), number, atol=1e-3)
