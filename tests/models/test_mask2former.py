"""Mask2Former: the published size, its outputs, where its queries look, folders both ways."""

import dataclasses
import math

import numpy as np
import pytest

from keras_tfm import heads
from keras_tfm.convert import save_huggingface
from keras_tfm.layers.resizing import resize_bilinear
from keras_tfm.models import Mask2Former, Mask2FormerConfig
from keras_tfm.models.detection.mask2former import LevelContext
from keras_tfm.private.keras import seed_generators_of
from keras_tfm.visualize import record_attention
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import check_both_ways, check_refusal

RESNET = {"stem_dim": 4, "dims": (8, 8, 8), "depths": (1, 1, 1), "block": "basic"}
SMALL = Mask2FormerConfig(
    (20, 24),
    1,
    backbone_config=RESNET,
    num_levels=2,
    num_queries=3,
    dim=16,
    num_layers=2,
    num_heads=2,
    intermediate_dim=8,
    pyramid_dim=64,
    num_encoder_layers=1,
    encoder_intermediate_dim=8,
    mask_dim=4,
)
# As published, but for the sizes: four maps, of which three are encoded.
FOUR = dataclasses.replace(
    SMALL, num_levels=3, num_layers=3, backbone_config={**RESNET, "dims": (8,) * 4, "depths": (1,) * 4}
)
SWIN = {"dim": 4, "depths": (1, 2, 1, 1), "num_heads": (1, 2, 2, 2), "window": 2, "fixed_windows": True}


def segmenter(config=SMALL, num_classes=2):
    return heads.PointMaskClassifier(Mask2Former(config), num_classes)


# So small that no cell lies so near to the edge of a mask that half precision decides.
COARSE = dataclasses.replace(
    SMALL,
    backbone_config={**RESNET, "dims": (8, 8), "depths": (1, 1)},
    num_levels=1,
    num_layers=1,
    num_queries=2,
    mask_dim=2,
)
test_contract = contract.check_family(
    Case("PointMaskClassifier", lambda: segmenter(COARSE), {"images": floats(20, 24, 1)}, convolves=True)
)


# zoo: transformers' count of two classes, with the 1,536 weights of a norm that has no effect.
@pytest.mark.slow
def test_parameters_of_a_published_size(no_allocation):
    model = heads.PointMaskClassifier(Mask2Former.from_size("S", image_size=64), 2)
    floats_ = [weight for weight in model.weights if "float" in weight.dtype]
    assert contract.num_parameters(floats_) == 68_721_037 - 1_536


# Cheng et al. 2022, in millions, of COCO's 133 classes.
@pytest.mark.slow
@pytest.mark.parametrize(("size", "millions"), [("50", 44), ("101", 63), ("T", 47), ("B", 107), ("L", 216)])
def test_parameters_of_the_paper(size, millions, no_allocation):
    model = heads.PointMaskClassifier(Mask2Former.from_size(size, image_size=64), 133)
    floats_ = [weight for weight in model.weights if "float" in weight.dtype]
    assert round(contract.num_parameters(floats_) / 1e6) == millions


def draw(seed=0):
    return np.random.default_rng(seed).normal(size=(2, 20, 24, 1)).astype("float32")


@pytest.fixture(scope="module")
def model():
    made = segmenter()
    randomise(made, 3)
    return made


def test_outputs(model):
    outputs = model({"images": draw()})
    assert {name: x.shape for name, x in outputs.items()} == {"logits": (2, 3, 3), "masks": (2, 3, 5, 6)}
    learner = model.learner()
    predictions = learner({"images": draw()})
    assert predictions.shape == (2, 1 + 2, 3, 3 + 5 * 6)
    np.testing.assert_allclose(predictions[:, -1, :, :3], outputs["logits"], atol=1e-5)
    np.testing.assert_allclose(predictions[:, -1, :, 3:], np.reshape(outputs["masks"], (2, 3, -1)), atol=1e-4)
    assert {stack: len(x) for stack, x in model.blocks.items()} == {"backbone": 3, "encoder": 1, "decoder": 2}
    # The model that is trained holds the generator of its loss, so that a checkpoint saves it.
    assert model.loss_of_training().seed_generator in seed_generators_of(learner)
    assert model.loss_of_training().num_points == 5 * 6


