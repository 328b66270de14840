"""Live: encoders of images or videos before decoders of text against transformers': logits, beams, files."""

import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm import convert
from keras_tfm.generation import DecodingOptions, EndTokens
from keras_tfm.models import VisionEncoderDecoder
from tests.parity.images import assert_close, draw_weights

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
ENCODERS = ("ViT", "DeiT", "Timesformer", "Dinov2", "Dinov2WithRegisters", "Swin", "Swinv2")
DECODERS = ("GPT2", "Bart", "MBart")


def draw_encoder(rng, name):
    heads, patch_size = (int(x) for x in rng.integers(1, 4, 2))
    common = {"patch_size": patch_size, "num_channels": int(rng.integers(1, 4)), "layer_norm_eps": 1e-6}
    config = getattr(transformers, f"{name}Config")
    if name.startswith("Swin"):
        sides = {"image_size": 8 * patch_size, "window_size": 4, "embed_dim": 4 * heads}
        return config(**common, **sides, depths=[1, 2], num_heads=[heads, 2 * heads], mlp_ratio=2.0)
    sizes = {
        "image_size": patch_size * int(rng.integers(1, 4)),
        "num_hidden_layers": int(rng.integers(1, 3)),
        "num_attention_heads": heads,
        "hidden_size": heads * int(rng.integers(2, 6)),
    }
    if name == "Timesformer":
        kinds = ["divided_space_time", "joint_space_time"]
        sizes |= {"num_frames": int(rng.integers(1, 4)), "attention_type": str(rng.choice(kinds))}
    if "Dino" not in name:
        sizes["intermediate_size"] = int(rng.integers(3, 20))
    return config(**common, **sizes)


def draw_decoder(rng, name):
    heads, layers, size = (int(x) for x in rng.integers((1, 1, 12), (4, 3, 30)))
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "decoder_start_token_id": 1}
    dim = heads * int(rng.integers(2, 6))
    if name == "GPT2":
        sizes = {"n_embd": dim, "n_head": heads, "n_layer": layers, "n_positions": 24}
        return transformers.GPT2Config(vocab_size=size, **sizes, **ids)
    sizes = {"d_model": dim, "decoder_attention_heads": heads, "decoder_layers": layers}
    sizes |= {"decoder_ffn_dim": int(rng.integers(3, 20)), "max_position_embeddings": 24}
    sizes |= {"encoder_attention_heads": heads, "encoder_layers": layers}  # which are not read
    ids["forced_eos_token_id"] = None
    kind = getattr(transformers, f"{name}Config")
    return kind(vocab_size=size, **sizes, **ids, scale_embedding=bool(rng.integers(2)))


def draw_model(rng, encoder, decoder):
    join = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs
    config = join(draw_encoder(rng, encoder), draw_decoder(rng, decoder))
    model = transformers.VisionEncoderDecoderModel(config).eval()
    draw_weights(rng, model)
    model.generation_config.update(decoder_start_token_id=1, eos_token_id=1, pad_token_id=1)
    return model


@pytest.mark.parametrize("seed", CONFIGS)
def test_both_directions(seed, tmp_path):
    rng = np.random.default_rng(seed)
    encoder, decoder = ENCODERS[seed % len(ENCODERS)], DECODERS[seed % len(DECODERS)]
    if seed % 2:
        encoder, decoder = "ViT", str(rng.choice(DECODERS))
    theirs = draw_model(rng, encoder, decoder)
    config = theirs.config.encoder
    side = config.image_size
    frames = (config.num_frames,) if encoder == "Timesformer" else ()
    images = rng.normal(size=(3, *frames, side, side, config.num_channels)).astype("float32")
    token_ids = rng.integers(2, theirs.config.decoder.vocab_size, (3, 5))
    theirs.save_pretrained(tmp_path / "theirs")
    ours = convert.from_huggingface(tmp_path / "theirs")
    pixels = torch.from_numpy(np.moveaxis(images, -1, -3).copy())
    with torch.no_grad():
        expected = theirs(pixel_values=pixels, decoder_input_ids=torch.from_numpy(token_ids))
        beams = theirs.generate(pixels, num_beams=3, max_new_tokens=7, do_sample=False)
    seen = {"videos" if frames else "images": images}
    inputs = {**seen, "decoder_token_ids": token_ids}
    encoded = expected.encoder_last_hidden_state
    if hasattr(theirs, "enc_to_dec_proj"):
        encoded = theirs.enc_to_dec_proj(encoded)
    if config.model_type == "timesformer" and config.attention_type == "divided_space_time":
        first, places = encoded[:, :1], encoded[:, 1:].unflatten(1, (-1, config.num_frames))
        encoded = torch.cat([first, places.transpose(1, 2).flatten(1, 2)], dim=1)  # ours go frame by frame
    assert_close(ours.backbone(inputs)["encoder_sequence_output"], encoded)
    assert_close(ours(inputs), expected.logits)
    options = DecodingOptions(7, beam_size=3)
    found = options.decoder(ours, EndTokens(1), 1)(np.ones((3, 1), "int32"), context=seen)
    np.testing.assert_array_equal(np.asarray(found)[:, : beams.shape[1]], beams.numpy())

    convert.save_huggingface(ours, tmp_path / "ours")
    kind = transformers.VisionEncoderDecoderModel
    back, report = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    report["missing_keys"] -= {"encoder.embeddings.mask_token"}  # which it has though nothing reads it
    assert not any(report.values()), report
    written = {name: x for name, x in back.named_parameters() if "mask_token" not in name}
    for name, parameter in theirs.named_parameters():
        if "encoder.pooler" in name:  # which theirs has and does not read
            assert not written.pop(name).any()
        elif "mask_token" not in name:
            assert torch.equal(parameter, written.pop(name)), name
    assert not written
    with torch.no_grad():
        again = back.eval()(pixel_values=pixels, decoder_input_ids=torch.from_numpy(token_ids))
    assert_close(again.logits, expected.logits)
    backbone = VisionEncoderDecoder.from_huggingface(tmp_path / "ours")
    for a, b in zip(backbone.weights, ours.backbone.weights, strict=True):
        np.testing.assert_array_equal(a, b)
