"""Gated attention in rows and columns: by hand, its bias, its gate, rows without a key."""

import keras
import numpy as np
import pytest

from keras_tfm.layers import GatedAttention, GlobalAttention, OnColumns, RotaryEmbedding
from tests import contract
from tests.contract import Case, floats, mask, randomise

ROWS = {"query": floats("M", "T", 8), "mask": mask("M", "T"), "bias": floats(2, "T", "T")}
TABLE = {"x": floats("M", "T", 8), "mask": mask("M", "T")}
SEQUENCE = {"query": floats("T", 8), "mask": mask("T")}
test_contract = contract.check(
    Case("GatedAttention", lambda: GatedAttention(2, 3), ROWS, attends=True),
    Case("GatedAttention-sequence", lambda: GatedAttention(2, gated=False), SEQUENCE, attends=True),
    Case("GlobalAttention", lambda: GlobalAttention(2, 3), TABLE, attends=True),
    Case("OnColumns", lambda: OnColumns(GatedAttention(2, 3)), TABLE, attends=True),
)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def softmax(x):
    parts = np.exp(x - x.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)


def by_hand(layer, x, bias, seen):
    """The layer on rows x (B, R, T, D), written with NumPy; `seen` (B, R, T) as floats."""
    weights = {w.path.removeprefix(f"{layer.name}/"): np.asarray(w, "float64") for w in layer.weights}
    parts = x @ weights["projections/query_key_value/kernel"]
    query, key, value = (part.reshape(*x.shape[:3], 2, 3) for part in np.split(parts, 3, axis=-1))
    scores = np.einsum("brihk,brjhk->brhij", query, key) / np.sqrt(3) + bias[:, None]
    scores = np.where(seen[:, :, None, None] > 0, scores, -1e30)
    y = np.einsum("brhij,brjhk->brihk", softmax(scores), value).reshape(*x.shape[:3], 6)
    gate = 1 / (1 + np.exp(-(x @ weights["gate/kernel"] + weights["gate/bias"])))
    return (gate * y) @ weights["output/kernel"] + weights["output/bias"]


def test_rows_by_hand():
    layer, x, bias = GatedAttention(2, 3), drawn(2, 3, 5, 8), drawn(2, 2, 5, 5, seed=1)
    seen = np.ones((2, 3, 5))
    seen[0, 1, 2:], seen[1, 2, 0] = 0, 0
    layer(x)
    randomise(layer, 2)
    y = layer(x, mask=seen > 0, bias=bias)
    np.testing.assert_allclose(y, by_hand(layer, x, bias, seen), rtol=1e-5, atol=1e-5)


def test_columns_are_rows_of_the_transpose():
    layer = GatedAttention(2, 3)
    x, seen = drawn(2, 3, 5, 8), drawn(2, 3, 5, seed=1) > -1
    layer(x)
    randomise(layer, 2)
    turned = layer(x.swapaxes(1, 2), mask=seen.swapaxes(1, 2))
    y = OnColumns(layer)(x, mask=seen)
    np.testing.assert_allclose(y, np.swapaxes(turned, 1, 2), rtol=1e-5, atol=1e-6)


def test_a_new_layer_gives_zero_and_an_open_gate():
    for layer in (GatedAttention(2), GlobalAttention(2)):
        np.testing.assert_array_equal(layer(drawn(1, 3, 5, 8)), 0)
        np.testing.assert_allclose(layer.gate(drawn(1, 8)), 1 / (1 + np.exp(-1.0)), rtol=1e-6)


def test_a_row_without_a_key_reads_nothing():
    x, seen = drawn(1, 2, 5, 8), np.ones((1, 2, 5), "bool")
    seen[0, 1] = False
    for layer in (GatedAttention(2, 3), GlobalAttention(2, 3)):
        layer(x)
        randomise(layer, 3)
        bias = np.asarray(layer.output_projection.bias)
        np.testing.assert_allclose(layer(x, mask=seen)[0, 1], np.tile(bias, (5, 1)), rtol=1e-6)


def test_global_attention_has_one_query_for_a_row():
    layer, x = GlobalAttention(2, 3), drawn(1, 2, 5, 8)
    layer(x)
    randomise(layer, 1)
    y, again = layer(x), layer(x[:, :, [3, 1, 0, 4, 2]])
    np.testing.assert_allclose(np.asarray(y)[:, :, [3, 1, 0, 4, 2]], again, rtol=1e-4, atol=1e-6)
    kinds = {w.path.split("/")[-2]: w.shape for w in layer.weights if "projections" in w.path}
    assert kinds == {"query": (8, 6), "key_value": (8, 6)}  # 2 heads of 3; one key and one value of 3


@pytest.mark.parametrize("make", [GatedAttention, GlobalAttention])
def test_a_carried_mask_hides_keys(make):
    token_ids, layer = np.array([[3, 1, 0, 0], [5, 0, 2, 1]]), make(2)
    x = keras.layers.Embedding(7, 8, mask_zero=True)(token_ids)
    layer(x)
    randomise(layer, 1)
    plain = np.asarray(x)
    seen = np.array([[True, False, True, True]] * 2)
    expected = layer(plain, mask=seen & (token_ids != 0))
    np.testing.assert_allclose(layer(x, mask=seen), expected, atol=1e-6)
    assert np.abs(np.asarray(layer(plain, mask=seen)) - expected).max() > 1e-3


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: GatedAttention(2, position=RotaryEmbedding()), "`position` must be None, as rows are sets"),
        (lambda: GlobalAttention(2, window=3), "`window` must be None, as rows are sets; it is 3"),
        (lambda: GatedAttention(2).start(1, 4), "cannot decode step by step"),
        (lambda: GatedAttention(2).start_context(drawn(1, 5, 8)), "cannot decode step by step"),
    ],
)
def test_sets_have_no_order(use, message):
    with pytest.raises(ValueError, match=message):
        use()


@pytest.mark.parametrize("num_heads", [0, 3])
def test_heads_that_do_not_fit(num_heads):
    with pytest.raises(ValueError, match="`num_heads` must"):
        GatedAttention(num_heads)(drawn(1, 5, 8))
