"""Live: ViViT against transformers': states, the pooling layer, logits, folders both ways."""

import os

import numpy as np
import pytest
import torch
import transformers

from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import assert_close, check_way_back, draw_weights, ours_of

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (transformers.VivitModel, transformers.VivitForVideoClassification)


def draw_config(rng):
    size, num_heads = [int(x) for x in rng.integers(1, 4, 3)], int(rng.integers(1, 5))
    frames, height, width = (side * int(rng.integers(1, 4)) for side in size)
    return transformers.VivitConfig(
        num_frames=frames,
        image_size=[height, width],
        tubelet_size=size,
        num_channels=int(rng.integers(1, 4)),
        hidden_size=num_heads * int(rng.integers(1, 9)),
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=num_heads,
        intermediate_size=int(rng.integers(1, 33)),
        hidden_act=str(rng.choice([*ACTIVATIONS, "gelu_fast"])),
        layer_norm_eps=float(rng.choice([1e-6, 1e-3])),
        num_labels=int(rng.integers(1, 6)),
    )


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs = kind(draw_config(rng)).eval()
    draw_weights(rng, theirs)
    config = theirs.config
    shape = (2, config.num_frames, *config.image_size, config.num_channels)
    videos = rng.normal(size=shape).astype("float32")
    ours = ours_of(theirs, tmp_path)
    outputs = ours({"videos": videos})
    expected = theirs(pixel_values=torch.from_numpy(videos).permute(0, 1, 4, 2, 3))
    if kind is transformers.VivitModel:
        assert_close(outputs["sequence_output"], expected.last_hidden_state)
        assert_close(outputs["pooled_output"], expected.pooler_output)
    else:
        assert_close(outputs, expected.logits)
    check_way_back(theirs, ours, tmp_path)
