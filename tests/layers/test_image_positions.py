"""Positions in the plane: by hand, over another grid, against the sines of a sequence."""

import math

import numpy as np
import pytest
from keras import ops

from keras_tfm.layers import GridPositionEmbedding, SineGridPositionEncoding, SinePositionEncoding
from keras_tfm.layers.image_positions import interpolate_positions
from tests import contract
from tests.contract import Case, floats, mask

test_contract = contract.check(
    Case("learned", GridPositionEmbedding, {"x": floats(3, 4, 8)}),
    Case(
        "learned on another grid",
        lambda: GridPositionEmbedding((2, 3)),
        {"x": floats(3, 5, 8)},
    ),
    Case("sines", SineGridPositionEncoding, {"x": floats(3, 4, 8)}),
    Case("normalised sines", lambda: SineGridPositionEncoding(normalize=True), {"x": floats(3, 4, 8)}),
    Case("sines of a clip", SineGridPositionEncoding, {"x": floats(2, 3, 4, 6)}),
    Case(
        "sines beside padding",
        lambda: SineGridPositionEncoding(normalize=True),
        {"x": floats(3, "S", 8), "mask": mask(3, "S")},
    ),
)


def test_positions_over_another_grid():
    table = np.random.default_rng(0).normal(size=(7, 4)).astype("float32")  # a class token and 2 x 3 patches
    np.testing.assert_allclose(interpolate_positions(table, (2, 3), (2, 3)), table, atol=1e-7)
    larger = ops.convert_to_numpy(interpolate_positions(table, (2, 3), (4, 9)))
    assert larger.shape == (37, 4)
    np.testing.assert_array_equal(larger[0], table[0])
    constant = interpolate_positions(np.ones((6, 2), "float32"), (2, 3), (5, 5))
    np.testing.assert_allclose(constant, np.ones((25, 2)), rtol=1e-6)


def test_a_learned_vector_for_each_cell():
    layer = GridPositionEmbedding()
    x = np.random.default_rng(0).normal(size=(2, 2, 3, 4)).astype("float32")
    y = layer(x)
    assert [weight.path.rpartition("/")[2] for weight in layer.weights] == ["table"]
    np.testing.assert_allclose(y, x + ops.convert_to_numpy(layer.table), atol=1e-7)
    layer.table.assign(np.ones((2, 3, 4)))
    np.testing.assert_allclose(layer(np.zeros((1, 5, 4, 4), "float32")), np.ones((1, 5, 4, 4)), rtol=1e-6)


def test_sines_of_rows_and_columns():
    zeros = np.zeros((1, 3, 5, 8), "float32")
    encoding = ops.convert_to_numpy(SineGridPositionEncoding()(zeros))[0]
    line = ops.convert_to_numpy(SinePositionEncoding()(np.zeros((1, 5, 4), "float32")))[0]
    for row in range(3):
        for column in range(5):
            np.testing.assert_allclose(encoding[row, column], [*line[row], *line[column]], atol=1e-6)
    encoding = ops.convert_to_numpy(SineGridPositionEncoding(normalize=True)(zeros))[0]
    np.testing.assert_allclose(encoding[2, 4, [0, 1, 4, 5]], [0, 1, 0, 1], atol=1e-4)  # 2 pi: once round
    np.testing.assert_allclose(encoding[0, 0, [0, 4]], np.sin([2 * math.pi / 3, 2 * math.pi / 5]), atol=1e-5)


@pytest.mark.parametrize("normalize", [False, True])
def test_sines_of_a_padded_map_are_those_of_the_map_alone(normalize):
    layer = SineGridPositionEncoding(normalize=normalize)
    shown = np.zeros((2, 4, 6), bool)
    shown[0, :3, :5] = shown[1, 1:, 2:] = True
    encoding = ops.convert_to_numpy(layer(np.zeros((2, 4, 6, 8), "float32"), shown))
    for example, (rows, columns) in enumerate([(3, 5), (3, 4)]):
        alone = ops.convert_to_numpy(layer(np.zeros((1, rows, columns, 8), "float32")))[0]
        np.testing.assert_allclose(encoding[example][shown[example]], alone.reshape(-1, 8), atol=1e-6)
    assert np.isfinite(layer(np.zeros((1, 2, 2, 8), "float32"), np.zeros((1, 2, 2), bool))).all()


def test_refusals():
    with pytest.raises(ValueError, match="multiple of four; it is 6"):
        SineGridPositionEncoding()(np.zeros((1, 2, 2, 6), "float32"))
