"""BERT: its published sizes, its outputs, the heads of pre-training and fine-tuning around it."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_tfm.heads import (
    Classifier,
    MaskedLM,
    NextSentence,
    SpanFinder,
    TokenCrossEntropy,
    TokenTagger,
    classification_loss,
)
from keras_tfm.models import BERT, BERTConfig
from tests import contract
from tests.contract import Case, ids, mask

TINY = BERTConfig(11, num_layers=2, dim=8, num_heads=2, intermediate_dim=12, max_length=16)
WITHOUT_POOLER = dataclasses.replace(TINY, pooler=False)
ONE_BLOCK = dataclasses.replace(TINY, num_layers=1)  # enough under a head
HIDDEN_STATES = dataclasses.replace(ONE_BLOCK, pooler=False)
INPUTS = {"token_ids": ids("T", 11), "padding_mask": mask("T"), "segment_ids": ids("T", 2)}
WITH_POSITIONS = {**INPUTS, "mask_positions": ids("M", 1)}  # 0 alone is inside whatever the length

test_contract = contract.check_family(
    Case("BERT", lambda: BERT(TINY), INPUTS, attends=True, kind="encoder"),
    Case("BERT without pooler", lambda: BERT(HIDDEN_STATES), INPUTS, attends=True),
    Case("MaskedLM", lambda: MaskedLM(BERT(HIDDEN_STATES)), WITH_POSITIONS, attends=True,
         tied=lambda model: (model.get_layer("mlm").embedding.token, model.backbone.embedding.token)),
    Case("pre-training", lambda: MaskedLM(BERT(ONE_BLOCK), True), WITH_POSITIONS, attends=True),
    Case("NextSentence", lambda: NextSentence(BERT(ONE_BLOCK)), INPUTS, attends=True),
    Case("NextSentence without pooler", lambda: NextSentence(BERT(HIDDEN_STATES)), INPUTS, attends=True),
    Case("Classifier", lambda: Classifier(BERT(ONE_BLOCK), 3, dropout=0.2), INPUTS, attends=True),
    Case("TokenTagger", lambda: TokenTagger(BERT(HIDDEN_STATES), 3, 0.2), INPUTS, attends=True),
    Case("SpanFinder", lambda: SpanFinder(BERT(HIDDEN_STATES)), INPUTS, attends=True),
)  # fmt: skip


# With the pooler. tiny to medium: Turc et al. 2019 count 4.4, 11.3, 29.1 and 41.7 M.
@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("base", 109_482_240),
        ("large", 335_141_888),
        ("tiny", 4_385_920),
        ("mini", 11_170_560),
        ("small", 28_763_648),
        ("medium", 41_373_184),
    ],
)
def test_parameters_of_the_published_sizes(size, count, no_allocation):
    assert contract.num_parameters(BERT.from_size(size).trainable_weights) == count


def test_the_24_small_models():
    names = [name for name in BERT.sizes if name.startswith("L-")]
    assert len(names) == 24 and BERT.sizes["L-12_H-768"] == BERT.sizes["base"] == BERTConfig()
    assert all(config.dim == 64 * config.num_heads for config in BERT.sizes.values())


def test_the_pooled_output_is_a_tanh_of_the_first_token():
    model = BERT(TINY)
    contract.randomise(model, seed=0)
    outputs = model({"token_ids": np.array([[1, 2, 3]])})
    kernel, bias = model.get_layer("pooler").get_weights()
    expected = np.tanh(np.asarray(outputs["sequence_output"])[:, 0] @ kernel + bias)
    np.testing.assert_allclose(outputs["pooled_output"], expected, atol=1e-6)
    assert BERT(WITHOUT_POOLER)({"token_ids": np.array([[1]])}).keys() == {"sequence_output"}


def test_embeddings_are_drawn_apart_and_small():
    tables = [w.numpy() for w in BERT(BERTConfig(500, 1, 64, 1, 64, 400)).weights if w.name == "embeddings"]
    for table in tables:
        assert 0.01 < table.std() < 0.02  # N(0, 0.02²), truncated
    for i, first in enumerate(tables):
        for second in tables[i + 1 :]:
            rows = min(len(first), len(second))
            assert np.abs(first[:rows] - second[:rows]).max() > 1e-3


def test_what_follows_changes_what_comes_before():
    """Left and right context: "The bank of the river", and of the city."""
    model = BERT(TINY)
    contract.randomise(model, seed=0)
    river, city = (model({"token_ids": np.array([[1, 2, 3, 4, x]])})["sequence_output"] for x in (5, 6))
    assert np.abs(river[:, 1] - city[:, 1]).max() > 1e-3


# Heads ------------------------------------------------------------------------------------------------


def test_a_masked_language_model_predicts_where_it_is_told_or_everywhere():
    model = MaskedLM(BERT(WITHOUT_POOLER))
    contract.randomise(model, seed=0)
    token_ids, positions = np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), np.array([[3, 0, 0], [1, 2, 3]])
    everywhere = np.asarray(model({"token_ids": token_ids}))
    assert everywhere.shape == (2, 4, 11)
    there = model({"token_ids": token_ids, "mask_positions": positions})
    np.testing.assert_allclose(there, np.take_along_axis(everywhere, positions[..., None], 1), atol=1e-5)


def test_only_masked_positions_reach_the_vocabulary():
    product = [operation for operation in MaskedLM(BERT(WITHOUT_POOLER)).layers if operation.name == "mlm"]
    assert product[0].input[1].name == "mask_positions"
    assert product[0].compute_output_spec(
        keras.KerasTensor((2, 9, 8)), keras.KerasTensor((2, 3), "int32")
    ).shape == (2, 3, 11)


@pytest.mark.parametrize("position", [-5, pytest.param(4, marks=pytest.mark.slow)])
def test_a_position_outside_is_loud(position):
    model = MaskedLM(BERT(WITHOUT_POOLER))
    batch = {"token_ids": np.array([[1, 2, 3, 4]]), "mask_positions": np.array([[position]])}
    logits = tf.function(lambda x: model(x), jit_compile=True)({k: tf.constant(x) for k, x in batch.items()})
    assert np.isnan(logits).all()


def test_without_a_pooler_the_next_sentence_is_told_by_one_dense_layer_over_the_first_token():
    model = NextSentence(BERT(WITHOUT_POOLER))
    contract.randomise(model, seed=0)
    token_ids = {"token_ids": np.array([[1, 2, 3]])}
    kernel, bias = model.get_layer("nsp").get_weights()
    hidden = np.asarray(model.backbone(token_ids)["sequence_output"])
    np.testing.assert_allclose(model(token_ids), hidden[:, 0] @ kernel + bias, atol=1e-5)
    assert MaskedLM(model.backbone, next_sentence=True)(token_ids)["nsp"].shape == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("pooler", [True, False])
def test_next_sentences_are_learnt_with_and_without_a_pooler(pooler):
    """What holds a 4 follows, what holds a 5 does not; the loss begins at chance, ln 2."""
    keras.utils.set_random_seed(0)
    labels = np.arange(64) % 2
    token_ids = np.random.default_rng(0).integers(6, 11, (64, 7))
    token_ids[np.arange(64), 4 + np.arange(64) % 3] = 4 + labels
    inputs = {"token_ids": token_ids, "segment_ids": np.tile([0, 0, 0, 0, 1, 1, 1], (64, 1))}
    config = dataclasses.replace(TINY, dim=16, dropout=0.0, attention_dropout=0.0, pooler=pooler)
    model = NextSentence(BERT(config))
    model.compile(keras.optimizers.Adam(0.01), classification_loss(), jit_compile=False)
    np.testing.assert_allclose(classification_loss()(labels, model(inputs)), np.log(2), atol=0.1)
    model.fit(tf.data.Dataset.from_tensors((inputs, labels)).repeat(30), shuffle=False, verbose=0)
    assert np.mean(np.argmax(model(inputs), axis=-1) == labels) > 0.95


def losses():
    return {"mlm": TokenCrossEntropy(), "nsp": classification_loss()}


def pre_training_batch(rng):
    inputs = {"token_ids": rng.integers(0, 11, (8, 6)), "mask_positions": rng.integers(0, 6, (8, 2))}
    labels = {"mlm": rng.integers(0, 11, (8, 2)), "nsp": rng.integers(0, 2, 8)}
    weights = {"mlm": rng.integers(0, 2, (8, 2)).astype("float32"), "nsp": np.ones(8, "float32")}
    return inputs, labels, weights


def test_pre_training_sums_its_two_losses_and_begins_at_chance():
    model = MaskedLM(BERT(TINY), next_sentence=True)
    model.compile("adam", losses())
    inputs, labels, weights = pre_training_batch(np.random.default_rng(0))
    results = model.evaluate(inputs, labels, sample_weight=weights, verbose=0, return_dict=True)
    np.testing.assert_allclose(results["loss"], results["mlm_loss"] + results["nsp_loss"], rtol=1e-6)
    np.testing.assert_allclose(results["mlm_loss"], np.log(11), atol=0.3)
    np.testing.assert_allclose(results["nsp_loss"], np.log(2), atol=0.3)


@pytest.mark.slow
def test_fit_learns_both():
    model = MaskedLM(BERT(TINY), next_sentence=True)
    model.compile(keras.optimizers.Adam(0.01), losses(), jit_compile=False)
    batch = tf.data.Dataset.from_tensors(pre_training_batch(np.random.default_rng(0)))
    before = model.evaluate(batch, verbose=0, return_dict=True)
    model.fit(batch.repeat(60), shuffle=False, verbose=0)
    after = model.evaluate(batch, verbose=0, return_dict=True)
    for name in ("mlm_loss", "nsp_loss"):
        assert after[name] < 0.5 * before[name]


def test_nothing_masked_loses_nothing_and_positions_without_weight_count_not():
    loss, (_, labels, weights) = losses()["mlm"], pre_training_batch(np.random.default_rng(0))
    logits = np.random.default_rng(1).normal(size=(8, 2, 11)).astype("float32")
    assert float(loss(labels["mlm"], logits, np.zeros((8, 2), "float32"))) == 0
    before = loss(labels["mlm"], logits, weights["mlm"])
    changed = ops.where(weights["mlm"][..., None] == 0, 100.0, logits)
    np.testing.assert_allclose(loss(labels["mlm"], changed, weights["mlm"]), before, rtol=1e-6)
