"""Images that their EXIF turns: read upright in training, in a graph and in serving; boxes and masks too."""

import io
import json
import logging
import struct

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tfm.data import DataError, ImageFiles, Preprocessing, read_masks, read_objects, read_segments
from keras_tfm.data.sources.image_files import decoded_or_problem, size_in
from keras_tfm.data.sources.mask_files import encoded_mask, encoded_numbers
from keras_tfm.data.sources.objects import turned_boxes
from keras_tfm.data.sources.orientations import orientation_in
from keras_tfm.data.sources.preprocessing import decode_pixels
from keras_tfm.data.sources.run_lengths import packed
from keras_tfm.data.sources.stated_sizes import drawn_on
from keras_tfm.serving.image_headers import Header, header_of, orientation_of, turned
from keras_tfm.serving.image_readers import Images

ORIENTATIONS = range(1, 9)
KINDS = {"JPEG": {"quality": 95, "subsampling": 0}, "PNG": {}, "WEBP": {"lossless": True}}
ANY = tf.TensorSpec([], tf.string)
in_graph = tf.function(lambda data: decode_pixels(data, 3), [ANY], autograph=False)  # as in exports
orientation_in_graph = tf.function(orientation_in, [ANY], autograph=False)


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, "uint8")


def exif_of(orientation, order="<", others=0, kind=3, place=8):
    """A block of EXIF with an orientation after so many other entries."""
    entry = struct.pack(f"{order}HHIHH", 0x0112, kind, 1, orientation, 0)
    entries = [struct.pack(f"{order}HHII", 0x0100 + n, 4, 1, 7) for n in range(others)] + [entry]
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", place)
    body = struct.pack(f"{order}H", others + 1) + b"".join(entries) + bytes(4)
    return b"Exif\0\0" + head + bytes(place - 8) + body


def encoded(pixels, kind="JPEG", exif=b""):
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, kind, exif=exif, **KINDS[kind])
    return buffer.getvalue()


def with_segments(jpeg, *segments):
    """A JPEG with these segments, (marker, content), in front of all others."""
    before = [bytes([0xFF, marker]) + struct.pack(">H", 2 + len(text)) + text for marker, text in segments]
    return jpeg[:2] + b"".join(before) + jpeg[2:]


@settings(max_examples=60, deadline=None)
@given(
    orientation=st.integers(1, 8),
    kind=st.sampled_from(list(KINDS)),
    order=st.sampled_from("<>"),
    others=st.integers(0, 3),
    sides=st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
def test_images_are_turned_as_by_pillow_wherever_they_are_decoded(orientation, kind, order, others, sides):
    stored = noise(*sides, 3)
    data = encoded(stored, kind, exif_of(orientation, order, others))
    upright = np.asarray(PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(data))).convert("RGB"))
    assert size_in(data) == upright.shape[:2]
    trained = decoded_or_problem(data, lambda x: Preprocessing().decoded(x, *upright.shape))
    exported = in_graph(data).numpy()
    served = Images(None, upright.shape, "bilinear", 1.0, False).row(data)
    np.testing.assert_array_equal(trained, exported)
    np.testing.assert_array_equal(served, (upright / 255).astype("float32"))
    if kind == "JPEG":  # whose pixels libraries compute with other roundings
        upright = turned(decode_pixels(encoded(stored), 3).numpy(), orientation)
    np.testing.assert_array_equal(trained, upright)


