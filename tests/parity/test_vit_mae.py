"""Live: the masked autoencoder against transformers': states, pixels, loss, folders both ways."""

import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm import convert
from keras_tfm.heads import patch_loss
from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import answer, assert_close, draw_weights

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (transformers.ViTMAEModel, transformers.ViTMAEForPreTraining)


def draw_config(rng):
    """Square images: theirs takes no others."""
    patch_size, num_heads, decoder_heads = (int(x) for x in rng.integers(1, 5, 3))
    return transformers.ViTMAEConfig(
        image_size=patch_size * int(rng.integers(2, 6)),
        patch_size=patch_size,
        num_channels=int(rng.integers(1, 4)),
        hidden_size=4 * num_heads * int(rng.integers(1, 4)),
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=num_heads,
        intermediate_size=int(rng.integers(1, 33)),
        hidden_act=str(rng.choice(ACTIVATIONS)),
        layer_norm_eps=float(rng.choice([1e-12, 1e-6, 1e-3])),
        decoder_num_attention_heads=decoder_heads,
        decoder_hidden_size=4 * decoder_heads * int(rng.integers(1, 4)),
        decoder_num_hidden_layers=int(rng.integers(1, 3)),
        decoder_intermediate_size=int(rng.integers(1, 33)),
        mask_ratio=float(rng.choice([0.25, 0.5, 0.75])),
        norm_pix_loss=bool(patch_size > 1 and rng.integers(2)),  # one pixel has no deviation
    )


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs = kind(draw_config(rng)).eval()
    draw_weights(rng, theirs)
    config = theirs.config
    images = rng.normal(size=(2, config.image_size, config.image_size, config.num_channels)).astype("float32")
    noise = rng.random((2, (config.image_size // config.patch_size) ** 2), "float32")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    expected = answer(theirs, images, noise=torch.from_numpy(noise))
    outputs = ours({"images": images, "noise": noise})
    if kind is transformers.ViTMAEModel:
        assert_close(outputs["sequence_output"], expected.last_hidden_state)
    else:
        assert_close(outputs, expected.logits)
        _, targets, weights = ours.examples(images, noise)
        np.testing.assert_array_equal(weights, expected.mask)
        np.testing.assert_allclose(patch_loss()(targets, outputs, weights), expected.loss.detach(), rtol=1e-5)
    convert.save_huggingface(ours, tmp_path / "ours")
    back, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    for (name, a), (_, b) in zip(theirs.named_parameters(), back.named_parameters(), strict=True):
        assert torch.equal(a, b), name
