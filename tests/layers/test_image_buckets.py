"""iRPE: the buckets by hand, the contract of both modes, and what a shift of the picture changes."""

import numpy as np
import pytest

from keras_tfm.layers import BucketedBias, BucketedContext, MultiHeadAttention
from keras_tfm.layers.attention.image_buckets import METHODS, image_buckets, piecewise_index
from keras_tfm.models import ViT
from tests import contract
from tests.contract import Case, floats
from tests.layers import reference


def attention(position, **options):
    return MultiHeadAttention(2, 4, 3, position=position, **options)


def defined(layer, query):
    """Attention in float64 with what the position adds, from its tables entry by entry."""
    position, heads = layer.position, layer.projections
    rows, _ = image_buckets(position.grid, position.method, position.curve, position.prefix)

    def entries(tables):
        return sum(reference.exact(table)[found] for table, found in zip(tables, rows, strict=True))

    q, k, v = (np.float64(np.asarray(x)) for x in heads.project(query))
    scores = np.einsum("bhtk,bhsk->bhts", q, k) / 2
    if isinstance(position, BucketedBias):
        scores = scores + np.moveaxis(entries(position.tables), -1, 0)
        weights = reference.softmax(scores, True)
        y = weights @ v
    else:
        weights = reference.softmax(
            scores + np.einsum("bhtk,tsk->bhts", q, entries(position.key_tables)) / 2, True
        )
        y = weights @ v
        if position.with_values:
            y = y + np.einsum("bhts,tsk->bhtk", weights, entries(position.value_tables))
    return reference.dense(layer.output_projection, np.concatenate(list(np.moveaxis(y, 1, 0)), -1))


test_contract = contract.check(
    Case("bias", lambda: attention(BucketedBias((2, 3), "cross", prefix=1)), {"query": floats(7, 8)},
         attends=True, reference=defined),
    Case("context", lambda: attention(BucketedContext((2, 3), with_values=True)), {"query": floats(6, 8)},
         attends=True, reference=defined),
)  # fmt: skip


def test_near_offsets_have_indices_of_their_own():
    """g(2) = 1.9 + ln(2 / 1.9) / ln 8 x 1.9 = 1.95, g(3) = 2.32, g(4) = 2.58; the last is cut to 3."""
    index = piecewise_index([0, 1, 2, 3, 4, 5, 8, 16, 100, -1, -4, -16])
    np.testing.assert_array_equal(index, [0, 1, 2, 2, 3, 3, 3, 3, 3, -1, -3, -3])
    index = piecewise_index([1, 2, 3, 4, 6, 8, 20], (2, 4, 8))
    np.testing.assert_array_equal(index, [1, 2, 3, 3, 4, 4, 4])  # 2 + log4(3/2) 2 = 2.58, log4(2) 2 = 1


@pytest.mark.parametrize(
    ("method", "count", "of_the_corner"),
    [
        ("product", 49, [[24, 25, 26], [31, 32, 33]]),  # 7 x (dy + 3) + dx + 3
        ("cross", 7, [[3, 3, 3], [4, 4, 4]]),  # and [3, 4, 5] of the columns
        ("euclidean", 4, [[0, 1, 2], [1, 1, 2]]),
        ("quantization", 4, [[0, 1, 2], [1, 2, 3]]),  # 0, 1, sqrt 2, 2, sqrt 5: 0, 1, 2, g(3) = 2, g(4) = 3
    ],
)
def test_buckets_of_the_first_cell(method, count, of_the_corner):
    rows, number = image_buckets((2, 3), method)
    assert number == count
    np.testing.assert_array_equal(rows[0, 0].reshape(2, 3), of_the_corner)
    rows, number = image_buckets((2, 3), method, prefix=1)
    assert number == count + 1 and (rows[:, 0] == count).all() and (rows[:, :, 0] == count).all()


@pytest.mark.parametrize("method", METHODS)
def test_what_is_shifted_has_the_same_buckets(method):
    rows, _ = image_buckets((6, 7), method)
    cells = np.arange(42).reshape(6, 7)
    here, shifted = cells[:4, :5].ravel(), cells[2:, 2:].ravel()
    np.testing.assert_array_equal(rows[:, here][:, :, here], rows[:, shifted][:, :, shifted])


def test_deit_with_it_has_the_authors_count():
    """Their small DeiT with 1,000 classes has 22.05 M weights, and 22.09 M with these positions."""
    layer = MultiHeadAttention(6, 64, position=BucketedContext(14, prefix=1))
    layer.build((None, 197, 384))
    assert [tuple(table.shape) for table in layer.position.key_tables] == [(50, 64)]
    plain = ViT.from_size("S/16").count_params() + 1_000 * (384 + 1)
    assert plain == 22_050_664
    assert plain + 12 * layer.position.count_params() == 22_089_064


def test_refusals():
    with pytest.raises(ValueError, match="`method` must be one of product, cross"):
        BucketedBias(2, "round")
    with pytest.raises(ValueError, match="`curve` must be three growing numbers above 0"):
        BucketedContext(2, curve=(2, 1, 3))
    with pytest.raises(ValueError, match="`prefix` must be at least 0; it is -1"):
        BucketedBias(2, prefix=-1)
    with pytest.raises(ValueError, match="for 6 tokens; it is called with 5"):
        attention(BucketedBias((2, 3)))(np.ones((1, 5, 8), "float32"))