JPEG = encoded(noise(6, 4, 3))
SIX = exif_of(6)
STATED = {  # {what: (file, its orientation)}
    "none": (JPEG, 1),
    "after much": (with_segments(JPEG, (0xE2, bytes(65_533)), (0xFE, bytes(65_533)), (0xE1, SIX)), 6),
    "after XMP": (with_segments(JPEG, (0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>"), (0xE1, SIX)), 6),
    "after junk": (JPEG[:2] + b"\0\0\0" + with_segments(JPEG, (0xE1, SIX))[2:], 6),
    "after filling": (JPEG[:2] + b"\xff\xff" + with_segments(JPEG, (0xE1, SIX))[2:], 6),
    "twice": (with_segments(JPEG, (0xE1, SIX), (0xE1, exif_of(3))), 6),
    "far": (with_segments(JPEG, (0xE1, exif_of(6, place=5000))), 6),
    "another type": (with_segments(JPEG, (0xE1, exif_of(6, kind=2))), 1),
    "0": (with_segments(JPEG, (0xE1, exif_of(0))), 1),
    "9": (with_segments(JPEG, (0xE1, exif_of(9))), 1),
    "no TIFF": (with_segments(JPEG, (0xE1, b"Exif\0\0XX*\0" + bytes(20))), 1),
    "empty": (with_segments(JPEG, (0xE1, b"Exif\0\0")), 1),
    "cut off": (with_segments(JPEG, (0xE1, SIX[:-10])), 1),
    "outside": (with_segments(JPEG, (0xE1, SIX[:10] + b"\xff\xff\xff\xff" + SIX[14:])), 1),
    "PNG": (encoded(noise(6, 4, 3), "PNG", SIX), 6),
    "WebP": (encoded(noise(6, 4, 3), "WEBP", SIX), 6),
}  # fmt: skip


@pytest.mark.parametrize("what", STATED)
def test_the_orientation_is_the_same_on_the_host_and_in_a_graph(what):
    data, expected = STATED[what]
    assert header_of(data).orientation == orientation_in_graph(data).numpy() == expected
    assert header_of(data).size == ((4, 6) if expected == 6 else (6, 4))


@settings(max_examples=80, deadline=None)
@given(
    data=st.sampled_from([STATED[what][0] for what in ("twice", "PNG", "WebP")]),
    edits=st.lists(st.tuples(st.integers(0, 140), st.integers(0, 255)), max_size=4),
)
def test_damaged_headers_are_read_alike(data, edits):
    damaged = bytearray(data)
    for place, value in edits:
        damaged[place] = value
    header = header_of(bytes(damaged))
    found = orientation_in_graph(bytes(damaged)).numpy()
    assert header is None or header.orientation == found


def test_bytes_of_exif_of_any_length_are_read():
    for length in range(len(SIX)):
        assert orientation_of(SIX[:length]) in (1, 6)


def test_files_that_are_decoded_again_are_turned(tmp_path):
    for orientation in ORIENTATIONS:
        (tmp_path / f"{orientation}.jpg").write_bytes(encoded(noise(4, 4, 3), exif=exif_of(orientation)))
    files = ImageFiles(sorted(tmp_path.iterdir()), (4, 4, 3))
    again = np.stack(list(files.dataset(tf.data.Dataset.range(8))))
    np.testing.assert_array_equal(again, np.asarray(files))
    assert len({image.tobytes() for image in again}) == 8


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_boxes_are_turned_as_pixels(orientation):
    stored = np.zeros((8, 4), bool)
    stored[1:3, 2:3] = True
    rows, columns = np.nonzero(upright := turned(stored, orientation))
    height, width = upright.shape
    expected = [
        columns.min() / width,
        rows.min() / height,
        (1 + columns.max()) / width,
        (1 + rows.max()) / height,
    ]
    found = turned_boxes(np.array([[2 / 4, 1 / 8, 3 / 4, 3 / 8]], "float32"), orientation)
    np.testing.assert_allclose(found, [expected], atol=1e-6)


@pytest.mark.parametrize(
    ("orientation", "stated", "expected"),
    [
        (1, (6, 4), False),
        (1, None, False),
        (1, (4, 6), "expected an image of"),
        (6, (4, 6), False),
        (6, (6, 4), True),
        (6, (60, 40), True),
        (6, (40, 60), False),
        (6, (5, 5), "expected an image of"),
        (6, None, "turned by the orientation 6 in its EXIF, and no size says"),
        (3, (6, 4), "turned by the orientation 3 in its EXIF, and no size says"),
    ],
)  # fmt: skip
def test_the_stated_size_says_what_annotations_are_drawn_on(orientation, stated, expected):
    header = Header((6, 4), orientation)
    found = drawn_on(header, stated)
    if isinstance(expected, bool):
        assert found == (header if expected else Header(header.size))
    else:
        assert found.startswith(expected)
    header = Header((40, 41), 6)
    assert drawn_on(header, (40, 41)) == header and drawn_on(header, (41, 40)) == Header((41, 40))


UPRIGHT = np.zeros((8, 16), bool)  # of an image that orientation 6 turned; its one object
UPRIGHT[4:8, 4:12] = True
STORED = turned(UPRIGHT, 8)  # the way back
PARTS = [0.25, 0.5, 0.75, 1.0]


def photo(path, orientation=6):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(np.zeros((*STORED.shape, 3), "uint8"), exif=exif_of(orientation)))


def corners(mask):
    rows, columns = np.nonzero(mask)
    return [int(x) for x in (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)]


def coco(folder, masks, polygons=True):
    """A file of a photo per mask, with one object, drawn on an image of the mask's size."""
    images, annotations = [], []
    for id, mask in enumerate(masks):
        photo(folder / f"{id}.jpg")
        (height, width), (left, top, right, bottom) = mask.shape, corners(mask)
        images.append({"id": id, "file_name": f"{id}.jpg", "width": width, "height": height})
        runs = {"size": [height, width], "counts": packed(mask).decode()}
        corner = [left, top, right, top, right, bottom, left, bottom]
        annotations.append({
            "image_id": id, "category_id": 1, "bbox": [left, top, right - left, bottom - top],
            "segmentation": [corner] if polygons else runs,
        })  # fmt: skip
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "cat"}]}
    (folder / "x.json").write_text(json.dumps(content))
    return folder / "x.json"


