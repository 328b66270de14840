"""Boxes out of COCO's JSON, VOC's folders, JSON lines and TFDS; what is left out, and what is refused."""

import json
import logging
import os

import numpy as np
import PIL.Image
import pytest

from keras_tfm.data import Canvas, DataError, read_objects
from keras_tfm.data.sources import coco as coco_file
from keras_tfm.data.sources import crowds, objects

SHAPE = (8, 8, 3)


def image(path, width=20, height=10):
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(np.full((height, width, 3), 200, "uint8")).save(path)


def lines(folder, *rows):
    path = folder / "boxes.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def coco(folder, **changes):
    content = {
        "images": [{"id": 1, "file_name": "a.png"}, {"id": 7, "file_name": "b.png"}],
        "categories": [{"id": 3, "name": "cat"}, {"id": 1, "name": "dog"}],
        "annotations": [
            {"image_id": 1, "category_id": 3, "bbox": [2, 1, 10, 5], "iscrowd": 0},
            {"image_id": 1, "category_id": 1, "bbox": [0, 0, 20, 10]},
            {"image_id": 1, "category_id": 1, "bbox": [0, 0, 20, 10], "iscrowd": 1},
        ],
    }
    path = folder / "annotations" / "instances_val.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**content, **changes}))
    return path


def voc(folder, content, name="one"):
    for part in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "Annotations" / f"{name}.xml").write_text(content)
    return folder


BOX = "<xmin>3</xmin><ymin>2</ymin><xmax>12</xmax><ymax>6</ymax>"  # from the first pixel, 1, to the last
OBJECT = f"<object><name>cat</name><bndbox>{BOX}</bndbox></object>"
XML = "<annotation><filename>one.png</filename>{}</annotation>"


def check(found):
    """The first image has a cat, of pixels 2 to 12 and 1 to 6 of 20 x 10."""
    assert found.images.shape[1:] == SHAPE and found.sizes[0].tolist() == [10, 20]
    np.testing.assert_allclose(found.boxes[0][0], [0.1, 0.1, 0.6, 0.6], atol=1e-6)
    assert found.labels[0][0] == "cat"


def test_json_lines(tmp_path):
    for name in ("a", "b"):
        image(tmp_path / f"{name}.png")
    path = lines(
        tmp_path, {"image": "a.png", "boxes": [[2, 1, 12, 6]], "labels": ["cat"]}, {"image": "b.png"}
    )
    found = read_objects(path, SHAPE)
    check(found)
    assert found.boxes[1].shape == (0, 4) and found.labels[1] == []
    assert objects.found_in(str(path))[1].place.endswith("boxes.jsonl, line 2")


def test_sets_of_tfds(tmp_path, prepared, caplog):
    import tensorflow_datasets as tfds

    for name in ("a", "b"):
        image(tmp_path / f"{name}.png")
    inner = {"bbox": tfds.features.BBoxFeature(), "label": tfds.features.ClassLabel(names=["cat", "dog"])}
    inner |= {"is_crowd": np.bool_, "is_difficult": np.bool_}
    features = {"image": tfds.features.Image(shape=(10, 20, 3)), "objects": tfds.features.Sequence(inner)}
    cat = {
        "bbox": tfds.features.BBox(ymin=0.1, xmin=0.2, ymax=0.6, xmax=0.9),
        "label": "cat",
        "is_crowd": False,
        "is_difficult": False,
    }  # top, left, ...
    examples = [
        {"image": str(tmp_path / "a.png"), "objects": [cat, {**cat, "label": "dog", "is_crowd": True}]},
        {"image": str(tmp_path / "b.png"), "objects": [{**cat, "is_difficult": True}] * 2},
    ]
    path = prepared("tiny_objects", features, examples)
    with caplog.at_level(logging.WARNING):
        found = read_objects(path, SHAPE)
    np.testing.assert_allclose(found.boxes[0], [[0.2, 0.1, 0.9, 0.6]] * 2, atol=1e-6)  # left, top, ...
    assert found.labels == [["cat", "dog"], ["cat", "cat"]]
    assert [crowds.tolist() for crowds in found.is_crowd] == [[False, True], [False, False]]
    assert [marks.tolist() for marks in found.is_difficult] == [[False, False], [True, True]]
    assert found.objects.labels == [["cat"], []] and not caplog.messages
    assert objects.found_in(path)[1].place == f"{path}, example 2"
    features = {"image": features["image"], "objects": tfds.features.Sequence({"area": np.int64})}
    path = prepared("tiny_areas", features, [{"image": str(tmp_path / "a.png"), "objects": [{"area": 3}]}])
    with pytest.raises(
        DataError, match='example 1: expected a sequence of "bbox" and "label" as \'objects\''
    ):
        read_objects(path, SHAPE)


