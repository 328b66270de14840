"""Live: ViT against transformers': states, the pooling layer, logits, folders both ways."""

import os

import numpy as np
import pytest
import transformers

from tests.parity.images import (
    answer,
    assert_close,
    check_way_back,
    draw_entries_of_vit,
    draw_images,
    draw_model,
    draw_weights,
    ours_of,
)

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (transformers.ViTModel, transformers.ViTForImageClassification)


def draw_config(rng):
    patch_height, patch_width = (int(x) for x in rng.integers(1, 5, 2))
    rows, columns = (int(x) for x in rng.integers(1, 6, 2))
    return transformers.ViTConfig(
        image_size=[patch_height * rows, patch_width * columns],
        patch_size=[patch_height, patch_width],
        **draw_entries_of_vit(rng),
        qkv_bias=bool(rng.integers(2)),
    )


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs, images = draw_model(rng, kind, draw_config(rng))
    ours = ours_of(theirs, tmp_path)
    outputs, expected = ours({"images": images}), answer(theirs, images)
    if kind is transformers.ViTModel:
        assert_close(outputs["sequence_output"], expected.last_hidden_state)
        assert_close(outputs["pooled_output"], expected.pooler_output)
    else:
        assert_close(outputs, expected.logits)
    check_way_back(theirs, ours, tmp_path)


def test_a_model_without_its_pooling_layer(tmp_path):
    rng = np.random.default_rng(0)
    theirs = transformers.ViTModel(draw_config(rng), add_pooling_layer=False).eval()
    draw_weights(rng, theirs)
    images = draw_images(rng, theirs.config)
    ours = ours_of(theirs, tmp_path)
    assert not ours.config.pooler
    assert_close(ours({"images": images})["pooled_output"], answer(theirs, images).last_hidden_state[:, 0])
