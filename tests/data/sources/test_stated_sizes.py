"""Sizes that COCO and VOC state for an image and its file does not have: scaled, or skipped."""

import json
import logging

import numpy as np
import PIL.Image
import pytest

from keras_tfm.data import DataError, read_objects, read_segments
from keras_tfm.data.sources.run_lengths import packed
from keras_tfm.data.sources.stated_sizes import misfit, resized, stated_size

SHAPE = (8, 8, 3)
FILE = (16, 8)  # width and height of each file
QUARTER = [0.25, 0.5, 0.75, 1.0]  # left, top, right and bottom of each object, in parts of the sides


def image(path, size=FILE):
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new("RGB", size).save(path)


def sides(stated):
    """The left, top, right and bottom of the object in an image of the stated (width, height)."""
    return [part * side for part, side in zip(QUARTER, stated * 2, strict=True)]


def mask(stated):
    left, top, right, bottom = map(int, sides(stated))
    inside = np.zeros(stated[::-1], bool)
    inside[top:bottom, left:right] = True
    return inside


def coco(folder, stated, **entries):
    """A file of an image per stated (width, height), with one object, of which `entries` are changed."""
    images, annotations = [], []
    for id, (width, height) in enumerate(stated):
        image(folder / f"{id}.png")
        images.append({"id": id, "file_name": f"{id}.png", "width": width, "height": height})
        left, top, right, bottom = sides((width, height))
        annotations.append({
            "image_id": id,
            "category_id": 1,
            "bbox": [left, top, right - left, bottom - top],
            "segmentation": [[left, top, right, top, right, bottom, left, bottom]],
        } | entries)  # fmt: skip
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "cat"}]}
    (folder / "x.json").write_text(json.dumps(content))
    return folder / "x.json"


def voc(folder, stated):
    (folder / "Annotations").mkdir()
    for id, size in enumerate(stated):
        image(folder / "JPEGImages" / f"{id}.png")
        left, top, right, bottom = sides(size)
        box = f"<xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax>"
        (folder / "Annotations" / f"{id}.xml").write_text(
            f"<annotation><size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>"
            f"<object><name>cat</name><bndbox>{box}</bndbox></object></annotation>"
        )
    return folder


@pytest.mark.parametrize(
    ("stated", "size", "fits"),
    [
        (None, (8, 16), True),
        ((8, 16), (8, 16), True),
        ((16, 32), (8, 16), True),
        ((4, 8), (8, 16), True),
        ((375, 500), (188, 250), True),  # 187.5 rounded up, or down
        ((375, 500), (187, 250), True),
        ((375, 500), (376, 500), True),
        ((375, 500), (377, 500), False),
        ((375, 500), (333, 500), False),
        ((375, 500), (500, 375), False),  # turned
        ((40, 41), (41, 40), False),
        ((500, 500), (400, 500), False),  # cropped
        ((300, 400), (640, 640), False),  # stretched to a square
    ],
)
def test_which_sizes_are_those_of_resized_images(stated, size, fits):
    assert (misfit(stated, size) is None) == fits


@pytest.mark.parametrize("files", [coco, voc])
def test_boxes_are_scaled_or_skipped_with_their_image(files, tmp_path, caplog):
    stated = [(16, 8), (32, 16), (8, 4), (160, 80), (8, 16), (32, 8), (200, 8)]
    with caplog.at_level(logging.WARNING):
        found = read_objects(files(tmp_path, stated), SHAPE)
    assert found.sizes.tolist() == [[8, 16]] * 4 and found.images.shape == (4, *SHAPE)
    np.testing.assert_allclose(np.concatenate(found.boxes), [QUARTER] * 4, atol=1e-6)
    skipped, scaled = caplog.messages
    assert skipped.startswith("3 of 7 images are skipped: ")
    assert "(expected an image of 8 x 16, as stated, got 16 x 8)" in skipped
    assert scaled.startswith(
        "3 of 4 images do not have the stated size, annotations of that size are scaled: "
    )
    assert "(stated 32 x 16, got 16 x 8), " in scaled


