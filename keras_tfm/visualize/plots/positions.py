"""Sinusoidal positions (Vaswani et al. 2017, section 3.5) in pictures: their table, their clocks, a shift."""

from typing import Any

import numpy as np

from keras_tfm.visualize.plots.canvas import COLOURS, INK, bare, colour_bar, heat_map, new_axes


def plot_positions(encoding: np.ndarray, axes: Any = None) -> Any:
    """The vectors (T, D) of positions as cells, a row for each position: of sines, or of learnt ones.

    >>> from keras_tfm.visualize import plots
    >>> encoding = keras_tfm.layers.SinePositionEncoding()(np.zeros((1, 10, 8)))[0]
    >>> axes = plots.plot_positions(encoding)
    >>> axes.get_images()[0].get_array().shape
    (10, 8)
    """
    encoding = np.asarray(encoding)
    axes = new_axes(axes, (7, 4))
    most = float(np.abs(encoding).max())
    image = heat_map(axes, encoding, "RdBu_r", vmin=-most, vmax=most)
    axes.set(xlabel="feature", ylabel="position")
    colour_bar(axes, image, "value")
    return axes


def plot_clocks(num_positions: int = 12, dim: int = 8, base: float = 10_000.0, axes: Any = None) -> Any:
    """The D/2 clocks of sinusoidal positions: the pair (sin, cos) of each frequency is a hand of length 1,
    which from one position to the next turns clockwise by the frequency; later positions are darker.

    Each pair has a plane of its own: the clocks stand side by side only here.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_clocks(num_positions=6, dim=4)
    >>> len(axes.texts)
    2
    """
    if dim % 2 or dim < 2:
        raise ValueError(f"`dim` must be even, a sine and a cosine for each frequency; it is {dim}.")
    frequencies = base ** (-np.arange(0, dim, 2) / dim)
    angles = frequencies[:, None] * np.arange(num_positions)  # (D/2, T)
    axes = new_axes(axes, (1.9 * len(frequencies) + 0.3, 2.5))
    circle = np.linspace(0, 2 * np.pi, 200)
    for number, hands in enumerate(angles):
        centre = 2.5 * number
        axes.plot(centre + np.cos(circle), np.sin(circle), color="#CCCCCC", lw=1)
        for position, angle in enumerate(hands):
            alpha = 0.2 + 0.8 * position / max(num_positions - 1, 1)
            x, y = centre + np.sin(angle), np.cos(angle)
            axes.plot([centre, x], [0, y], color=COLOURS[0], lw=1.2, alpha=alpha)
            axes.plot(x, y, "o", color=COLOURS[0], ms=3.5, alpha=alpha)
        axes.text(centre, -1.35, f"ω = {frequencies[number]:.2g}", ha="center", color=INK)
    axes.set(xticks=[], yticks=[], aspect="equal", ylim=(-1.6, 1.15))
    axes.set_title(f"hands of the positions 0 to {num_positions - 1}", color=INK, fontsize=10)
    return bare(axes)


def shift_matrix(shift: float, dim: int, base: float = 10_000.0) -> np.ndarray:
    """T (D, D) with p(t + shift) = T p(t) for sinusoidal positions p, whatever t: a rotation in each pair.

    >>> from keras_tfm.visualize import plots
    >>> plots.shift_matrix(np.pi / 2, dim=2).round(6).tolist()  # a quarter of a turn
    [[0.0, 1.0], [-1.0, 0.0]]
    """
    angles = shift * base ** (-np.arange(0, dim, 2) / dim)
    matrix = np.zeros((dim, dim))
    even, odd = np.arange(0, dim, 2), np.arange(1, dim, 2)
    matrix[even, even] = matrix[odd, odd] = np.cos(angles)
    matrix[even, odd], matrix[odd, even] = np.sin(angles), -np.sin(angles)
    return matrix


def plot_shift(shift: float = 3, dim: int = 16, base: float = 10_000.0, axes: Any = None) -> Any:
    """The linear map that moves sinusoidal positions by `shift`: blocks of 2 x 2 on the diagonal.

    >>> from keras_tfm.visualize import plots
    >>> axes = plots.plot_shift(shift=3, dim=8)
    >>> axes.get_title()
    'p(t + 3) = T p(t)'
    """
    axes = new_axes(axes, (5, 4.2))
    image = heat_map(axes, shift_matrix(shift, dim, base), "RdBu_r", vmin=-1, vmax=1)
    axes.set_aspect("equal")
    axes.set(
        title=f"p(t + {shift:g}) = T p(t)", xlabel="feature of p(t)", ylabel=f"feature of p(t + {shift:g})"
    )
    colour_bar(axes, image, "entry of T")
    return axes
