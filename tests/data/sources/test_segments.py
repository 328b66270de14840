"""Segments out of COCO's instances and panoptic files: masks by hand, what is left out, what is refused."""

import copy
import json
import logging

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm.data import DataError, SegmentSets, read_segments
from keras_tfm.data.sources.mask_files import decoded_numbers, encoded_numbers
from keras_tfm.data.sources.run_lengths import mask_of, packed, run_lengths, unpacked

SHAPE = (4, 6, 1)
SIZE = (4, 6)
SQUARE = [[1, 0, 3, 0, 3, 2, 1, 2]]  # of the columns 1 and 2, the rows 0 and 1
RUNS = [4, 2, 2, 2, 14]  # the same, column by column
IMAGES = [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}]
CATEGORIES = [{"id": 3, "name": "cat", "isthing": 1}, {"id": 9, "name": "sky", "isthing": 0}]


def square():
    mask = np.zeros(SIZE, bool)
    mask[:2, 1:3] = True
    return mask


def write(folder, annotations, name="instances_val.json", **parts):
    content = {"images": IMAGES, "categories": CATEGORIES, "annotations": annotations} | parts
    (folder / "val").mkdir(exist_ok=True)
    for image in ("a", "b"):
        PIL.Image.fromarray(np.full(SIZE, 200, "uint8")).save(folder / "val" / f"{image}.png")
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def instance(segmentation, image=1, category=3, **more):
    return {"image_id": image, "category_id": category, "segmentation": segmentation} | more


def colours(path, numbers):
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = np.asarray(numbers)
    parts = [numbers % 256, numbers // 256 % 256, numbers // 256**2]
    PIL.Image.fromarray(np.stack(parts, -1).astype("uint8")).save(path)


MAP = [[70_000] * 3 + [5] * 3] * 2 + [[0] * 6] * 2


def panoptic(folder, numbers=MAP, infos=None, image=1, **parts):
    """A panoptic file of one annotation, and its mask beside it."""
    infos = [{"id": 70_000, "category_id": 3}, {"id": 5, "category_id": 9}] if infos is None else infos
    annotation = {"image_id": image, "file_name": "a.png", "segments_info": infos}
    colours(folder / "panoptic_val" / "a.png", numbers)
    return write(folder, [annotation | parts], "panoptic_val.json")


def test_masks_by_hand():
    assert np.array_equal(mask_of(SQUARE, SIZE), square())
    text = packed(square()).decode("ascii")
    for counts in (RUNS, text):
        assert np.array_equal(mask_of({"size": [4, 6], "counts": counts}, SIZE), square())
    assert run_lengths(text) == RUNS
    two = [[0, 0, 1, 0, 1, 4, 0, 4], [4, 1, 9, 1, 9, 2, 4, 2]]  # the first column; a row beyond the edge
    expected = np.zeros(SIZE, bool)
    expected[:, 0] = expected[1, 4:] = True
    assert np.array_equal(mask_of(two, SIZE), expected)


def test_polygons_are_cut_at_the_edges():
    triangle = [[-4, 0, 4, 0, 4, 4]]  # the line from (-4, 0) to (4, 4) enters the image at (0, 2)
    expected = [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 0, 0]]
    assert np.array_equal(mask_of(triangle, SIZE), expected)
    assert not mask_of([[7, 1, 9, 1, 9, 3, 7, 3]], SIZE).any()
    assert mask_of([[-1e300, -1e300, 1e300, -1e300, 1e300, 1e300, -1e300, 1e300]], SIZE).all()


def test_numbers_are_colours_in_and_out_of_graphs():
    numbers = np.array([[0, 255, 256], [70_000, 65_536, 2**24 - 1]], "int32")
    for encode in (encoded_numbers, tf.function(encoded_numbers, autograph=False)):
        assert np.array_equal(decoded_numbers(encode(numbers).numpy()), numbers)


@pytest.mark.parametrize("seed", range(4))
def test_any_mask_is_packed_and_unpacked(seed):
    rng = np.random.default_rng(seed)
    size = tuple(int(x) for x in rng.integers(1, 60, 2))
    mask = rng.random(size) < rng.random()
    runs = packed(mask)
    assert np.array_equal(unpacked(runs, size), mask)
    assert np.array_equal(mask_of({"size": list(size), "counts": runs.decode("ascii")}, size), mask)
    assert sum(run_lengths(runs.decode("ascii"))) == mask.size


