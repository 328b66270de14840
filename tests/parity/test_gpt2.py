"""Live: GPT-2 against transformers': logits, gradients, and what `generate` writes, token for token."""

import os

import numpy as np
import pytest
import tensorflow as tf
import torch
import transformers

from keras_tfm import convert
from keras_tfm.convert import keymap
from keras_tfm.convert.gpt2 import FAMILY
from keras_tfm.generation import (
    BeamSearch,
    Decoder,
    EndTokens,
    MinNewTokens,
    NoRepeatNGram,
    RepetitionPenalty,
)
from keras_tfm.generation.processors import MinP, TopK, TopP, Typical, Written, process
from keras_tfm.models import GPT2
from tests.parity.gpt2_reference import draw_gpt2, draw_prompts, logits_of
from tests.parity.searches import searches

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "3")))
NEW = 12


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
    upstream = rng.normal(size=tuple(logits.shape)).astype("float32") * mask[..., None]
    (logits * torch.from_numpy(upstream)).sum().backward()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(ours(inputs) * upstream)
    gradients = tape.gradient(loss, [weight.value for weight in ours.trainable_weights])
    for weight, gradient in zip(ours.trainable_weights, gradients, strict=True):
        weight.assign(tf.convert_to_tensor(gradient))  # so that the table names them
    actual = keymap.save(ours, FAMILY.rows_with(FAMILY.heads["GPT2LMHeadModel"], FAMILY.prefix))
    expected = {name: parameter.grad.numpy() for name, parameter in theirs.named_parameters()}
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        assert np.abs(actual[name] - gradient).max() <= 1e-4 * max(1, np.abs(gradient).max()), name


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
        for name in (*FAMILY.fields.values(), *FAMILY.fixed):
            assert getattr(back.config, name) == entries[name], name
    again = GPT2.from_huggingface(tmp_path / "GPT2LMHeadModel")
    np.testing.assert_array_equal(again(inputs)["sequence_output"], ours.backbone(inputs)["sequence_output"])


def generate(theirs, inputs, end_id, pad_id, **options):
    """What transformers writes: (B, P + NEW), padded, and scores if beams are searched."""
    with torch.no_grad():
        result = theirs.generate(
            input_ids=torch.from_numpy(inputs["token_ids"]).long(),
            attention_mask=torch.from_numpy(inputs["padding_mask"]).long(),
            max_new_tokens=NEW,
            do_sample=False,
            eos_token_id=end_id,
            pad_token_id=pad_id,
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
    rows = result.sequences.numpy()
    rows = np.pad(
        rows, ((0, 0), (0, inputs["token_ids"].shape[1] + NEW - rows.shape[1])), constant_values=pad_id
    )
    return rows, result


@pytest.mark.parametrize("seed", CONFIGS)
def test_greedy_token_for_token(seed, tmp_path):
    theirs, ours, inputs, _ = draw(seed, tmp_path)
    pad_id = theirs.config.vocab_size - 1
    plain, _ = generate(theirs, inputs, None, pad_id)
    unpadded = inputs | {"padding_mask": np.ones_like(inputs["padding_mask"])}
    end_id = int(plain[0, -NEW // 2])
    for prompts, options, processors in (
        (inputs, {}, ()),
        (unpadded, {"no_repeat_ngram_size": 2}, (NoRepeatNGram(2),)),  # theirs counts padding as text
        (inputs, {"min_new_tokens": 8}, (MinNewTokens(8, [end_id]),)),
    ):
        expected, result = generate(theirs, prompts, end_id, pad_id, **options)
        decoder = Decoder(ours, NEW, processors=processors, stop=EndTokens(end_id), pad_id=pad_id)
        rows = decoder(**prompts).numpy()
        differs = (rows != expected).any(1)
        if differs.any():
            two_best = torch.stack(result.scores).topk(2).values  # (steps, B, 2)
            assert (two_best[..., 0] - two_best[..., 1]).min(0).values.numpy()[differs].max() < 1e-5


@pytest.mark.parametrize("seed", CONFIGS)
def test_beams_token_for_token(seed, tmp_path):
    theirs, ours, inputs, rng = draw(seed, tmp_path)
    pad_id = theirs.config.vocab_size - 1
    end_id = int(rng.integers(pad_id))
    for length_penalty, num_beams, size in searches(seed):
        early_stopping = [True, False, "never"][int(rng.integers(3))]
        options = {"num_beams": num_beams, "length_penalty": length_penalty, "early_stopping": early_stopping}
        options["num_return_sequences"] = num_beams
        prompts = inputs
        if size:  # theirs counts padding as text
            prompts = inputs | {"padding_mask": np.ones_like(inputs["padding_mask"])}
            options["no_repeat_ngram_size"] = size
        expected, result = generate(theirs, prompts, end_id, pad_id, **options)
        search = BeamSearch(
            ours,
            NEW,
            num_beams,
            length_penalty,
            early_stopping,
            processors=(NoRepeatNGram(size),) if size else (),
            stop=EndTokens(end_id),
            pad_id=pad_id,
        )
        rows, scores = search.search(**prompts)
        rows, scores = rows.numpy().reshape(expected.shape), scores.numpy().ravel()
        theirs_scores = result.sequences_scores.numpy()
        np.testing.assert_allclose(scores, theirs_scores, rtol=1e-4, atol=1e-4)
        differs = (rows != expected).any(1)
        # Beams that score alike within rounding may stand in another order.
        gaps = np.abs(theirs_scores[:, None] - theirs_scores[None]) + np.eye(len(scores)) * 9
        assert (gaps.min(1)[differs] < 1e-5).all(), (options, rows[differs], expected[differs])


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
