"""CrowdHuman's lines; visible boxes and crowds in COCO's JSON and JSON lines: what is read and refused."""

import json
import logging

import numpy as np
import PIL.Image
import pytest

from keras_tfm.data import CrowdedObjects, DataError, Objects, read_objects

SHAPE = (8, 8, 3)
PERSON = {
    "tag": "person",
    "fbox": [2, 1, 10, 6],
    "vbox": [2, 1, 10, 3],
    "hbox": [4, 1, 2, 2],
    "extra": {"occ": 1},
}
MASK = {
    "tag": "mask",
    "fbox": [10, 0, 10, 10],
    "vbox": [10, 0, 10, 10],
    "hbox": [0, 0, 1, 1],
    "extra": {"ignore": 1},
}


def image(path, exif=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(np.full((10, 20, 3), 200, "uint8")).save(path, **({"exif": exif} if exif else {}))


def odgt(folder, *rows, name="annotation_train.odgt"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(*marks, id="a,1"):
    return {"ID": id, "gtboxes": list(marks)}


def pixels(boxes):
    return (boxes * [20, 10, 20, 10]).tolist()


def test_lines_of_crowd_human(tmp_path):
    for name in ("a,1.jpg", "b,2.png"):
        image(tmp_path / "Images" / name)
    beyond = {"tag": "person", "fbox": [-4, 2, 8, 20], "vbox": [0, 2, 4, 8]}
    nobody = PERSON | {"extra": {"ignore": 1}}
    path = odgt(tmp_path, row(PERSON, MASK, nobody), row(beyond, id="b,2"))
    found = read_objects(path, SHAPE)
    assert type(found) is CrowdedObjects and found.images.shape == (2, *SHAPE)
    assert found.labels == [["person"] * 3, ["person"]]
    assert [x.tolist() for x in found.is_crowd] == [[False, True, True], [False]]
    np.testing.assert_allclose(
        pixels(found.boxes[0]), [[2, 1, 12, 7], [10, 0, 20, 10], [2, 1, 12, 7]], atol=1e-5
    )
    np.testing.assert_allclose(
        pixels(found.visible[0]), [[2, 1, 12, 4], [10, 0, 20, 10], [2, 1, 12, 7]], atol=1e-5
    )
    np.testing.assert_allclose(pixels(found.boxes[1]), [[0, 2, 4, 10]], atol=1e-5)  # cut off at the edges
    np.testing.assert_allclose(pixels(found.visible[1]), [[0, 2, 4, 10]], atol=1e-5)
    assert found.has_hidden_parts and [len(x) for x in found.objects.boxes] == [1, 1]


def test_visible_boxes_and_crowds_of_coco_and_json_lines(tmp_path):
    """The same two objects and a crowd in both, and beside them a file that says nothing of the kind."""
    image(tmp_path / "a.png")
    boxes, visible = [[2, 1, 12, 7], [3, 1, 9, 9], [10, 0, 20, 10]], [[2, 1, 12, 4], None, None]
    line = {"image": "a.png", "boxes": boxes, "labels": ["cat", "dog", "dog"]}
    annotations = [
        {"image_id": 1, "category_id": 1, "bbox": [2, 1, 10, 6], "vis_bbox": [2, 1, 10, 3]},
        {"image_id": 1, "category_id": 2, "bbox": [3, 1, 6, 8]},
        {"image_id": 1, "category_id": 2, "bbox": [10, 0, 10, 10], "iscrowd": 1},
        {"image_id": 1, "category_id": 2, "segmentation": {"counts": [9]}, "iscrowd": 1},  # without a box
    ]
    names = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    content = {"images": [{"id": 1, "file_name": "a.png"}], "categories": names, "annotations": annotations}
    (tmp_path / "coco.json").write_text(json.dumps(content))
    (tmp_path / "plain.jsonl").write_text(json.dumps(line))
    (tmp_path / "lines.jsonl").write_text(json.dumps(line | {"visible": visible, "iscrowd": [0, 0, 1]}))
    (tmp_path / "marks.jsonl").write_text(json.dumps(line | {"iscrowd": [0, 0, 1]}))
    for name in ("coco.json", "lines.jsonl"):
        found = read_objects(tmp_path / name, SHAPE)
        assert found.labels == [["cat", "dog", "dog"]] and found.is_crowd[0].tolist() == [False, False, True]
        np.testing.assert_allclose(pixels(found.boxes[0]), boxes, atol=1e-5)
        np.testing.assert_allclose(pixels(found.visible[0]), [visible[0], *boxes[1:]], atol=1e-5)
        assert found.objects.labels == [["cat", "dog"]] and found.has_hidden_parts
    assert type(read_objects(tmp_path / "plain.jsonl", SHAPE)) is Objects
    assert not read_objects(tmp_path / "marks.jsonl", SHAPE).has_hidden_parts


def test_visible_boxes_are_clipped_at_the_whole_one_or_skipped_with_it(tmp_path, caplog):
    image(tmp_path / "a,1.jpg")
    boxes = [[0, 0, 20, 5], [13, 1, 3, 3], [2, 1, 0, 3], [2, 1, -1, 3], [25, 1, 3, 3]]
    path = odgt(tmp_path, row(*[PERSON | {"vbox": box} for box in boxes]))
    with caplog.at_level(logging.WARNING):
        found = read_objects(path, SHAPE)
    np.testing.assert_allclose(pixels(found.visible[0]), [[2, 1, 12, 5]], atol=1e-5)
    (said,) = caplog.messages
    assert said.startswith("4 of 5 boxes are skipped: ") and said.endswith("1 more")
    for number, reason in ((2, "lies outside of it"), (3, "is of no area"), (4, "is reversed")):
        assert f"line 1, box {number} (its visible box {reason})" in said


def test_visible_boxes_are_turned_with_the_image(tmp_path):
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter: what is stored above is shown at the right
    image(tmp_path / "a.png", exif)
    line = {"image": "a.png", "width": 20, "height": 10, "boxes": [[2, 1, 12, 7]], "labels": ["cat"]}
    (tmp_path / "a.jsonl").write_text(json.dumps(line | {"visible": [[2, 1, 12, 4]]}))
    found = read_objects(tmp_path / "a.jsonl", SHAPE)
    assert found.sizes.tolist() == [[20, 10]]
    np.testing.assert_allclose(found.boxes[0] * [10, 20, 10, 20], [[3, 2, 9, 12]], atol=1e-5)
    np.testing.assert_allclose(found.visible[0] * [10, 20, 10, 20], [[6, 2, 9, 12]], atol=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (row(PERSON | {"tag": "dog"}), 'line 1, box 1: expected "person" or "mask" as "tag", got \'dog\''),
        (row(PERSON, {"fbox": [0, 0, 1, 1]}), 'box 2: expected "person" or "mask" as "tag", got None'),
        (row(PERSON | {"fbox": [1, 2, 3]}), "line 1: expected a box of four numbers, got"),
        (row(PERSON | {"fbox": None}), "line 1: expected a box of four numbers, got None"),
        (row(PERSON | {"vbox": "here"}), "line 1, visible box: expected a box of four numbers, got 'here'"),
        (row(PERSON | {"extra": 1}), 'line 1, box 1: expected an object as "extra", got 1'),
        (row(PERSON, id=7), 'line 1: expected an object with a text as "ID"'),
        (row(PERSON, id="../a"), "expected a path within"),
        (row(PERSON, id="none"), "none.jpg: cannot be read: No such file"),
        (row(3), 'line 1: expected a list of objects as "gtboxes"'),
        ({"ID": "a,1"}, 'line 1: expected a list of objects as "gtboxes", got None'),
        (row(), "expected boxes, there are none"),
        (row(MASK), "expected boxes around single objects, there are none"),
    ],
)  # fmt: skip
def test_lines_of_crowd_human_that_are_refused(content, message, tmp_path):
    image(tmp_path / "inside" / "a,1.jpg")
    image(tmp_path / "a.jpg")
    with pytest.raises(DataError, match=message) as refusal:
        read_objects(odgt(tmp_path / "inside", content), SHAPE)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("further", "message"),
    [
        (
            {"visible": [[0, 0, 1, 1]] * 2},
            'line 1: expected a list of 1 as "visible", one for each label, got',
        ),
        ({"visible": 3}, 'line 1: expected a list of 1 as "visible"'),
        ({"visible": [3]}, "line 1, visible box: expected a box of four numbers, got 3"),
        ({"iscrowd": []}, 'line 1: expected a list of 1 as "iscrowd"'),
    ],
)
def test_json_lines_that_are_refused(further, message, tmp_path):
    image(tmp_path / "a.png")
    line = {"image": "a.png", "boxes": [[2, 1, 12, 7]], "labels": ["cat"], **further}
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    with pytest.raises(DataError, match=message) as refusal:
        read_objects(tmp_path / "a.jsonl", SHAPE)
    assert "\n" not in str(refusal.value)


def test_missing_images_are_skipped_by_name(tmp_path, caplog):
    image(tmp_path / "images" / "a,1.jpg")
    with caplog.at_level(logging.WARNING):
        found = read_objects(odgt(tmp_path, row(PERSON, id="none"), row(PERSON)), SHAPE)
    assert len(found.images) == 1 and found.visible[0].shape == (1, 4)
    assert caplog.messages[0].startswith("1 of 2 images are skipped: ") and "none.jpg" in caplog.messages[0]
