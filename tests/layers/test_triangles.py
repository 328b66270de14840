"""Triangles of pairs: each sum by hand, the two directions, hidden edges, dropout of whole rows."""

import keras
import numpy as np
import pytest

from keras_tfm.layers import (
    Block,
    GatedAttention,
    LayerNormalization,
    OuterProductMean,
    PairBias,
    Residual,
    SequenceToPair,
    SharedDropout,
    TableResidual,
    Transition,
    TriangleAttention,
    TriangleMultiplication,
    TwoTrackBlock,
)
from tests import contract
from tests.contract import Case, floats, mask, randomise

PAIRS = {"x": floats("T", "T", 6), "mask": mask("T", "T")}
ALIGNED = {"x": floats("M", "T", 8), "mask": mask("M", "T")}
TRACKS = {
    "sequence": floats("T", 8),
    "pair": floats("T", "T", 6),
    "sequence_mask": mask("T"),
    "pair_mask": mask("T", "T"),
}


def block(pair_first=False):
    sequence = {"attention": TableResidual(GatedAttention(2), LayerNormalization())}
    pair = {"starting": TableResidual(TriangleAttention(2, 3), LayerNormalization(), 0.1, 2)}
    return TwoTrackBlock(PairBias(2), Block(sequence), SequenceToPair(6), Block(pair), pair_first)


test_contract = contract.check(
    Case("PairBias", lambda: PairBias(2), {"pair": floats("T", "T", 6)}),
    Case("TriangleAttention", lambda: TriangleAttention(2, 3), PAIRS, attends=True),
    Case("TriangleMultiplication", lambda: TriangleMultiplication(4), PAIRS),
    Case("OuterProductMean", lambda: OuterProductMean(5, 3), ALIGNED),
    Case("SequenceToPair", lambda: SequenceToPair(6), {"x": floats("T", 8)}),
    Case("Transition", lambda: Transition(5), {"x": floats("T", 8), "mask": mask("T")}),
    Case("TwoTrackBlock", block, TRACKS, attends=True, without_effect=("pair_bias/norm/beta",)),
)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def weights_of(layer):
    return {w.path.removeprefix(f"{layer.name}/"): np.asarray(w, "float64") for w in layer.weights}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("outgoing", [True, False])
def test_multiplication_by_hand(outgoing):
    layer, x = TriangleMultiplication(4, outgoing), drawn(1, 5, 5, 6)
    seen = drawn(1, 5, 5, seed=1) > -1
    layer(x)
    randomise(layer, 2)
    w = weights_of(layer)

    def dense(name, values):
        return values @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    edges = dense("edges", x) * sigmoid(dense("edge_gates", x)) * seen[..., None]
    a, b = np.split(edges[0], 2, axis=-1)
    total = np.zeros((5, 5, 4))
    for i in range(5):
        for j in range(5):
            for k in range(5):
                total[i, j] += a[i, k] * b[j, k] if outgoing else a[k, i] * b[k, j]
    total = (total - total.mean(-1, keepdims=True)) / np.sqrt(total.var(-1, keepdims=True) + 1e-5)
    total = total * w["norm/gamma"] + w["norm/beta"]
    expected = sigmoid(dense("gate", x)) * dense("output", total)
    np.testing.assert_allclose(layer(x, mask=seen), expected, rtol=1e-4, atol=1e-5)


def test_sums_beyond_float16():
    """Of 24 products of 100 and 100; transformers' ESMFold computes them in float32 then."""
    x = np.random.default_rng(0).normal(size=(1, 24, 24, 4)).astype("float32")
    layers = [TriangleMultiplication(5, dtype=dtype) for dtype in ("float32", "mixed_float16")]
    for layer in layers:
        layer(x)
        randomise(layer, 1)
        layer.edges.bias.assign(np.linspace(90, 120, 10))
    np.testing.assert_allclose(layers[1](x), layers[0](x), atol=0.05)