def test_coco_beside_a_folder_of_its_name(tmp_path, caplog):
    for name in ("a", "b"):
        image(tmp_path / "val" / f"{name}.png")
    with caplog.at_level(logging.WARNING):
        found = read_objects([coco(tmp_path)], SHAPE)
    check(found)
    assert found.labels == [["cat", "dog", "dog"], []] and not caplog.messages
    assert [crowds.tolist() for crowds in found.is_crowd] == [[False, False, True], []]


def test_images_may_be_missing_the_first_too(tmp_path, caplog):
    image(tmp_path / "val" / "a.png")
    images = [{"id": 9, "file_name": "missing.png"}, {"id": 1, "file_name": "a.png"}]
    check(read_objects(coco(tmp_path, images=images), SHAPE))
    assert "1 of 2 images are skipped" in caplog.text and "missing.png" in caplog.text
    image(tmp_path / "images" / "b.png")
    row = {"boxes": [[2, 1, 12, 6]], "labels": ["cat"]}
    check(read_objects(lines(tmp_path, {"image": "none.png", **row}, {"image": "b.png", **row}), SHAPE))


def test_voc_and_one_of_its_lists(tmp_path):
    folder = voc(tmp_path / "VOC", XML.format(OBJECT))
    voc(folder, XML.format("").replace("one", "two"), "two")
    for name in ("one", "two"):
        image(folder / "JPEGImages" / f"{name}.png")
    found = read_objects(folder, SHAPE)
    check(found)
    assert len(found.images) == 2
    (folder / "ImageSets" / "Main" / "train.txt").write_text("one  1\n")
    assert len(read_objects(folder / "ImageSets" / "Main" / "train.txt", SHAPE).images) == 1


