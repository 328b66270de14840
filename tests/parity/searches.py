"""Greedy and beam search by transformers, beside ours."""

import itertools

import numpy as np
import torch

from keras_tfm.generation import BeamSearch, EndTokens, NoRepeatNGram

NEW = 12  # the tokens that are written
# (Length penalty, beams, size of the n-grams that must not repeat)
SETTINGS = [*itertools.product((0.6, 1.0, 2.0), (4, 8), (0, 2))]


def searches(seed):
    """A third of the settings, since each search takes seconds; three seeds in a row have all."""
    return SETTINGS[seed % 3 :: 3]


def pad_id_of(theirs):
    """The last id, by which rows are padded."""
    return theirs.config.vocab_size - 1


def generate(theirs, inputs, end_id, **options):
    """What transformers writes behind the prompts, or behind a decoder's first token: (B, 1 or P, + NEW),
    padded; and its result, with scores.
    """
    with torch.no_grad():
        result = theirs.generate(
            input_ids=torch.from_numpy(inputs["token_ids"]).long(),
            attention_mask=torch.from_numpy(inputs["padding_mask"]).long(),
            max_new_tokens=NEW,
            do_sample=False,
            eos_token_id=end_id,
            pad_token_id=pad_id_of(theirs),
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
    rows = result.sequences.numpy()
    given = 1 if theirs.config.is_encoder_decoder else inputs["token_ids"].shape[1]
    padding = (0, 0), (0, given + NEW - rows.shape[1])
    return np.pad(rows, padding, constant_values=pad_id_of(theirs)), result


def assert_greedy_agrees(rows, expected, result):
    """Rows differ only where the two best tokens score alike within rounding."""
    differs = (rows != expected).any(1)
    if differs.any():
        two_best = torch.stack(result.scores).topk(2).values  # (steps, B, 2)
        assert (two_best[..., 0] - two_best[..., 1]).min(0).values.numpy()[differs].max() < 1e-5


def check_beams(theirs, ours, inputs, setting, early_stopping, end_id, prompts):
    """All beams of both, and their scores; `inputs` are theirs, `prompts` the arguments of our search."""
    length_penalty, num_beams, size = setting
    options = {"num_beams": num_beams, "length_penalty": length_penalty, "early_stopping": early_stopping}
    options |= {"num_return_sequences": num_beams, "no_repeat_ngram_size": size}
    expected, result = generate(theirs, inputs, end_id, **options)
    search = BeamSearch(
        ours,
        NEW,
        num_beams,
        length_penalty,
        early_stopping,
        processors=(NoRepeatNGram(size),) if size else (),
        stop=EndTokens(end_id),
        pad_id=pad_id_of(theirs),
    )
    rows, scores = search.search(**prompts)
    rows, scores = rows.numpy().reshape(expected.shape), scores.numpy().ravel()
    theirs_scores = result.sequences_scores.numpy()
    np.testing.assert_allclose(scores, theirs_scores, rtol=1e-4, atol=1e-4)
    differs = (rows != expected).any(1)
    # Beams that score alike within rounding may stand in another order.
    gaps = np.abs(theirs_scores[:, None] - theirs_scores[None]) + np.eye(len(scores)) * 9
    assert (gaps.min(1)[differs] < 1e-5).all(), (options, rows[differs], expected[differs])
