"""Live: CvT against transformers': outputs, maps, folders both ways."""

import os

import keras
import numpy as np
import pytest
import torch
import transformers

from keras_tfm import convert
from tests.parity.images import answer, assert_close, draw_images, draw_weights

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (transformers.CvtModel, transformers.CvtForImageClassification)


def draw_config(rng, num_labels):
    """Three stages, as all that are published have, of images of any shape, which is no entry of theirs."""
    heads = rng.choice([1, 2, 4], 3)
    return transformers.CvtConfig(
        image_size=[int(side) for side in rng.integers(20, 70, 2)],
        num_channels=int(rng.integers(1, 4)),
        embed_dim=[int(x) for x in 4 * rng.integers(1, 6, 3)],
        depth=[int(rng.integers(stage + 1, stage + 3)) for stage in range(3)],  # theirs fails for fewer
        num_heads=[int(x) for x in heads],
        mlp_ratio=[float(x) for x in rng.choice([1.0, 2.5, 4.0], 3)],
        num_labels=num_labels,
    )


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.alike("kind")
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs = kind(draw_config(rng, int(rng.integers(1, 6)))).eval()
    draw_weights(rng, theirs)
    images = draw_images(rng, theirs.config)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size=["5GB", "2KB"][rng.integers(2)])
    ours = convert.from_huggingface(tmp_path / "theirs")
    expected = answer(theirs, images, output_hidden_states=True)
    backbone = getattr(ours, "backbone", ours)
    maps = keras.tree.flatten(keras.Model(backbone.input, backbone.maps)({"images": images}))
    for x, state in zip(maps, expected.hidden_states, strict=True):
        state = state.permute(0, 2, 3, 1).detach().numpy()
        assert np.abs(x - state).max() <= 1e-5 * max(1, np.abs(state).max())
    if kind is KINDS[1]:
        assert_close(ours({"images": images}), expected.logits)
    else:
        norm = torch.nn.functional.layer_norm(expected.cls_token_value[:, 0], theirs.config.embed_dim[-1:])
        assert_close(ours({"images": images})["pooled_output"], norm)
    convert.save_huggingface(ours, tmp_path / "ours")
    back, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    beside = {"layernorm.weight", "layernorm.bias"} if kind is KINDS[0] else set()
    assert report.pop("unexpected_keys") == beside
    assert not any(report.values()), report
    for (name, a), (_, b) in zip(theirs.state_dict().items(), back.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    for name in ("image_size", "num_channels", "embed_dim", "depth", "num_heads", "mlp_ratio"):
        assert getattr(back.config, name) == getattr(theirs.config, name)
