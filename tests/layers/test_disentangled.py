"""Disentangled attention: the contract, its definition in float64, buckets, what it is without distances."""

import numpy as np
import pytest

from keras_tfm.layers import DisentangledAttention, DistanceEmbedding, Layer, MultiHeadAttention
from keras_tfm.layers.attention.disentangled import log_buckets, shear
from tests import contract
from tests.contract import Case, floats, mask

X = np.zeros((1, 2, 8), "float32")
INPUTS = {"x": floats("T", 8), "mask": mask("T")}


class WithDistances(Layer):
    """Disentangled attention, given the distances of its own table."""

    def __init__(self, attention, distances, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention
        self.distances = distances

    def build(self, x_shape, value_shape=None):
        self.attention.build(x_shape)
        self.distances.build(x_shape)
        self.built = True

    def call(self, x, value=None, mask=None, causal=False, training=None):
        return self.attention(x, value, mask=mask, bias=self.distances(x), causal=causal, training=training)

    def compute_output_shape(self, x_shape, value_shape=None):
        return tuple(x_shape)


def reference(layer, x, mask, value=None):
    """The definition, pair by pair; `x` attends to `value`, by default itself."""
    layer, distances = layer.attention, layer.distances
    projections = layer.projections
    heads, width, length = layer.num_heads, projections.key_width, x.shape[1]
    table = np.float64(distances.embeddings.numpy())
    if distances.norm is not None:
        gamma, beta = distances.norm.gamma.numpy(), distances.norm.beta.numpy()
        centered = table - table.mean(-1, keepdims=True)
        table = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + distances.epsilon) * gamma + beta

    def split(x):
        return x.reshape(*x.shape[:-1], heads, width)

    def of_contents(x):
        dense = projections.query_key_value
        kernels = np.split(np.float64(dense.kernel.numpy()), 3, axis=-1)
        biases = [0.0 if bias is None else bias.numpy() for bias in projections.biases]
        if dense.bias is not None:
            biases = np.split(dense.bias.numpy(), 3)
        return [split(x @ kernel + bias) for kernel, bias in zip(kernels, biases, strict=True)]

    def of_distances(name):
        projection = getattr(layer, name)
        bias = 0.0 if projection.bias is None else projection.bias.numpy()
        return split(table @ np.float64(projection.kernel.numpy()) + bias)

    query, *_ = of_contents(x)  # (B, T, H, K)
    _, key, value = of_contents(x if value is None else value)
    if layer.share_projections:
        position_query, position_key, _ = of_contents(table)  # (rows, H, K)
    else:
        position_key = of_distances("position_key") if "c2p" in layer.terms else None
        position_query = of_distances("position_query") if "p2c" in layer.terms else None
    outputs = np.zeros((*x.shape[:2], heads, width))
    rows = distances.rows()
    for b in range(x.shape[0]):
        for i in range(length):
            for h in range(heads):
                scores = np.full(length, -np.inf)
                for j in np.flatnonzero(mask[b]):
                    row = rows[np.clip(i - j, -distances.max_distance, distances.max_distance)
                               + distances.max_distance]  # fmt: skip
                    scores[j] = query[b, i, h] @ key[b, j, h]
                    if "c2p" in layer.terms:
                        scores[j] += query[b, i, h] @ position_key[row, h]
                    if "p2c" in layer.terms:
                        scores[j] += key[b, j, h] @ position_query[row, h]
                scores /= np.sqrt(width * (1 + len(layer.terms)))
                p = np.exp(scores - scores.max())
                outputs[b, i, h] = p @ value[b, :, h] / p.sum()
    return layer.output_projection(outputs.reshape(x.shape).astype("float32")).numpy()


def attention(distances=None, **options):
    return WithDistances(DisentangledAttention(2, **options), distances or DistanceEmbedding(8, 3))


def shared():
    return attention(
        DistanceEmbedding(8, 9, num_buckets=4, epsilon=1e-3), share_projections=True, dropout=0.1
    )


PROMISES = {"attends": True, "reference": reference}
test_contract = contract.check(
    Case("version 1", lambda: attention(key_bias=False), INPUTS, **PROMISES),
    Case("version 3", shared, INPUTS, **PROMISES),
    Case("content to position", lambda: attention(terms=("c2p",), key_bias=False), INPUTS, **PROMISES),
    Case("position to content", lambda: attention(terms=("p2c",)), INPUTS, **PROMISES),
    Case("causal", lambda: attention(), {"x": floats("T", 8)}, {"causal": True}, attends=True, causal="T"),
    Case("of others", attention, {**INPUTS, "value": floats("T", 8)}, **PROMISES),
)