@pytest.mark.parametrize("files", [coco, voc])
@pytest.mark.parametrize("unknown", [(0, 0), (-1, -1), ("", ""), (16, "")])
def test_sizes_that_are_not_known_are_not_compared(files, unknown, tmp_path, caplog):
    path = files(tmp_path, [FILE])
    for file in tmp_path.rglob("*.[jx]*"):
        content = file.read_text()
        for name, was, now in zip(("width", "height"), FILE, unknown, strict=True):
            content = content.replace(f"<{name}>{was}<", f"<{name}>{now}<")
            content = content.replace(f'"{name}": {was}', f'"{name}": {json.dumps(now)}')
        file.write_text(content)
    with caplog.at_level(logging.WARNING):
        found = read_objects(path, SHAPE)
    np.testing.assert_allclose(found.boxes[0], [QUARTER], atol=1e-6)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("width", "height", "size"),
    [
        (16, 8, (8, 16)),
        (16.0, "8", (8, 16)),
        ("16.0", 8, (8, 16)),
        (None, 8, None),
        (16, 0, None),
        (None, None, None),
    ],
)
def test_a_stated_size(width, height, size):
    assert stated_size(width, height, "x") == size


@pytest.mark.parametrize("width", [True, 1.5, "wide", [16], float("nan")])
def test_what_is_no_size_is_refused(width, tmp_path):
    path = coco(tmp_path, [FILE])
    content = json.loads(path.read_text())
    content["images"][0]["width"] = width
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match='image 0: expected a whole number as "width", got'):
        read_objects(path, SHAPE)


@pytest.mark.parametrize("read", [read_objects, read_segments])
def test_without_an_image_of_its_size_a_file_is_refused(read, tmp_path):
    with pytest.raises(DataError, match="image 0: expected an image of 8 x 16, as stated, got 16 x 8"):
        read(coco(tmp_path, [FILE[::-1]] * 2), SHAPE)


@pytest.mark.parametrize("kind", ["polygons", "runs", "packed runs", "runs of the file"])
@pytest.mark.parametrize("stated", [(16, 8), (32, 16), (8, 4)])
def test_segments_are_scaled(kind, stated, tmp_path, caplog):
    drawn = mask(FILE if kind == "runs of the file" else stated)
    runs = np.diff(np.flatnonzero(np.diff(drawn.T.ravel(), prepend=~drawn[0, 0], append=~drawn[-1, -1])))
    counts = packed(drawn).decode("ascii") if kind == "packed runs" else runs.tolist()
    encoded = {"segmentation": {"size": list(drawn.shape), "counts": counts}}
    path = coco(tmp_path, [stated], **({} if kind == "polygons" else encoded))
    with caplog.at_level(logging.WARNING):
        ((masks, _),) = read_segments(path, SHAPE).segments
    np.testing.assert_array_equal(masks, [mask(FILE)])
    assert len(caplog.messages) == (stated != FILE)


@pytest.mark.parametrize(
    ("stated", "drawn", "message"),
    [
        ((32, 16), (32, 16), None),
        ((32, 16), FILE, None),
        ((8, 4), (8, 4), None),
        ((32, 16), (8, 4), "expected a mask of 16 x 8, as the image, got 8 x 4"),
        ((8, 16), (8, 16), "expected a mask of 16 x 8, as the image, got 8 x 16"),
    ],
)
def test_panoptic_masks_are_scaled(stated, drawn, message, tmp_path):
    info = {"file_name": "a.png", "segments_info": [{"id": 5, "category_id": 1}]}
    path = coco(tmp_path, [stated], **info)
    colours = np.zeros((*drawn[::-1], 3), "uint8")
    colours[mask(drawn), 0] = 5
    PIL.Image.fromarray(colours).save(tmp_path / "a.png")
    if message is not None:
        with pytest.raises(DataError, match=message):
            read_segments(path, SHAPE)
        return
    ((masks, _),) = read_segments(path, SHAPE).segments
    np.testing.assert_array_equal(masks, [mask(FILE)])


def test_masks_are_resized_to_the_nearest_pixels():
    values = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(resized(values, (4, 6)), values.repeat(2, 0).repeat(2, 1))
    np.testing.assert_array_equal(resized(values, (2, 1)), [[1], [4]])
    assert resized(values, (2, 3)) is values