@pytest.mark.parametrize(
    ("stated", "files", "expected"),
    [
        ("one.png", ["one.png", "one.jpg"], "one.png"),
        (" one.png\n", ["one.png"], "one.png"),
        ("one", ["one.png"], "one.png"),
        ("one.jpg", ["one.png"], "one.png"),
        ("one.png", ["one.PNG"], "one.PNG"),
        ("ONE.JPG", ["one.jpg"], "one.jpg"),
        ("IMG_0001.jpg", ["one.png"], "one.png"),
        ("two.jpg", ["one.png", "two.png"], "two.png"),
        ("v1.0", ["v1.0.png", "v1.png"], "v1.0.png"),
        ("one.jpg", ["one.png", "one.txt", "one.xml", ".one.jpg"], "one.png"),
        (None, ["one.png"], "one.png"),
        ("", ["one.png"], "one.png"),
        ("C:\\data\\IMG_1.png", ["IMG_1.png", "one.png"], "IMG_1.png"),
        ("c:/data/IMG_1.jpg", ["IMG_1.png"], "IMG_1.png"),
        ("\\\\host\\photos\\one.png", ["one.png"], "one.png"),
        ("/home/me/one.png", ["one.png"], "one.png"),
        ("photos\\one.png", ["one.png"], "one.png"),
        ("photos/one.png", ["one.png"], "one.png"),
        ("photos\\one.png", ["one.png", "photos/one.png"], "photos/one.png"),
        ("two.png", ["three.png"], "two.png"),  # counted later, when images are read
    ],
)
def test_the_image_of_an_annotation_of_voc(stated, files, expected, tmp_path):
    filename = "" if stated is None else f"<filename>{stated}</filename>"
    folder = voc(tmp_path, f"<annotation>{filename}{OBJECT}</annotation>")
    for name in files:
        (folder / "JPEGImages" / name).parent.mkdir(exist_ok=True)
        (folder / "JPEGImages" / name).write_bytes(b"")
    (found,) = objects.found_in(str(folder))
    # A file system that ignores case has one.PNG under the name one.png too.
    assert found.source.lower() == str(folder / "JPEGImages" / expected).lower()
    assert os.path.isfile(found.source) == ("three.png" not in files)


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((3, 2, 12, 6), [0.1, 0.1, 0.6, 0.6]),
        ((1, 1, 20, 10), [0, 0, 1, 1]),
        ((0, 0, 19, 9), [0, 0, 0.95, 0.9]),  # of a tool that counts from 0: cut off at the edge
    ],
)
def test_boxes_of_voc_count_from_one(box, expected, tmp_path):
    sides = "".join(f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    folder = voc(tmp_path, XML.format(OBJECT.replace(BOX, sides)))
    image(folder / "JPEGImages" / "one.png")
    (found,) = read_objects(folder, SHAPE).boxes
    np.testing.assert_allclose(found, [expected], atol=1e-6)


@pytest.mark.parametrize("path", ["C:\\data\\two.png", "..\\..\\two.jpg", "/home/me/two.png"])
def test_the_path_of_voc_is_its_last_part(path, tmp_path):
    folder = voc(tmp_path, f"<annotation><path>{path}</path>{OBJECT}</annotation>")
    for name in ("one", "two"):
        image(folder / "JPEGImages" / f"{name}.png")
    (found,) = objects.found_in(str(folder))
    assert found.source.endswith("two.png")


@pytest.mark.parametrize(
    ("flag", "count"),
    [
        ("1", 1),
        (" 1 ", 1),
        ("True", 1),
        ("yes", 1),
        ("0", 2),
        ("", 2),
        ("false", 2),
        ("Unspecified", 2),
        (None, 2),
    ],
)
def test_difficult_objects_of_voc_are_marked(flag, count, tmp_path, caplog):
    mark = "" if flag is None else f"<difficult>{flag}</difficult>"
    folder = voc(tmp_path, XML.format(OBJECT + OBJECT.replace("<name>", f"{mark}<name>")))
    with caplog.at_level(logging.WARNING):
        (found,) = objects.found_in(str(folder))
    second = crowds.BoxDetails("cat", is_difficult=True) if count == 1 else "cat"
    assert found.annotation == ([[2, 1, 12, 6]] * 2, ["cat", second]) and not caplog.messages
    image(folder / "JPEGImages" / "one.png")
    data = read_objects(folder, SHAPE)
    assert objects.objects_in(data).labels == [["cat"] * count]
    assert count == 2 or [x.tolist() for x in data.is_difficult] == [[False, True]]


SQUARE = [[2, 1, 12, 1, 12, 6, 2, 6]]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ({"bbox": ["2", "1", "10", "5.0"]}, [2, 1, 12, 6]),
        ({"bbox": ["2", 1, 10, "x"]}, ["2", 1, 10, "x"]),  # refused when boxes are checked
        ({"bbox": [2, 1, 10]}, [2, 1, 10]),
        ({"bbox": [2, 1, 10, 5], "segmentation": [[0, 0, 1, 1, 0, 1]]}, [2, 1, 12, 6]),
        ({"segmentation": SQUARE}, [2, 1, 12, 6]),
        ({"bbox": None, "segmentation": [[2, 1, 4, 1, 4, 3], [9, 2, 12, 6, 9, 6]]}, [2, 1, 12, 6]),
        ({"bbox": [], "segmentation": SQUARE}, [2, 1, 12, 6]),
        ({"bbox": [], "segmentation": []}, []),
        ({"bbox": [], "segmentation": {"size": [10, 20], "counts": [200]}}, []),
        ({"segmentation": [[2, 1, "x", 1]]}, None),
        ({"segmentation": [[2, 1, 3]]}, None),
        ({}, None),
    ],
)
def test_a_box_of_coco_in_corners(annotation, expected, tmp_path):
    changes = typed(1, 3)
    changes["annotations"] = [{"image_id": 1, "category_id": 3, **annotation}]
    (found,) = objects.found_in(str(coco(tmp_path, **changes)))
    assert found.annotation[0] == [expected]