def test_a_query_sees_its_mask_or_everything_by_hand():
    pixels = np.array([[[1.0, 0.0], [-1.0, 0.0], [0.0, -1.0]]], "float32")
    vectors = np.array([[[2.0, 1.0], [0.0, 0.0], [0.0, 1.0]]], "float32")
    context = LevelContext("cells", "position", pixels).seen_by(vectors)
    expected = [[[True, False, False], [True, True, True], [True, True, False]]]
    np.testing.assert_array_equal(context["mask"], expected)
    alone = LevelContext("cells", "position", pixels[:, :1]).seen_by(-vectors[:, :1])
    np.testing.assert_array_equal(alone["mask"], [[[True]]])  # an empty mask


def test_queries_read_inside_the_masks_of_the_block_before(model):
    """One level after the other, the smallest first; the weight of cells outside of the mask is 0."""
    with record_attention(model.backbone) as recorded:
        outputs = model.backbone({"images": draw()})
    grids = [(2, 2), (3, 3)]
    seen = 0
    for block, grid in enumerate(grids):
        place = f"decoder_block_{block}/context_attention"
        (weights,) = (np.asarray(x) for name, x in recorded.items() if place in name)
        features = resize_bilinear(outputs["mask_features"], grid)
        logits = np.einsum("bqe,byxe->bqyx", outputs["mask_vectors"][:, block], features).reshape(2, 3, -1)
        inside = (logits >= 0) | (logits < 0).all(-1, keepdims=True)
        assert weights.shape == (2, 2, 3, math.prod(grid))
        np.testing.assert_array_equal(weights > 0, np.broadcast_to(inside[:, None], weights.shape))
        seen += (~inside).sum()
    assert seen > 0


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["ResNet", "Swin"])
def test_folders_of_transformers_both_ways(backbone, tmp_path):
    config = FOUR
    if backbone == "Swin":
        config = dataclasses.replace(FOUR, image_size=(32, 40), backbone="Swin", backbone_config=SWIN)
    model = segmenter(config)
    check_both_ways(model, tmp_path / "folder")


@pytest.mark.slow
def test_configurations_that_the_weights_do_not_bear_out(tmp_path):
    save_huggingface(Mask2Former(FOUR), tmp_path / "folder")
    for name, value, message in (
        ("num_queries", 4, "queries_features"),
        ("decoder_layers", 1, "decoder_layers: expected at least 1"),
        ("decoder_layers", "many", "decoder_layers"),
        ("pre_norm", True, "pre_norm"),
        ("mask_feature_size", 10**9, "`mask_dim` is 1,000,000,000, and no weight has such an axis"),
        ("backbone_config", {"model_type": "focalnet"}, "backbone_config.model_type"),
    ):
        check_refusal(tmp_path / "folder", {name: value}, message)


def test_refusals():
    with pytest.raises(ValueError, match="`dim` must be a multiple of 4"):
        Mask2FormerConfig(dim=6, num_heads=2)
    with pytest.raises(ValueError, match=r"`pyramid_dim` must be a multiple of 32 and .* it is 40"):
        Mask2FormerConfig(pyramid_dim=40)
    with pytest.raises(ValueError, match=r"`num_layers` must be at least `num_levels`, 3, .* it is 2"):
        dataclasses.replace(SMALL, num_levels=3)
    with pytest.raises(ValueError, match="`num_levels` must be at most 3; it is 4"):
        Mask2Former(dataclasses.replace(SMALL, num_levels=4, num_layers=4))


@pytest.mark.slow
def test_models_that_transformers_does_not_have(tmp_path):
    with pytest.raises(ValueError, match="Mask2FormerModel computes only `num_levels` 3; it is 2"):
        save_huggingface(Mask2Former(SMALL), tmp_path / "two")
    with pytest.raises(ValueError, match="Mask2FormerModel takes a backbone of 4 stages; it has 3"):
        save_huggingface(Mask2Former(dataclasses.replace(FOUR, backbone_config=RESNET)), tmp_path / "three")
