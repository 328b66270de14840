"""Made pictures whose details only a reference shows: patchworks of squares, and the same squares in another
order.

A square has cells of two by two pixels in two colours. Where a picture is four times smaller, a pixel is the
mean of four cells, which does not determine them.
"""

import numpy as np


def patchworks(count: int, seed: int = 0, squares: int = 4, side: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (N, H, W, 3), 8-bit, of `squares` x `squares` squares with so many pixels a `side`, and
    references (N, H, W, 3), in which the squares of each picture stand in another order. Squares differ
    between pictures, and all pictures between seeds.

    >>> from keras_tfm.data.worlds import patchworks

    >>> pictures, references = patchworks(2, squares=2)
    >>> pictures.shape, bool((np.sort(pictures.ravel()) == np.sort(references.ravel())).all())
    ((2, 32, 32, 3), True)
    """
    rng = np.random.default_rng(seed)
    shape = count, squares**2
    is_first = rng.integers(0, 2, (*shape, side // 2, side // 2, 1)) == 0
    colours = rng.integers(0, 256, (2, *shape, 1, 1, 3), "uint8")
    patches = np.where(is_first, *colours).repeat(2, axis=2).repeat(2, axis=3)  # (N, M, side, side, 3)
    moved = [np.roll(each, rng.integers(1, squares**2), axis=0) for each in patches]
    return tuple(_sewn(x, squares) for x in (patches, np.stack(moved)))  # type: ignore[return-value]


def _sewn(patches: np.ndarray, squares: int) -> np.ndarray:
    """Patches (N, M, side, side, 3) as pictures, row by row."""
    count, _, side, _, channels = patches.shape
    grid = patches.reshape(count, squares, squares, side, side, channels)
    return grid.transpose(0, 1, 3, 2, 4, 5).reshape(count, squares * side, squares * side, channels)
