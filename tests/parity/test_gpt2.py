"""Live: GPT-2 against transformers': logits, gradients, and what `generate` writes, token for token."""

import os

import numpy as np
import pytest
import torch
import transformers

from keras_tfm import convert
from keras_tfm.convert.gpt2 import FAMILY
from keras_tfm.generation import (
    Decoder,
    EndTokens,
    MinNewTokens,
    NoRepeatNGram,
    RepetitionPenalty,
)
from keras_tfm.generation.processors import MinP, TopK, TopP, Typical, Written, process
from keras_tfm.models import GPT2
from tests.parity.gpt2_reference import draw_gpt2, draw_prompts, logits_of
from tests.parity.gradients import assert_gradients_agree
from tests.parity.searches import NEW, assert_greedy_agrees, check_beams, generate, pad_id_of, searches

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))


def draw(seed, folder, most=8):
    """A model of theirs, ours from its folder, a batch, and what is left of the randomness."""
    rng = np.random.default_rng(seed)
    theirs = draw_gpt2(rng)
    theirs.save_pretrained(folder / "theirs")
    ours = convert.from_huggingface(folder / "theirs")
    return theirs, ours, draw_prompts(rng, theirs.config.vocab_size, most), rng


@pytest.mark.parametrize("seed", CONFIGS)
def test_logits_and_gradients(seed, tmp_path):
    theirs, ours, inputs, rng = draw(seed, tmp_path, most=20)
    logits, mask = logits_of(theirs, inputs), inputs["padding_mask"]
    np.testing.assert_allclose(
        ours(inputs).numpy()[mask], logits.detach().numpy()[mask], rtol=1e-5, atol=1e-5
    )
    assert_gradients_agree(ours, theirs, inputs, logits, mask, FAMILY, rng)


@pytest.mark.parametrize("seed", CONFIGS)
def test_folders_in_both_directions(seed, tmp_path):
    theirs, ours, inputs, _ = draw(seed, tmp_path)
    for model, kind in ((ours, transformers.GPT2LMHeadModel), (ours.backbone, transformers.GPT2Model)):
        convert.save_huggingface(model, tmp_path / kind.__name__)
        back, report = kind.from_pretrained(tmp_path / kind.__name__, output_loading_info=True)
        assert not any(report.values()), report
        state = theirs.state_dict()
        for name, tensor in back.named_parameters():
            key = name if name in state else f"transformer.{name}"
            assert torch.equal(tensor, state[key]), name
        entries = theirs.config.to_dict()
        for name in (*FAMILY.fields.values(), *FAMILY.fixed_entries):
            assert getattr(back.config, name) == entries[name], name
    again = GPT2.from_huggingface(tmp_path / "GPT2LMHeadModel")
    np.testing.assert_array_equal(again(inputs)["sequence_output"], ours.backbone(inputs)["sequence_output"])


@pytest.mark.parametrize("seed", CONFIGS)
def test_greedy_token_for_token(seed, tmp_path):
    theirs, ours, inputs, _ = draw(seed, tmp_path)
    plain, _ = generate(theirs, inputs, None)
    unpadded = inputs | {"padding_mask": np.ones_like(inputs["padding_mask"])}
    end_id = int(plain[0, -NEW // 2])
    stopped = {"stop": EndTokens(end_id), "pad_id": pad_id_of(theirs)}
    for prompts, options, processors in (
        (inputs, {}, ()),
        (unpadded, {"no_repeat_ngram_size": 2}, (NoRepeatNGram(2),)),  # theirs counts padding as text
        (inputs, {"min_new_tokens": 8}, (MinNewTokens(8, [end_id]),)),
    ):
        decoder = Decoder(ours, NEW, processors=processors, **stopped)
        assert_greedy_agrees(decoder(**prompts).numpy(), *generate(theirs, prompts, end_id, **options))


@pytest.mark.parametrize("seed", CONFIGS)
def test_beams_token_for_token(seed, tmp_path):
    theirs, ours, inputs, rng = draw(seed, tmp_path)
    end_id = int(rng.integers(pad_id_of(theirs)))
    for setting in searches(seed):
        early_stopping = [True, False, "never"][int(rng.integers(3))]
        prompts = inputs
        if setting[-1]:  # theirs counts padding as text
            prompts = inputs | {"padding_mask": np.ones_like(inputs["padding_mask"])}
        check_beams(theirs, ours, prompts, setting, early_stopping, end_id, prompts)


@pytest.mark.parametrize("seed", CONFIGS)
def test_processors_are_transformers(seed):
    from transformers.generation import logits_process

    rng = np.random.default_rng(seed)
    rows, size, length = int(rng.integers(1, 5)), int(rng.integers(5, 40)), int(rng.integers(3, 12))
    logits = rng.normal(size=(rows, size)).astype("float32") * 3
    token_ids = rng.integers(0, size, (rows, length), "int32")
    written = Written(token_ids, np.ones_like(token_ids, bool), np.int32(length), np.int32(0))
    k, share, penalty = int(rng.integers(1, size)), float(rng.uniform(0.05, 0.95)), float(rng.uniform(0.5, 2))
    for ours, theirs in (
        (TopK(k), logits_process.TopKLogitsWarper(k)),
        (TopP(share), logits_process.TopPLogitsWarper(share)),
        (MinP(share), logits_process.MinPLogitsWarper(share)),
        (Typical(share), logits_process.TypicalLogitsWarper(share)),
        (RepetitionPenalty(penalty), logits_process.RepetitionPenaltyLogitsProcessor(penalty)),
        (NoRepeatNGram(2), logits_process.NoRepeatNGramLogitsProcessor(2)),
    ):
        expected = theirs(torch.from_numpy(token_ids).long(), torch.from_numpy(logits.copy())).numpy()
        np.testing.assert_allclose(process(logits, written, [ours]), expected, rtol=1e-6)
