"""Live: ImageGPT against transformers': logits, folders in both directions, what it writes, the palette."""

import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm import convert
from keras_tfm.convert.imagegpt import FAMILY
from keras_tfm.generation import Decoder
from keras_tfm.models import ImageGPT
from tests.parity.gradients import assert_gradients_agree

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))
KINDS = {
    "model": "ImageGPTModel",
    "colours": "ImageGPTForCausalImageModeling",
    "classes": "ImageGPTForImageClassification",
}


def draw(seed, kind, folder):
    """A model of theirs of odd sizes and random weights, ours from its folder, and token ids."""
    rng = np.random.default_rng(seed)
    num_heads = int(rng.integers(1, 5))
    config = transformers.ImageGPTConfig(
        vocab_size=int(rng.integers(20, 60)),
        n_positions=int(rng.integers(12, 30)),
        n_layer=int(rng.integers(1, 4)),
        n_embd=num_heads * int(rng.integers(3, 9)),
        n_head=num_heads,
        n_inner=[None, int(rng.integers(5, 50))][rng.integers(2)],
        layer_norm_epsilon=float(rng.choice([1e-5, 1e-3])),
        activation_function=str(rng.choice(["quick_gelu", "gelu_new"])),
        num_labels=int(rng.integers(2, 7)),
    )
    torch.manual_seed(seed)
    theirs = getattr(transformers, KINDS[kind])(config).eval()
    for name, parameter in theirs.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("ln_" in name), std=0.3)
    theirs.save_pretrained(folder / "theirs")
    ours = convert.from_huggingface(folder / "theirs")
    shape = int(rng.integers(1, 4)), int(rng.integers(2, config.n_positions + 1))
    return theirs, ours, rng.integers(0, config.vocab_size, shape, "int32"), rng


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", CONFIGS)
def test_outputs_and_folders(seed, kind, tmp_path):
    theirs, ours, token_ids, _ = draw(seed, kind, tmp_path)
    output = theirs(torch.from_numpy(token_ids).long())
    expected = output.last_hidden_state if kind == "model" else output.logits
    y = ours({"token_ids": token_ids})
    y = y["sequence_output"] if kind == "model" else y
    np.testing.assert_allclose(y, expected.detach(), rtol=1e-5, atol=1e-5)
    convert.save_huggingface(ours, tmp_path / "ours")
    back, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    state = theirs.state_dict()
    for name, tensor in back.named_parameters():
        assert torch.equal(tensor, state[name]), name
    entries = theirs.config.to_dict()
    for name in (*FAMILY.fields.values(), *FAMILY.fixed_entries):
        assert getattr(back.config, name) == entries[name], name
    again = ImageGPT.from_huggingface(tmp_path / "ours")
    assert again.config == (ours if kind == "model" else ours.backbone).config


@pytest.mark.parametrize("seed", CONFIGS)
def test_gradients(seed, tmp_path):
    theirs, ours, token_ids, rng = draw(seed, "colours", tmp_path)
    inputs = {"token_ids": token_ids, "padding_mask": np.ones_like(token_ids, bool)}
    logits = theirs(torch.from_numpy(token_ids).long()).logits
    assert_gradients_agree(ours, theirs, inputs, logits, inputs["padding_mask"], FAMILY, rng)


@pytest.mark.parametrize("seed", CONFIGS)
def test_whole_pictures_token_for_token(seed, tmp_path):
    """Greedily, from the token that begins to the last pixel."""
    theirs, ours, _, _ = draw(seed, "colours", tmp_path)
    size = theirs.config.n_positions
    begin = np.full((1, 1), theirs.config.vocab_size - 1)
    expected = theirs.generate(
        torch.from_numpy(begin), max_new_tokens=size, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    written = np.array(Decoder(ours, size)(begin))
    with torch.no_grad():
        logits = theirs(torch.from_numpy(written[:, :-1]).long()).logits.numpy()
    best = np.sort(logits, axis=-1)
    assert ((best[..., -1] - best[..., -2] < 1e-3) | (logits.argmax(-1) == written[:, 1:])).all()
    if (best[..., -1] - best[..., -2] > 1e-3).all():
        np.testing.assert_array_equal(written, expected)


@pytest.mark.parametrize("seed", CONFIGS)
def test_palette(seed, tmp_path):
    rng = np.random.default_rng(seed)
    count, size = int(rng.integers(2, 30)), (int(rng.integers(2, 6)), int(rng.integers(2, 6)))
    processor = transformers.ImageGPTImageProcessor(
        clusters=rng.uniform(-1, 1, (count, 3)).tolist(), do_resize=False
    )
    processor.save_pretrained(tmp_path)
    images = rng.integers(0, 256, (3, *size, 3), "uint8")
    expected = processor(list(images), return_tensors="np", input_data_format="channels_last")["input_ids"]
    palette = convert.palette_of(tmp_path)
    ours = np.asarray(palette.encode(images / 255))
    distances = np.linalg.norm((images / 127.5 - 1).reshape(3, -1, 1, 3) - palette.colors, axis=-1)
    picked = [np.take_along_axis(distances, x[..., None], axis=-1) for x in (ours, np.asarray(expected))]
    np.testing.assert_allclose(*picked, atol=1e-5)  # of equally near colours either
    assert (ours == expected).mean() > 0.9
