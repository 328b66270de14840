"""Where the places that an attention layer joins lie on an image: which map of cells they are.

A layer that attends within a sequence does not know that the sequence was a map. The maps that occur in a
model are known, and so is the length of the sequence: it is one of these maps, or one that was made smaller
within the layer (Wang et al. 2021, "Pyramid Vision Transformer"), behind a few tokens of its own.
"""

import dataclasses

import keras

from keras_tfm.layers.patches import MOST_FIRST, grid_of_model

MOST_REDUCED = 16  # the factor by which a layer makes a map's sides smaller


@dataclasses.dataclass(frozen=True)
class Grid:
    """A map of `rows` x `columns` cells as a sequence, row by row, with `first` other tokens before them."""

    rows: int
    columns: int
    first: int = 0

    def __len__(self) -> int:
        return self.first + self.rows * self.columns

    def names(self) -> list[str]:
        """ "[class]", "[1]", ... for the first tokens, and "row,column" for each cell."""
        cells = [f"{row},{column}" for row in range(self.rows) for column in range(self.columns)]
        return ["[class]", *(f"[{place}]" for place in range(1, self.first))][: self.first] + cells


def maps_of(model: keras.Model) -> list[tuple[int, int]]:
    """The sizes (rows, columns) of the maps in a functional model of images, its patches' grid first.

    Tensors of four axes that have not the image's proportions are no maps.
    """
    height, width = model.input["images"].shape[1:3]
    config = getattr(model.config, "of_encoder", model.config)
    family = getattr(model.config, "encoder_class", type(model))
    grid = grid_of_model(family, config)
    grids = [] if grid is None else [grid]
    for operation in model.operations:
        shapes = (tensor.shape for tensor in keras.tree.flatten(operation.output))
        sizes = (shape[1:3] for shape in shapes if len(shape) == 4 and None not in shape[1:3])
        grids += [(rows, columns) for rows, columns in sizes if abs(rows - columns * height / width) <= 1]
    return list(dict.fromkeys(grids))


def grid_of(length: int, maps: list[tuple[int, int]]) -> Grid | None:
    """The grid of a sequence of `length`, which is one of the `maps` or a smaller one of its proportions.

    If several fit, it is the one with the fewest tokens before it. None where none fits.
    """
    reduced = [
        (-(-rows // factor), -(-columns // factor))
        for factor in range(2, MOST_REDUCED + 1)
        for rows, columns in maps
    ]
    for candidates, most_first in ((maps, MOST_FIRST), (reduced, 1)):
        fitting = [
            Grid(rows, columns, length - rows * columns)
            for rows, columns in candidates
            if 0 <= length - rows * columns <= most_first
        ]
        if fitting:
            return min(fitting, key=lambda grid: grid.first)
    return None
