"""Windows: their order, their exact inverse, shifted masks by hand, attention within them, its bias."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_tfm.layers import (
    GridPositionBias,
    LayerNormalization,
    MultiHeadAttention,
    Residual,
    WindowAttention,
    join_windows,
    shifted_window_mask,
    split_windows,
)
from tests import contract
from tests.contract import Case, floats


def attention(**options):
    return MultiHeadAttention(2, **options)


def biased(window):
    return attention(position=GridPositionBias(window))


def residual():
    return Residual(WindowAttention(biased(2), 2, shift=1), LayerNormalization(), "input")


test_contract = contract.check(
    Case("windows", lambda: WindowAttention(biased(2), 2), {"x": floats(4, 6, 8)}, attends=True),
    Case(
        "shifted and padded",
        lambda: WindowAttention(biased(3), 3, shift=1),
        {"x": floats(4, 7, 8)},
        attends=True,
        kind="windows",
    ),
    Case(
        "one axis is one window",
        lambda: WindowAttention(biased((2, 3)), 3, shift=1),
        {"x": floats(2, 6, 8)},
        attends=True,
    ),
    Case(
        "spread", lambda: WindowAttention(attention(), 2, spread=True), {"x": floats(4, 6, 8)}, attends=True
    ),
    Case("branch of a residual", residual, {"x": floats(4, 4, 8)}, attends=True),
    Case(
        "bias of absolute offsets",
        lambda: attention(position=GridPositionBias((2, 3), signed=False, prefix=1)),
        {"query": floats(7, 8)},
        attends=True,
    ),
    Case(
        "bias of strided queries",
        lambda: attention(position=GridPositionBias((2, 3), query_stride=2)),
        {"query": floats(2, 8), "value": floats(6, 8)},
        attends=True,
    ),
)

SIDES = st.integers(1, 4)


@given(st.integers(0, 2), SIDES, SIDES, SIDES, SIDES, st.booleans())
def test_joining_undoes_splitting(batch, rows, columns, height, width, spread):
    shape = (batch, rows * height, columns * width, 2)
    x = np.arange(np.prod(shape)).reshape(shape)
    windows = split_windows(x, (height, width), spread)
    assert windows.shape == (batch * rows * columns, height * width, 2)
    np.testing.assert_array_equal(join_windows(windows, (height, width), shape[1:3], spread), x)


def test_windows_and_spread_windows_of_a_map():
    x = np.arange(2 * 4 * 6).reshape(2, 4, 6, 1)
    windows = ops.convert_to_numpy(split_windows(x, (2, 3)))[..., 0]
    np.testing.assert_array_equal(windows[1], x[0, :2, 3:].ravel())
    np.testing.assert_array_equal(windows[6], x[1, 2:, :3].ravel())
    spread = ops.convert_to_numpy(split_windows(x, (2, 3), spread=True))[..., 0]
    np.testing.assert_array_equal(spread[0], x[0, ::2, ::2].ravel())
    np.testing.assert_array_equal(spread[1], x[0, ::2, 1::2].ravel())
    np.testing.assert_array_equal(spread[6], x[1, 1::2, ::2].ravel())


def test_a_shifted_mask_by_hand():
    mask = shifted_window_mask(4, 4, 2, 1)
    assert mask.dtype == bool and mask.shape == (4, 4, 4)
    assert mask[0].all()
    left_and_right = [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    above_and_below = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    np.testing.assert_array_equal(mask[1], left_and_right)
    np.testing.assert_array_equal(mask[2], above_and_below)
    np.testing.assert_array_equal(mask[3], np.eye(4))
    assert shifted_window_mask(4, 6, (2, 3), 0).all()
    np.testing.assert_array_equal(shifted_window_mask(2, 4, 2, (0, 1))[1], left_and_right)


@given(SIDES, SIDES, st.integers(2, 4), st.data())
def test_cells_attend_to_neighbours_on_the_map_alone(rows, columns, side, data):
    """A cell attends to a cell of its window in the rolled map if both lie as far apart on the map itself."""
    shift = data.draw(st.integers(0, side - 1))
    height, width = rows * side, columns * side
    place = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1)
    rolled = np.roll(place, (-shift, -shift), (0, 1))
    here, there = (ops.convert_to_numpy(split_windows(x[None], side)) for x in (place, rolled))
    apart_here, apart_there = (x[:, :, None] - x[:, None] for x in (here, there))
    expected = (apart_here == apart_there).all(-1)
    np.testing.assert_array_equal(shifted_window_mask(height, width, side, shift), expected)


def test_what_a_shifted_window_sees():
    """A changed cell changes the outputs of the cells that attend to it."""
    layer = WindowAttention(attention(), 2, shift=1)
    x = np.random.default_rng(0).normal(size=(1, 4, 4, 8)).astype("float32")
    before = ops.convert_to_numpy(layer(x))

    def seen_from(row, column):
        """What changes where the cell does."""
        changed = x.copy()
        changed[0, row, column] += 1
        moved = np.abs(ops.convert_to_numpy(layer(changed)) - before)[0].max(-1)
        return {(int(i), int(j)) for i, j in np.argwhere(moved > 1e-7)}

    assert seen_from(1, 1) == {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert seen_from(0, 0) == {(0, 0)}
    assert seen_from(0, 1) == seen_from(0, 2) == {(0, 1), (0, 2)}
    assert seen_from(3, 2) == {(3, 1), (3, 2)}


@pytest.mark.parametrize("window", [4, (3, 9)])
def test_a_window_as_large_as_the_map_is_plain_attention(window):
    layer = WindowAttention(attention(), window, shift=2)
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 8)).astype("float32")
    y = layer(x)
    np.testing.assert_allclose(y, np.reshape(layer.attention(x.reshape(2, 12, 8)), x.shape), atol=1e-6)


def test_padding_is_attended_to():
    """A map of one cell in a window of two: the second key is the padding's, of the biases alone."""
    layer = WindowAttention(attention(), (1, 2))
    layer.build((None, 1, 3, 8))
    x = np.random.default_rng(0).normal(size=(1, 1, 3, 8)).astype("float32")
    last = layer.attention(np.concatenate([x[:, 0, 2:], np.zeros((1, 1, 8), "float32")], axis=1))
    np.testing.assert_allclose(layer(x)[:, 0, 2], last[:, 0], atol=1e-6)


