"""Live: GPT-2 against transformers': logits, gradients, and what `generate` writes, token for token."""

import itertools
import os

import numpy as np
import pytest
import tensorflow as tf
import torch

from keras_tfm.generation import (
    BeamSearch,
    Decoder,
    EndTokens,
    MinNewTokens,
    NoRepeatNGram,
    RepetitionPenalty,
)
from keras_tfm.generation.processors import MinP, TopK, TopP, Typical, Written, process
from tests.golden.gpt2_weights import check_logits, make_gpt2
from tests.parity.gpt2_reference import draw_gpt2, draw_prompts, logits_of, state_of

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "3")))
NEW = 12


@pytest.mark.parametrize("seed", CONFIGS)
def test_logits_and_gradients(seed):
    rng = np.random.default_rng(seed)
    config, theirs = draw_gpt2(rng)
    inputs = draw_prompts(rng, config, most=20)
    logits = logits_of(theirs, inputs)
    ours = check_logits(config, state_of(theirs), inputs, logits.detach().numpy())
    upstream = rng.normal(size=tuple(logits.shape)).astype("float32") * inputs["padding_mask"][..., None]
    (logits * torch.from_numpy(upstream)).sum().backward()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(ours(inputs) * upstream)
    names = [name for name, _ in theirs.named_parameters()]
    gradients = dict(zip(names, (parameter.grad.numpy() for parameter in theirs.parameters()), strict=True))
    expected = make_gpt2(config, gradients)  # the gradients, where the weights they belong to are
    actual = tape.gradient(loss, [w.value for w in ours.trainable_weights])
    for weight, gradient, exact in zip(
        ours.trainable_weights, actual, expected.trainable_weights, strict=True
    ):
        gradient, exact = np.asarray(tf.convert_to_tensor(gradient)), np.asarray(exact)
        assert np.abs(gradient - exact).max() <= 1e-4 * max(1, np.abs(exact).max()), weight.path


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
def test_greedy_token_for_token(seed):
    rng = np.random.default_rng(seed)
    config, theirs = draw_gpt2(rng)
    inputs = draw_prompts(rng, config)
    ours = make_gpt2(config, state_of(theirs))
    pad_id = config["vocabulary_size"] - 1
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
def test_beams_token_for_token(seed):
    rng = np.random.default_rng(seed)
    config, theirs = draw_gpt2(rng)
    inputs = draw_prompts(rng, config)
    ours = make_gpt2(config, state_of(theirs))
    pad_id = config["vocabulary_size"] - 1
    end_id = int(rng.integers(config["vocabulary_size"] - 1))
    for (num_beams, length_penalty), size in itertools.product(
        ((4, 0.6), (4, 1.0), (4, 2.0), (8, 0.6), (8, 1.0), (8, 2.0)), (0, 2)
    ):
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
