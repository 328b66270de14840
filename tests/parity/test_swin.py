"""Live: Swin and Swin V2 against transformers': outputs, maps, gradients, folders both ways."""

import os

import numpy as np
import pytest
import transformers

from keras_tfm.convert import swin, swin_v2
from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import answer, assert_close, check_way_back, draw_model, ours_of
from tests.parity.pyramids import check_gradients, check_maps

CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))


def draw_entries(rng, num_stages):
    """What the configurations of both versions have in common, but for sizes that depend on others."""
    return {
        "num_channels": int(rng.integers(1, 4)),
        "embed_dim": 4 * int(rng.integers(1, 5)),
        "depths": [int(x) for x in rng.integers(1, 4, num_stages)],
        "num_heads": [int(x) for x in rng.choice([1, 2, 4], num_stages)],
        "mlp_ratio": float(rng.choice([1.0, 2.5, 4.0])),
        "hidden_dropout_prob": 0.1,
        "drop_path_rate": 0.2,
        "hidden_act": str(rng.choice(ACTIVATIONS)),
        "layer_norm_eps": float(rng.choice([1e-5, 1e-3])),
    }


def draw_config(rng, num_labels=2):
    """Maps of any shape, of which the last is no smaller than a window: theirs cannot compute others."""
    num_stages, window, patch_size = (int(rng.integers(1, n)) for n in (4, 5, 5))
    least = 2 ** (num_stages - 1) * (window - 1) + 1  # ceil(least / 2 ... / 2) is `window`
    grid = rng.integers(least, least + 9, 2)
    return transformers.SwinConfig(
        image_size=[int(patch_size * side) for side in grid],
        patch_size=patch_size,
        window_size=window,
        num_labels=num_labels,
        **draw_entries(rng, num_stages),
    )


def draw_v2_config(rng, num_labels=2):
    """Maps whose sides are halved without a rest; of the last one both are a window long, or longer."""
    num_stages, window, patch_size = (int(rng.integers(1, n)) for n in (4, 5, 5))
    last = window + (rng.integers(1, 5, 2) if rng.integers(2) else np.zeros(2, int))
    before = rng.integers(0, 2 * window, num_stages)
    return transformers.Swinv2Config(
        image_size=[int(patch_size * 2 ** (num_stages - 1) * side) for side in last],
        patch_size=patch_size,
        window_size=window,
        pretrained_window_sizes=[int(x) if x > 1 else 0 for x in before],
        num_labels=num_labels,
        **draw_entries(rng, num_stages),
    )


# {version: (a configuration, the names, the classes of a backbone and a classifier)}
VERSIONS = {
    "swin": (draw_config, swin.FAMILY, transformers.SwinModel, transformers.SwinForImageClassification),
    "swin_v2": (
        draw_v2_config,
        swin_v2.FAMILY,
        transformers.Swinv2Model,
        transformers.Swinv2ForImageClassification,
    ),
}
pytestmark = [
    pytest.mark.parity,
    pytest.mark.parametrize("seed", CONFIGS),
    pytest.mark.parametrize("version", VERSIONS),
]


@pytest.mark.parametrize("has_head", [False, True])
def test_both_directions(version, has_head, seed, tmp_path):
    rng = np.random.default_rng(seed)
    draw, family, *kinds = VERSIONS[version]
    theirs, images = draw_model(rng, kinds[has_head], draw(rng, int(rng.integers(1, 6))))
    ours = ours_of(theirs, tmp_path)
    outputs, expected = ours({"images": images}), answer(theirs, images)
    if has_head:
        assert_close(outputs, expected.logits)
    else:
        assert_close(outputs["sequence_output"], expected.last_hidden_state)
        assert_close(outputs["pooled_output"], expected.pooler_output)
    check_way_back(theirs, ours, tmp_path, family)


def test_the_maps_of_every_stage(version, seed, tmp_path):
    rng = np.random.default_rng(seed)
    draw, _, kind, _ = VERSIONS[version]
    theirs, images = draw_model(rng, kind, draw(rng))
    stages = [layer.blocks[-1] for layer in theirs.encoder.layers]
    check_maps(ours_of(theirs, tmp_path), theirs, stages, images)


def test_gradients_of_classification(version, seed, tmp_path):
    rng = np.random.default_rng(seed)
    draw, family, _, kind = VERSIONS[version]
    theirs, images = draw_model(rng, kind, draw(rng, 3))
    ours = ours_of(theirs, tmp_path)
    check_gradients(theirs, ours, family, images, rng.integers(0, 3, len(images)), tmp_path)