def test_boxes_that_are_none_are_left_out_and_counted(tmp_path, caplog):
    image(tmp_path / "a.png")
    nan = float("nan")
    boxes = [[2, 1, 12, 6], [30, 0, 40, 5], [5, 5, 5, 9], [9, 2, 3, 8], [nan, 0, 1, 1], [-5, -5, 100, 100]]
    boxes.append([])
    path = lines(tmp_path, {"image": "a.png", "boxes": boxes, "labels": ["cat"] * 7})
    with caplog.at_level(logging.WARNING):
        found = read_objects(path, SHAPE)
    check(found)
    np.testing.assert_allclose(found.boxes[0][1], [0, 0, 1, 1])  # cut off at the edges
    (said,) = caplog.messages
    assert said.startswith("5 of 7 boxes are skipped: ") and said.endswith("2 more")
    for reason in ("box 2 (outside of the image)", "box 3 (of no area)", "box 4 (reversed)"):
        assert reason in said


def test_numbers_that_no_float_holds_are_not_finite(tmp_path, caplog):
    """Python reads integers of any length from JSON."""
    image(tmp_path / "a.png")
    boxes = [[2, 1, 12, 6], [1, 1, 5, 10**400], [1, 1, -(10**400), 5]]
    path = lines(tmp_path, {"image": "a.png", "boxes": boxes, "labels": ["cat"] * 3})
    with caplog.at_level(logging.WARNING):
        found = read_objects(path, SHAPE)
    assert len(found.boxes[0]) == 1
    assert "box 2 (not finite)" in caplog.text and "box 3 (not finite)" in caplog.text


def test_broken_images_are_left_out(tmp_path, caplog):
    image(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"text")
    row = {"boxes": [[2, 1, 12, 6]], "labels": ["cat"]}
    path = lines(tmp_path, {"image": "b.png", **row}, {"image": "a.png", **row})
    with caplog.at_level(logging.WARNING):
        check(read_objects(path, SHAPE))
    assert caplog.messages[0].startswith("1 of 2 images are skipped: ")
    with pytest.raises(DataError, match=r"b\.png: expected a whole PNG or JPEG image"):
        read_objects(lines(tmp_path, {"image": "b.png", **row}), SHAPE)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"image": "../a.png"}, "expected a path within .*got '../a.png'"),
        ({"image": "/etc/passwd"}, "expected a path within .*got '/etc/passwd'"),
        ({"image": "link.png"}, "expected a path within .*got 'link.png'"),
        ({"image": 3}, 'line 1: expected an object with a path as "image"'),
        ({"image": "a.png", "boxes": [[1, 2, 3]], "labels": ["x"]}, "line 1: expected a box of four numbers"),
        ({"image": "a.png", "boxes": [["1", 2, 3, 4]], "labels": ["x"]}, "expected a box of four numbers"),
        ({"image": "a.png", "boxes": [[1, 2, 3, 4]]}, "expected a label for each of 1 boxes, got 0"),
        ({"image": "a.png", "boxes": 7}, 'line 1: expected a list as "boxes", got 7'),
        ({"image": "a.png", "boxes": [[1, 2, 3, 4]], "labels": [1]}, 'expected names as "labels"'),
        ({"image": "a.png"}, "expected boxes, there are none"),
        ({"image": "none.png"}, "none.png: cannot be read: No such file"),
    ],
)
def test_lines_that_are_refused(row, message, tmp_path):
    folder = tmp_path / "inside"
    image(folder / "a.png")
    image(tmp_path / "a.png")
    (folder / "link.png").symlink_to(tmp_path / "a.png")
    with pytest.raises(DataError, match=message) as refusal:
        read_objects(lines(folder, row), SHAPE)
    assert "\n" not in str(refusal.value)


def typed(image_id, category_id, image=1, category=3, name="cat", file="a.png"):
    """COCO's content with ids, a name and a path of these values; the first image has a cat."""
    return {
        "images": [{"id": image, "file_name": file}],
        "categories": [{"id": category, "name": name}],
        "annotations": [{"image_id": image_id, "category_id": category_id, "bbox": [2, 1, 10, 5]}],
    }