def test_the_bias_of_an_edge_is_the_third_side():
    """Edge ij attends to ik: a change of jk alone, of no edge at i, changes it."""
    layer, x = TriangleAttention(2, 3), drawn(1, 5, 5, 6)
    layer(x)
    randomise(layer, 1)
    before, changed = np.asarray(layer(x)), x.copy()
    changed[0, 2, 3] += 1  # jk for j = 2, k = 3
    moved = np.abs(np.asarray(layer(changed)) - before).max(-1)[0]
    assert (moved[:, 2] > 1e-4).all()  # all edges that end at j
    others = np.delete(np.delete(moved, 2, axis=1), 2, axis=0)
    assert (others == 0).all()


def test_outer_products_by_hand():
    layer, x = OuterProductMean(5, 3), drawn(2, 4, 5, 8)
    seen = drawn(2, 4, 5, seed=1) > -0.5
    layer(x)
    randomise(layer, 2)
    w = weights_of(layer)
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    y = y * w["norm/gamma"] + w["norm/beta"]
    a, b = np.split((y @ w["factors/kernel"] + w["factors/bias"]) * seen[..., None], 2, axis=-1)
    outer = np.einsum("bsic,bsjd->bijcd", a, b).reshape(2, 5, 5, 9)
    count = np.einsum("bsi,bsj->bij", seen.astype(int), seen.astype(int))
    expected = (outer @ w["output/kernel"] + w["output/bias"]) / (count + 1e-3)[..., None]
    np.testing.assert_allclose(layer(x, mask=seen), expected, rtol=1e-4, atol=1e-4)


def test_the_order_of_the_tracks():
    """The bias of the first block knows of the sequence only where `to_pair` stands before it."""
    sequence, pair = drawn(1, 5, 8), np.zeros((1, 5, 5, 6), "float32")
    biases = []
    for pair_first in (False, True):
        layer = block(pair_first)
        layer(sequence, pair)
        randomise(layer, 1)
        layer.pair_bias.norm.beta.assign(np.zeros(6))
        call = layer.sequence.call
        layer.sequence.call = lambda x, call=call, **tensors: biases.append(tensors) or call(x, **tensors)
        layer(sequence, pair)
    first, second = (np.abs(tensors["attention"]["bias"]).max() for tensors in biases)
    assert first == 0 and second > 0.1


@pytest.mark.parametrize("axis", [1, 2])
def test_dropout_is_shared(axis):
    layer, x = SharedDropout(0.5, axis, seed=1), np.ones((2, 6, 7, 8), "float32")
    np.testing.assert_array_equal(layer(x), x)
    y = np.asarray(layer(x, training=True))
    assert {*np.unique(y)} == {0, 2}
    assert (y == np.take(y, [0], axis)).all() and 0.3 < y.mean() / 2 < 0.7
    assert (np.take(y, [0], axis).std((0, 1, 2)) > 0).all()
    with pytest.raises(ValueError, match="`axis` must be 1, along rows, or 2, along columns; it is 3"):
        SharedDropout(0.5, 3)


def test_a_residual_of_tables_draws_its_shared_dropout_alone():
    """Checkpoints number the generators of seeds: each of them has to draw."""
    layer = TableResidual(keras.layers.Identity(), None, dropout=0.5, axis=2)
    y = np.asarray(layer(np.ones((2, 6, 7, 8), "float32"), training=True)) - 1
    assert {*np.unique(y)} == {0, 2} and (y == y[:, :, :1]).all()
    assert [int(variable[1]) for variable in layer.non_trainable_variables] == [1]
    assert TableResidual.from_config(layer.get_config()).dropout == 0.5


def test_a_transition_is_zero_where_it_is_hidden():
    layer, x = Transition(6), drawn(1, 4, 8)
    np.testing.assert_array_equal(Residual(layer)(x), x)  # new: the identity
    randomise(layer, 1)
    y = np.asarray(layer(x, mask=np.array([[True, False, True, True]])))
    assert (y[0, 1] == 0).all() and (np.abs(y[0, [0, 2, 3]]).max(-1) > 0.1).all()