def test_shear_by_hand():
    x = np.arange(18, dtype="float32").reshape(1, 1, 3, 6)
    np.testing.assert_array_equal(shear(x, 2)[0, 0], [[2, 3, 4], [7, 8, 9], [12, 13, 14]])
    np.testing.assert_array_equal(shear(x, 3)[0, 0], [[3, 4, 5], [8, 9, 10], [13, 14, 15]])


def test_log_buckets_by_hand():
    """Up to 4 exact, then 3 buckets: log(d / 4) / log(15 / 4) * 3 rounded up, with borders at 6.2 and 9.7."""
    distances = np.array([0, 1, 4, 5, 6, 7, 9, 10, 15, 16])
    expected = np.array([0, 1, 4, 5, 5, 6, 6, 7, 7, 8])
    np.testing.assert_array_equal(log_buckets(distances, 8, 16), expected)
    np.testing.assert_array_equal(log_buckets(-distances, 8, 16), -expected)


def test_rows_count_from_the_farthest_key_after_to_the_farthest_before():
    np.testing.assert_array_equal(DistanceEmbedding(2, 3).rows(), [0, 1, 2, 3, 4, 5, 5])
    layer = DistanceEmbedding(2, 3)
    layer.build((None, 5))
    layer.embeddings.assign(np.arange(12).reshape(6, 2))
    rows = np.asarray(layer(np.zeros((1, 5))))[:, 0] / 2  # of the distances 4, 3, ..., -5
    np.testing.assert_array_equal(rows, [5, 5, 5, 4, 3, 2, 1, 0, 0, 0])
    assert layer.compute_output_shape((1, 5)) == (10, 2)
    assert layer.compute_output_shape((None, None)) == (None, 2)


def test_the_least_distance_tells_what_comes_after_from_all_else():
    assert DistanceEmbedding(2, max_distance=1).rows().tolist() == [0, 1, 1]


def by_path(layer):
    """Its weights as arrays, by their paths inside it."""
    return {path_in(layer, weight): weight.numpy() for weight in layer.weights}


def path_in(layer, weight):
    return weight.path.rpartition(f"{layer.name}/")[2]


def test_without_distances_it_is_plain_attention():
    plain, layer = MultiHeadAttention(2), DisentangledAttention(2, terms=())
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
    plain(x), layer(x)
    contract.randomise(plain, seed=0)
    weights = by_path(plain)
    for weight in layer.weights:
        weight.assign(weights[path_in(layer, weight)])
    np.testing.assert_allclose(layer(x), plain(x), atol=1e-5)


def test_a_table_of_zeros_leaves_the_scale_alone():
    layer = attention()
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
    layer(x)
    contract.randomise(layer, seed=0)
    layer.distances.embeddings.assign(np.zeros((6, 8)))
    for projection in (layer.attention.position_key, layer.attention.position_query):
        projection.bias.assign(np.zeros(8))
    plain = DisentangledAttention(2, terms=())
    plain(x)
    weights = by_path(layer.attention)
    for weight in plain.weights:
        weight.assign(weights[path_in(plain, weight)])
    kernel = plain.projections.query_key_value.kernel
    scale = np.concatenate([np.full(8, 3**-0.5), np.ones(16)])
    kernel.assign(kernel * scale)
    bias = plain.projections.query_key_value.bias
    bias.assign(bias * scale)
    np.testing.assert_allclose(layer(x), plain(x), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: DisentangledAttention(0),
            "`num_heads` must be at least 1; it is 0",
        ),
        (lambda: DisentangledAttention(2, scale=0.3), "`scale` must be None, as it follows from the `terms`"),
        (lambda: attention(terms=("c2c",)), "`terms` must be 'c2p', 'p2c' or both, each once"),
        (
            lambda: DisentangledAttention(2)(X),
            "`bias` must be the vectors \\(2T, D\\) of a DistanceEmbedding; it is None",
        ),
        (lambda: attention(terms=())(X), "`bias` must be None without `terms`"),
        (lambda: DisentangledAttention(3, terms=()).build((1, 2, 8)), "`num_heads` must divide the queries'"),
        (lambda: DistanceEmbedding(8, 0), "`max_distance` must lie in 1 to 1048576; it is 0"),
        (
            lambda: DistanceEmbedding(8, 9, 5),
            "`num_buckets` must be 0, or even, at least 2 and below .* = 16",
        ),
        (
            lambda: DistanceEmbedding(8, 9, 16),
            "`num_buckets` must be 0, or even, at least 2 and below .* = 16",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
