"""Deformable DETR: the published size, what its variants give, padding, what a head makes of it, folders."""

import dataclasses

import numpy as np
import pytest

import keras_tfm
from keras_tfm import heads
from keras_tfm.convert import from_huggingface, save_huggingface
from keras_tfm.models import DeformableDETR, DeformableDETRConfig
from tests import contract
from tests.contract import Case, floats, mask, randomise
from tests.models.folders import change_config, check_both_ways, check_refusal

RESNET = {"stem_dim": 4, "dims": (8, 8), "depths": (1, 1), "block": "basic"}
SMALL = DeformableDETRConfig(
    (20, 24),
    1,
    backbone_config=RESNET,
    num_queries=3,
    dim=32,
    num_layers=1,
    num_decoder_layers=2,
    num_heads=2,
    intermediate_dim=8,
    num_maps=1,
    num_levels=2,
    num_points=1,
    num_decoder_points=2,
)
REFINED = dataclasses.replace(SMALL, refines=True)
TWO_STAGES = dataclasses.replace(REFINED, proposes=True)


def detector(config=SMALL, num_classes=2):
    return heads.ReferencedDetector(DeformableDETR(config), num_classes)


test_contract = contract.check_family(
    Case(
        "ReferencedDetector",
        detector,
        {"images": floats(20, 24, 1), "pixel_mask": mask(20, 24)},
        convolves=True,
        # A group of one feature is normalised: what is added to all of it is nothing.
        without_effect=tuple(f"encoder_projection_{i}/convolution/bias" for i in range(2)),
        mixes_padding=True,  # the backbone's convolutions do
    )
)


# zoo: with COCO's 91 labels; without the scales and offsets of batch normalisation, which are frozen.
@pytest.mark.parametrize(("size", "expected"), [("50", 40_069_665)])
def test_parameters_of_the_published_size(size, expected, no_allocation):
    model = heads.ReferencedDetector(DeformableDETR.from_size(size, image_size=64), 91)
    assert contract.num_parameters(model.trainable_weights) == expected


def draw(seed=0, batch_size=2):
    return np.random.default_rng(seed).normal(size=(batch_size, 20, 24, 1)).astype("float32")


def test_outputs():
    model = DeformableDETR(SMALL)
    randomise(model, 1)
    outputs = model({"images": draw()})
    assert {name: x.shape for name, x in outputs.items()} == {
        "encoder_sequence_output": (2, 9 + 4, 32),  # 20 x 24 -> 3 x 3 -> 2 x 2
        "decoder_sequence_output": (2, 3, 32),
        "decoder_outputs": (2, 2, 3, 32),
        "references": (2, 1, 3, 4),
    }
    assert {stack: len(blocks) for stack, blocks in model.blocks.items()} == {
        "backbone": 2,
        "encoder": 1,
        "decoder": 2,
    }


@pytest.mark.parametrize("config", [REFINED, TWO_STAGES], ids=["refined", "two stages"])
def test_blocks_correct_the_boxes_of_those_before(config):
    model = detector(config)
    randomise(model, 1)
    backbone = model.backbone
    whole = keras_tfm.Model(model.input, [model.predictions, backbone.output["decoder_boxes"]])
    inputs = {"images": draw(), "pixel_mask": np.ones((2, 20, 24), bool)}
    predictions, boxes = (
        np.asarray(x) for x in whole({"images": draw(), "pixel_mask": np.ones((2, 20, 24), bool)})
    )
    first = predictions.shape[1] - 2  # a row of proposals
    assert predictions.shape == (2, 2 + config.proposes, 3, 2 + 4) and first == config.proposes
    np.testing.assert_allclose(predictions[:, first:, :, 2:], boxes, atol=1e-6)
    states = backbone.hidden_states["decoder"][2]
    head = keras_tfm.Model(model.input, backbone.get_layer("decoder_box_head_1")(states))
    correction = np.asarray(head(inputs))
    expected = 1 / (1 + np.exp(-(np.log(boxes[:, 0] / (1 - boxes[:, 0])) + correction)))
    np.testing.assert_allclose(boxes[:, 1], expected, atol=1e-4)


def test_proposals_are_the_likeliest_cells():
    model = DeformableDETR(TWO_STAGES)
    randomise(model, 1)
    given = model({"images": draw()})["proposals"]
    logits = np.asarray(given)[..., 0]
    assert given.shape == (2, 3, 5) and (np.diff(logits) <= 0).all()
    assert (np.asarray(given)[..., 1:] >= 0).all() and (np.asarray(given)[..., 1:] <= 1).all()
    with pytest.raises(ValueError, match="`num_queries` must be at most 13, the cells of all levels"):
        DeformableDETR(dataclasses.replace(TWO_STAGES, num_queries=14))


def test_the_content_of_padded_cells_changes_nothing():
    model = detector(dataclasses.replace(TWO_STAGES, image_size=(20, 64)))
    randomise(model, 1)
    shown = np.ones((2, 20, 64), bool)
    shown[:, :, 32:] = False
    images = np.random.default_rng(0).normal(size=(2, 20, 64, 1)).astype("float32")
    for name in ("boxes", "logits"):
        a, b = (model({"images": images, "pixel_mask": x})[name] for x in (shown, np.ones_like(shown)))
        assert np.abs(np.asarray(a) - np.asarray(b)).max() > 1e-3  # the mask is read
        assert np.isfinite(a).all()
    hidden = model({"images": images, "pixel_mask": np.zeros_like(shown)})
    assert np.isfinite(hidden["boxes"]).all()


@pytest.mark.parametrize("config", [SMALL, REFINED], ids=["plain", "refined"])
def test_folders_of_transformers_both_ways(config, tmp_path):
    model = detector(config)
    check_both_ways(model, tmp_path / "folder")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("two_stage", True, "two_stage"),
        ("num_feature_levels", 3, r"input_proj\.2\.0\.weight"),
        ("num_queries", 4, "query_position_embeddings.weight"),
        ("backbone_config", {"model_type": "resnet", "hidden_sizes": [8, 8], "depths": [1, 1],
                             "out_features": ["stage1"]}, "backbone_config"),
        ("backbone_config", {"model_type": "resnet", "hidden_sizes": [8, 8]}, "`dims` and `depths`"),
    ],
)  # fmt: skip
def test_configurations_that_the_weights_do_not_bear_out(name, value, message, tmp_path):
    save_huggingface(DeformableDETR(SMALL), tmp_path / "folder")
    check_refusal(tmp_path / "folder", {name: value}, message)


def test_auxiliary_losses_change_no_answer(tmp_path):
    """Unlike those of DETR: its blocks pass their states on as they are."""
    save_huggingface(DeformableDETR(SMALL), tmp_path / "folder")
    change_config(tmp_path / "folder", auxiliary_loss=True)
    assert from_huggingface(tmp_path / "folder").config == SMALL


def test_refusals():
    with pytest.raises(ValueError, match="`num_levels` must be at least `num_maps`, 3; it is 2"):
        DeformableDETRConfig(num_levels=2)
    with pytest.raises(ValueError, match="`proposes` needs `refines`"):
        DeformableDETRConfig(proposes=True)
    with pytest.raises(ValueError, match="`num_maps` must be at most 2; it is 3"):
        DeformableDETR(dataclasses.replace(SMALL, num_maps=3, num_levels=3))
