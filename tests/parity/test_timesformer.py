"""Live: TimeSformer against transformers': states, logits, folders both ways."""

import json
import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm.convert import keymap, timesformer
from keras_tfm.models import TimeSformer
from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import assert_close, check_way_back, draw_weights, ours_of

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (transformers.TimesformerModel, transformers.TimesformerForVideoClassification)


def draw_config(rng, attention):
    patch_size, num_heads = (int(x) for x in rng.integers(1, 5, 2))
    return transformers.TimesformerConfig(
        num_frames=int(rng.integers(1, 5)),
        image_size=patch_size * int(rng.integers(1, 4)),
        patch_size=patch_size,
        num_channels=int(rng.integers(1, 4)),
        hidden_size=num_heads * int(rng.integers(1, 9)),
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=num_heads,
        intermediate_size=int(rng.integers(1, 33)),
        hidden_act=str(rng.choice(ACTIVATIONS)),
        layer_norm_eps=float(rng.choice([1e-6, 1e-3])),
        qkv_bias=bool(rng.integers(2)),
        attention_type=attention,
        num_labels=int(rng.integers(2, 6)),
    )


def draw(rng, kind, attention):
    """A model of theirs with random weights, two videos, and what it answers."""
    theirs = kind(draw_config(rng, attention)).eval()
    draw_weights(rng, theirs)
    config = theirs.config
    shape = (2, config.num_frames, config.image_size, config.image_size, config.num_channels)
    videos = rng.normal(size=shape).astype("float32")
    return theirs, videos, theirs(pixel_values=torch.from_numpy(videos).permute(0, 1, 4, 2, 3))


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    attention = str(rng.choice(["divided_space_time", "divided_space_time", "joint_space_time"]))
    theirs, videos, expected = draw(rng, kind, attention)
    ours = ours_of(theirs, tmp_path)
    outputs = ours({"videos": videos})
    if kind is transformers.TimesformerModel:
        states = expected.last_hidden_state  # theirs go place by place, through all frames of each
        by_frame = states[:, 1:].unflatten(1, (-1, theirs.config.num_frames)).transpose(1, 2).flatten(1, 2)
        assert_close(outputs["sequence_output"], torch.cat([states[:, :1], by_frame], 1))
        assert_close(outputs["pooled_output"], states[:, 0])
    else:
        assert_close(outputs, expected.logits)
    check_way_back(theirs, ours, tmp_path)


@pytest.mark.parametrize("seed", CONFIGS)
def test_space_attention_gives_the_mean_of_their_frames(seed):
    """Theirs does not average the frames, as the authors' code does, so its folders are refused."""
    rng = np.random.default_rng(seed)
    theirs, videos, _ = draw(rng, transformers.TimesformerModel, "space_only")
    entries = json.loads(theirs.config.to_json_string()) | {"attention_type": "joint_space_time"}
    config = timesformer.FAMILY.read_config(entries, "config.json")
    ours = TimeSformer(type(config).from_json({**vars(config), "attention": "space"}))
    weights = {key: x.detach().numpy() for key, x in theirs.state_dict().items()}
    keymap.read_state(ours, weights, timesformer.rows(ours.config))
    pixels = torch.from_numpy(videos).permute(0, 1, 4, 2, 3)
    states = theirs(pixel_values=pixels, output_hidden_states=True).hidden_states[-1]
    expected = theirs.layernorm(states.unflatten(0, (2, -1)).mean(1))
    assert_close(ours({"videos": videos})["sequence_output"], expected)
