"""Live: VideoMAE against transformers': states, logits, hidden pixels and their loss, folders both ways."""

import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm.heads import patch_loss
from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import assert_close, check_way_back, draw_weights, ours_of

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (
    transformers.VideoMAEModel,
    transformers.VideoMAEForVideoClassification,
    transformers.VideoMAEForPreTraining,
)


def draw_config(rng, kind):
    """Where theirs predicts pixels, patches are square, and no single pixel, which has no deviation. Norms of
    two features magnify roundings.
    """
    patch_size, length, num_heads, decoder_heads = (int(x) for x in rng.integers(1, 4, 4))
    num_channels = int(rng.integers(1, 4))
    rows, columns = (int(x) for x in rng.integers(2, 5, 2))
    if kind is transformers.VideoMAEForPreTraining:
        patch_size = max(2, patch_size)
        sizes = {"patch_size": patch_size, "image_size": [rows * patch_size, columns * patch_size]}
    else:
        width = int(rng.integers(1, 4))
        sizes = {"patch_size": [patch_size, width], "image_size": [rows * patch_size, columns * width]}
    return transformers.VideoMAEConfig(
        **sizes,
        num_frames=length * int(rng.integers(1, 4)),
        tubelet_size=length,
        num_channels=num_channels,
        hidden_size=4 * num_heads * int(rng.integers(1, 4)),
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=num_heads,
        intermediate_size=int(rng.integers(1, 33)),
        hidden_act=str(rng.choice(ACTIVATIONS)),
        layer_norm_eps=float(rng.choice([1e-12, 1e-6, 1e-3])),
        qv_bias=bool(rng.integers(2)),
        use_mean_pooling=bool(rng.integers(2)),
        decoder_num_attention_heads=decoder_heads,
        decoder_hidden_size=4 * decoder_heads * int(rng.integers(1, 4)),
        decoder_num_hidden_layers=int(rng.integers(1, 3)),
        decoder_intermediate_size=int(rng.integers(1, 33)),
        norm_pix_loss=bool(num_channels < 3 or rng.integers(2)),
        num_labels=int(rng.integers(2, 6)),
    )


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs = kind(draw_config(rng, kind)).eval()
    draw_weights(rng, theirs)
    config = theirs.config
    shape = (2, config.num_frames, *config.image_size, config.num_channels)
    videos = rng.normal(size=shape).astype("float32")
    pixels = torch.from_numpy(videos).permute(0, 1, 4, 2, 3)
    ours = ours_of(theirs, tmp_path)
    if kind is transformers.VideoMAEModel:
        outputs, states = ours({"videos": videos}), theirs(pixel_values=pixels).last_hidden_state
        assert_close(outputs["sequence_output"], states)
        assert_close(outputs["pooled_output"], states.mean(1) if config.use_mean_pooling else states[:, 0])
    elif kind is transformers.VideoMAEForVideoClassification:
        assert_close(ours({"videos": videos}), theirs(pixel_values=pixels).logits)
    else:
        check_pre_training(rng, ours, theirs, videos, pixels)
    check_way_back(theirs, ours, tmp_path)


def check_pre_training(rng, ours, theirs, videos, pixels):
    """The pixels of hidden tubelets, and the loss; theirs takes the mask that ours makes of the noise."""
    noise = rng.random((2, ours.backbone.grid[1]), "float32")
    inputs, targets, weights = ours.examples(videos, noise)
    outputs, hidden = np.asarray(ours(inputs)), np.asarray(weights) == 1
    expected = theirs(pixel_values=pixels, bool_masked_pos=torch.from_numpy(hidden))
    assert_close(outputs[hidden], expected.logits.flatten(0, 1))
    loss = patch_loss()(targets, outputs, weights)
    np.testing.assert_allclose(loss, expected.loss.detach(), rtol=1e-5)
