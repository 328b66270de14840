"""Views of images: crops of the drawn areas, mirrors, and places of pixels by hand."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data.batches.views import Views, are_inside, between_pixels, nearest_pixels

KEY = tf.constant([0, 5], tf.int64)


def view(start, sides, is_mirrored=False):
    """Two views of the same part."""
    return Views(tf.constant([start] * 2), tf.constant([sides] * 2), tf.constant([is_mirrored] * 2))


@pytest.mark.parametrize("by_ratio", [False, True])
@pytest.mark.parametrize("areas", [(0.3, 1.0), (0.1, 0.2), (0.5, 4.0)])
def test_crops_have_the_areas_and_lie_inside(areas, by_ratio):
    views = Views.drawn(2000, areas, KEY, by_ratio)
    start, sides = views.start.numpy(), views.sides.numpy()
    drawn, aspects = sides.prod(axis=1), sides[:, 1] / sides[:, 0]
    is_free = sides.max(axis=1) < max(1, areas[1] ** 0.5) - 1e-6  # no side that the image cuts short
    assert areas[0] - 1e-5 < drawn[is_free].min() < areas[0] + 0.1 and drawn.max() < areas[1] + 1e-5
    assert 0.74 < aspects[is_free].min() < 0.8 and 1.25 < aspects[is_free].max() < 1.34
    ends = start + sides
    assert np.minimum(start, 1 - ends)[sides < 1].min() >= -1e-6  # inside the image
    assert np.maximum(start, 1 - ends)[sides > 1].max(initial=0) <= 1e-6  # all of the image is shown
    shares = (drawn - areas[0]) / (areas[1] - areas[0])
    if by_ratio:
        shares = np.log(drawn / areas[0]) / np.log(areas[1] / areas[0])
    assert abs(shares[is_free].mean() - 0.5) < (0.02 if areas[1] < 1 else 0.2)
    assert not views.is_mirrored.numpy().any()
    assert 900 < views.mirrored(KEY).is_mirrored.numpy().sum() < 1100


@pytest.mark.parametrize("areas", [(0.8, 1.0), (0.95, 1.0), (1.0, 1.2)])
def test_no_crop_is_smaller_than_the_least_area(areas):
    sides = Views.drawn(2000, areas, KEY).sides.numpy()
    drawn, aspects = sides.prod(axis=1), sides[:, 1] / sides[:, 0]
    assert areas[0] - 1e-5 < drawn.min() < areas[0] + 0.01 and drawn.max() < areas[1] + 1e-5
    assert aspects.min() < 0.97 and aspects.max() > 1.03  # crops are still of different aspects


def test_places_by_hand():
    """The second half of four columns, twice as large, in a row of which four pixels are shown."""
    half = view([0.0, 0.5], [1.0, 0.5])
    rows, columns = half.places((1, 4), (1, 4), (1, 5))
    assert (
        rows.numpy().tolist() == [[0]] * 2
        and columns.numpy().tolist() == [[1.75, 2.25, 2.75, 3.25, 3.75]] * 2
    )
    rows, columns = half._replace(is_mirrored=tf.constant([False, True])).places((1, 4), (1, 4), (1, 5))
    assert columns.numpy()[1].tolist() == [3.25, 2.75, 2.25, 1.75, 1.25]
    images = tf.constant(np.arange(4.0)[None, None, :, None].repeat(2, 0), tf.float32)
    shown = between_pixels(images, (rows, columns)).numpy()[..., 0]
    np.testing.assert_allclose(shown[:, 0, :4], [[1.75, 2.25, 2.75, 3], [3, 2.75, 2.25, 1.75]], atol=1e-6)
    nearest = nearest_pixels(images, (rows, columns)).numpy()[:, 0, :4, 0]
    assert nearest.tolist() == [[2, 2, 3, 3], [3, 3, 2, 2]]


def test_what_is_beyond_an_image_is_not_inside():
    large = view([-0.5, 0.0], [2.0, 1.0])  # twice as high as the image
    content = tf.constant([[8, 3], [4, 2]])
    places = large.places(content, content, (8, 3))
    are_in = are_inside(places, content).numpy()
    assert are_in[0, :, 0].tolist() == [False, False, True, True, True, True, False, False]
    assert are_in[1, :, 0].tolist()[:4] == [False, True, True, False]
    assert are_in[0, 3].tolist() == [True] * 3


def test_a_whole_view_changes_nothing_and_boxes_follow_the_others():
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 7, 3), "uint8")
    boxes = np.array([[[2, 0.25, 0.5, 0.5, 1], [1, 0.9, 0.5, 0.2, 1], [-1, 0, 0, 0, 0]]] * 2, "float32")
    whole = Views.whole(2)
    places = whole.places((5, 7), (5, 7), (5, 7))
    np.testing.assert_array_equal(nearest_pixels(images, places), images)
    np.testing.assert_allclose(between_pixels(images, places), images, atol=1e-3)
    np.testing.assert_allclose(whole.of_boxes(boxes), boxes, atol=1e-6)
    moved = view([0.0, 0.0], [1.0, 0.75], is_mirrored=True).of_boxes(boxes).numpy()
    none = [-1, 0, 0, 0, 0]
    np.testing.assert_allclose(moved[0], [[2, 2 / 3, 0.5, 2 / 3, 1], none, none], atol=1e-6)


def test_visible_boxes_move_with_the_whole_ones():
    """The left three quarters, mirrored: an object whose left half is visible; one whose visible part is cut
    off; a region whose centre is in the view, and one whose centre is not.
    """
    whole = [[0, 0.375, 0.5, 0.3, 1], [0, 0.7, 0.5, 0.3, 1], [-2, 0.6, 0.5, 0.3, 1], [-2, 0.8, 0.5, 0.4, 1]]
    visible = [[0.3, 0.5, 0.15, 1], [0.8, 0.5, 0.1, 1], *(box[1:] for box in whole[2:])]
    targets = np.concatenate([[whole] * 2, [visible] * 2], axis=-1).astype("float32")
    crop = view([0.0, 0.0], [1.0, 0.75], is_mirrored=True)
    moved = crop.of_boxes(targets).numpy()[0]
    assert moved[:, 0].tolist() == [0, -1, -2, -2]
    np.testing.assert_allclose(moved[0, 1:], [0.5, 0.5, 0.4, 1, 0.6, 0.5, 0.2, 1], atol=1e-6)
    np.testing.assert_allclose(moved[2, 1:5], [0.2, 0.5, 0.4, 1], atol=1e-6)
    np.testing.assert_allclose(moved[3, 1:5], [1 / 10, 0.5, 1 / 5, 1], atol=1e-6)
    np.testing.assert_array_equal(moved[2:, 5:], moved[2:, 1:5])
    np.testing.assert_array_equal(crop.of_boxes(targets[..., :5])[0, 0], moved[0, :5])
