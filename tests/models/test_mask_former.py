"""MaskFormer: the published sizes, its outputs, its loss, the class of a pixel, folders both ways."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm import heads, models
from keras_tfm.convert import save_huggingface
from keras_tfm.models import MaskFormer, MaskFormerConfig
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import check_both_ways, check_refusal

RESNET = {"stem_dim": 4, "dims": (8, 8), "depths": (1, 1), "block": "basic"}
SMALL = MaskFormerConfig(
    (20, 24),
    1,
    backbone_config=RESNET,
    num_queries=3,
    dim=16,
    num_layers=2,
    num_heads=2,
    intermediate_dim=8,
    pyramid_dim=128,
    mask_dim=2,
)
SWIN = {"dim": 4, "depths": (1, 2, 1, 1), "num_heads": (1, 2, 2, 2), "window": 2, "fixed_windows": True}
INPUTS = {"images": floats(20, 24, 1)}


def segmenter(config=SMALL, num_classes=2):
    return heads.MaskClassifier(MaskFormer(config), num_classes)


# The first decoder block's queries are zeros: whatever they attend to has one value, a bias.
WITHOUT_EFFECT = tuple(
    f"decoder_block_0/attention/branch/attention/projections/{name}"
    for name in ("query/kernel", "query/bias", "key/kernel", "value/kernel")
)

test_contract = contract.check_family(
    Case(
        "MaskClassifier",
        segmenter,
        INPUTS,
        attends=True,
        convolves=True,
        without_effect=WITHOUT_EFFECT,
    )
)


# zoo: transformers' count of two classes, with the 2,048 weights of a norm that has no effect.
def test_parameters_of_a_published_size(no_allocation):
    model = heads.MaskClassifier(MaskFormer.from_size("B"), 2)
    floats_ = [weight for weight in model.weights if "float" in weight.dtype]
    assert contract.num_parameters(floats_) == 101_793_403 - 2_048


def draw(seed=0):
    return np.random.default_rng(seed).normal(size=(2, 20, 24, 1)).astype("float32")


def test_outputs():
    model = segmenter()
    randomise(model, 1)
    outputs = model({"images": draw()})
    assert {name: x.shape for name, x in outputs.items()} == {"logits": (2, 3, 3), "masks": (2, 3, 5, 6)}
    predictions = model.learner()({"images": draw()})
    assert predictions.shape == (2, 2, 3, 3 + 5 * 6)
    np.testing.assert_allclose(predictions[:, -1, :, :3], outputs["logits"], atol=1e-5)
    np.testing.assert_allclose(predictions[:, -1, :, 3:], np.reshape(outputs["masks"], (2, 3, -1)), atol=1e-4)
    assert {stack: len(blocks) for stack, blocks in model.blocks.items()} == {"backbone": 2, "decoder": 2}


def test_the_class_of_a_pixel_by_hand():
    """Two queries: the first, surely of class 0, on the left; the second, 0 or 1 alike, everywhere."""
    logits = np.log([[[1.0, 1e-9, 1e-9], [0.5, 0.5, 1e-9]]])
    masks = np.array([[[[50.0, -50.0]], [[50.0, 50.0]]]])
    np.testing.assert_allclose(heads.class_maps(logits, masks)[0, 0], [[1.5, 0.5], [0.5, 0.5]], atol=1e-6)


def test_a_perfect_prediction_and_none():
    """Targets are classes of pixels, or two segments of one class."""
    semantic = np.array([[[0, 0], [1, 255]]])
    segments = np.array([[[[2, 2], [0, 0]], [[0, 0], [2, 0]]]])
    masks = 60.0 * np.array([[[1, 1], [-1, -1]], [[-1, -1], [1, -1]], [[-1, -1], [-1, -1]]])
    for targets, classes in ((semantic, (0, 1, 2)), (segments, (1, 1, 2))):
        logits = 60.0 * np.eye(3)[list(classes)]
        predictions = np.concatenate([logits, masks.reshape(3, 4)], axis=1)[None, None].astype("float32")
        loss = heads.MaskSetLoss((2, 2))
        assert float(loss(targets, predictions)) == pytest.approx(0, abs=1e-6)
        assert float(loss(targets, predictions[:, :, ::-1])) == pytest.approx(0, abs=1e-6)  # a set
        (_, count), (_, num_segments) = loss.means(np.full_like(targets, 255), predictions)
        assert (float(num_segments), float(count)) == (0, pytest.approx(0.3))
    clone = keras.losses.deserialize(keras.losses.serialize(loss))
    assert clone.get_config() == loss.get_config()


@pytest.mark.parametrize("backbone", ["ResNet", pytest.param("Swin", marks=pytest.mark.slow)])
def test_folders_of_transformers_both_ways(backbone, tmp_path):
    config = SMALL
    if backbone == "Swin":
        config = dataclasses.replace(SMALL, image_size=(32, 40), backbone="Swin", backbone_config=SWIN)
    model = segmenter(config)
    check_both_ways(model, tmp_path / "folder")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("decoder_config", {"num_queries": 4}, "`dim` is 256, and no weight has such an axis"),
        ("decoder_config", 7, "decoder_config"),
        ("decoder_config", {"auxiliary_loss": True}, "auxiliary_loss: expected False, got True"),
        ("mask_feature_size", 10**9, "`mask_dim` is 1,000,000,000, and no weight has such an axis"),
        ("backbone_config", {"model_type": "focalnet"}, "backbone_config.model_type"),
        ("backbone_config", {"model_type": "resnet", "hidden_sizes": [8, 8], "depths": [1, 1],
                             "embedding_size": 4, "layer_type": "basic"}, "backbone_config.out_features"),
        ("backbone_config", None, "backbone_config"),
    ],
)  # fmt: skip
def test_configurations_that_the_weights_do_not_bear_out(name, value, message, tmp_path):
    save_huggingface(MaskFormer(SMALL), tmp_path / "folder")
    check_refusal(tmp_path / "folder", {name: value}, message)


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="`dim` must be a multiple of 4"):
        MaskFormerConfig(dim=6, num_heads=2)
    with pytest.raises(ValueError, match="`pyramid_dim` must be a multiple of 32; it is 40"):
        MaskFormerConfig(pyramid_dim=40)
    with pytest.raises(ValueError, match="`num_classes` must be at least 1; it is 0"):
        segmenter(num_classes=0)
    mit = dataclasses.asdict(models.tiny_config(models.MiT))
    fields = {name: value for name, value in mit.items() if name not in ("image_size", "num_channels")}
    config = dataclasses.replace(SMALL, image_size=32, backbone="MiT", backbone_config=fields)
    with pytest.raises(ValueError, match="MaskFormerModel has only `backbone` Swin, ResNet; it is 'MiT'"):
        save_huggingface(MaskFormer(config), tmp_path / "mit")
