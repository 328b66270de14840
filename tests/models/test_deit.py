"""DeiT: its published sizes, its two tokens and heads, its copies for other images, its folders."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.heads import Classifier, DistilledClassifier
from keras_tfm.models import DeiT, DeiTConfig, ViT
from tests import contract
from tests.contract import Case, floats, randomise
from tests.models.folders import check_both_ways

SMALL = DeiTConfig(
    (4, 6), patch_size=2, num_channels=1, num_layers=2, dim=8, num_heads=2, intermediate_dim=12
)
IMAGES = {"images": floats(4, 6, 1)}

test_contract = contract.check_family(
    Case("DeiT", lambda: DeiT(SMALL), IMAGES, attends=True),
    Case("DistilledClassifier", lambda: DistilledClassifier(DeiT(SMALL), 3), IMAGES, attends=True),
)


# Touvron et al. 2021, table 1: 5 M, 22 M and 86 M without the second token and head.
@pytest.mark.parametrize(("size", "expected"), [("Ti", 5_910_800), ("S", 22_436_432), ("B", 87_338_192)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = DistilledClassifier(DeiT.from_size(size), 1000)
    assert contract.num_parameters(model.weights) == expected


def test_outputs():
    outputs = DeiT(SMALL)({"images": np.random.default_rng(0).random((3, 4, 6, 1), "float32")})
    assert outputs["sequence_output"].shape == (3, 8, 8)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    np.testing.assert_array_equal(outputs["distilled_output"], outputs["sequence_output"][:, 1])


def test_the_logits_are_the_mean_of_two_heads():
    model = DistilledClassifier(DeiT(SMALL), 3)
    randomise(model, 1)
    images = np.random.default_rng(0).random((2, 4, 6, 1), "float32")
    logits = keras.Model(model.input, model.logits)({"images": images})
    np.testing.assert_allclose(
        model({"images": images}), (logits["class"] + logits["distilled"]) / 2, atol=1e-6
    )
    pooled = model.backbone({"images": images})
    np.testing.assert_allclose(logits["class"], model.head(pooled["pooled_output"]), atol=1e-6)
    np.testing.assert_allclose(
        logits["distilled"], model.distilled_head(pooled["distilled_output"]), atol=1e-6
    )


def test_another_image_size_keeps_the_weights_and_stretches_the_positions():
    deit = DeiT(SMALL)
    larger = deit.with_image_size((8, 12))
    assert larger({"images": np.zeros((1, 8, 12, 1), "float32")})["sequence_output"].shape == (1, 26, 8)
    for old, new in zip(deit.weights, larger.weights, strict=True):
        assert old.path == new.path
        if "position" not in old.path:
            np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(
        larger.position.embedding.embeddings[:2], deit.position.embedding.embeddings[:2]
    )


@pytest.mark.parametrize(("head", "qkv_bias"), [(Classifier, True), (DistilledClassifier, False)])
def test_folders_of_transformers_both_ways(head, qkv_bias, tmp_path):
    model = head(DeiT(dataclasses.replace(SMALL, qkv_bias=qkv_bias)), 3)
    check_both_ways(model, tmp_path / "folder")


def test_refusals():
    with pytest.raises(ValueError, match="must have a `distilled_output`; it has sequence_output, pooled"):
        DistilledClassifier(ViT.from_size("tiny", num_layers=1), 3)
    with pytest.raises(ValueError, match="5 x 6 are not divisible"):
        DeiT(dataclasses.replace(SMALL, image_size=(5, 6)))
