"""Live: DINOv3 against transformers': states and folders both ways."""

import copy
import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm import convert
from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import answer, check_outputs, check_way_back, draw_images, draw_weights

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))


def draw_config(rng):
    patch_size, num_heads = (int(x) for x in rng.integers(1, 5, 2))
    return transformers.DINOv3ViTConfig(
        image_size=[patch_size * int(x) for x in rng.integers(1, 6, 2)],
        patch_size=patch_size,
        num_channels=int(rng.integers(1, 4)),
        hidden_size=4 * num_heads * int(rng.integers(1, 5)),
        intermediate_size=int(rng.integers(1, 40)),
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=num_heads,
        hidden_act=str(rng.choice(ACTIVATIONS)),
        layer_norm_eps=float(rng.choice([1e-6, 1e-3])),
        use_gated_mlp=bool(rng.integers(2)),
        num_register_tokens=int(rng.integers(1, 5)),
        rope_theta=float(rng.choice([100.0, 10.0])),
        **{f"{part}_bias": bool(rng.integers(2)) for part in ("query", "key", "value")},
    )


def outputs_of(model, images):
    """What theirs gives, by our names."""
    with torch.no_grad():
        given = answer(model, images)
    return {
        "sequence_output": given.last_hidden_state.numpy(),
        "pooled_output": given.pooler_output.numpy(),
    }


@pytest.mark.parametrize("seed", CONFIGS)
def test_both_directions(seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs = transformers.DINOv3ViTModel(draw_config(rng)).eval()
    draw_weights(rng, theirs)
    images = draw_images(rng, theirs.config)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    expected, in_float32 = outputs_of(copy.deepcopy(theirs).double(), images), outputs_of(theirs, images)
    check_outputs(ours({"images": images}), expected, in_float32)
    check_way_back(theirs, ours, tmp_path, without="mask_token")
