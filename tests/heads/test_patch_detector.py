"""Finding patches: the contract, who attends to whom, the loss by hand, what is frozen."""

import dataclasses
import math

import keras
import numpy as np
import pytest

from keras_tfm import heads
from keras_tfm.heads import PatchDetectionLoss, PatchDetector, PatchQueries, own_queries
from keras_tfm.models import DETR
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models import test_detr

SMALL = dataclasses.replace(test_detr.SMALL, num_queries=6)
INPUTS = test_detr.INPUTS | {"patches": floats(2, 16, 16, 1)}
# The first decoder block's queries are zeros: whatever they attend to has one value, a bias.
WITHOUT_EFFECT = test_detr.WITHOUT_EFFECT


def detector(**options):
    return PatchDetector(DETR(SMALL), 2, 16, **options)


test_contract = contract.check(
    Case(
        "PatchDetector",
        detector,
        INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
        without_effect=WITHOUT_EFFECT,
    ),
    Case("PatchQueries", PatchQueries, {"queries": floats(6, 8), "features": floats(2, 5)}),
)


def draw(seed=0):
    rng = np.random.default_rng(seed)
    sizes = {"images": (2, 20, 24, 1), "patches": (2, 2, 16, 16, 1)}
    return {name: rng.normal(size=size).astype("float32") for name, size in sizes.items()}


def test_queries_attend_to_those_of_their_patch():
    """Q / P is neither Q nor P: six queries of two patches are three each."""
    expected = np.zeros((1, 6, 6), bool)
    expected[0, :3, :3] = expected[0, 3:, 3:] = True
    np.testing.assert_array_equal(own_queries(6, 2), expected)
    model = detector()
    randomise(model, 1)
    inputs = draw()
    other = {**inputs, "patches": inputs["patches"].copy()}
    other["patches"][:, 1] += 1.0
    named = keras.Model(model.input, model.found)
    mask = {"pixel_mask": np.ones((2, 20, 24), bool)}
    a, b = (named(inputs | mask), named(other | mask))
    for name in ("logits", "boxes", "features"):
        np.testing.assert_allclose(a[name][:, :3], b[name][:, :3], atol=1e-6)
        assert np.abs(np.asarray(a[name][:, 3:]) - b[name][:, 3:]).max() > 1e-3


def test_patches_are_read_by_the_layers_that_read_images():
    """A patch of the images' size has the features of an image, a patch of another size the features of a
    backbone for that size.
    """
    whole, small = PatchDetector(DETR(SMALL), 2), detector()
    randomise(whole, 1)
    small.set_weights(whole.get_weights())
    images = np.random.default_rng(0).normal(size=(2, 2, 20, 24, 1)).astype("float32")
    mask = np.ones((2, 20, 24), bool)
    given = {"images": images[:, 0], "pixel_mask": mask, "patches": images}
    told = keras.Model(whole.input, whole.found)(given)["patch_features"]
    maps = keras.Model(whole.backbone.input, whole.backbone.maps[-1])(
        {"images": images.reshape(4, 20, 24, 1), "pixel_mask": np.concatenate([mask, mask])}
    )
    np.testing.assert_allclose(told, np.mean(maps, axis=(1, 2)), atol=1e-5)
    other = DETR(dataclasses.replace(SMALL, image_size=16))
    other.set_weights(whole.backbone.get_weights())
    patches = images[:, :, :16, :16]
    told = keras.Model(small.input, small.found)(given | {"patches": patches})["patch_features"]
    maps = keras.Model(other.input["images"], other.maps[-1])(patches.reshape(4, 16, 16, 1))
    np.testing.assert_allclose(told, np.mean(maps, axis=(1, 2)), atol=1e-5)


def test_each_patch_is_told_to_queries_in_a_row():
    layer = PatchQueries(dropout=0.5)
    queries, features = np.ones((8, 6, 4), "float32"), np.arange(16.0, dtype="float32").reshape(8, 2, 1)
    layer(queries, features)
    layer.projection.set_weights([np.ones((1, 4)), np.zeros(4)])
    told = np.repeat(features, 3, axis=1)
    np.testing.assert_allclose(layer(queries, features), queries + told)
    trained = np.asarray(layer(queries, features, training=True)) - queries
    is_kept = trained[..., 0] != 0
    assert 0.2 < is_kept.mean() < 0.8  # some are told nothing, and the others all of it
    np.testing.assert_allclose(trained, np.where(is_kept[..., None], np.broadcast_to(told, trained.shape), 0))


def test_the_loss_is_a_detector_s_and_the_distance_of_the_matched_features():
    rng = np.random.default_rng(0)
    targets = rng.uniform(0.2, 0.6, (3, 2, 5)).astype("float32")
    targets[..., 0] = 0
    predictions = rng.uniform(0.1, 0.9, (3, 2, 6, 2 + 2 + 4)).astype("float32")
    found, alone = PatchDetectionLoss(2)(targets, predictions), heads.SetPredictionLoss()
    total = 0.0
    for block in range(2):
        costs = alone.pair_costs(targets, predictions[:, block, :, 2:])
        of_query = np.asarray(heads.match(costs, np.ones((3, 2), bool)))
        for row, query in zip(*np.nonzero(of_query >= 0), strict=True):
            total += predictions[row, block, query, of_query[row, query]]
    expected = float(alone(targets, predictions[..., 2:])) + total / 6  # over the patches
    assert float(found) == pytest.approx(expected, rel=1e-5)
    loss = PatchDetectionLoss(2, no_object=0.3)
    assert keras.losses.deserialize(keras.losses.serialize(loss)).get_config() == loss.get_config()


def test_distances_are_of_vectors_of_length_1():
    model = detector()
    randomise(model, 1)
    inputs = draw() | {"pixel_mask": np.ones((2, 20, 24), bool)}
    distances = model(inputs)[:, -1, :, :2]
    found = keras.Model(model.input, model.found)(inputs)
    a, b = (np.asarray(found[name]) for name in ("features", "patch_features"))
    a, b = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (a, b))
    expected = np.square(a[:, :, None] - b.reshape(2, 1, 2, -1)).sum(-1)
    np.testing.assert_allclose(distances, expected, atol=1e-5)


def test_the_backbone_of_images_is_frozen_and_free_in_the_copy():
    model = detector()
    of_images = {
        weight.path for weight in DETR(SMALL).weights if "stage_" in weight.path or "stem" in weight.path
    }
    assert of_images and not of_images & {weight.path for weight in model.trainable_weights}
    randomise(model, 1)
    copied = model.detector()
    assert of_images & {weight.path for weight in copied.trainable_weights}
    images = {"images": draw()["images"]}
    np.testing.assert_array_equal(
        copied(images)["decoder_sequence_output"], model.backbone(images)["decoder_sequence_output"]
    )


def test_refusals():
    for count in (0, 4):
        with pytest.raises(ValueError, match=f"`num_patches` must divide the 6 queries; it is {count}"):
            PatchDetector(DETR(SMALL), count)
    with pytest.raises(ValueError, match=r"`dropout` must lie in \[0, 1\); it is 1"):
        PatchQueries(1)
    assert math.prod(detector().output.shape[1:]) == 1 * 6 * (2 + 2 + 4)
