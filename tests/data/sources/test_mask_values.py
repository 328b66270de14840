"""Values in masks that no one drew, or that may be meant as classes: said before training."""

import io
import logging

import numpy as np
import PIL.Image
import PIL.ImageDraw
import pytest

from keras_tfm.data import DataError, read_masks
from keras_tfm.data.sources.mask_values import mixed_values, values_of

SHAPE = (8, 8, 3)
SIDE = 80


def disc(side=SIDE, radius=0.3):
    rows, columns = np.mgrid[:side, :side] / side
    return np.hypot(rows - 0.45, columns - 0.55) < radius


WHITE = disc().astype("uint8") * 255
THREE = np.where(disc(radius=0.15), 255, 128 * disc()).astype("uint8")
STRIPES = np.repeat([0, 128, 255], (5, 2, 3)).astype("uint8")[None].repeat(4, 0)


def folder(path, *masks):
    """A folder of one image per mask (H, W)."""
    for part in ("images", "masks"):
        (path / part).mkdir()
    for number, mask in enumerate(masks):
        PIL.Image.new("RGB", mask.shape[::-1]).save(path / "images" / f"{number}.png")
        PIL.Image.fromarray(mask).save(path / "masks" / f"{number}.png")
    return path


def jpeg(mask, quality):
    stream = io.BytesIO()
    PIL.Image.fromarray(mask).save(stream, "JPEG", quality=quality)
    return np.asarray(PIL.Image.open(stream))


def scaled(mask, side, method):
    return np.asarray(PIL.Image.fromarray(mask).resize((side, side), method))


def classes(count, side=SIDE, seed=0):
    """A mask of `count` classes: a background, and overlapping squares of 5 pixels."""
    mask = np.zeros((side, side), "uint8")
    for row, column in np.random.default_rng(seed).integers(0, side - 5, (count * 3, 2)):
        mask[row : row + 5, column : column + 5] = (row * column) % count
    return mask


def outlined(mask):
    """VOC's void, 255, around each area, one pixel wide."""
    inner = np.ones(mask.shape, bool)
    inner[1:] &= mask[1:] == mask[:-1]
    inner[:, 1:] &= mask[:, 1:] == mask[:, :-1]
    return np.where(inner, mask, 255).astype("uint8")


SMOOTHED = {
    "JPEG 50": jpeg(WHITE, 50),
    "JPEG 75": jpeg(WHITE, 75),
    "JPEG 95": jpeg(WHITE, 95),
    "JPEG of three": jpeg(THREE, 90),
    "bilinear": scaled(WHITE, 100, PIL.Image.Resampling.BILINEAR),
    "bilinear of three": scaled(THREE, 100, PIL.Image.Resampling.BILINEAR),
    "bicubic": scaled(WHITE, 110, PIL.Image.Resampling.BICUBIC),
    "smaller": scaled(WHITE, 61, PIL.Image.Resampling.LANCZOS),
    "drawn smoothly": scaled(disc(4 * SIDE).astype("uint8") * 255, SIDE, PIL.Image.Resampling.BOX),
    "blurred": scaled(scaled(WHITE, 16, PIL.Image.Resampling.BOX), SIDE, PIL.Image.Resampling.BICUBIC),
}
DRAWN = {
    "two": disc().astype("uint8"),
    "0 and 255": WHITE,
    "three": THREE,
    "resized to the nearest": scaled(THREE, 61, PIL.Image.Resampling.NEAREST),
    "20 classes": classes(20),
    "100 classes": classes(100, 200),
    "void around areas": outlined(classes(20)),
    "a line": np.eye(SIDE, dtype="uint8") + disc(),
    "noise of 2": np.random.default_rng(0).integers(0, 2, (8, 8), "uint8"),
    "noise of 20": np.random.default_rng(0).integers(0, 20, (8, 8), "uint8"),
    "a pixel each": np.arange(15, dtype="uint8").reshape(3, 5),
    "one pixel": np.zeros((1, 1), "uint8"),
    "one class": np.ones((4, 4), "uint8"),
}


@pytest.mark.parametrize("kind", SMOOTHED)
def test_values_of_smoothed_edges_are_recognised(kind):
    assert mixed_values(values_of(SMOOTHED[kind])) is not None


@pytest.mark.parametrize("kind", DRAWN)
def test_values_that_were_drawn_are_classes(kind):
    assert mixed_values(values_of(DRAWN[kind])) is None


def test_values_and_inner_pixels_by_hand():
    counts = values_of(np.array([[7, 7, 7], [7, 7, 0], [7, 7, 0]], "uint8"))
    assert counts.shape == (2, 256) and counts.sum(1).tolist() == [9, 4]
    assert counts[:, 7].tolist() == [7, 4] and counts[:, 0].tolist() == [2, 0]


