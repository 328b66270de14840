"""MedT and the gated axial U-Net: outputs, what the pieces see, a segmenter around them, refusals.

`python -m tests.parity.golden` compares both with the authors' numbers.
"""

import numpy as np
import pytest

from keras_tfm.heads import SemanticSegmenter
from keras_tfm.models import GatedAxialUNet, MedT, MedTConfig
from keras_tfm.models.detection.medt import axial_block
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = MedTConfig(image_size=32, num_channels=1, dim=2, depths=(1, 1, 1, 1), num_heads=1)

# Random weights make features of some hundreds of the whole model: their rounding exceeds the bound.
test_contract = contract.check_family(
    Case(
        "block",
        lambda: axial_block(16, 2, "relative", 6, 2, name="block"),
        {"x": floats(6, 4, 6)},
        attends=True,
        convolves=True,
        without_effect=("score_norm/beta",),
    )
)


def test_outputs():
    model = GatedAxialUNet(SMALL)
    assert model.output["mask_features"].shape == (None, 32, 32, 2)
    assert [x.shape[1:] for x in model.hidden_states["encoder"][1:]] == [
        (16, 16, 4),
        (8, 8, 8),
        (4, 4, 16),
        (2, 2, 32),
    ]
    assert [block.name for block in model.blocks["encoder"]] == [f"stage_{i}_block_0" for i in range(4)]
    randomise(model, 1)
    images = np.random.default_rng(0).normal(size=(2, 32, 32, 1)).astype("float32")
    again = GatedAxialUNet.from_config(model.get_config())
    again.set_weights(model.get_weights())
    features, same = (x({"images": images})["mask_features"] for x in (model, again))
    np.testing.assert_array_equal(features, same)
    assert np.isfinite(features).all()


@pytest.fixture(scope="module")
def medt():
    model = SemanticSegmenter(MedT(MedTConfig(128, 1, 4, (1, 1, 1, 1), 1)), 3, "linear")
    randomise(model, 1)
    return model


def test_medt_has_a_branch_for_pieces(medt):
    """A pixel's change reaches, by the local branch, all of its piece of 32 x 32, and no other piece."""
    names = [block.name for block in medt.blocks["encoder"]]
    assert names == [
        "stage_0_block_0",
        "stage_1_block_0",
        *(f"local_stage_{i}_block_0" for i in range(4)),
    ]
    for layer in medt.backbone.layers:
        if layer.name in ("stem_0", "stage_0_block_0", "stage_1_block_0", "decoder_3", "decoder_4"):
            layer.set_weights([np.zeros_like(weight) for weight in layer.get_weights()])
    images = np.random.default_rng(0).normal(size=(1, 128, 128, 1)).astype("float32")
    other = images.copy()
    other[0, 40, 70] += 3
    features = [np.asarray(medt.backbone(x)["mask_features"]) for x in (images, other)]
    changed = (np.abs(features[1] - features[0]).max(-1)[0] > 1e-6).reshape(4, 32, 4, 32).mean(axis=(1, 3))
    assert changed[1, 2] > 0.5 and medt(images).shape == (1, 128, 128, 3)
    changed[0:3, 1:4] = 0  # the last convolution, of 3 x 3, sees a pixel of the neighbours
    assert not changed.any()


def test_refusals():
    with pytest.raises(ValueError, match=r"`depths` must have 4 numbers; they are \(1, 1\)"):
        MedTConfig(depths=(1, 1))
    with pytest.raises(ValueError, match="`dim` must be a multiple of twice `num_heads`, 16; it is 8"):
        MedTConfig(dim=8)
    with pytest.raises(ValueError, match="`image_size` must be a multiple of 32; it is 100"):
        MedTConfig(100)
    with pytest.raises(ValueError, match="`image_size` must be a multiple of 128; it is 96"):
        MedT(MedTConfig(96))
