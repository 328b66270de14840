"""BART and mBART: the contract, the released sizes, positions, decoding."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.generation import Decoder
from keras_tfm.heads import LanguageModel
from keras_tfm.models import BART, BARTConfig
from tests import contract
from tests.contract import Case
from tests.layers import reference
from tests.models.test_transformer import BATCH, cache, inputs

TINY = BARTConfig(11, max_length=12, dim=6, num_layers=1, num_heads=2, intermediate_dim=9)
OTHER = dataclasses.replace(
    TINY,
    num_decoder_layers=2,
    num_decoder_heads=3,
    decoder_intermediate_dim=5,
    activation_dropout=0.1,
    scale_embedding=True,
    normalize_first=True,
)
PROMISES = {"attends": True, "causal": "T", "cache": cache}

test_contract = contract.check_family(
    Case("bart", lambda: BART(TINY), inputs(11), **PROMISES, reference=reference.bart,
         tied=lambda model: (model.embedding.token.embeddings, model.output_embedding.token.embeddings)),
    Case("mbart", lambda: BART(OTHER), inputs(11), **PROMISES, reference=reference.bart),
)  # fmt: skip


def num_weights(config):
    """Counted by hand."""
    width, (layers, _, decoder_width) = config.dim, config.decoder_sizes
    attention = 4 * width**2 + 4 * width
    encoder = config.num_layers * (attention + (2 * width + 1) * config.intermediate_dim + 5 * width)
    decoder = layers * (2 * attention + (2 * width + 1) * decoder_width + 7 * width)
    tables = (config.vocabulary_size + 2 * (config.max_length + 2)) * width
    return tables + encoder + decoder + (2 + 2 * config.normalize_first) * 2 * width


@pytest.mark.parametrize("config", [TINY, OTHER])
def test_number_of_weights(config):
    model = BART(config)
    assert sum(w.numpy().size for w in model.trainable_weights) == num_weights(config)


@pytest.mark.parametrize(
    ("size", "number"), [("base", 139_420_416), ("large", 406_291_456), ("mbart-large", 610_851_840)]
)
def test_sizes_are_the_released_models(size, number):
    """The paper's 140 and 400 million, to the last weight of the released files."""
    assert num_weights(BART.sizes[size]) == number


def test_positions_begin_at_the_third_row():
    """No output depends on the first two rows, each on the row of its own position."""
    model = BART(TINY)
    contract.randomise(model, seed=1)
    table = model.get_layer("encoder_position").embedding.embeddings
    before, values = model(BATCH)["encoder_sequence_output"].numpy(), table.numpy()
    for row, changes in ((0, False), (1, False), (2, True), (5, True), (6, False)):
        table.assign(values)
        changed = values.copy()
        changed[row, 0] += 1
        table.assign(changed)
        assert (np.abs(model(BATCH)["encoder_sequence_output"] - before).max() > 1e-3) == changes, row


def test_the_logits_bias_is_added_and_not_trained():
    model = LanguageModel(BART(TINY), use_bias=True)
    before = model(BATCH).numpy()
    model.head.bias.assign(np.arange(11.0))
    np.testing.assert_allclose(model(BATCH), before + np.arange(11), atol=1e-5)
    for tied in (True, False):
        model = LanguageModel(BART(TINY), tied=tied, use_bias=True)
        for trainable in (True, False, True):  # as freezing, and merging low-rank updates, do and undo
            model.trainable = trainable
            assert not any(weight is model.head.bias for weight in model.trainable_weights)
            assert any(weight is model.head.bias for weight in model.non_trainable_weights)


def test_too_long_is_refused():
    model = LanguageModel(BART(TINY))
    context, starts = {"token_ids": BATCH["token_ids"]}, np.full((2, 1), 2)
    with pytest.raises(ValueError, match="has positions for 12 tokens; 13 are asked for"):
        Decoder(model, 12)(starts, context=context)
    assert Decoder(model, 11)(starts, context=context).shape == (2, 12)
    with pytest.raises(Exception, match=r"must lie in .0, 14.; one of them is 14"):
        model({"token_ids": np.ones((1, 13), int), "decoder_token_ids": np.ones((1, 1), int)}).numpy()