def test_instances(tmp_path, caplog):
    annotations = [instance(SQUARE), instance({"size": [4, 6], "counts": RUNS}, category=9)]
    annotations += [instance({"size": [4, 6], "counts": [0, 24]}, iscrowd=1), instance(None, iscrowd=1)]
    with caplog.at_level(logging.WARNING):
        data = read_segments(write(tmp_path, annotations), SHAPE)
    (first, labels), (none, nothing) = data.segments
    assert np.array_equal(first, [square()] * 2) and labels == ["cat", "sky"]
    assert none.shape == (0, *SIZE) and nothing == [] and data.segments.counts == [2, 0]
    assert (data.segments.kind, data.segments.names, data.segments.stuff) == ("instances", ("cat", "sky"), ())
    assert data.images.shape == (2, *SHAPE) and data.sizes.tolist() == [list(SIZE)] * 2
    (((name, runs),), no_crowds) = data.segments.crowds
    assert name == "cat" and unpacked(runs, SIZE).all() and no_crowds == [] and not caplog.messages
    chosen = data.segments[np.array([1, 0])]
    assert (
        chosen.counts == [0, 2]
        and chosen.crowds == data.segments.crowds[::-1]
        and list(chosen.identity()) != list(data.segments.identity())
    )


@pytest.mark.parametrize("folder", [None, "colours"])
def test_panoptic_segments(folder, tmp_path, caplog):
    path = panoptic(tmp_path)
    paths = [path]
    if folder is not None:
        (tmp_path / "panoptic_val").rename(tmp_path / folder)
        paths.append(tmp_path / folder)
    with caplog.at_level(logging.WARNING):
        data = read_segments(paths, SHAPE)
    ((masks, labels),) = data.segments
    assert labels == ["cat", "sky"] and not caplog.messages
    assert np.array_equal(masks, [np.array(MAP) == 70_000, np.array(MAP) == 5])
    assert (data.segments.kind, data.segments.stuff) == ("panoptic", ("sky",))


def test_the_first_mask_may_be_missing(tmp_path, caplog):
    path = panoptic(tmp_path)
    content = json.loads(path.read_text())
    first = content["annotations"][0] | {"image_id": 2, "file_name": "b.png"}
    path.write_text(json.dumps(content | {"annotations": [first, *content["annotations"]]}))
    (tmp_path / "panoptic_val" / "a.png").rename(tmp_path / "a.png")
    data = read_segments(path, SHAPE)
    assert [labels for _, labels in data.segments] == [["cat", "sky"]]
    assert "1 of 2 images are skipped" in caplog.text


@pytest.mark.parametrize("kind", ["instances", "panoptic"])
def test_ids_names_and_paths_as_tools_write_them(kind, tmp_path):
    """Texts and whole floats as ids, numbers as names, backslashes, a byte order mark."""
    if kind == "instances":
        path = write(tmp_path, [instance(SQUARE, "1", 3.0)])
    else:
        infos = [{"id": "70000", "category_id": "3"}, {"id": 5.0, "category_id": 9.0}]
        path = panoptic(tmp_path, infos=infos, image="1", file_name="sub\\a.png")
        colours(tmp_path / "panoptic_val" / "sub" / "a.png", MAP)
    content = json.loads(path.read_text())
    content["images"] = [{"id": 1, "file_name": "val\\a.png"}]
    content["categories"] = [{"id": "3", "name": 7}, {"id": 9, "name": "sky", "isthing": 0}]
    path.write_text(json.dumps(content), "utf-8-sig")
    data = read_segments(path, SHAPE)
    ((masks, labels),) = data.segments
    assert data.segments.names == ("7", "sky") and labels == ["7", "sky"][: len(masks)]
    assert np.array_equal(masks[0], square() if kind == "instances" else np.array(MAP) == 70_000)


def test_crowds_and_segments_without_area(tmp_path, caplog):
    infos = [{"id": 70_000, "category_id": 3, "iscrowd": 1}, {"id": 5, "category_id": 9}]
    infos += [{"id": 6, "category_id": 3}]
    with caplog.at_level(logging.WARNING):
        data = read_segments(panoptic(tmp_path, infos=infos), SHAPE)
    ((masks, labels),) = data.segments
    assert labels == ["sky"] and masks.sum() == 6
    crowds, areas = caplog.messages
    assert crowds.endswith("1 crowds are skipped")
    assert areas.startswith("1 of 2 segments are skipped: ") and areas.endswith("segment 6 (of no area)")


def test_segments_that_are_none_are_left_out_and_counted(tmp_path, caplog):
    wrong = [
        {"size": [6, 4], "counts": RUNS},
        {"size": [4, 6], "counts": [4, 2]},
        {"size": [4, 6], "counts": "~~"},
        [[1, 1, 1, 1, 1, 1]],
        [[0, 0, float("inf"), 0, 1, 1]],
        [[0, 0, 10**400, 0, 1, 1]],
    ]
    path = write(tmp_path, [instance(SQUARE), *map(instance, wrong)])
    with caplog.at_level(logging.WARNING):
        data = read_segments(path, SHAPE)
    assert data.segments.counts == [1, 0]
    (said,) = caplog.messages
    assert said.startswith("6 of 7 segments are skipped: ") and said.endswith("3 more")
    assert "segment 2 (an RLE of 4 x 6, the image has 6 x 4)" in said
    assert "segment 3 (an RLE whose runs are not 24 pixels)" in said
    reasons = [mask_of(each, SIZE) for each in wrong[2:]]
    assert [isinstance(x, str) for x in reasons] == [True, False, True, True] and not reasons[1].any()


