"""Live: Llama, Mistral, Qwen2, Gemma 2 against transformers: logits, gradients, folders, written ids."""

import json
import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm import convert
from keras_tfm.convert.huggingface import family_of_type
from keras_tfm.generation import Decoder, EndTokens
from tests.parity.gpt2_reference import draw_prompts, logits_of
from tests.parity.gradients import assert_gradients_agree
from tests.parity.searches import NEW, assert_greedy_agrees, check_beams, generate, pad_id_of, searches

pytestmark = [
    pytest.mark.parity,
    pytest.mark.parametrize("seed", range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))),
    pytest.mark.parametrize("name", ["Llama", "Mistral", "Qwen2", "Gemma2"]),
]
SCALINGS = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 2.5},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
]


def draw_entries(name, rng):
    """Odd sizes; a window, where there is one, that is shorter than a text, and not of 1: transformers' cache
    keeps everything then.
    """
    shared, repeats, width = (int(rng.integers(1, n)) for n in (4, 4, 5))
    activation = str(rng.choice(["silu", "gelu_new", "relu"]))
    own = {"hidden_act": activation}
    if name == "Mistral":
        own["sliding_window"] = [None, int(rng.integers(2, 6))][rng.integers(2)]
    if name == "Gemma2":
        own = {
            "hidden_activation": activation,
            "sliding_window": int(rng.integers(2, 6)),
            "query_pre_attn_scalar": int(rng.integers(1, 20)),
            "attn_logit_softcapping": [None, float(rng.uniform(2, 20))][rng.integers(2)],
            "final_logit_softcapping": [None, float(rng.uniform(2, 20))][rng.integers(2)],
            "head_dim": 2 * width,
        }
    return own | {
        "vocab_size": int(rng.integers(20, 60)),
        "max_position_embeddings": int(rng.integers(32, 48)),
        "num_hidden_layers": int(rng.integers(1, 4)),
        "hidden_size": shared * repeats * 2 * width,
        "num_attention_heads": shared * repeats,
        "num_key_value_heads": shared,
        "intermediate_size": int(rng.integers(5, 50)),
        "rms_norm_eps": float(rng.choice([1e-6, 1e-3])),
        "tie_word_embeddings": bool(rng.integers(2)),
        "rope_parameters": SCALINGS[rng.integers(3)] | {"rope_theta": float(rng.choice([1e4, 50.0]))},
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,  # its row would have no gradient
        **({"head_dim": 2 * int(rng.integers(1, 6))} if name != "Qwen2" and rng.integers(2) else {}),
    }


def draw(name, seed, folder, most=8):
    """A model of theirs with every weight at random, ours from its folder, a batch, and the generator."""
    rng = np.random.default_rng(seed)
    config = getattr(transformers, f"{name}Config")(**draw_entries(name, rng), attn_implementation="eager")
    theirs = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    torch.manual_seed(int(rng.integers(2**31)))
    for key, parameter in theirs.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm" in key and name != "Gemma2"), std=0.3)
    theirs.save_pretrained(folder / "theirs")
    ours = convert.from_huggingface(folder / "theirs")
    return theirs, ours, draw_prompts(rng, config.vocab_size, most), rng


def test_logits_and_gradients(name, seed, tmp_path):
    theirs, ours, inputs, rng = draw(name, seed, tmp_path, most=20)
    logits, mask = logits_of(theirs, inputs), inputs["padding_mask"]
    size = max(1, float(logits.detach().abs().max()))
    np.testing.assert_allclose(
        ours(inputs).numpy()[mask], logits.detach().numpy()[mask], rtol=1e-5, atol=1e-5 * size
    )
    assert_gradients_agree(ours, theirs, inputs, logits, mask, family_of_type(name.lower()), rng)


def test_a_scaling_added_to_a_folder(name, seed, tmp_path):
    """As model cards ask for longer texts: another entry beside the parameters that transformers 5 writes."""
    theirs, _, inputs, _ = draw(name, seed, tmp_path, most=20)
    path = tmp_path / "theirs" / "config.json"
    scaling = {"rope_type": "linear", "factor": 3.0}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_scaling": scaling}))
    theirs = type(theirs).from_pretrained(path.parent, attn_implementation="eager")
    logits, mask = logits_of(theirs, inputs).detach().numpy(), inputs["padding_mask"]
    ours = convert.from_huggingface(path.parent)(inputs).numpy()
    np.testing.assert_allclose(ours[mask], logits[mask], rtol=1e-5, atol=1e-5 * max(1, np.abs(logits).max()))


def test_folders_in_both_directions(name, seed, tmp_path):
    theirs, ours, inputs, _ = draw(name, seed, tmp_path)
    for model, kind in ((ours, f"{name}ForCausalLM"), (ours.backbone, f"{name}Model")):
        convert.save_huggingface(model, tmp_path / kind)
        back, report = getattr(transformers, kind).from_pretrained(tmp_path / kind, output_loading_info=True)
        assert not any(report.values()), report
        state = theirs.state_dict()
        for key, tensor in back.named_parameters():
            assert torch.equal(tensor, state[key if key in state else f"model.{key}"]), key
        drawn = draw_entries(name, np.random.default_rng(seed))
        for key in drawn.keys() - {"bos_token_id", "eos_token_id", "pad_token_id"}:
            assert getattr(back.config, key) == getattr(theirs.config, key), key
    again = type(ours.backbone).from_huggingface(tmp_path / f"{name}ForCausalLM")
    assert again.config == ours.backbone.config
    np.testing.assert_array_equal(again(inputs)["sequence_output"], ours.backbone(inputs)["sequence_output"])


def test_greedy_token_for_token(name, seed, tmp_path):
    theirs, ours, inputs, _ = draw(name, seed, tmp_path)
    plain, _ = generate(theirs, inputs, None)
    end_id = int(plain[0, -NEW // 2])
    decoder = Decoder(ours, NEW, stop=EndTokens(end_id), pad_id=pad_id_of(theirs))
    assert_greedy_agrees(decoder(**inputs).numpy(), *generate(theirs, inputs, end_id))


def test_beams_token_for_token(name, seed, tmp_path):
    theirs, ours, inputs, rng = draw(name, seed, tmp_path)
    inputs = inputs | {"padding_mask": np.ones_like(inputs["padding_mask"])}
    end_id = int(rng.integers(pad_id_of(theirs)))
    check_beams(theirs, ours, inputs, searches(seed)[0], True, end_id, inputs)
