"""Tiles of a picture, and what is blended of them."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.tasks.images.tiles import in_tiles


def floats(pixels):
    return tf.cast(pixels, tf.float32) / 255


@pytest.mark.parametrize("scale", [1, 2])
@pytest.mark.parametrize("size", [(1, 1), (3, 16), (16, 17), (40, 29), (53, 12)])
def test_tiles_of_any_size_come_together(size, scale):
    image = np.random.default_rng(0).integers(0, 256, (*size, 3)).astype("uint8")
    shapes = []

    def grown(tiles):
        shapes.append(tuple(tiles.shape))
        return floats(tf.repeat(tf.repeat(tiles, scale, 1), scale, 2))

    y = in_tiles(grown, tf.constant(image), tile=16, scale=scale, overlap=4)
    np.testing.assert_array_equal(y, image.repeat(scale, 0).repeat(scale, 1))
    assert {shape[1:] for shape in shapes} == {(16, 16, 3)}
    assert len(shapes) == -(-(size[0] + 4) // 12) and shapes[0][0] == -(-(size[1] + 4) // 12)


def test_beyond_the_ends_stands_the_mirror_image():
    seen = []
    image = tf.constant([[[1]], [[2]], [[3]]], tf.uint8)
    in_tiles(lambda tiles: seen.append(tiles.numpy()) or floats(tiles), image, 8, 1, 2)
    assert seen[0][0, :, 0, 0].tolist() == [2, 1, 1, 2, 3, 3, 2, 1]


def test_neighbours_that_differ_fade_into_each_other():
    def numbered(tiles):
        number = tf.range(tf.shape(tiles)[0], dtype=tf.float32) / 255
        return tf.ones_like(tiles, tf.float32) * number[:, None, None, None]

    y = in_tiles(lambda x: 16 * numbered(x), tf.zeros((16, 90, 1), tf.uint8), tile=16, scale=1, overlap=8)
    steps = np.diff(y.numpy()[:, :, 0].astype(int), axis=1)
    assert set(steps.ravel()) == {2}


def test_a_convolution_is_nearly_as_of_the_whole_picture():
    """A kernel of 3 x 3 errs in a tile's outermost pixels, which weigh least where tiles overlap."""
    image = np.random.default_rng(0).integers(0, 256, (60, 60, 1)).astype("uint8")
    kernel = np.random.default_rng(1).random((3, 3, 1, 1)).astype("float32") / 9

    def run(tiles):
        return tf.nn.conv2d(floats(tiles), kernel, 1, "SAME")

    whole = run(image[None])[0].numpy() * 255
    y = in_tiles(run, tf.constant(image), tile=32, scale=1, overlap=16).numpy()
    assert np.abs(y - whole)[1:-1, 1:-1].max() < 5
