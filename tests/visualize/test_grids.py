"""Where attention lies on an image: in every family the places belong to the maps that its layers read."""

import numpy as np
import pytest

from keras_tfm import models, tasks
from keras_tfm.visualize import look
from keras_tfm.visualize.grids import Grid, grid_of, maps_of

# {family: (grid of the queries, of the keys) of each layer of the tiny model; None where it is no map}
GRIDS = {
    "mit": [((16, 16, 0), (4, 4, 0)), ((8, 8, 0), (4, 4, 0)), *[((4, 4, 0),) * 2] * 2, ((2, 2, 0),) * 2],
    "cvt": [((8, 8, 0), (4, 4, 0)), ((4, 4, 0), (2, 2, 0)), *[((2, 2, 1), (1, 1, 1))] * 4],
    "pit": [((15, 15, 1),) * 2, *[((8, 8, 1),) * 2] * 2, ((4, 4, 1),) * 2],
    "xcit": [*[(None, None)] * 4, *[(None, (4, 4, 1))] * 2],  # channels, then the class token over patches
    "ceit": [((8, 8, 1),) * 2] * 6,  # behind a stem that makes the image smaller
    "dinov2": [((8, 8, 5),) * 2] * 6,
    "swin": [(None, None)] * 6,  # windows have cells
}


@pytest.mark.parametrize("name", GRIDS)
def test_the_grids_of_queries_and_keys(name):
    family = tasks.IMAGE_FAMILIES[name]
    task = tasks.ImageEncoder(family(models.tiny_config(family)))
    attention = look(task, np.zeros(task.image_shape, "uint8")).attention
    grids = [
        tuple(grid and (grid.rows, grid.columns, grid.first) for grid in (one.query_grid, one.key_grid))
        for one in attention
    ]
    assert grids[: len(GRIDS[name])] == GRIDS[name]
    for one in attention:
        sides = zip((one.query_tokens, one.key_tokens), (one.query_grid, one.key_grid), strict=True)
        assert [grid.names() if grid else tokens for tokens, grid in sides] == [
            one.query_tokens,
            one.key_tokens,
        ]


def test_a_sequence_is_the_map_with_the_fewest_tokens_before_it():
    assert grid_of(17, [(4, 4), (3, 3)]) == Grid(4, 4, 1)
    assert grid_of(16, [(8, 16), (3, 5)]) == Grid(3, 5, 1)  # a map itself, before one made smaller
    assert grid_of(32, [(8, 16)]) == Grid(4, 8)
    assert grid_of(31, [(8, 8)]) is None  # no map, by no factor
    assert len(Grid(2, 3, 1)) == 7 and Grid(1, 2, 1).names() == ["[class]", "0,0", "0,1"]


def test_what_has_other_proportions_is_no_map():
    region = models.RegionViT(models.tiny_config(models.RegionViT))
    assert (4, 17) not in maps_of(region) and (8, 8) in maps_of(region)  # windows of cells, and cells