@pytest.mark.parametrize(
    "changes",
    [
        typed("1", 3),
        typed(1, "3"),
        typed(1.0, 3.0),
        typed(1, 3, image="1", category="3"),
        typed("1", "3", image=1.0, category=3.0),
        typed("007", "x3", image="007", category="x3"),
        typed("a", 3, image="a", category=3.0),
        typed(-1, "-1", image="-1", category=-1),
        typed(1, 3, file=".\\a.png"),
        typed(1, 3, file="val\\a.png"),
        typed(1, 3, file="./val/a.png"),
        {**typed(1, 3), "categories": [{"id": 3, "name": "cat"}, {"id": "3", "name": "dog"}]},
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_coco_as_tools_write_it(changes, encoding, tmp_path):
    """Ids as texts or whole floats, backslashes, a byte order mark."""
    path = coco(tmp_path, **changes)
    path.write_text(path.read_text(), encoding)
    is_nested = "val" in changes["images"][0]["file_name"]
    image((path.parent if is_nested else tmp_path) / "val" / "a.png")
    (found,) = objects.found_in(str(path))
    assert found.source.endswith("a.png") and "\\" not in found.source and os.path.isfile(found.source)
    assert found.annotation == ([[2, 1, 12, 6]], ["cat"])


@pytest.mark.parametrize(("name", "text"), [(7, "7"), (7.0, "7"), (0, "0"), ("7", "7"), ("07", "07")])
def test_numbers_are_names_of_categories(name, text, tmp_path):
    (found,) = objects.found_in(str(coco(tmp_path, **typed(1, 3, name=name))))
    assert found.annotation[1] == [text]


@pytest.mark.parametrize(
    ("iscrowd", "count"), [(0, 1), (0.0, 1), (False, 1), (None, 1), ("0", 1), (1, 0), (True, 0), ("1", 0)]
)
def test_crowds_of_coco(iscrowd, count, tmp_path):
    changes = typed(1, 3)
    changes["annotations"][0]["iscrowd"] = iscrowd
    (found,) = objects.found_in(str(coco(tmp_path, **changes)))
    assert found.annotation[1] == (["cat"] if count else [crowds.BoxDetails("cat", is_crowd=True)])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (typed("01", 3), "annotation 1 has '01' as \"image_id\""),
        (typed(1.5, 3), 'annotation 1 has 1.5 as "image_id"'),
        (typed(1, "³"), 'annotation 1 has \'³\' as "category_id"'),
        (typed(1, 3, image=1.5), '"images", item 1: expected "id" and "file_name"'),
        (typed(1, 3, name=True), '"categories", item 1: expected "id" and "name"'),
        (typed(1, 3, name=7.5), '"categories", item 1: expected "id" and "name"'),
        (typed(1, 3, file="..\\a.png"), "expected a path within"),
        (typed(1, 3, file="val\\..\\..\\a.png"), "expected a path within"),
        (typed(1, 3, file="C:\\data\\a.png"), "expected a path within"),
        (typed(1, 3, file="\\\\host\\a.png"), "expected a path within"),
        (typed(1, 3) | {"images": [{"id": 1, "file_name": "a"}, {"id": 1.0, "file_name": "b"}]},
         "item 2: the id 1 occurs before"),
        ({"images": 3}, 'expected a list of objects as "images", got 3'),
        ({"annotations": ["x"]}, 'expected a list of objects as "annotations"'),
        ({"images": [{"file_name": "a.png"}]}, '"images", item 1: expected "id" and "file_name"'),
        ({"images": [{"id": True, "file_name": "a.png"}]}, '"images", item 1: expected "id" and "file_name"'),
        ({"annotations": [{"image_id": True, "category_id": 1}]}, 'annotation 1 has True as "image_id"'),
        ({"images": [{"id": 1, "file_name": "a.png"}] * 2}, '"images", item 2: the id 1 occurs before'),
        ({"categories": [{"id": 1}]}, '"categories", item 1: expected "id" and "name"'),
        ({"annotations": [{"image_id": 9, "category_id": 1}] * 3},
         r'annotation 1 has 9 as "image_id" \(2 more annotations are alike\)'),
        ({"annotations": [{"image_id": 1, "category_id": [1]}]}, r'annotation 1 has \[1\] as "category_id"'),
        ({"annotations": [{"image_id": 1, "category_id": 1}]}, "expected a box of four numbers, got None"),
        ({"images": [{"id": 1, "file_name": "../a.png"}]}, "expected a path within"),
    ],
)  # fmt: skip
def test_coco_that_is_refused(changes, message, tmp_path):
    image(tmp_path / "val" / "a.png")
    image(tmp_path / "val" / "b.png")
    with pytest.raises(DataError, match=message) as refusal:
        read_objects(coco(tmp_path, **changes), SHAPE)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<annotation>", "expected XML"),
        ("<!DOCTYPE a [<!ENTITY b 'x'>]><annotation>&b;</annotation>", "expected XML without a DOCTYPE"),
        (XML.format("<object><name>x</name></object>"), "object 1: expected a bndbox of four numbers"),
        (XML.format(OBJECT.replace("cat", "")), "object 1: expected a name"),
        (XML.format("").replace("one.png", "../../one.png"), "expected a path within"),
        (XML.format("").replace("one.png", "..\\..\\one.png"), "expected a path within"),
        (XML.format("").replace("one.png", "two.jpg"), r"image 'two.jpg', or .*, got two.gif, two.png"),
        (XML.format(OBJECT.replace("<name>", "<difficult>2</difficult><name>")),
         "object 1: expected 0 or 1 as \"difficult\", got '2'"),
        (XML.format(""), "expected boxes, there are none"),
    ],
)  # fmt: skip
def test_voc_that_is_refused(content, message, tmp_path):
    folder = voc(tmp_path, content)
    for name in ("one.png", "two.png", "two.gif"):
        image(folder / "JPEGImages" / name)
    with pytest.raises(DataError, match=message):
        read_objects(folder, SHAPE)


