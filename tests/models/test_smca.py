"""SMCA: the bias that its queries look with, its references, its sizes. Its numbers: tests/golden/."""

import dataclasses

import numpy as np
import pytest
from keras import ops

import keras_tfm
from keras_tfm import heads
from keras_tfm.layers import gaussian_bias
from keras_tfm.models import DETR, SMCA, SMCAConfig
from keras_tfm.visualize import record_attention
from tests import contract
from tests.contract import Case, randomise
from tests.models import test_detr

SMALL = SMCAConfig.from_json({**dataclasses.asdict(test_detr.SMALL), "num_decoder_layers": 2})
INPUTS = test_detr.INPUTS


def detector(config=SMALL):
    return heads.ReferencedDetector(SMCA(config), 2)


test_contract = contract.check_family(
    Case(
        "SMCA",
        detector,
        INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
        without_effect=test_detr.WITHOUT_EFFECT,
    )
)


def draw(seed=0, width=24):
    return np.random.default_rng(seed).normal(size=(2, 20, width, 1)).astype("float32")


def test_a_huge_smoothness_is_detr():
    """Inventory's check: where the Gaussian is as wide as can be, DETR's answers remain."""
    model, detr = SMCA(dataclasses.replace(SMALL, smoothness=1e12)), DETR(DETR.config_class(**detr_fields()))
    randomise(model, 1)
    weights = {weight.path: weight for weight in model.weights}
    for weight in detr.weights:
        weight.assign(weights[weight.path])
    a, b = (x({"images": draw()})["decoder_outputs"] for x in (model, detr))
    np.testing.assert_allclose(a, b, atol=1e-5)
    narrow = SMCA(SMALL)
    narrow.set_weights(model.get_weights())
    assert np.abs(np.asarray(narrow({"images": draw()})["decoder_outputs"]) - b).max() > 1e-3


def detr_fields():
    fields = dataclasses.asdict(SMALL)
    return {name: fields[name] for name in fields.keys() - {"num_scales", "smoothness"}}


def test_queries_look_at_the_cells_around_their_centres():
    """With equal keys the recorded weights are the Gaussian; the centre is a share of what is no padding."""
    model = SMCA(dataclasses.replace(SMALL, image_size=(20, 40), num_scales=0))  # 3 x 5 cells
    for i in range(2):
        for part in ("query", "key"):
            projections = model.get_layer(f"decoder_block_{i}").context_attention.branch.attention.projections
            for weight in getattr(projections, part).weights:
                weight.assign(np.zeros(weight.shape))
    shown = np.ones((2, 20, 40), bool)
    shown[1, :, 24:] = False  # three columns of five
    with record_attention(model) as recorded:
        outputs = model({"images": draw(width=40), "pixel_mask": shown})
    centres = 1 / (1 + np.exp(-np.asarray(outputs["references"])[:, 0, :, :2]))  # (B, Q, 2)
    centres *= np.array([[[5, 3]], [[3, 3]]])
    density = np.exp(gaussian_bias(centres, np.ones((1, 1, 1)), (3, 5)))  # (B, Q, N)
    density[1].reshape(3, 3, 5)[:, :, 3:] = 0
    expected = density / density.sum(-1, keepdims=True)
    looks = [w for name, w in recorded.items() if "decoder" in name and "context_attention" in name]
    assert len(looks) == 2
    for weights in looks:
        for head in range(2):
            np.testing.assert_allclose(weights[:, head], expected, atol=1e-5)


def test_boxes_are_measured_from_the_references():
    model = detector()
    randomise(model, 1)
    inputs = {"images": draw(), "pixel_mask": np.ones((2, 20, 24), bool)}
    given = model.backbone(inputs)
    logits = np.asarray(model.get_layer("box_head")(given["decoder_outputs"])) + given["references"]
    predictions = keras_tfm.Model(model.input, model.predictions)(inputs)
    assert predictions.shape == (2, 2, 3, 2 + 4)
    np.testing.assert_allclose(predictions[..., 2:], ops.sigmoid(logits), atol=1e-5)
    assert np.abs(given["references"][..., :2]).max() > 0 and not np.any(given["references"][..., 2:])


def test_sizes_and_refusals():
    assert {name: size.num_queries for name, size in SMCA.sizes.items()} == {
        "tiny": 16,
        "50": 300,
        "101": 300,
    }
    assert SMCA.sizes["101"].of_backbone == DETR.sizes["101"].of_backbone
    with pytest.raises(ValueError, match="`num_scales` must be at most 2; it is 3"):
        SMCAConfig(num_scales=3)
    with pytest.raises(ValueError, match="`smoothness` must be above 0"):
        SMCAConfig(smoothness=0)
