"""Masks out of folders, JSON lines and TFDS: which PNGs are values, what is left out, and what is refused."""

import json
import logging
import os

import numpy as np
import PIL.Image
import pytest

from keras_tfm.data import DataError, MaskFiles, read_masks
from keras_tfm.data.sources.mask_files import as_grey, decoded_mask, encoded_mask

SHAPE = (8, 8, 3)
VALUES = np.arange(15, dtype="uint8").reshape(3, 5)


def write(folder, name, values=VALUES, size=(5, 3), mode="L"):
    """An image images/NAME.jpg of a `size`, and the mask of these values."""
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    PIL.Image.new("RGB", size).save(folder / "images" / f"{name}.jpg")
    if values is not None:
        PIL.Image.fromarray(values).convert(mode).save(folder / "masks" / f"{name}.png")


def lines(folder, *rows):
    path = folder / "masks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_changed_masks_are_recognised_and_copies_are_not(tmp_path):
    def identity(folder):
        return list(MaskFiles([folder / "a.png", encoded_mask(VALUES)], {0: "x"}).identity())

    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.png").write_bytes(encoded_mask(VALUES))
        os.utime(tmp_path / folder / "a.png", (len(folder), ord(folder[0])))
    before = identity(tmp_path / "one")
    assert identity(tmp_path / "two") == before
    data = (tmp_path / "one" / "a.png").read_bytes()
    (tmp_path / "one" / "a.png").write_bytes(data[:-20] + bytes(20))  # of the same size
    assert sum(x != y for x, y in zip(identity(tmp_path / "one"), before, strict=True)) == 1


def test_every_png_of_one_value_a_pixel_is_read(tmp_path):
    grey = PIL.Image.fromarray(VALUES)
    palette = PIL.Image.fromarray(VALUES).convert("P")
    palette.putpalette(np.random.default_rng(0).integers(0, 256, 768, "uint8").tolist())
    kinds = {"L": grey, "P": palette, "RGB": grey.convert("RGB"), "LA": grey.convert("LA")}
    kinds["I;16"] = PIL.Image.fromarray(VALUES.astype("uint16"))
    for kind, image in kinds.items():
        image.save(tmp_path / "a.png")
        np.testing.assert_array_equal(decoded_mask(str(tmp_path / "a.png")), VALUES, err_msg=kind)
    for bits, most in ((1, 2), (2, 4), (4, 16)):
        image = PIL.Image.fromarray(VALUES % most).convert("P")
        image.putpalette([0, 9, 200] * 256)
        image.save(tmp_path / "a.png", bits=bits)
        assert (tmp_path / "a.png").read_bytes()[24] == bits
        np.testing.assert_array_equal(decoded_mask(str(tmp_path / "a.png")), VALUES % most)
    np.testing.assert_array_equal(decoded_mask(encoded_mask(VALUES)), VALUES)


def test_what_is_no_mask_is_told(tmp_path):
    image = PIL.Image.fromarray(VALUES)
    image.save(tmp_path / "a.png")
    whole = (tmp_path / "a.png").read_bytes()
    palette = PIL.Image.fromarray(VALUES).convert("P")
    palette.save(tmp_path / "p.png")
    cut = (tmp_path / "p.png").read_bytes()[:-40]
    image.save(tmp_path / "a.jpg")
    colours = np.random.default_rng(0).integers(0, 256, (3, 5, 3), "uint8")
    PIL.Image.fromarray(colours).save(tmp_path / "c.png")
    PIL.Image.fromarray(VALUES.astype("uint16") + 300).save(tmp_path / "w.png")
    for source, message in (
        ((tmp_path / "a.jpg").read_bytes(), "expected a PNG"),
        (whole[:50], "expected a whole PNG"),
        (cut, "expected a whole PNG"),
        (b"\x89PNG\r\n\x1a\n", "expected a PNG"),
        (str(tmp_path / "c.png"), "other colours are not class numbers"),
        (str(tmp_path / "w.png"), "expected values below 256, got 314"),
        (str(tmp_path / "none.png"), "cannot be read: No such file"),
        (whole[:16] + (2**20).to_bytes(4, "big") * 2 + whole[24:], "pixels at most"),
    ):
        assert message in decoded_mask(source)
    assert as_grey((tmp_path / "p.png").read_bytes())[25] == 0


