"""Speculative decoding gives what greedy decoding gives, in fewer steps of the large model."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.generation import Decoder, EndTokens, NoRepeatNGram, SpeculativeDecoder
from keras_tfm.heads import LanguageModel
from keras_tfm.models import (
    GPT2,
    GPT2Config,
    RecurrentSeq2Seq,
    RecurrentSeq2SeqConfig,
    Transformer,
    TransformerConfig,
)
from tests import contract
from tests.generation.markov import Markov, markov

PROMPTS = tf.constant([[4, 1], [0, 3], [2, 5]])


@pytest.mark.parametrize(
    "num_drafted", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(6, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("noise", [0.0, 0.5, 5.0])
@pytest.mark.parametrize("processors", [(), (NoRepeatNGram(2),)], ids=["plain", "processed"])
def test_equals_greedy_whatever_the_draft(num_drafted, noise, processors):
    model = markov(9, seed=4)
    draft = Markov(model.table + noise * markov(9, seed=5).table)
    options = {"processors": processors, "stop": EndTokens(2)}
    expected = Decoder(model, 13, **options)(PROMPTS)
    rows, num_rounds = SpeculativeDecoder(model, draft, 13, num_drafted, **options).race(PROMPTS)
    np.testing.assert_array_equal(rows, expected)
    if noise == 0:
        longest = (expected.numpy()[:, 2:] != 0).sum(1).max()
        assert num_rounds <= -(-longest // (num_drafted + 1)) + 1


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_equals_greedy_with_caches_that_go_back(jit_compile):
    """A Transformer whose draft is itself, disturbed: some drafts hold, some are taken back."""
    config = TransformerConfig(
        11, 13, num_layers=1, dim=8, num_heads=2, intermediate_dim=9, normalize_first=True
    )
    model, draft = (LanguageModel(Transformer(config), tied=False) for _ in range(2))
    contract.randomise(model, seed=8)
    rng = np.random.default_rng(0)
    draft.set_weights(
        [w + (0.1 * rng.normal(size=w.shape) if w.dtype.kind == "f" else 0) for w in model.get_weights()]
    )
    context = {"token_ids": tf.constant(rng.integers(3, 11, (4, 6), "int32"))}
    prompts = tf.ones([4, 1], tf.int32)
    expected = Decoder(model, 20, stop=EndTokens(2))(prompts, context=context)
    race = SpeculativeDecoder(model, draft, 20, 3, stop=EndTokens(2)).race
    rows, num_rounds = tf.function(race, autograph=False, jit_compile=jit_compile)(prompts, None, context)
    np.testing.assert_array_equal(rows, expected)
    assert 5 < num_rounds < 20


def test_models_need_room_for_the_last_draft_alone():
    config = GPT2Config(11, max_length=2 + 6 + 3, num_layers=1, dim=8, num_heads=2, intermediate_dim=9)
    model = LanguageModel(GPT2(config))
    contract.randomise(model, seed=8)
    rows = SpeculativeDecoder(model, model, 6, 3)(PROMPTS)
    np.testing.assert_array_equal(rows, Decoder(model, 6)(PROMPTS))


def test_a_recurrent_state_does_not_go_back():
    config = RecurrentSeq2SeqConfig(11, dim=4, hidden_dim=5)
    model = LanguageModel(RecurrentSeq2Seq(config))
    context = {"token_ids": tf.constant([[3, 4]])}
    with pytest.raises(ValueError, match="recurrent state, which cannot be rewound"):
        SpeculativeDecoder(model, model, 4)(tf.constant([[1]]), context=context)


def test_a_draft_of_nothing_is_refused():
    with pytest.raises(ValueError, match="`num_drafted` must be at least 1; it is 0"):
        SpeculativeDecoder(markov(), markov(), 4, 0)
