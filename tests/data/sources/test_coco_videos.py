"""Videos with boxes in COCO-video's layout: the order of frames, identities, scaled boxes, refusals."""

import json
import logging

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import DataError, read_tracked_videos
from keras_tfm.tasks.tracking.inputs import inputs_in, opened_video

SHAPE = (2, 8, 8, 1)


def box(image, identity, left, **rest):
    """An annotation: a box of 2 x 3 pixels at the top."""
    named = {"image_id": image, "category_id": 4, "instance_id": identity, "bbox": [left, 0, 2, 3]}
    return {"id": 10 * image + identity, **named, **rest}


@pytest.fixture
def made(tmp_path):
    """The path of a file with two videos of 8 x 8 pixels, frame f of grey level f, whose order is mixed."""
    content = {
        "videos": [{"id": 5, "name": "a"}, {"id": 6, "name": "b"}],
        "images": [],
        "annotations": [box(1, 7, 3), box(2, 7, 4), box(2, 8, 0), box(3, 7, 1), box(4, 7, 2)],
        "categories": [{"id": 4, "name": "cat"}],
    }
    for image, video, frame in ((1, 5, 11), (2, 5, 10), (3, 6, 0), (4, 6, 1)):
        name = f"{video}/{image}.png"
        pixels = np.full((8, 8, 1), frame, "uint8")
        tf.io.write_file(str(tmp_path / "images" / name), tf.io.encode_png(pixels))
        content["images"].append({"id": image, "file_name": name, "video_id": video, "frame_id": frame})
    (tmp_path / "tracks.json").write_text(json.dumps(content))
    return tmp_path / "tracks.json"


def edited(path, edit):
    content = json.loads(path.read_text("utf-8"))
    edit(content)
    path.write_text(json.dumps(content), "utf-8")
    return path


def test_frames_follow_their_numbers(made):
    found = read_tracked_videos(made, SHAPE)
    assert np.asarray(found.videos)[:, :, 0, 0, 0].tolist() == [[10, 11], [0, 1]]
    assert [boxes.frames.tolist() for boxes in found.boxes] == [[1, 1, 2], [1, 2]]
    assert [boxes.ids.tolist() for boxes in found.boxes] == [[7, 8, 7], [7, 7]]
    assert found.boxes[0].boxes.tolist() == [[4, 0, 6, 3], [0, 0, 2, 3], [3, 0, 5, 3]]


def test_names_of_tao_texts_of_numbers_and_crowds(made, caplog):
    def edit(content):
        for image in content["images"]:
            image["frame_index"] = str(image.pop("frame_id"))
        for each in content["annotations"]:
            each["track_id"] = each.pop("instance_id")
        content["annotations"].append(box(1, 9, 0, iscrowd=1))

    before = read_tracked_videos(made, SHAPE)
    with caplog.at_level(logging.WARNING):
        after = read_tracked_videos(edited(made, edit), SHAPE)
    assert "1 crowds are skipped" in caplog.text
    for x, y in zip(before.boxes, after.boxes, strict=True):
        np.testing.assert_array_equal(x.boxes, y.boxes)


def test_long_identities_are_exact(made):
    def edit(content):
        for number, each in enumerate(content["annotations"]):
            each["instance_id"] = (1 << 62) + number

    found = read_tracked_videos(edited(made, edit), SHAPE)
    assert [(boxes.ids - (1 << 62)).tolist() for boxes in found.boxes] == [[1, 2, 0], [3, 4]]


def test_boxes_of_the_stated_size_are_scaled(made):
    found = read_tracked_videos(
        edited(made, lambda x: [i.update(width=16, height=16) for i in x["images"]]), SHAPE
    )
    assert found.boxes[0].boxes[0].tolist() == [2, 0, 3, 1.5]


def test_videos_to_answer_need_no_boxes(made):
    edited(made, lambda x: [x.pop(name) for name in ("annotations", "categories")])
    videos = list(inputs_in(made))
    assert [place for _, place in videos] == [f"{made}, video 5", f"{made}, video 6"]
    assert len(opened_video(videos[0][0])) == 2


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda x: x.pop("videos"), 'expected a list of objects as "videos", got None'),
        (lambda x: x["videos"][1].update(id=5), 'expected an "id" of its own for each of the "videos"'),
        (lambda x: x["videos"][1].update(id=[6]), 'expected an "id" of its own for each of the "videos"'),
        (
            lambda x: x["images"][1].update(video_id=9),
            "image 2: expected the id of a video and a whole number, got .*9",
        ),
        (lambda x: x["images"][1].pop("frame_id"), "image 2: expected the id of a video and a whole number"),
        (
            lambda x: x["images"][1].update(frame_id=11),
            "video 5: expected each number of a frame once, 11 is repeated",
        ),
        (lambda x: x["images"][1].update(file_name="../a.png"), "image 2: expected a path within"),
        (lambda x: x["images"][1].update(file_name="b.png"), "b.png: cannot be read: No such file"),
        (lambda x: x["images"][0].update(width=16, height=8), "expected an image of .*as stated"),
        (
            lambda x: x["annotations"][0].pop("instance_id"),
            'annotation 17: expected a whole number as "instance_id" or "track_id", got None',
        ),
        (
            lambda x: x["annotations"][0].update(instance_id=1 << 63),
            'expected a whole number as "instance_id" or "track_id", got 9223372036854775808',
        ),
        (
            lambda x: x["annotations"][0].update(bbox=[0, 0, 0, 3]),
            r'annotation 17: expected left, top, width and height of an area as "bbox", got \[0, 0, 0, 3\]',
        ),
        (lambda x: x["annotations"][0].update(bbox=None), 'of an area as "bbox", got None'),
        (lambda x: x["annotations"][0].update(image_id=9), 'annotation 1 has 9 as "image_id"'),
        (lambda x: x["annotations"][0].update(category_id=9), 'annotation 1 has 9 as "category_id"'),
        (lambda x: x["annotations"][2].update(instance_id=7), "identity 7 stands twice in frame 1"),
        (
            lambda x: (x["images"].pop(), x["annotations"].pop()),
            "video 6: expected two frames or more, got one",
        ),
        (lambda x: x["annotations"].clear(), "video 5: expected boxes in the frames, there are none"),
    ],
)
def test_files_that_are_none(made, edit, message):
    with pytest.raises(DataError, match=message):
        read_tracked_videos(edited(made, edit), SHAPE)
