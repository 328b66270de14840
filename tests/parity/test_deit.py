"""Live: DeiT against transformers': logits of both heads, states, folders both ways."""

import os

import keras
import numpy as np
import pytest
import transformers

from tests.parity.images import answer, assert_close, check_way_back, draw_entries_of_vit, draw_model, ours_of

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (
    transformers.DeiTForImageClassificationWithTeacher,
    transformers.DeiTForImageClassification,
    transformers.DeiTModel,
)


def draw_config(rng):
    patch_size = int(rng.integers(1, 5))
    return transformers.DeiTConfig(
        image_size=[int(patch_size * side) for side in rng.integers(1, 6, 2)],
        patch_size=patch_size,
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
    if kind is transformers.DeiTModel:
        assert_close(outputs["sequence_output"], expected.last_hidden_state)
        return  # its pooling layer is left behind
    assert_close(outputs, expected.logits)
    if kind is transformers.DeiTForImageClassificationWithTeacher:
        logits = keras.Model(ours.input, ours.logits)({"images": images})
        assert_close(logits["class"], expected.cls_logits)
        assert_close(logits["distilled"], expected.distillation_logits)
    check_way_back(theirs, ours, tmp_path)
