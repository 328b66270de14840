"""T5: the contract, the papers' sizes, its output's scale, lengths beyond training's, decoding."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.generation import BeamSearch, Decoder
from keras_tfm.heads import LanguageModel, TokenCrossEntropy
from keras_tfm.models import T5, T5Config
from tests import contract
from tests.contract import Case
from tests.layers import reference
from tests.models.test_transformer import BATCH, cache, inputs

TINY = T5Config(
    11, num_layers=1, dim=8, num_heads=2, key_dim=4, intermediate_dim=9, num_buckets=6, max_distance=5
)
GATED = dataclasses.replace(
    TINY, num_layers=2, num_decoder_layers=1, key_dim=2, activation="gelu", gated=True, tied=False
)
PROMISES = {"attends": True, "causal": "T", "cache": cache}

test_contract = contract.check_family(
    Case("v1_0", lambda: LanguageModel(T5(TINY)), inputs(11), **PROMISES, left_padding="T",
         reference=lambda model, **batch: reference.head(
             model.head, reference.t5(model.backbone, **batch)["decoder_sequence_output"]),
         tied=lambda model: (
             model.head.embedding.token.embeddings, model.backbone.embedding.token.embeddings)),
    Case("v1_1", lambda: T5(GATED), inputs(11), **PROMISES, reference=reference.t5),
)  # fmt: skip


def num_weights(config):
    """Counted by hand, the output's table included."""
    attention = 4 * config.dim * config.inner_dim
    feedforward = (2 + config.gated) * config.dim * config.intermediate_dim
    encoder = config.num_layers * (attention + feedforward + 2 * config.dim)
    decoder = (config.num_decoder_layers or config.num_layers) * (
        2 * attention + feedforward + 3 * config.dim
    )
    tables = (2 - config.tied) * config.vocabulary_size * config.dim
    return tables + encoder + decoder + 2 * config.dim + 2 * config.num_buckets * config.num_heads


@pytest.mark.parametrize("config", [TINY, GATED])
def test_number_of_weights(config):
    model = LanguageModel(T5(config))
    assert sum(w.numpy().size for w in model.trainable_weights) == num_weights(config)


@pytest.mark.parametrize(
    ("size", "number"),
    [
        ("small", 60_506_624),
        ("base", 222_903_552),
        ("large", 737_668_096),
        ("3b", 2_851_598_336),
        ("11b", 11_307_321_344),
        ("v1.1-small", 76_961_152),
        ("v1.1-base", 247_577_856),
        ("v1.1-large", 783_150_080),
        ("v1.1-xl", 2_849_757_184),
        ("v1.1-xxl", 11_135_332_352),
    ],
)
def test_sizes_are_the_released_models(size, number):
    """The paper's 60, 220, 770 million, 3 and 11 billion, to the last weight of the released files."""
    assert num_weights(T5.sizes[size]) == number


def test_the_output_is_scaled_where_it_is_tied():
    model = LanguageModel(T5(TINY))
    contract.randomise(model, seed=1)
    hidden = model.backbone(BATCH)["decoder_sequence_output"]
    expected = hidden.numpy() @ model.backbone.embedding.token.embeddings.numpy().T / 8**0.5
    np.testing.assert_allclose(model(BATCH), expected, atol=1e-5)
    np.testing.assert_allclose(reference.head(model.head, hidden), expected, atol=1e-5)


def test_initial_weights():
    """Scores of variance 1 without a scale, logits of variance 1; a uniform model's loss, nearly."""
    model = T5.from_size("tiny")
    kernel = model.encoder.blocks[1].attention.branch.projections.query_key_value.kernel.numpy()
    query, key, value = np.split(kernel, 3, axis=1)
    of_context = model.decoder.blocks[0].context_attention.branch.projections.query.kernel
    deviations = [query.std(), key.std(), value.std(), of_context]
    expected = [(128 * 32) ** -0.5, 128**-0.5, 128**-0.5, (128 * 32) ** -0.5]
    np.testing.assert_allclose([np.std(x) for x in deviations[3:]], expected[3:], rtol=0.05)
    np.testing.assert_allclose(deviations[:3], expected[:3], rtol=0.05)
    logits = LanguageModel(model)({"token_ids": [[3, 4, 5]], "decoder_token_ids": [[0, 5, 6]]})
    assert np.std(logits) == pytest.approx(1, rel=0.1)


def test_no_length_is_too_long():
    model = T5(TINY)
    rows = np.ones((1, 700), int)
    assert (
        model({"token_ids": rows, "decoder_token_ids": rows[:, :3]})["encoder_sequence_output"].shape[1]
        == 700
    )


@pytest.mark.slow
def test_decoding():
    """Greedy equals one beam, and steps equal the whole; a sentence learnt by heart comes back."""
    keras.utils.set_random_seed(0)
    model = LanguageModel(T5(dataclasses.replace(TINY, dropout=0.0)))
    model.compile(keras.optimizers.Adam(0.01), TokenCrossEntropy())
    source, target = np.array([[3, 4, 5], [6, 7, 8]]), np.array([[5, 4, 3, 1], [8, 7, 6, 1]])
    shifted = np.concatenate([np.zeros((2, 1), int), target[:, :-1]], axis=1)
    for _ in range(120):
        model.train_on_batch({"token_ids": source, "decoder_token_ids": shifted}, target)
    context = {"token_ids": source}
    starts = np.full((2, 1), model.backbone.config.start_id)
    np.testing.assert_array_equal(Decoder(model, 4)(starts, context=context)[:, 1:], target)
    np.testing.assert_array_equal(BeamSearch(model, 4, 1)(starts, context=context)[:, 1:], target)


def test_the_vocabulary_is_checked():
    model = T5(TINY)
    with pytest.raises(Exception, match=r"must lie in .0, 11.; one of them is 11"):
        model({"token_ids": np.array([[11]]), "decoder_token_ids": np.array([[0]])})
