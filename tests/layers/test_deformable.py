"""Deformable attention: sampling by hand, its weights, its first offsets, and the contract."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_tfm import layers
from keras_tfm.layers import DeformableAttention, OffsetRing, sample_bilinear
from keras_tfm.visualize import record_attention
from tests import contract
from tests.contract import Case, floats, randomise

GRIDS = ((3, 4), (2, 1))
CONTEXT = {"query": floats("T", 8), "context": floats(14, 8), "references": floats("T", 2, 2)}

test_contract = contract.check(
    Case("points", lambda: DeformableAttention(2, GRIDS, 3), CONTEXT),
    Case("boxes", lambda: DeformableAttention(2, GRIDS, 3), CONTEXT | {"references": floats("T", 2, 4)}),
)


def test_sampling_by_hand():
    maps = np.array([[[1.0], [2.0]], [[3.0], [4.0]]])[None]
    points = [(0.25, 0.25), (0.5, 0.5), (1.0, 0.25), (0.0, 0.0), (-0.3, 0.5), (0.25, 2.0)]
    values = sample_bilinear(maps, np.array(points)[None])
    # At the edge half of a value is zero's, at the corner three quarters, and beyond a cell's width all.
    np.testing.assert_allclose(np.asarray(values)[0, :, 0], [1, 2.5, 1, 0.25, 0, 0], atol=1e-6)


def test_points_of_any_rank_and_unknown_batch():
    maps, points = keras.Input((3, 4, 5)), keras.Input((2, 6, 2))
    model = keras.Model([maps, points], Sampling()([maps, points]))
    rng = np.random.default_rng(0)
    x, where = rng.normal(size=(3, 3, 4, 5)), rng.uniform(size=(3, 2, 6, 2))
    values = model([x, where])
    assert values.shape == (3, 2, 6, 5)
    np.testing.assert_allclose(values, sample_bilinear(x, where), atol=1e-6)


class Sampling(keras.layers.Layer):
    """`sample_bilinear` as a layer."""

    def call(self, inputs):
        return sample_bilinear(*inputs)

    def compute_output_shape(self, shapes):
        return (*shapes[1][:-1], shapes[0][-1])


def test_a_layer_is_the_mean_of_what_it_samples():
    """Eq. 3 of Zhu et al. 2021, head by head, by `sample_bilinear`."""
    layer = DeformableAttention(2, GRIDS, 3)
    rng = np.random.default_rng(0)
    query, context = rng.normal(size=(2, 5, 8)), rng.normal(size=(2, 14, 8))
    references = rng.uniform(size=(2, 5, 2, 2))
    layer(query, context, references)
    randomise(layer, 1)
    y = layer(query, context, references)
    offsets = np.reshape(layer.offsets(query), (2, 5, 2, 2, 3, 2))
    weights = np.reshape(ops.softmax(np.reshape(layer.point_weights(query), (2, 5, 2, 6))), (2, 5, 2, 2, 3))
    values = np.asarray(layer.values(context))
    heads = []
    for head in range(2):
        mean, first = 0, 0
        for level, (rows, columns) in enumerate(GRIDS):
            maps = values[:, first : first + rows * columns, 4 * head : 4 * head + 4]
            first += rows * columns
            points = references[:, :, level, None] + offsets[:, :, head, level] / (columns, rows)
            sampled = sample_bilinear(maps.reshape(2, rows, columns, 4), points)  # (B, T, P, K)
            mean = mean + (weights[:, :, head, level, :, None] * np.asarray(sampled)).sum(axis=2)
        heads.append(mean)
    np.testing.assert_allclose(y, layer.output_projection(np.concatenate(heads, -1)), atol=1e-5)


def test_boxes_measure_offsets_by_their_sides():
    layer = DeformableAttention(1, ((4, 4),), 2)
    offsets = np.array([[[[[[1.0, 0.0], [0.0, 2.0]]]]]])
    box = np.array([0.5, 0.5, 0.2, 0.4])[None, None, None, None, None]
    np.testing.assert_allclose(layer._points(offsets, box)[0, 0, 0, 0], [[0.55, 0.5], [0.5, 0.7]], atol=1e-6)


def test_recorded_weights_are_those_of_cells():
    layer = DeformableAttention(2, GRIDS, 3)
    query, context = np.ones((2, 5, 8)), np.random.default_rng(0).normal(size=(2, 14, 8))
    references = np.full((2, 5, 2, 2), 0.5)
    layer(query, context, references)
    randomise(layer, 1)
    inputs = [keras.Input(x.shape[1:]) for x in (query, context, references)]
    model = keras.Model(inputs, layer(*inputs))
    with record_attention(model) as scores:
        y = model([query, context, references])
    (weights,) = scores.values()
    assert weights.shape == (2, 2, 5, 14)
    values = np.reshape(layer.values(context), (2, 14, 2, 4))
    heads = np.einsum("bhtn,bnhk->bthk", weights, values).reshape(2, 5, 8)
    np.testing.assert_allclose(layer.output_projection(heads), y, atol=1e-5)


def test_references_keep_their_precision_in_a_block():
    """The n-th query looks at the centre of the n-th of 160 cells, which no bfloat16 is near enough to."""
    attention = DeformableAttention(1, ((1, 160),), 2)
    block = layers.Block({"context_attention": layers.Residual(attention)}, dtype="mixed_bfloat16")
    cells = np.arange(160, dtype="float32")
    places = np.stack([(cells + 0.5) / 160, np.full(160, 0.5, "float32")], axis=-1)[None, :, None]
    tensors = {"context": cells[None, :, None], "references": places}
    query = np.zeros((1, 160, 1), "float32")
    block(query, context_attention=tensors)
    attention.offsets.bias.assign([0.0] * 4)
    for layer in (attention.values, attention.output_projection):
        layer.kernel.assign([[1.0]])
    y = block(query, context_attention=tensors)
    np.testing.assert_array_equal(ops.cast(y, "float32")[0, :, 0], cells)


def test_hidden_cells_have_no_value():
    layer = DeformableAttention(2, GRIDS, 3)
    rng = np.random.default_rng(0)
    query, context, references = (
        rng.normal(size=(2, 5, 8)),
        rng.normal(size=(2, 14, 8)),
        np.full((2, 5, 2, 2), 0.5),
    )
    layer(query, context, references)
    randomise(layer, 1)
    mask = rng.uniform(size=(2, 14)) < 0.5
    other = np.where(mask[..., None], context, 9.0)
    a, b, c = (
        layer(query, x, references, mask=y) for x, y in ((context, mask), (other, mask), (context, None))
    )
    np.testing.assert_allclose(a, b, atol=1e-6)
    assert np.abs(np.asarray(a) - np.asarray(c)).max() > 1e-3


def test_first_offsets_are_a_ring():
    ring = np.reshape(OffsetRing(8, 1, 2)((32,)), (8, 2, 2))
    np.testing.assert_allclose(ring[:3, 0], [(1, 0), (1, 1), (0, 1)], atol=1e-6)
    np.testing.assert_allclose(ring[:, 1], 2 * ring[:, 0], atol=1e-6)


def test_refusals():
    with pytest.raises(ValueError, match="`num_points` must be at least 1; it is 0"):
        DeformableAttention(2, GRIDS, 0)
    with pytest.raises(ValueError, match=r"needs `references` \(B, T, L, 2 or 4\); they are None"):
        DeformableAttention(2, [(1, 1)])(np.ones((1, 1, 8)), np.ones((1, 1, 8)))
    with pytest.raises(ValueError, match="`num_heads` must divide the width 8; it is 3"):
        layers.DeformableAttention(3, GRIDS)(np.ones((1, 2, 8)), np.ones((1, 14, 8)), np.ones((1, 2, 2, 2)))