@pytest.mark.parametrize("kind", ["JPEG 75", "bilinear", "bilinear of three"])
@pytest.mark.parametrize("are_named", [False, True])
def test_smoothed_masks_are_refused(kind, are_named, tmp_path):
    path = folder(tmp_path, *[SMOOTHED[kind]] * 2)
    if are_named:
        (path / "classes.txt").write_text("background\ndisc\n")
    filling = "0, 128, 255" if "three" in kind else "0, 255"
    with pytest.raises(
        DataError, match=rf"got \d+ values \(.*, …\) .* areas of {filling}, .*as PNG"
    ) as refusal:
        read_masks(path, SHAPE)
    assert "\n" not in str(refusal.value)


def test_names_of_all_values_admit_any_mask(tmp_path):
    names = {value: f"grey {value}" for value in range(255)}
    assert len(read_masks(folder(tmp_path, SMOOTHED["bilinear"]), SHAPE, names=names).images) == 1


def test_black_and_white_masks_are_refused_with_the_way_out(tmp_path):
    path = folder(tmp_path, WHITE, WHITE)
    with pytest.raises(
        DataError, match="classes or more, got 0 alone; 255 is ignored unless --ignored is -1"
    ):
        read_masks(path, SHAPE)
    assert read_masks(path, SHAPE, ignored=-1).masks.names == {0: "0", 255: "255"}


@pytest.mark.parametrize(
    ("mask", "options", "expected"),
    [
        (STRIPES, {}, "0, 128; 255 is ignored, 30% of the pixels; if it is a class: --ignored -1"),
        (STRIPES // 2, {"ignored": 127}, "0, 64; 127 is ignored, 30% of the pixels;"),
        (STRIPES, {"ignored": 128}, "0, 255; 128 is ignored, 20% of the pixels;"),
        (STRIPES, {"ignored": -1}, None),
        (disc().astype("uint8"), {}, None),
        (STRIPES // 255 * 255, {"names": {0: "background", 1: "stripe"}},
         "0; 255 is ignored, 30% of the pixels; if it is a class: give its pixels the number of its line in "
         "classes.txt, from 0"),
        (WHITE, {"names": {0: "background", 255: "disc"}, "ignored": -1}, None),
        (STRIPES, {"names": {0: "background", 128: "stripe"}}, None),
    ],
)  # fmt: skip
def test_an_ignored_value_that_may_be_a_class_is_said(mask, options, expected, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        read_masks(folder(tmp_path, mask), SHAPE, **options)
    if expected is None:
        assert not caplog.messages
    else:
        (said,) = caplog.messages
        assert said.startswith(f"{tmp_path}: the classes in the masks are the values {expected}")


AROUND = (np.roll(disc(), 30, 1) & ~disc()).astype("uint8")  # a second area
PUBLISHED = {  # {as people have masks: (a mask, the values that are classes or the refusal)}
    "0 and 255": (WHITE, "two classes or more, got 0 alone; 255 is ignored unless --ignored is -1"),
    "RGB, white": (np.repeat(WHITE[..., None], 3, -1), "two classes or more, got 0 alone; 255 is ignored"),
    "smeared": (SMOOTHED["bilinear"], "a value for each class, got .* that occur only along edges"),
    "of one bit": (disc(), ["0", "1"]),
    "0, 1 and 254": (disc() + 254 * AROUND, ["0", "1", "254"]),
    "0, 128 and 255": (np.where(disc(), 255, 128 * AROUND).astype("uint8"), ["0", "128"]),
}


@pytest.mark.parametrize("kind", PUBLISHED)
def test_masks_as_people_have_them(kind, tmp_path, caplog):
    mask, expected = PUBLISHED[kind]
    path = folder(tmp_path)
    PIL.Image.new("RGB", mask.shape[1::-1]).save(path / "images" / "a.png")
    PIL.Image.fromarray(mask).save(path / "masks" / "a.png")
    if isinstance(expected, str):
        with pytest.raises(DataError, match=expected):
            read_masks(path, SHAPE)
        return
    with caplog.at_level(logging.WARNING):
        assert list(read_masks(path, SHAPE).masks.names.values()) == expected
    assert any("255 is ignored" in said for said in caplog.messages) == ("255" in kind)


@pytest.mark.parametrize(
    ("name", "message"),
    [("0.jpg", "expected a PNG, which stores values without loss"), ("0_mask.png", "there is no mask")],
)
def test_mask_files_of_another_kind_or_name_are_refused(name, message, tmp_path):
    path = folder(tmp_path, WHITE)
    (path / "masks" / "0.png").unlink()
    PIL.Image.fromarray(WHITE).save(path / "masks" / name)
    with pytest.raises(DataError, match=message):
        read_masks(path, SHAPE)