def test_folders_names_and_values(tmp_path):
    write(tmp_path, "a")
    write(tmp_path, "b", VALUES % 3)
    found = read_masks(tmp_path, SHAPE)
    assert found.images.shape == (2, *SHAPE) and found.sizes.tolist() == [[3, 5]] * 2
    assert found.masks.names == {value: str(value) for value in range(15)}
    np.testing.assert_array_equal(list(found.masks)[1], VALUES % 3)
    assert len(found.masks[np.array([1])]) == len(found.masks[:1]) == 1
    assert 3 not in read_masks(tmp_path, SHAPE, ignored=3).masks.names
    (tmp_path / "classes.txt").write_text("".join(f"name {i}\n" for i in range(15)))
    assert read_masks([tmp_path / "images", tmp_path / "masks"], SHAPE).masks.names[14] == "name 14"
    path = lines(tmp_path, {"image": "images/b.jpg", "mask": "masks/b.png"})
    found = read_masks(path, SHAPE)
    assert len(found.images) == 1 and found.masks.names[2] == "name 2"
    assert read_masks([tmp_path, path], SHAPE).sizes.shape == (3, 2)


def test_what_does_not_fit_is_left_out_and_counted(tmp_path, caplog):
    write(tmp_path, "a", VALUES % 2)
    write(tmp_path, "b", None)
    write(tmp_path, "c", VALUES)
    write(tmp_path, "d", VALUES, size=(4, 3))
    write(tmp_path, "e", VALUES % 2)
    (tmp_path / "images" / "e.jpg").write_bytes(b"text")
    (tmp_path / "images" / "f.jpg").write_bytes((tmp_path / "images" / "a.jpg").read_bytes())
    (tmp_path / "masks" / "f.png").write_bytes(b"text")
    with caplog.at_level(logging.WARNING):
        found = read_masks(tmp_path, SHAPE, names={0: "x", 1: "y"})
    assert len(found.images) == 1
    told, of_image = caplog.messages
    assert told.startswith("4 of 6 images are skipped: ") and told.endswith(", 1 more")
    assert "b.jpg (there is no mask)" in told
    assert "c.jpg (the value 2 and 12 more in the mask is of no class)" in told
    assert "d.jpg (expected a mask of 4 x 3, as the image, got 5 x 3)" in told
    assert of_image.startswith("1 of 2 images are skipped: ")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"image": "../a.jpg", "mask": "b.png"}], "line 1: expected a path within"),
        ([{"image": "a.jpg", "mask": "/etc/passwd"}], "line 1: expected a path within"),
        ([{"image": 3}], 'expected paths as "image" and "mask"'),
        (["text"], 'expected paths as "image" and "mask"'),
        ([{"image": "a.jpg"}], "there is no mask"),
        ([], "expected images, there are none"),
    ],
)
def test_lines_that_are_refused(rows, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_masks(lines(tmp_path, *rows), SHAPE)


def test_refusals(tmp_path):
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_masks(tmp_path / "none", SHAPE)
    with pytest.raises(DataError, match="expected a folder with images/ and masks/"):
        read_masks(tmp_path, SHAPE)
    write(tmp_path, "a")
    (tmp_path / "classes.txt").write_text("a\n\nb\n")
    with pytest.raises(DataError, match=r"classes.txt, line 2: expected a name of its own, got ''"):
        read_masks(tmp_path, SHAPE)
    (tmp_path / "classes.txt").unlink()
    (tmp_path / "images" / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match="expected one file for each stem, got two 'a'"):
        read_masks(tmp_path, SHAPE)
    with pytest.raises(DataError, match="mask 0: expected a PNG"):
        list(MaskFiles([b"text"], {}))


def test_sets_of_tfds(tmp_path, prepared, caplog):
    import tensorflow_datasets as tfds

    write(tmp_path, "a", VALUES % 2)
    write(tmp_path, "b", VALUES % 2 + 7)
    features = {
        "image": tfds.features.Image(shape=(3, 5, 3), encoding_format="jpeg"),
        "segmentation_mask": tfds.features.Image(shape=(3, 5, 1)),  # as in oxford_iiit_pet
    }
    examples = [
        {
            "image": str(tmp_path / f"images/{name}.jpg"),
            "segmentation_mask": str(tmp_path / f"masks/{name}.png"),
        }
        for name in ("a", "b")
    ]
    path = prepared("tiny_masks", features, examples)
    found = read_masks(path, SHAPE)
    assert found.sizes.tolist() == [[3, 5], [3, 5]] and found.masks.names == {0: "0", 1: "1", 7: "7", 8: "8"}
    for mask, expected in zip(found.masks, (VALUES % 2, VALUES % 2 + 7), strict=True):
        np.testing.assert_array_equal(mask, expected)
    with caplog.at_level(logging.WARNING):
        found = read_masks(path, SHAPE, names={0: "x", 1: "y"})
    assert (
        len(found.images) == 1
        and "example 2 (the value 7 and 1 more in the mask is of no class)" in caplog.text
    )
