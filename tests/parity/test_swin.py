"""Live: Swin against transformers': outputs, maps, gradients, folders both ways."""

import os

import numpy as np
import pytest
import transformers

from keras_tfm.convert import swin
from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import answer, assert_close, check_way_back, draw_model, ours_of
from tests.parity.pyramids import check_gradients, check_maps

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "3")))
KINDS = (transformers.SwinModel, transformers.SwinForImageClassification)


def draw_config(rng, num_labels=2):
    """Maps of any shape, of which the last is no smaller than a window: theirs cannot compute others."""
    num_stages, window, patch_size = (int(rng.integers(1, n)) for n in (4, 5, 5))
    least = 2 ** (num_stages - 1) * (window - 1) + 1  # ceil(least / 2 ... / 2) is `window`
    grid = rng.integers(least, least + 9, 2)
    heads = [int(x) for x in rng.choice([1, 2, 4], num_stages)]
    return transformers.SwinConfig(
        image_size=[int(patch_size * side) for side in grid],
        patch_size=patch_size,
        num_channels=int(rng.integers(1, 4)),
        embed_dim=4 * int(rng.integers(1, 5)),
        depths=[int(x) for x in rng.integers(1, 4, num_stages)],
        num_heads=heads,
        window_size=window,
        mlp_ratio=float(rng.choice([1.0, 2.5, 4.0])),
        hidden_dropout_prob=0.1,
        drop_path_rate=0.2,
        hidden_act=str(rng.choice(ACTIVATIONS)),
        layer_norm_eps=float(rng.choice([1e-5, 1e-3])),
        num_labels=num_labels,
    )


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, images = draw_model(rng, kind, draw_config(rng, int(rng.integers(1, 6))))
    ours = ours_of(theirs, tmp_path)
    outputs, expected = ours({"images": images}), answer(theirs, images)
    if kind is KINDS[0]:
        assert_close(outputs["sequence_output"], expected.last_hidden_state)
        assert_close(outputs["pooled_output"], expected.pooler_output)
    else:
        assert_close(outputs, expected.logits)
    check_way_back(theirs, ours, tmp_path, swin.FAMILY)


@pytest.mark.parametrize("seed", CONFIGS)
def test_the_maps_of_every_stage(seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, images = draw_model(rng, KINDS[0], draw_config(rng))
    stages = [layer.blocks[-1] for layer in theirs.encoder.layers]
    check_maps(ours_of(theirs, tmp_path), theirs, stages, images)


@pytest.mark.parametrize("seed", CONFIGS)
def test_gradients_of_classification(seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, images = draw_model(rng, KINDS[1], draw_config(rng, 3))
    ours = ours_of(theirs, tmp_path)
    check_gradients(theirs, ours, swin.FAMILY, images, rng.integers(0, 3, len(images)), tmp_path)
