"""Weights in 4 bits: how far they are from what they were, and that nothing of a text becomes markup."""

import base64
import io
import json
import zlib

import numpy as np
import pytest
from PIL import Image

from keras_tfm.visualize.document import Page, as_data
from keras_tfm.visualize.packing import packed_vectors, packed_weights, png, quantized


def content(text):
    return zlib.decompress(base64.b64decode(text))


def random_weights(*shape, seed=0):
    scores = np.random.default_rng(seed).normal(size=shape) * 3
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("levels", [15, 7, 3])
def test_a_weight_is_kept_to_half_a_level_of_its_rows_maximum(levels):
    weights = random_weights(3, 5, 7)
    weights[0, 1] = 0  # a row with nothing to attend to
    maxima, parts = quantized(weights, levels)
    assert parts.max() == levels and parts.dtype == np.uint8
    error = np.abs(maxima[..., None] * parts / levels - weights)
    assert (error <= maxima[..., None] / (2 * levels) + 1e-6).all()
    assert not parts[0, 1].any()


def test_two_weights_are_a_byte():
    weights = random_weights(1, 3, 3)
    maxima, parts = quantized(weights)
    data = content(packed_weights(weights))
    np.testing.assert_array_equal(np.frombuffer(data[:12], "<f4"), maxima[0])
    packed = np.frombuffer(data[12:], "uint8")
    flat = np.stack([packed & 15, packed >> 4], -1).reshape(-1)
    np.testing.assert_array_equal(flat, [*parts.reshape(-1), 0])  # nine weights in five bytes


def test_vectors_are_kept_to_half_a_step():
    rng = np.random.default_rng(1)
    queries, keys = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5, 4))
    keys[1, 2] = 0
    data = content(packed_vectors(queries, keys))
    scales = np.frombuffer(data[: 4 * 16], "<f4")
    values = np.frombuffer(data[4 * 16 :], "int8").reshape(16, 4) * scales[:, None] / 127
    expected = np.concatenate([queries.reshape(6, 4), keys.reshape(10, 4)])
    assert (np.abs(values - expected) <= scales[:, None] / 254 + 1e-6).all()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_a_picture_is_a_png_file(channels, kind):
    image = np.random.default_rng(2).integers(0, 256, (5, 7, channels)).astype("uint8")
    given = image if kind == "uint8" else (image / 255).astype(kind)
    head, _, body = png(given).partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as read:
        np.testing.assert_array_equal(np.asarray(read), np.broadcast_to(image, (5, 7, 3)))


def test_no_text_ends_its_element():
    evil = "</script><script>alert(1)</script><!--<script>"
    said = as_data({"tokens": [evil]})
    assert "<" not in said and json.loads(said) == {"tokens": [evil]}
    html = Page({"text": "[[script]] " + evil}, {"weights-0": "AAAA"}).html()
    assert html.count("<script") == 3 and html.count("alert(1)") == 1  # the data, a block and the script
    assert "[[script]]" in html  # what looks like a place of the template stays as it was typed


def test_a_notebook_shows_it_in_a_frame_of_its_own():
    shown = Page({"text": '"> <b>'}, {})._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts"') and shown.count("<") == 2
