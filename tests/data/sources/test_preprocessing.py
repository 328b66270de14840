"""What an image becomes before a model takes it, beside Pillow's resizing and cutting."""

import io

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm.data import Preprocessing

FILTERS = {name: PIL.Image.Resampling[name.upper()] for name in ("bilinear", "bicubic", "lanczos")}


def picture(height, width, has_edges=False):
    """An image of large spots, whose edges make a cubic filter overshoot."""
    coarse = np.random.default_rng(0).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), "uint8")
    smooth = FILTERS["bicubic"]
    return PIL.Image.fromarray(coarse).resize(
        (width, height), PIL.Image.Resampling.NEAREST if has_edges else smooth
    )


def cut_by_pillow(image, side, fraction, keep_aspect, interpolation):
    """Resized to side / fraction, its shorter side where the aspect is kept, and cut at the centre."""
    whole = int(side / fraction + 1e-6)
    width, height = image.size
    if keep_aspect:
        width, height = (
            (whole, whole * height // width) if width < height else (whole * width // height, whole)
        )
    else:
        width = height = whole
    columns = image.resize(
        (width, image.size[1]), FILTERS[interpolation]
    )  # Pillow 13 may begin with the rows
    resized = np.asarray(columns.resize((width, height), FILTERS[interpolation]))
    top, left = (height - side) // 2, (width - side) // 2
    return resized[top : top + side, left : left + side]


@pytest.mark.parametrize("interpolation", FILTERS)
@pytest.mark.parametrize("keep_aspect", [False, True])
@pytest.mark.parametrize(
    ("size", "fraction"), [((50, 81), 0.875), ((97, 40), 1.0), ((20, 26), 0.9), ((32, 32), 0.8)]
)
def test_resizing_and_cutting_are_pillow_s(size, fraction, keep_aspect, interpolation):
    options = {"crop_fraction": fraction, "keep_aspect": keep_aspect, "interpolation": interpolation}
    image = picture(*size, has_edges=True)
    expected = cut_by_pillow(image, 32, fraction, keep_aspect, interpolation)
    found = Preprocessing(**options).resized(tf.constant(np.asarray(image))[None], 32, 32)[0].numpy()
    difference = np.abs(found.astype(int) - expected)
    assert found.shape == (32, 32, 3) and difference.max() <= 2  # two roundings
    assert np.mean(difference > 1) < 0.002


def test_a_panorama_is_cut_without_being_resized_whole():
    image = tf.constant(np.asarray(picture(4, 20_000)))[None]
    found = Preprocessing(keep_aspect=True).resized(image, 224, 224)
    assert found.shape == (1, 224, 224, 3)


def test_images_of_the_size_are_taken_as_they_are_and_files_are_cut():
    image, options = picture(32, 32), Preprocessing(crop_fraction=0.5, mean=(0.1, 0.2, 0.3), std=0.5)
    array = tf.constant(np.asarray(image))
    np.testing.assert_array_equal(options.fitted(array[None], 32, 32)[0], array)
    expected = (np.asarray(image) / 255 - np.array([0.1, 0.2, 0.3])) / 0.5
    np.testing.assert_allclose(options.prepared(array[None], 32, 32)[0], expected, atol=1e-5)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    cut = options.decoded(tf.constant(buffer.getvalue()), 32, 32, 3)
    assert np.abs(cut.numpy().astype(int) - cut_by_pillow(image, 32, 0.5, False, "bilinear")).max() <= 1


def test_impossible_fields_are_refused():
    for fields, message in (
        ({"std": 0.0}, "`std` must be positive"),
        ({"crop_fraction": 0.0}, r"`crop_fraction` must be at least 0\.1"),
        ({"crop_fraction": 1.5}, "`crop_fraction` must be at most 1"),
        ({"interpolation": "nearest"}, "`interpolation` must be one of bilinear, bicubic, lanczos"),
        ({"image_size": 0}, "`image_size` must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            Preprocessing(**fields)
