"""Graphs of objects and relations: sums by hand, the order of nodes, who hears of whom."""

import keras
import numpy as np
import pytest

from keras_tfm.layers import AttentionalMessages, RelationProposal, SceneGraphConvolution
from tests import contract
from tests.contract import Case, Spec, floats, mask, randomise

GRAPH = {"objects": floats("T", 8), "relations": floats("S", 6), "pairs": Spec(("S", 2), "int32", 5)}

test_contract = contract.check(
    Case("RelationProposal", lambda: RelationProposal(4), {"x": floats("T", 8), "mask": mask("T")}),
    Case(
        "AttentionalMessages",
        lambda: AttentionalMessages(4),
        {"x": floats("T", 8), "context": floats("S", 6)},
        attends=True,
    ),
    Case("SceneGraphConvolution", lambda: SceneGraphConvolution(4), GRAPH),
)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def weights_of(layer):
    return {w.path.removeprefix(f"{layer.name}/"): np.asarray(w, "float64") for w in layer.weights}


def ready(layer, *inputs):
    layer(*inputs)
    randomise(layer, 1)
    return layer


def test_relatedness_by_hand():
    x = drawn(2, 5, 8)
    layer = ready(RelationProposal(4), x)
    w = weights_of(layer)

    def side(name):
        hidden = np.maximum(x @ w[f"{name}/layer_0/kernel"] + w[f"{name}/layer_0/bias"], 0)
        return hidden @ w[f"{name}/layer_1/kernel"] + w[f"{name}/layer_1/bias"]

    expected = 1 / (1 + np.exp(-np.einsum("bid,bjd->bij", side("subject"), side("object"))))
    expected *= 1 - np.eye(5)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-4)
    shown = np.array([[True] * 5, [True, False, True, True, False]])
    expected[1, [1, 4]] = expected[1, :, [1, 4]] = 0
    np.testing.assert_allclose(layer(x, mask=shown), expected, rtol=1e-4)


def test_messages_by_hand():
    x, z = drawn(1, 3, 8), drawn(1, 4, 6, seed=1)
    allowed = np.array([[[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]]], bool)
    layer = ready(AttentionalMessages(5), x, z)
    w = weights_of(layer)
    values = z[0] @ w["value/kernel"]
    expected = np.zeros((3, 8))
    for i in range(3):
        scores = np.array(
            [
                np.maximum(x[0, i] @ w["query/kernel"] + w["query/bias"] + z[0, j] @ w["key/kernel"], 0)
                @ w["score/kernel"][:, 0]
                for j in range(4)
            ]
        )
        shares = np.exp(scores) * allowed[0, i]
        expected[i] = (shares / max(shares.sum(), 1e-9)) @ values
    np.testing.assert_allclose(layer(x, z, mask=allowed)[0], expected, rtol=1e-4, atol=1e-5)
    assert not np.any(np.asarray(layer(x, z, mask=allowed))[0, 1])  # it hears of none


@pytest.fixture(scope="module")
def convolution():
    return ready(SceneGraphConvolution(4), drawn(1, 5, 8), drawn(1, 3, 6), np.zeros((1, 3, 2), "int32"))


def test_the_convolution_is_the_sum_of_its_messages(convolution):
    objects, relations = drawn(1, 4, 8), drawn(1, 3, 6, seed=1)
    pairs = np.array([[[0, 1], [2, 1], [-1, -1]]])
    as_subject = np.array([[[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0]]], bool)
    as_object = np.array([[[0, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]]], bool)
    of = convolution
    first = objects + of.of_objects(objects, objects, mask=~np.eye(4, dtype=bool)[None])
    first += of.of_relations_as_subject(objects, relations, mask=as_subject)
    first += of.of_relations_as_object(objects, relations, mask=as_object)
    second = relations.copy()
    second[0, :2] += of.subject(objects[:, [0, 2]])[0].numpy() + of.object(objects[:, [1, 1]])[0].numpy()
    found = convolution(objects, relations, pairs)
    for ours, expected in zip(found, (first, second), strict=True):
        np.testing.assert_allclose(ours, np.maximum(expected, 0), atol=1e-5)
    np.testing.assert_allclose(found[1][0, 2], np.maximum(relations[0, 2], 0))  # padding hears of none


def test_the_order_of_objects_and_relations_does_not_matter(convolution):
    rng = np.random.default_rng(0)
    objects, relations = drawn(2, 6, 8), drawn(2, 5, 6, seed=1)
    pairs = rng.integers(-1, 6, (2, 5, 2))
    shown = rng.random((2, 6)) < 0.7
    nodes, edges = rng.permutation(6), rng.permutation(5)
    place = np.append(np.argsort(nodes), -1)  # where each object is now; -1 stays
    found = convolution(objects, relations, pairs, mask=shown)
    moved = convolution(objects[:, nodes], relations[:, edges], place[pairs][:, edges], mask=shown[:, nodes])
    np.testing.assert_allclose(found[0].numpy()[:, nodes], moved[0], atol=1e-5)
    np.testing.assert_allclose(found[1].numpy()[:, edges], moved[1], atol=1e-5)


def test_nobody_hears_of_hidden_objects_and_padded_relations(convolution):
    objects, relations = drawn(1, 4, 8), drawn(1, 3, 6, seed=1)
    pairs, shown = np.array([[[0, 1], [3, 2], [-1, -1]]]), np.array([[True, True, True, False]])
    before = convolution(objects, relations, pairs, mask=shown)
    objects[0, 3] += 1
    relations[0, 2] += 1
    after = convolution(objects, relations, pairs, mask=shown)
    np.testing.assert_array_equal(before[0][:, :3], after[0][:, :3])
    np.testing.assert_array_equal(before[1][:, :2], after[1][:, :2])
    relations[0, 1] += 1  # whose subject is hidden: its object hears of it as before
    assert np.abs(convolution(objects, relations, pairs, mask=shown)[0] - after[0])[0, 2].max() > 1e-3


@pytest.mark.parametrize("make", [RelationProposal, AttentionalMessages, SceneGraphConvolution])
def test_refusals(make):
    with pytest.raises(ValueError, match="`hidden_dim` must be at least 1; it is 0"):
        make(0)
    assert keras.layers.deserialize(keras.layers.serialize(make(3))).hidden_dim == 3