def test_other_files_are_refused(tmp_path, monkeypatch):
    (tmp_path / "wide.json").write_text("[]", "utf-16")
    for name, content in (("a.json", "[1"), ("b.json", "[]"), ("a.csv", "x"), ("c.json", "\xff")):
        (tmp_path / name).write_bytes(content.encode("latin-1"))
    for name, message in (
        ("a.json", "expected JSON"),
        ("b.json", 'expected a list of objects as "images", got None'),
        ("c.json", "expected UTF-8"),
        ("wide.json", "got UTF-16; to convert: iconv"),
        ("a.csv", "expected COCO's .json, CrowdHuman's .odgt, a folder"),
        ("none", "cannot be read: No such file"),
        ("none.json", "cannot be read: No such file"),
    ):
        with pytest.raises(DataError, match=message):
            read_objects(tmp_path / name, SHAPE)
    monkeypatch.setattr(coco_file, "MAX_JSON_BYTES", 1)
    with pytest.raises(DataError, match="expected 1 bytes at most, got 2"):
        read_objects(tmp_path / "b.json", SHAPE)


def test_a_canvas_keeps_images_whole():
    canvas = Canvas(keep_aspect=True)
    images = np.full((1, 10, 20, 3), 200, "uint8")
    sizes = np.array([[10, 20], [40, 20], [8, 8]], "int64")
    np.testing.assert_array_equal(canvas.content(sizes, 8, 12), [[6, 12], [8, 4], [8, 8]])
    np.testing.assert_array_equal(Canvas().content(sizes, 8, 12), [[8, 12]] * 3)
    resized = canvas.fitted(images, 8, 12).numpy()
    assert (resized[0, :6] == 200).all() and not resized[0, 6:].any()
    inputs = canvas.inputs(resized, sizes[:1])
    assert inputs["pixel_mask"].numpy()[0].sum(0).tolist() == [6] * 12
    assert not inputs["images"].numpy()[0, 6:].any() and inputs["images"].numpy()[0, :6].all()
    with pytest.raises(ValueError, match="`crop_fraction` must be at"):
        Canvas(crop_fraction=0.5)
