"""Learned vectors for the offsets of a grid's cells: the contract, and the definition pair by pair."""

import itertools

import numpy as np
import pytest

from keras_tfm.layers import ImageRelativePosition, MultiHeadAttention
from tests import contract
from tests.contract import Case, floats
from tests.layers import reference


def attention(position, **options):
    return MultiHeadAttention(2, 4, 3, position=position, **options)


def defined(layer, query):
    """Attention whose keys and values have the vectors of their offsets added, pair by pair in float64."""
    position, heads = layer.position, layer.projections
    height, width = position.grid
    places = [None] * position.prefix + list(itertools.product(range(height), range(width)))
    limit = position.max_distance

    def vectors(tables):
        vertical, horizontal = (reference.exact(table) for table in tables)
        found = np.zeros((len(places), len(places), vertical.shape[1]))
        for (t, one), (s, other) in itertools.product(enumerate(places), repeat=2):
            if one is None or other is None:
                rows = 0, 0
            else:
                offsets = (b - a for a, b in zip(one, other, strict=True))
                rows = [max(-limit, min(limit, offset)) + limit + 1 for offset in offsets]
            found[t, s] = vertical[rows[0]] + horizontal[rows[1]]
        return found

    q, k, v = (np.float64(np.asarray(x)) for x in heads.project(query))
    scores = np.einsum("bhtk,bhsk->bhts", q, k) + np.einsum("bhtk,tsk->bhts", q, vectors(position.key_tables))
    weights = reference.softmax(scores / heads.key_width**0.5, True)
    y = weights @ v
    if position.with_values:
        y = y + np.einsum("bhts,tsk->bhtk", weights, vectors(position.value_tables))
    return reference.dense(layer.output_projection, np.concatenate(list(np.moveaxis(y, 1, 0)), -1))


test_contract = contract.check(
    Case("keys", lambda: attention(ImageRelativePosition((2, 3), 1)), {"query": floats(6, 8)}, attends=True,
         reference=defined),
    Case("keys and values", lambda: attention(ImageRelativePosition((2, 3), 5, with_values=True, prefix=1)),
         {"query": floats(7, 8)}, attends=True, reference=defined),
)  # fmt: skip


@pytest.mark.parametrize(("with_values", "widths"), [(False, [4, 4]), (True, [4, 4, 3, 3])])
def test_a_table_has_a_row_for_each_offset_and_one_for_the_prefix(with_values, widths):
    layer = attention(ImageRelativePosition((2, 3), 5, with_values=with_values))
    layer.build((None, 6, 8))
    assert [weight.shape for weight in layer.position.weights] == [(2 * 5 + 1 + 1, width) for width in widths]


def test_refusals():
    for options in ({"max_distance": 0}, {"prefix": -1}):
        with pytest.raises(ValueError, match="`max_distance` must be at least 1, and `prefix` at least 0"):
            ImageRelativePosition(2, **options)
    with pytest.raises(ValueError, match="for 6 tokens; it is called with 5"):
        attention(ImageRelativePosition((2, 3)))(np.ones((1, 5, 8), "float32"))
