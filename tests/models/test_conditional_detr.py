"""Conditional DETR: the published size, what a head makes of its references, folders."""

import dataclasses

import numpy as np

import keras_tfm
from keras_tfm import heads
from keras_tfm.models import ConditionalDETR, ConditionalDETRConfig
from tests import contract
from tests.contract import Case, floats, mask, randomise
from tests.models.folders import check_both_ways, check_refusal

RESNET = {"stem_dim": 4, "dims": (8, 8), "depths": (1, 1), "block": "basic"}
SMALL = ConditionalDETRConfig(
    (20, 24),
    1,
    backbone_config=RESNET,
    num_queries=3,
    dim=8,
    num_layers=1,
    num_decoder_layers=2,
    num_heads=2,
    intermediate_dim=8,
)
INPUTS = {"images": floats(20, 24, 1), "pixel_mask": mask(20, 24)}


def detector(config=SMALL):
    return heads.ReferencedDetector(ConditionalDETR(config), 2)


# The first decoder block's queries are zeros: whatever they attend to has one value, a bias. Elsewhere a
# vector that all keys share changes no softmax.
FIRST = "decoder_block_0/attention/branch/projections/"
WITHOUT_EFFECT = (
    FIRST + "value/kernel",
    *(
        f"{FIRST}{x}/{y}"
        for x in ("query", "key", "query_position", "key_position")
        for y in ("kernel", "bias")
    ),
    *(f"decoder_block_{i}/attention/branch/projections/key_position/bias" for i in range(2)),
    *(f"decoder_block_{i}/context_attention/branch/projections/key_position/bias" for i in range(2)),
)

test_contract = contract.check_family(
    Case(
        "ConditionalDETR",
        detector,
        INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
        without_effect=WITHOUT_EFFECT,
    )
)


# zoo: with COCO's 91 labels; without the scales and offsets of batch normalisation, which are frozen.
def test_parameters_of_the_published_size(no_allocation):
    model = heads.ReferencedDetector(ConditionalDETR.from_size("50", image_size=64), 91)
    assert contract.num_parameters(model.trainable_weights) == 43_418_401


def test_boxes_are_measured_from_the_references():
    model = detector()
    randomise(model, 1)
    images = np.random.default_rng(0).normal(size=(2, 20, 24, 1)).astype("float32")
    inputs = {"images": images, "pixel_mask": np.ones((2, 20, 24), bool)}
    given = model.backbone(inputs)
    logits = np.asarray(model.get_layer("box_head")(given["decoder_outputs"])) + given["references"]
    predictions = keras_tfm.Model(model.input, model.predictions)(inputs)
    assert predictions.shape == (2, 2, 3, 2 + 4)
    np.testing.assert_allclose(predictions[..., 2:], 1 / (1 + np.exp(-logits)), atol=1e-5)
    assert np.abs(given["references"][..., :2]).max() > 0 and not np.any(given["references"][..., 2:])


def test_folders_of_transformers_both_ways(tmp_path):
    model = detector(dataclasses.replace(SMALL, decoder_intermediate_dim=4))
    check_both_ways(model, tmp_path / "folder")
    check_refusal(tmp_path / "folder", {"auxiliary_loss": True}, "auxiliary_loss: expected False, got True")
