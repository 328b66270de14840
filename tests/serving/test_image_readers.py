"""Images read by Pillow, beside the reader that trains: the same places on the canvas, and sizes."""

import io
import pathlib

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm.data import Canvas, Preprocessing
from keras_tfm.data.sources.preprocessing import decode_pixels
from keras_tfm.serving.readers import reader_of
from keras_tfm.tasks.images.decoded import ImagesOnCanvas

SHAPE = (24, 32, 3)
SIZES = (30, 20), (9, 50), (24, 32), (1, 1), (48, 64), (200, 7), (1, 90)


def test_a_transparent_colour_of_a_gif_is_black():
    picture = PIL.Image.fromarray(np.arange(24 * 32, dtype="uint8").reshape(24, 32) % 16 * 16).convert("P")
    files = []
    for options in ({}, {"transparency": picture.getpixel((5, 0))}):
        stream = io.BytesIO()
        picture.save(stream, "GIF", **options)
        files.append(stream.getvalue())
    reads = {"kind": "images", "shape": [24, 32, 3], "interpolation": "bilinear"}
    ours = reader_of(pathlib.Path(), {**reads, "crop_fraction": 1.0, "keep_aspect": False})
    opaque, transparent = (ours.read([file])[0].rows[0] for file in files)
    for found, file in ((opaque, files[0]), (transparent, files[1])):
        np.testing.assert_allclose(found, decode_pixels(tf.constant(file), 3) / 255, atol=1e-6)
    assert opaque[0, 5].min() > 0.2 and not transparent[0, 5].any()


@pytest.mark.parametrize("rounds_crop", [False, True])
def test_a_crop_begins_in_the_middle_or_where_torchvision_begins_it(rounds_crop):
    """Both readers; of the pixels to cut off an odd number, 1 to 9, is halved."""
    options = {"interpolation": "bilinear", "keep_aspect": True, "rounds_crop": rounds_crop}
    reads = {"kind": "images", "shape": [4, 4, 1], "crop_fraction": 1.0, **options}
    for rest in range(10):
        image = np.tile(np.arange(4 + rest, dtype="uint8"), (4, 1))[..., None]
        first = round(rest / 2) if rounds_crop else rest // 2  # Python rounds to even numbers
        (served,) = reader_of(pathlib.Path(), reads).read([image])[0].rows
        trained = Preprocessing(**options).resized(tf.constant(image)[None], 4, 4)[0].numpy()
        for found in (np.round(served * 255), trained):
            np.testing.assert_array_equal(found[0, :, 0], np.arange(first, first + 4))


@pytest.mark.parametrize("keep_aspect", [False, True])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
def test_a_canvas_is_filled_as_in_training(interpolation, keep_aspect):
    generator = np.random.default_rng(0)
    pictures = [generator.integers(0, 256, (*size, 3), "uint8") for size in SIZES]
    files = [tf.io.encode_png(picture).numpy() for picture in pictures]
    examples = [*files, *pictures]
    settings = {"interpolation": interpolation, "keep_aspect": keep_aspect}
    reads = {"kind": "canvas", "shape": list(SHAPE), "crop_fraction": 1.0, **settings}
    ours, training = reader_of(pathlib.Path(), reads), ImagesOnCanvas(SHAPE, Canvas(**settings))
    read, expected = (
        reader.join([found.rows[0] for found in reader.read(examples)]) for reader in (ours, training)
    )
    np.testing.assert_array_equal(read["sizes"], [*SIZES, *SIZES])
    np.testing.assert_array_equal(read["sizes"], expected["sizes"])
    ((image, _),) = ours.read([PIL.Image.fromarray(pictures[0])])[0].rows
    np.testing.assert_array_equal(image, read["images"][len(files)])
    off = np.abs(read["images"] - expected["images"]) * 255
    assert off.max() < 1.01 and (off > 0.5).mean() < 0.05  # a grey level, in few pixels


@pytest.mark.parametrize("kind", ["images", "canvas"])
@pytest.mark.parametrize("shape", [(0, 0, 3), (5, 0, 3), (0, 7)])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_without_pixels_are_refused_by_their_row(kind, shape, dtype):
    reads = {"kind": kind, "shape": list(SHAPE), "interpolation": "bilinear", "keep_aspect": True}
    reader = reader_of(pathlib.Path(), {**reads, "crop_fraction": 1.0})
    whole, refused = reader.read([np.zeros(SHAPE, "uint8"), np.zeros(shape, dtype)])
    assert len(whole.rows) == 1
    assert str(refused) == f"expected an image with pixels, got the shape {shape}"