def test_masks_that_fit_no_image_are_left_out_and_counted(tmp_path, caplog):
    path = panoptic(tmp_path)
    content = json.loads(path.read_text())
    second = {**content["annotations"][0], "image_id": 2, "file_name": "b.png"}
    path.write_text(json.dumps(content | {"annotations": [content["annotations"][0], second]}))
    for numbers, reason in (
        ([[5] * 6] * 5, "expected a mask of 6 x 4, as the image, got 6 x 5"),
        ([[7, 8] + [5] * 4] * 4, "b.png: the number 7 and 1 more in the mask is no segment's"),
    ):
        caplog.clear()
        colours(tmp_path / "panoptic_val" / "b.png", numbers)
        with caplog.at_level(logging.WARNING):
            assert read_segments(path, SHAPE).segments.counts == [2]
        (said,) = caplog.messages
        assert said.startswith("1 of 2 images are skipped: ") and reason in said
    (tmp_path / "panoptic_val" / "a.png").write_bytes(b"text")
    with pytest.raises(DataError, match=r"a\.png: expected a PNG"):
        read_segments(path, SHAPE)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ([instance(SQUARE, image=8)] * 2, r'1 has 8 as "image_id" \(1 more annotations are alike\)'),
        ([instance(SQUARE, category=8)], 'annotation 1 has 8 as "category_id"'),
        ([instance(None)], 'image 1, segment 1: expected polygons or an RLE as "segmentation", got None'),
        ([instance([[1, 2, 3]])], r"expected polygons of three points or more, x and y, got \[1, 2, 3\]"),
        ([instance([["1", 2, 3, 4, 5, 6]])], "expected polygons of three points"),
        ([instance({"counts": RUNS})], r'expected \[height, width\] as the "size" of an RLE, got None'),
        ([instance({"size": [4, 6], "counts": 3})], 'expected run lengths as the "counts" of an RLE, got 3'),
        ([], "expected segments, there are none"),
        ([instance(SQUARE, iscrowd=1)], "expected segments of single objects, there are none"),
    ],
)
def test_instances_that_are_refused(annotations, message, tmp_path):
    with pytest.raises(DataError, match=message) as refusal:
        read_segments(write(tmp_path, annotations), SHAPE)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"infos": [{"id": 5, "category_id": 4}] * 1}, "a segment of the image 1 has 4 as \"category_id\""),
        ({"infos": [{"category_id": 3}]}, 'expected an "id" of its own for a segment, got None'),
        ({"infos": [{"id": 5, "category_id": 3}] * 2}, 'expected an "id" of its own for a segment, got 5'),
        ({"infos": [{"id": 0, "category_id": 3}]}, 'expected an "id" of its own for a segment, got 0'),
        ({"infos": 3}, 'expected a list of objects as "segments_info", got 3'),
        ({"file_name": 3}, 'expected a PNG as "file_name", got 3'),
        ({"file_name": "../a.png"}, "expected a path within .*got '../a.png'"),
        ({"image": 7}, 'annotation 1 has 7 as "image_id"'),
        ({"file_name": "none.png"}, "none.png: cannot be read: No such file"),
    ],
)  # fmt: skip
def test_panoptic_files_that_are_refused(changes, message, tmp_path):
    with pytest.raises(DataError, match=message) as refusal:
        read_segments(panoptic(tmp_path, **changes), SHAPE)
    assert "\n" not in str(refusal.value)


def test_other_refusals(tmp_path):
    first = panoptic(tmp_path)
    with pytest.raises(DataError, match=r"expected panoptic segments as in .*, got instances"):
        read_segments([first, write(tmp_path, [instance(SQUARE)])], SHAPE)
    with pytest.raises(DataError, match=r"expected COCO's instances, a \.json"):
        read_segments([tmp_path / "val"], SHAPE)
    for image in ("../a.png", "/etc/passwd"):
        path = write(tmp_path, [instance(SQUARE)], images=[{"id": 1, "file_name": image}])
        with pytest.raises(DataError, match="expected a path within"):
            read_segments(path, SHAPE)
    path = write(tmp_path, [instance(SQUARE)], categories=[{"id": 3, "name": "cat", "isthing": "x"}])
    with pytest.raises(DataError, match='"categories", item 1: expected 0 or 1 as "isthing", got \'x\''):
        read_segments(path, SHAPE)
    many = [{"id": number, "name": str(number)} for number in range(255)]
    with pytest.raises(DataError, match="expected 254 categories at most, got 255"):
        read_segments(write(tmp_path, [instance(SQUARE)], categories=many), SHAPE)


def test_sets_of_arrays():
    sets = SegmentSets.of([np.stack([square(), ~square()])], [["b", "a"]])
    assert sets.names == ("a", "b") and sets.sizes == [SIZE]
    other = SegmentSets.of([square()[None]], [["b"]], ["b", "c"])
    assert next(other.identity()) != next(sets.identity())
    crowded = copy.copy(sets)
    crowded.crowds = [[("a", sets.segments[0][1][1])]]
    assert list(crowded.identity()) != list(sets.identity())
