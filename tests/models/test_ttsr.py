"""TTSR: its published size, the transfer of textures against loops, a reference that is the image itself."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.models import TTSR, TTSRConfig
from keras_tfm.models.pictures.ttsr import Exchange, TextureTransfer, neighbourhoods, overlapped
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = TTSRConfig((3, 4), (8, 12), (1, 1, 1, 1), 4, (2, 3, 4))
INPUTS = {"images": floats(3, 4, 3), "references": floats(8, 12, 3)}

# Hard attention chooses: a rounding, or another batch's padding, may choose another cell of noise.
test_contract = contract.check_family(
    Case("TTSR", lambda: TTSR(SMALL), INPUTS, convolves=True, chooses=True, deviation=0.1)
)


def test_parameters_of_the_published_size(no_allocation):
    model = TTSR.from_size("base", image_size=8, reference_size=32)
    extractor = contract.num_parameters(model.get_layer("extractor").weights)
    vgg = [(3, 64), (64, 64), (64, 128), (128, 128), (128, 256)]
    assert extractor == sum(9 * before * after + after for before, after in vgg)
    assert contract.num_parameters(model.weights) - extractor == 6_174_275


def draw(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_the_images_own_textures_are_found():
    """A reference that is the image: each cell is the most similar to itself, and its textures come back."""
    features, textures = draw(2, 4, 5, 8), draw(2, 8, 10, 3)
    similarity, same, large = TextureTransfer()(features, features, [features, textures])
    np.testing.assert_allclose(similarity, np.ones((2, 4, 5, 1)), atol=1e-5)
    # Neighbourhoods overlap: in the middle nine copies of the same are averaged.
    np.testing.assert_allclose(same[:, 1:-1, 1:-1], features[:, 1:-1, 1:-1], atol=1e-5)
    np.testing.assert_allclose(large[:, 2:-2, 2:-2], textures[:, 2:-2, 2:-2], atol=1e-5)
    np.testing.assert_allclose(np.asarray(same)[:, 0, 0], features[:, 0, 0] * 4 / 9, atol=1e-5)


def test_the_most_similar_cell_by_loops():
    queries, keys, x = draw(1, 3, 4, 6), draw(1, 4, 2, 6)[..., ::-1], draw(1, 4, 2, 5)
    similarity, y = TextureTransfer()(queries, keys, [x])

    def around(x):
        padded = np.pad(x[0], ((1, 1), (1, 1), (0, 0)))
        rows, columns = x.shape[1:3]
        return [padded[i : i + 3, j : j + 3] for i in range(rows) for j in range(columns)]

    sums = np.zeros((5, 6, 5))
    for n, query in enumerate(around(queries)):
        likeness = [np.sum(query * key) / np.linalg.norm(query) / np.linalg.norm(key) for key in around(keys)]
        i, j = divmod(n, 4)
        np.testing.assert_allclose(np.asarray(similarity)[0, i, j, 0], max(likeness), rtol=1e-5)
        sums[i : i + 3, j : j + 3] += around(x)[int(np.argmax(likeness))]
    np.testing.assert_allclose(y[0], sums[1:-1, 1:-1] / 9, rtol=1e-4, atol=1e-6)


def test_overlaps_are_the_transpose_of_neighbourhoods():
    x, y = draw(1, 3, 4, 2), draw(1, 3, 4, 18)
    one, other = np.sum(np.asarray(neighbourhoods(x)) * y), np.sum(x * np.asarray(overlapped(y)))
    np.testing.assert_allclose(one, other, rtol=1e-4)


def test_all_maps_exchange():
    maps = [draw(2, n * 3, n * 2, 4) for n in (1, 2, 4)]
    layer = Exchange()
    before = layer(maps)
    assert [x.shape for x in before] == [x.shape for x in maps]
    for i in range(3):
        changed = layer([x + (i == j) for j, x in enumerate(maps)])
        assert all(np.abs(np.asarray(a) - b).max() > 1e-3 for a, b in zip(changed, before, strict=True))
    assert Exchange(merges=True)(maps).shape == (2, 12, 8, 4)


def test_a_reference_changes_the_image():
    model = TTSR(SMALL)
    randomise(model, 1)
    images, references = draw(1, 3, 4, 3), draw(1, 8, 12, 3)
    y = model({"images": images, "references": references})
    assert y["images"].shape == (1, 12, 16, 3) and np.abs(y["images"]).max() <= 1
    other = model({"images": images, "references": -references})
    assert np.abs(np.asarray(y["images"]) - other["images"]).max() > 1e-3


def test_similarity_is_known_before_the_image():
    model = TTSR(SMALL)
    randomise(model, 1)
    images, references = draw(2, 3, 4, 3), draw(2, 8, 12, 3)
    whole = model({"images": images, "references": references})["similarity"]
    similarity = model.similarity(model.queries(images), model.keys(references))
    np.testing.assert_allclose(similarity, np.mean(whole, axis=(1, 2, 3)), rtol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match="`reference_size` must be multiples of 4; it is"):
        dataclasses.replace(SMALL, reference_size=(8, 10))
