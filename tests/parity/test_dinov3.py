"""Live: DINOv3 against transformers': states and folders both ways."""

import copy
import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm import convert
from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import answer, draw_images, draw_weights

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "3")))


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


@pytest.mark.parametrize("seed", CONFIGS)
def test_both_directions(seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs = transformers.DINOv3ViTModel(draw_config(rng)).eval()
    draw_weights(rng, theirs)
    images = draw_images(rng, theirs.config)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    outputs, expected = ours({"images": images}), answer(theirs, images)
    exact = answer(copy.deepcopy(theirs).double(), images.astype("float64"))
    for name, key in (("sequence_output", "last_hidden_state"), ("pooled_output", "pooler_output")):
        # Random weights may magnify roundings: ours may be four times as far off as theirs in float32.
        error, own = (
            np.abs(x - exact[key].detach().numpy()).max()
            for x in (np.asarray(outputs[name]), expected[key].detach().numpy())
        )
        assert error <= max(1e-5, 4 * own)
    convert.save_huggingface(ours, tmp_path / "ours")
    back, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    missing = {key for key in report.pop("missing_keys") if not key.endswith("mask_token")}
    assert not missing and not any(report.values()), (missing, report)
    others = dict(back.named_parameters())
    for name, a in theirs.named_parameters():
        assert name.endswith("mask_token") or torch.equal(a, others[name]), name
