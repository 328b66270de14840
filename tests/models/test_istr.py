"""ISTR: boxes that stages correct, what is read of a pyramid; its numbers: tests.parity.golden."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.heads import ReferencedDetector, corners_of
from keras_tfm.layers import DynamicConvolution, roi_align
from keras_tfm.layers.boxes import moved
from keras_tfm.models import ISTR, ISTRConfig
from keras_tfm.models.detection.istr import DELTA_WEIGHTS
from keras_tfm.models.detection.pyramid import PyramidRoIAlign
from keras_tfm.private.keras import inputs_of_calls
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models import test_detr

FIELDS = {"num_queries": 3, "dim": 8, "num_layers": 2, "num_heads": 2, "intermediate_dim": 8}
SIZES = {"num_class_layers": 1, "num_box_layers": 1, "region_size": 2, "mask_region_size": 4}
SMALL = ISTRConfig(
    (20, 24), 1, backbone_config=test_detr.RESNET, **FIELDS, **SIZES, dynamic_dim=4, code_dim=5
)

test_contract = contract.check_family(
    Case(
        "ISTR",
        lambda: ISTR(SMALL),
        test_detr.INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
        chooses=True,  # a level for each box
        without_effect=(
            "pyramid_level_1/convolution/kernel",
            "pyramid_level_1/convolution/bias",
        ),  # too coarse
    )
)
test_dynamic_convolution = contract.check(
    Case(
        "DynamicConvolution",
        lambda: DynamicConvolution(4),
        {"x": floats("T", 8), "context": floats("T", 9, 8)},
    )
)


def draw(seed=0, count=2):
    return np.random.default_rng(seed).normal(size=(count, 20, 24, 1)).astype("float32")


def test_new_boxes_are_the_image_less_its_padding():
    model = ISTR(SMALL)
    shown = np.zeros((3, 20, 24), bool)
    shown[0], shown[1, :10, :12], shown[2, 5:16, 3:] = True, True, True  # the third is in the middle
    inputs = {"images": draw(count=3), "pixel_mask": shown}
    outputs = model(inputs)
    boxes = np.asarray(outputs["decoder_boxes"])
    np.testing.assert_allclose(boxes, np.broadcast_to([0.5, 0.5, 1, 1], boxes.shape), atol=1e-6)
    assert outputs["mask_codes"].shape == (3, 2, 3, 5)
    for name in ("decoder_regions_0", "mask_regions_1"):
        pixels = keras.Model(model.input, inputs_of_calls(model.get_layer(name))[-1])(inputs)
        for found, expected in zip(pixels, [[0, 0, 24, 20], [0, 0, 12, 10], [3, 5, 24, 16]], strict=True):
            np.testing.assert_allclose(found, [expected] * 3, atol=1e-4)


def test_corrections_by_hand_and_their_limit():
    boxes = np.array([[[0.5, 0.5, 0.2, 0.4]]], "float32")
    correction = np.array([[[1.0, -2.0, np.log(2), 100.0]]], "float32")
    expected = [0.5 + 0.5 * 0.2, 0.5 - 0.4, 0.4, 0.4 * 6250]
    np.testing.assert_allclose(moved(boxes, correction, DELTA_WEIGHTS)[0, 0], expected, rtol=1e-4)


def test_a_box_is_read_at_the_level_of_its_size():
    """224 pixels at the stride 16, half the side at half the stride; larger and smaller ones at the ends."""
    rng = np.random.default_rng(0)
    levels = [rng.normal(size=(1, 64 // s, 64 // s, 3)).astype("float32") for s in (4, 8, 16)]
    sides = np.array([10, 56, 111, 112, 223, 224, 900], "float32")
    boxes = np.stack([0 * sides, 0 * sides, sides, sides], axis=-1)[None]
    layer = PyramidRoIAlign(2, (4, 8, 16))
    assert np.asarray(layer.level_of(boxes))[0].tolist() == [0, 0, 0, 1, 1, 2, 2]
    found = np.asarray(layer(levels, boxes))
    for i, level in enumerate((0, 0, 0, 1, 1, 2, 2)):
        expected = roi_align(levels[level], boxes[:, i : i + 1], 2, 1 / (4, 8, 16)[level])
        np.testing.assert_allclose(found[:, i : i + 1], expected, atol=1e-6)
    with pytest.raises(ValueError, match="`levels` must be 3, as `strides`; it is 2"):
        PyramidRoIAlign(2, (4, 8, 16)).build([x.shape for x in levels[:2]], boxes.shape)


def test_a_detector_around_it_and_its_stages():
    model = ReferencedDetector(ISTR(SMALL), 2)
    randomise(model, 1)
    inputs = {"images": draw(), "pixel_mask": np.ones((2, 20, 24), bool)}
    outputs = model(inputs)
    assert outputs["logits"].shape == (2, 3, 2) and outputs["boxes"].shape == (2, 3, 4)
    boxes = np.asarray(model.backbone(inputs)["decoder_boxes"])
    assert np.abs(boxes[:, 0] - boxes[:, 1]).max() > 1e-3  # the second stage corrects the first
    assert np.all(np.isfinite(np.asarray(corners_of(boxes))))


def test_refusals():
    with pytest.raises(ValueError, match="`mask_region_size` must be a multiple of 4; it is 6"):
        dataclasses.replace(SMALL, mask_region_size=6)
    with pytest.raises(ValueError, match="`context` must have the shape"):
        DynamicConvolution(4).build((None, 5, 8), (None, 5, 9, 7))
