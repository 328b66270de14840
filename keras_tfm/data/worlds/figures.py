"""Coloured shapes and digits, drawn exactly: what the made worlds of pictures and of videos share."""

import numpy as np

COLOURS = {
    "red": (230, 50, 50), "green": (50, 200, 70), "blue": (70, 100, 255), "yellow": (240, 220, 60),
    "purple": (180, 70, 220), "white": (245, 245, 245),
}  # fmt: skip
# Digits of 5 x 7 pixels, a number of five bits for each row.
DIGITS = {
    "zero": (14, 17, 19, 21, 25, 17, 14), "one": (4, 12, 4, 4, 4, 4, 14), "two": (14, 17, 1, 2, 4, 8, 31),
    "three": (31, 2, 4, 2, 1, 17, 14), "four": (2, 6, 10, 18, 31, 2, 2), "five": (31, 16, 30, 1, 1, 17, 14),
    "six": (6, 8, 16, 30, 17, 17, 14), "seven": (31, 1, 2, 4, 8, 8, 8), "eight": (14, 17, 17, 14, 17, 17, 14),
    "nine": (14, 17, 17, 15, 1, 2, 12),
}  # fmt: skip
FIGURES = {  # of points (x, y) from -1 to 1, y downwards
    "square": lambda x, y: np.maximum(abs(x), abs(y)) <= 1,
    "disc": lambda x, y: x**2 + y**2 <= 1,
    "ring": lambda x, y: (x**2 + y**2 <= 1) & (x**2 + y**2 >= 0.3),
    "triangle": lambda x, y: (abs(x) <= (y + 1) / 2) & (y <= 1),
    "diamond": lambda x, y: abs(x) + abs(y) <= 1,
    "cross": lambda x, y: (np.minimum(abs(x), abs(y)) <= 0.35) & (np.maximum(abs(x), abs(y)) <= 1),
}
SHAPES = (*FIGURES, *DIGITS)


def drawn(shape: str, path: np.ndarray, side: int) -> np.ndarray:
    """Which pixels (T, `side`, `side`) an object of this shape covers: the pixels whose centres it contains.

    `path` (T, 3) holds the x and the y of the object's centre and its side, in pixels, in each frame.

    >>> from keras_tfm.data.worlds.figures import drawn
    >>> drawn("diamond", np.array([[2.5, 1.5, 3.0]]), side=4)[0].astype(int).tolist()
    [[0, 0, 1, 0], [0, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]]
    """
    centres = np.arange(side) + 0.5
    x, y, half = path[:, 0], path[:, 1], path[:, 2] / 2
    across = ((centres[None] - x[:, None]) / half[:, None])[:, None]  # (T, 1, side)
    down = ((centres[None] - y[:, None]) / half[:, None])[:, :, None]  # (T, side, 1)
    if shape in FIGURES:
        return FIGURES[shape](across, down) & np.ones((len(path), side, side), bool)
    bits = np.array([[row >> bit & 1 for bit in range(4, -1, -1)] for row in DIGITS[shape]], bool)
    row, column = np.floor((down + 1) / 2 * 7).astype(int), np.floor((across + 1) / 2 * 5).astype(int)
    is_inside = (row >= 0) & (row < 7) & (column >= 0) & (column < 5)
    return bits[np.clip(row, 0, 6), np.clip(column, 0, 4)] & is_inside
