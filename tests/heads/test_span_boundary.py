"""SpanBERT's boundary objective: by hand, from the boundaries alone, and kept with its model."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.convert import save_huggingface
from keras_tfm.heads import SpanBoundaryHead, SpanMaskedLM, TokenCrossEntropy
from keras_tfm.models import ALBERT, BERT
from tests import contract
from tests.models.test_albert import TINY as ALBERT_TINY
from tests.models.test_bert import WITHOUT_POOLER

# "So long [and thanks for] all the fish": the span is 2 to 4, its boundaries are "long" (1) and "all" (5).
POSITIONS = np.array([[2, 3, 4]], "int32")
BOUNDARIES = np.tile(np.array([1, 5], "int32"), (1, 3, 1))
BATCH = {
    "token_ids": np.array([[1, 2, 3, 4, 5, 6, 7, 8]], "int32"),
    "mask_positions": POSITIONS,
    "span_boundaries": BOUNDARIES,
}


@pytest.fixture
def model():
    model = SpanMaskedLM(BERT(WITHOUT_POOLER))
    contract.randomise(model, seed=0)
    return model


def test_the_head_by_hand(model):
    head = model.get_layer("sbo")
    x = np.random.default_rng(0).normal(size=(1, 8, 8))
    actual = head(x.astype("float32"), POSITIONS, BOUNDARIES)
    weights = {variable.path.partition("sbo/")[2]: variable.numpy() for variable in head.weights}
    table = model.backbone.embedding.token.embeddings.numpy()
    for i in range(3):  # p: the place within the span, counted from its first token
        y = np.concatenate([x[0, 1], x[0, 5], weights["position/embeddings"][i]])
        for layer in range(2):
            y = y @ weights[f"dense_{layer}/kernel"] + weights[f"dense_{layer}/bias"]
            y = y * (1 + np.vectorize(math.erf)(y / np.sqrt(2))) / 2
            y = (y - y.mean()) / np.sqrt(y.var() + 1e-12)
            y = y * weights[f"norm_{layer}/gamma"] + weights[f"norm_{layer}/beta"]
        np.testing.assert_allclose(actual[0, i], y @ table.T + weights["vocabulary/bias"], atol=2e-5)


def test_the_span_itself_is_not_read(model):
    head, x = model.get_layer("sbo"), tf.random.normal((1, 8, 8))
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = TokenCrossEntropy()(np.array([[3, 4, 5]]), head(x, POSITIONS, BOUNDARIES))
    gradient = np.abs(tape.gradient(loss, x))[0].sum(axis=-1)
    assert (gradient[[0, 2, 3, 4, 6, 7]] == 0).all() and (gradient[[1, 5]] > 0).all()


@pytest.mark.slow
def test_both_losses_are_summed_and_learnt(model):
    losses = {"mlm": TokenCrossEntropy(), "sbo": TokenCrossEntropy()}
    model.compile(keras.optimizers.Adam(0.01), losses, jit_compile=False)
    labels = {name: np.array([[3, 4, 5]]) for name in ("mlm", "sbo")}
    weights = {name: np.ones((1, 3), "float32") for name in labels}
    history = model.fit(BATCH, labels, sample_weight=weights, epochs=40, verbose=0).history
    np.testing.assert_allclose(history["loss"], np.add(history["mlm_loss"], history["sbo_loss"]), rtol=1e-5)
    assert history["mlm_loss"][-1] < 0.5 * history["mlm_loss"][0]
    assert history["sbo_loss"][-1] < 0.5 * history["sbo_loss"][0]


@pytest.mark.parametrize(
    ("positions", "boundaries"),
    [
        (3, (-1, 5)),
        pytest.param(3, (1, 8), marks=pytest.mark.slow),
        pytest.param(1, (1, 5), marks=pytest.mark.slow),
    ],
    ids=["before", "after", "place"],
)
def test_a_place_outside_is_loud(positions, boundaries, model):
    batch = BATCH | {"mask_positions": [[positions]], "span_boundaries": [[boundaries]]}
    batch = {name: tf.constant(x, tf.int32) for name, x in batch.items()}
    assert np.isnan(tf.function(lambda x: model(x), jit_compile=True)(batch)["sbo"]).all()


def test_kept_and_loaded(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for name, logits in model(BATCH).items():
        np.testing.assert_array_equal(loaded(BATCH)[name], logits)
    assert loaded.get_layer("sbo").embedding is loaded.backbone.embedding
    with pytest.raises(TypeError, match="SpanMaskedLM around BERT has no counterpart in transformers"):
        save_huggingface(model, tmp_path / "folder")


def test_a_table_narrower_than_the_hidden_states():
    model = SpanMaskedLM(ALBERT(ALBERT_TINY))
    assert model.backbone.embedding.dim < ALBERT_TINY.dim
    assert model(BATCH)["sbo"].shape == (1, 3, ALBERT_TINY.vocabulary_size)


def test_sizes_of_the_head():
    """Two layers from 2 D + 200 and D to D with norms, 512 places, a bias a token; no table of its own."""
    embedding = BERT(WITHOUT_POOLER).embedding
    head = SpanBoundaryHead(embedding)
    head.build((None, None, 8), (None, None), (None, None, 2))
    own = 512 * 200 + (216 * 8 + 8) + (8 * 8 + 8) + 2 * 16 + 11
    assert head.count_params() - embedding.count_params() == own