def bias_of(position, queries, keys, num_heads=2):
    position.build_for(num_heads, 4, 4)
    position.table.assign(np.arange(np.prod(position.table.shape)).reshape(position.table.shape))
    query, key = (np.zeros((1, num_heads, n, 4), "float32") for n in (queries, keys))
    return ops.convert_to_numpy(position.scores(query, key, None, None, 1.0))


def test_signed_offsets_by_hand():
    bias = bias_of(GridPositionBias((2, 3)), 6, 6)
    assert bias.shape == (2, 6, 6)
    # Cell 4 is (1, 1), cell 2 is (0, 2): query - key is (1, -1), row (1 + 1) 5 + (-1 + 2) = 11 of 15.
    np.testing.assert_array_equal(bias[:, 4, 2], [22, 23])
    np.testing.assert_array_equal(bias[:, 2, 4], [2 * (0 * 5 + 3), 2 * (0 * 5 + 3) + 1])
    np.testing.assert_array_equal(bias[0].diagonal(), 2 * np.full(6, 7))


def test_absolute_offsets_strides_and_prefix_by_hand():
    bias = bias_of(GridPositionBias((2, 3), signed=False), 6, 6)
    np.testing.assert_array_equal(bias[:, 4, 2], [2 * 4, 2 * 4 + 1])  # |(1, -1)| is row 1 3 + 1 = 4 of 6
    np.testing.assert_array_equal(bias[0], bias[0].T)
    strided = bias_of(GridPositionBias((3, 3), signed=False, query_stride=2), 4, 9)
    whole = bias_of(GridPositionBias((3, 3), signed=False), 9, 9)
    np.testing.assert_array_equal(strided, whole[:, [0, 2, 6, 8]])
    with_class = bias_of(GridPositionBias((2, 3), prefix=1), 7, 7)
    np.testing.assert_array_equal(with_class[:, 1:, 1:], bias_of(GridPositionBias((2, 3)), 6, 6))
    assert not with_class[:, 0].any() and not with_class[:, :, 0].any()


def test_refusals():
    with pytest.raises(ValueError, match="map of 4 x 6 is not divisible into windows of 4"):
        split_windows(np.zeros((1, 4, 6, 2)), 4)
    with pytest.raises(ValueError, match="`window` must be a positive integer"):
        WindowAttention(attention(), 0)
    with pytest.raises(ValueError, match="`shift` must be at least 0 and less than `window`, 2; it is 2"):
        WindowAttention(attention(), 2, shift=2)
    with pytest.raises(ValueError, match="`shift` must be 0 with `spread`; it is 1"):
        WindowAttention(attention(), 2, shift=1, spread=True)
    with pytest.raises(ValueError, match=r"`x` must have the shape \(B, height, width, D\)"):
        WindowAttention(attention(), 2)(np.zeros((1, 4, 8), "float32"))
    layer = WindowAttention(attention(), 2)
    layer.build((None, 4, 4, 8))
    with pytest.raises(ValueError, match=r"built for maps of \(4, 4\); they are \(4, 6\)"):
        layer(np.zeros((1, 4, 6, 8), "float32"))
    with pytest.raises(ValueError, match="for 4 queries and 4 keys; it is called with 6 and 6"):
        biased(2)(np.zeros((1, 6, 8), "float32"))
    with pytest.raises(ValueError, match="`query_stride` must be at least 1"):
        GridPositionBias(2, query_stride=0)


class Kept(keras.layers.Layer):
    """What it was given, which it hands on."""

    supports_masking = True

    def call(self, x, mask=None, training=None):
        self.given = np.asarray(x)
        return x


@pytest.mark.parametrize(("shift", "spread"), [(0, False), (1, False), (0, True)])
def test_cells_are_those_that_a_window_is_made_of(shift, spread):
    """An attention that hands its input on shows which cells it got: 0 is padding."""
    rows, columns = (5, 6) if not spread else (6, 9)
    layer = WindowAttention(Kept(), 3, shift, spread)
    numbers = np.arange(1, rows * columns + 1, dtype="float32").reshape(1, rows, columns, 1)
    layer(numbers)
    np.testing.assert_array_equal(layer.cells, layer.attention.given[..., 0] - 1)