def voc(folder, masks):
    (folder / "Annotations").mkdir()
    for id, mask in enumerate(masks):
        photo(folder / "JPEGImages" / f"{id}.jpg")
        (height, width), (left, top, right, bottom) = mask.shape, corners(mask)
        box = f"<xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax>"
        (folder / "Annotations" / f"{id}.xml").write_text(
            f"<annotation><size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
            f"<object><name>cat</name><bndbox>{box}</bndbox></object></annotation>"
        )
    return folder


def json_lines(folder, masks):
    rows = []
    for id, mask in enumerate(masks):
        photo(folder / f"{id}.jpg")
        size = {"width": mask.shape[1], "height": mask.shape[0]}
        rows.append({"image": f"{id}.jpg", "boxes": [corners(mask)], "labels": ["cat"], **size})
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "x.jsonl"


@pytest.mark.parametrize("files", [coco, voc, json_lines])
def test_boxes_of_stored_and_of_turned_photos(files, tmp_path, caplog):
    masks = [UPRIGHT, STORED, np.kron(STORED, np.ones((2, 2), bool)), np.ones((8, 8), bool)]
    with caplog.at_level(logging.WARNING):
        found = read_objects(files(tmp_path, masks), (8, 8, 3))
    np.testing.assert_allclose(np.concatenate(found.boxes), [PARTS] * 3, atol=1e-6)
    assert found.sizes.tolist() == [[8, 16]] * 3
    assert caplog.messages[0].startswith("1 of 4 images are skipped: ")


@pytest.mark.parametrize("polygons", [True, False])
def test_segments_of_stored_and_of_turned_photos(polygons, tmp_path):
    found = read_segments(coco(tmp_path, [UPRIGHT, STORED], polygons), (8, 8, 3))
    assert found.sizes.tolist() == [[8, 16]] * 2
    for (mask,), _ in found.segments:
        np.testing.assert_array_equal(mask, UPRIGHT)


def test_panoptic_masks_of_stored_and_of_turned_photos(tmp_path):
    images, annotations = [], []
    for id, mask in enumerate([UPRIGHT, STORED]):
        photo(tmp_path / f"{id}.jpg")
        (tmp_path / f"{id}.png").write_bytes(encoded_numbers(mask.astype("int32")).numpy())
        images.append({"id": id, "file_name": f"{id}.jpg"})
        segments = [{"id": 1, "category_id": 1}]
        annotations.append({"image_id": id, "file_name": f"{id}.png", "segments_info": segments})
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "cat"}]}
    (tmp_path / "x.json").write_text(json.dumps(content))
    for (mask,), _ in read_segments(tmp_path / "x.json", (8, 8, 3)).segments:
        np.testing.assert_array_equal(mask, UPRIGHT)


def test_masks_of_stored_and_of_turned_photos(tmp_path, caplog):
    for name, mask, orientation in (("a", UPRIGHT, 6), ("b", STORED, 6), ("c", STORED, 3), ("d", STORED, 1)):
        photo(tmp_path / "images" / f"{name}.jpg", orientation)
        (tmp_path / "masks").mkdir(exist_ok=True)
        (tmp_path / "masks" / f"{name}.png").write_bytes(encoded_mask(mask.astype("uint8")))
    with caplog.at_level(logging.WARNING):
        found = read_masks(tmp_path, (8, 8, 3))
    assert found.sizes.tolist() == [[8, 16], [8, 16], [16, 8]]
    for mask, expected in zip(found.masks, (UPRIGHT, UPRIGHT, STORED), strict=True):
        np.testing.assert_array_equal(mask, expected)
    assert "1 of 4 images are skipped: " in caplog.text and "orientation 3 in its EXIF" in caplog.text


def test_without_a_size_boxes_of_turned_photos_are_refused(tmp_path):
    photo(tmp_path / "a.jpg")
    row = {"image": "a.jpg", "boxes": [[0, 0, 2, 2]], "labels": ["cat"]}
    (tmp_path / "x.jsonl").write_text(json.dumps(row))
    with pytest.raises(DataError, match="line 1: turned by the orientation 6 in its EXIF, and no size says"):
        read_objects(tmp_path / "x.jsonl", (8, 8, 3))
