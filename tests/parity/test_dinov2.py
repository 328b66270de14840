"""Live: DINOv2 against transformers', without and with registers: states, logits, folders both ways."""

import os

import numpy as np
import pytest
import transformers

from keras_tfm import convert
from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import answer, assert_close, check_way_back, draw_images, draw_weights

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (
    transformers.Dinov2Model,
    transformers.Dinov2ForImageClassification,
    transformers.Dinov2WithRegistersModel,
    transformers.Dinov2WithRegistersForImageClassification,
)


def draw_config(rng, kind):
    """Square images: theirs stretches its positions for all others, even of its own size."""
    patch_size, num_heads = (int(x) for x in rng.integers(1, 5, 2))
    registers = {"num_register_tokens": int(rng.integers(1, 5))} if "Registers" in kind.__name__ else {}
    return kind.config_class(
        image_size=[patch_size * int(rng.integers(1, 6))] * 2,
        patch_size=[patch_size] * 2,
        num_channels=int(rng.integers(1, 4)),
        hidden_size=num_heads * int(rng.integers(1, 9)),
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=num_heads,
        mlp_ratio=int(rng.integers(1, 5)),
        hidden_act=str(rng.choice(ACTIVATIONS)),
        layer_norm_eps=float(rng.choice([1e-6, 1e-3])),
        use_swiglu_ffn=bool(rng.integers(2)),
        drop_path_rate=0.1,
        num_labels=int(rng.integers(1, 6)),
        qkv_bias=bool(rng.integers(2)),
        **registers,
    )


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs = kind(draw_config(rng, kind)).eval()
    draw_weights(rng, theirs)
    images = draw_images(rng, theirs.config)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    outputs, expected = ours({"images": images}), answer(theirs, images)
    if "Classification" in kind.__name__:
        assert_close(outputs, expected.logits)
    else:
        assert_close(outputs["sequence_output"], expected.last_hidden_state)
        assert_close(outputs["pooled_output"], expected.pooler_output)
    check_way_back(theirs, ours, tmp_path, without="mask_token")


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS[::2])
def test_positions_of_another_size(kind, seed, tmp_path):
    """The published models are for 518 pixels, and their preprocessing gives 224."""
    rng = np.random.default_rng(seed)
    theirs = kind(draw_config(rng, kind)).eval()
    draw_weights(rng, theirs)
    theirs.save_pretrained(tmp_path)
    ours = convert.from_huggingface(tmp_path)
    patch_size, config = ours.config.patch_size[0], theirs.config
    for side in (2, 7):
        images = rng.normal(size=(2, *[side * patch_size] * 2, config.num_channels)).astype("float32")
        expected = answer(theirs, images).last_hidden_state
        for model in (ours.with_image_size(side * patch_size), ours.reading(side * patch_size)):
            assert_close(model({"images": images})["sequence_output"], expected)
