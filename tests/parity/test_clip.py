"""Live: CLIP and SigLIP against transformers': states, embeddings, logits, folders both ways."""

import json
import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm import convert
from keras_tfm.convert import CheckpointError
from keras_tfm.models import CLIP, SigLIP
from tests.parity.encoders import ACTIVATIONS
from tests.parity.images import assert_close, draw_weights

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = (transformers.CLIPModel, transformers.SiglipModel)


def tower(rng, **more):
    num_heads = int(rng.integers(1, 5))
    return {
        "hidden_size": num_heads * int(rng.integers(1, 9)),
        "num_hidden_layers": int(rng.integers(1, 4)),
        "num_attention_heads": num_heads,
        "intermediate_size": int(rng.integers(1, 33)),
        **more,
    }


def draw_config(rng, kind):
    patch_size, side = (int(x) for x in rng.integers(1, 5, 2))
    alike = {
        "hidden_act": str(rng.choice(ACTIVATIONS)),
        "layer_norm_eps": float(rng.choice([1e-12, 1e-6, 1e-3])),
    }
    image = tower(
        rng,
        image_size=patch_size * side,
        patch_size=patch_size,
        num_channels=int(rng.integers(1, 4)),
        **alike,
    )
    size = int(rng.integers(5, 40))
    text = tower(rng, vocab_size=size, max_position_embeddings=int(rng.integers(8, 20)), **alike)
    text |= {"pad_token_id": 0, "bos_token_id": 1}
    if kind is transformers.CLIPModel:
        text["eos_token_id"] = int(rng.choice([2, size - 1, 3]))
        width = int(rng.integers(1, 9))
        return transformers.CLIPConfig(text_config=text, vision_config=image, projection_dim=width)
    text |= {"projection_size": image["hidden_size"], "eos_token_id": 1}
    return transformers.SiglipConfig(text_config=text, vision_config=image)


def draw_inputs(rng, config):
    """Three images and as many texts, each with its end somewhere."""
    image, text = config.vision_config, config.text_config
    images = rng.normal(size=(3, image.image_size, image.image_size, image.num_channels)).astype("float32")
    token_ids = rng.integers(3, text.vocab_size - 1, (3, 7))
    end = text.vocab_size - 1 if text.eos_token_id == 2 else text.eos_token_id
    token_ids[range(3), rng.integers(0, 7, 3)] = end
    return images, token_ids


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    theirs = kind(draw_config(rng, kind)).eval()
    draw_weights(rng, theirs)
    images, token_ids = draw_inputs(rng, theirs.config)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    with torch.no_grad():
        expected = theirs(pixel_values=pixels, input_ids=torch.from_numpy(token_ids))
        sides = {"image": theirs.vision_model(pixels), "text": theirs.text_model(torch.from_numpy(token_ids))}
    outputs = ours.backbone({"images": images, "token_ids": token_ids})
    for name, side in sides.items():
        assert_close(outputs[f"{name}_sequence_output"], side.last_hidden_state)
        assert_close(outputs[f"{name}_pooled_output"], side.pooler_output)
        assert_close(outputs[f"{name}_embeddings"], expected[f"{name}_embeds"])
    logits = ours({"images": images, "token_ids": token_ids})
    assert_close(logits, expected.logits_per_image)
    convert.save_huggingface(ours, tmp_path / "ours")
    back, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    for (name, a), (_, b) in zip(theirs.named_parameters(), back.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    with torch.no_grad():  # the configuration too has come through
        again = back.eval()(pixel_values=pixels, input_ids=torch.from_numpy(token_ids))
    assert_close(again.logits_per_image, expected.logits_per_image)
    backbone = (CLIP if kind is transformers.CLIPModel else SigLIP).from_huggingface(tmp_path / "ours")
    for a, b in zip(backbone.weights, ours.backbone.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_siglip_s_folders_of_2024(tmp_path):
    """Their configurations do not state the width of the vectors, which is the texts'."""
    kind, rng = transformers.SiglipModel, np.random.default_rng(0)
    config = draw_config(rng, kind)
    config.text_config.hidden_size = config.text_config.projection_size = config.vision_config.hidden_size
    config.text_config.num_attention_heads = config.vision_config.num_attention_heads
    drawn = kind(config)
    draw_weights(rng, drawn)
    drawn.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    entries = json.loads(path.read_text())
    del entries["text_config"]["projection_size"]
    path.write_text(json.dumps(entries))
    images, token_ids = draw_inputs(rng, config)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    with torch.no_grad():
        theirs = kind.from_pretrained(tmp_path)
        expected = theirs(pixel_values=pixels, input_ids=torch.from_numpy(token_ids)).logits_per_image
    ours = convert.from_huggingface(tmp_path)
    assert_close(ours({"images": images, "token_ids": token_ids}), expected)


def test_towers_that_compute_differently_are_refused(tmp_path):
    kind = transformers.CLIPModel
    kind(draw_config(np.random.default_rng(0), kind)).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    entries = json.loads(path.read_text())
    entries["text_config"]["layer_norm_eps"] = 0.25
    path.write_text(json.dumps(entries))
    with pytest.raises(CheckpointError, match=r"text_config.layer_norm_eps.*0\.25"):
        convert.from_huggingface(tmp_path)
