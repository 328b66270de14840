"""Examples as callers hand them over."""

import pytest

from keras_tfm.serving.examples import as_columns

PAIRS = [("one", "eins"), ("two", "zwei")]
COLUMNS = [("one", "two"), ("eins", "zwei")]


@pytest.mark.parametrize("rows", [PAIRS, PAIRS * 2, PAIRS[:1], [list(pair) for pair in PAIRS * 2]])
def test_rows_are_no_columns(rows):
    """Two pairs look like two columns of two texts."""
    expected = rf"expected \(sources, targets\), got list of {len(rows)}; are these rows\? Then pass zip\("
    with pytest.raises(ValueError, match=expected):
        as_columns(rows, "sources", "targets")
    assert as_columns(zip(*rows, strict=True), "sources", "targets") == list(zip(*rows, strict=True))


def test_columns_of_as_many_rows_are_columns():
    for columns in (COLUMNS, [list(column) for column in COLUMNS]):
        assert as_columns(tuple(columns), "sources", "targets") == list(columns)
    assert as_columns([list(column) for column in COLUMNS], "sources", "targets")[1] == ["eins", "zwei"]
    with pytest.raises(ValueError, match=r"got list of 3$"):
        as_columns(["one", "two", "three"], "sources", "targets")
